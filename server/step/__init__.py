"""Events and effects of a node's step, and what all of its services share.

- `events`: the events that go into `Node.step`, and the effects that come out.
- `node_service`: the contract between a node and its services.
- `replies`: replies to clients; `pending_calls`: calls that wait for a reply.
- `deadlines`: deadlines of a node's parts, and how long a request may wait.
- `request_context`: the source and the principal of a request.
- `dynamic_values`: the settings that can be changed at run time, for the process.
- `bearer_tokens`: the requirements on a bearer token, and what a valid one proves.
- `newest_decisions`: decisions on transactions that a leader has received.
- `wire_errors`: builds the errors in responses.

May import: no other package.
"""
