"""Consumer groups: the state machine of a coordinator and what its leader decides (KIP-848).

A consumer group may also be a classic one, whose members assign by themselves: what is decided of those stands in
`classic/`. It is the same log, the same drafts and one decision at a time for both.

May import: `hosting`, `metadata`, `authorization`.

The modules, in the order in which a heartbeat of a member opens them:

- `dependencies`: what the coordinators are given by their node.
- `group_service`: takes the requests of clients, and what happens in the node. From here a heartbeat passes three
  objects until it is decided: `GroupService`, `GroupShards`, `ShardLeader`.
- `group_shards`: the coordinators that this node leads; finds the one that keeps a consumer group.
- `request_checks`: what is refused for its form, whatever state a consumer group is in.
- `finder`: which partition of `__groups` that is; also answers FindCoordinators, which a member asks before all else.
- `stall_aware_clock`: the clock of sessions, which stops while the node itself stands still.
- `parked_heartbeats`: a heartbeat that is not answered yet, and those that wait for news.
- `pending_answers`: answers due to clients: each given once, by its time.
- `shard_leader`: one term of one coordinator: what waits, one decision at a time, the answers.
- `member_timers`: sessions and rebalance timeouts.
- `periodic_checks`: what a coordinator looks at by itself: topics that have changed, offsets that have expired.

Then a decision is made, without any I/O:

- `draft`: a view of the consumer groups in which requests make changes, until these become one command.
- `topic_catalog`: the topics that there are.
- `heartbeat_decisions`: what a heartbeat does, and what is answered.
- `heartbeat_omissions`: what a heartbeat leaves out because it is as it was.
- `member_changes`: a member joins, stays, leaves, or is removed.
- `group_edit`: one consumer group as the draft changes it.
- `group`: a consumer group, and what must hold of every one.
- `member`: one of its members.
- `target_assignment`: who is to read what.
- `subscriptions`: the topics behind names and patterns.
- `assignors`: `uniform` and `range`.
- `reconciliation`: one step of a member from what it has to what it is to have.
- `records`: how all this stands in the log.

Then the command goes through Raft:

- `group_shard`: the replica: proposes, applies, keeps snapshots.
- `group_table`: the consumer groups as the log has made them, the same on every replica.

Beside the way of a heartbeat:

- `group_requests`: the kinds of requests; commits, and all other calls that are answered once.
- `committed_offsets`: decisions on commits.
- `administration`: decisions for administrators.
"""
