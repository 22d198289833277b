"""What goes into a node's step, what comes out, and what all of its services share.

- `events`: what goes into `Node.step`, and the effects that come out.
- `node_service`: the contract between a node and its services.
- `replies`: answers to clients; `pending_calls`: calls that wait for one.
- `deadlines`: deadlines of a node's parts, and how long a request may wait.
- `request_context`: where a request comes from, and for which principal.
- `bearer_tokens`: what must be true of a bearer token, and what a valid one proves.
- `wire_errors`: builds the errors in responses.

May import: no other room.
"""
