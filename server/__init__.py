"""The node: Raft groups, metadata, partitions and consumer groups in one process.

Each folder's docstring describes its modules; docs/internals/architecture.md describes how they work together.
`tests/test_imports.py` says which folder may import which.

- `local`: the former name of `quorumlog.local`.

May import: `quorumlog.v1`, `wire`, `raft`, `storage`.
"""

import os

# See quorumlog.sdk: has to be said before gRPC is first imported, which may be here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
