"""The node: Raft groups, metadata, partitions and consumer groups in one process.

In the room itself: what all rooms share (options, settings, events, errors on the wire, time limits, metrics, logging,
listening). It imports none of the rooms below it. `tests/test_imports.py` says which room may import which.
"""

import os

# See quorumlog.sdk: has to be said before gRPC is first imported, which may be here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
