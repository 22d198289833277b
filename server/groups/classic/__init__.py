"""Classic consumer groups: Kafka's JoinGroup protocol, in which one of the members assigns.

Pure: no clock, no I/O. What waits and what is due is the leader's memory; what was decided is in the coordinator's log.

May import: `authorization`; of `groups` nothing but this folder.

The modules, in the order in which a join opens them:

- `calls`: a call of a member that is not answered yet.
- `request_forms`: what is refused for its form, whatever state a group is in.
- `decisions`: what a call does; rounds that end, members that are silent.
- `joining`: who joins, and whether it fits among the others; `answers`: what members are told.
- `rounds`: what only the leader of the log knows: joins and syncs that wait, ids that were given, what is due when.
- `deadlines`: many of them, in one heap.
- `protocol_choice`: what all members can take part in.
- `classic_group`: a group as the log has made it, and what must hold of every one.
- `classic_records`: how it stands in the log.
- `subscription_metadata`: the topics that a consumer names in what it says of itself.
"""
