"""Classic consumer groups: Kafka's JoinGroup protocol, in which one of the members computes the assignment.

Pure: no clock, no I/O. Waiting calls and deadlines are in the leader's memory; decisions are in the coordinator's log.

May import: `authorization`; of `groups` nothing but this folder.

The modules, in the order in which a join passes them:

- `calls`: a call of a member that is not answered yet.
- `request_forms`: refuses malformed requests, whatever the state of a group.
- `decisions`: the effect of a call; rounds that end, sessions that expire.
- `joining`: checks of a joining member against the others; `answers`: responses to members.
- `rounds`: state of the leader alone: joins and syncs that wait, assigned ids, deadlines.
- `deadlines`: many of them, in one heap.
- `protocol_choice`: the protocols that all members support.
- `classic_group`: a group as the log has made it, and the invariants of every group.
- `classic_records`: its representation in the log.
- `subscription_metadata`: the topics in the metadata of a consumer.
"""
