"""The node: Raft groups, metadata, partitions and consumer groups in one process.

The folder itself has what all rooms share, and imports none of them. `tests/test_imports.py` says which room may import
which.

The step and its services:

- `events`: what goes into `Node.step`, and the effects that come out.
- `node_service`: the contract between a node and its services.
- `replies`: answers to clients; `pending_calls`: calls that wait for one.
- `deadlines`: deadlines of a node's parts, and how long a request may wait.
- `request_context`: where a request comes from, and for which principal.
- `wire_errors`: builds the errors in responses.

Configuration:

- `settings`: a node's settings: flags over environment over file over defaults.
- `setting_values`: their values as typed; `plain_numbers`: numbers in text.
- `options`: what a node gets when it is made; `consumer_group_limits`: the part about consumer groups.
- `bearer_tokens`: what must be true of a bearer token, and what a valid one proves.
- `listening`: checks addresses before anything starts.

Observability:

- `metrics`: what a process counts; `principal_totals`: counts by principal, with a bound.
- `metric_catalogue`: every metric with its name, labels and meaning.
- `logging_setup`: structured logs on stderr.

May import: `quorumlog.v1`, `raft`, `storage`.
"""

import os

# See quorumlog.sdk: has to be said before gRPC is first imported, which may be here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
