"""Consumer groups: the state machine of a coordinator and the decisions of its leader (KIP-848).

A consumer group may also be a classic one, whose members compute assignments themselves: decisions about those are in
`classic/`. Both kinds share the log, the drafts, and the rule of one decision at a time.

May import: `deciding`, `hosting`, `metadata`, `access`.

The modules, in the order in which a member's heartbeat passes them:

- `group_service`: receives requests of clients and events of the node. From here a heartbeat passes three
  objects until it is decided: `GroupService`, `LedCoordinators` of `deciding/`, `ShardLeader`.
- `group_shards`: starts the leaders of this node's coordinators, and has them review groups when topics or ACLs change.
- `request_checks`: refuses malformed requests, whatever the state of the consumer group.
- `parked_heartbeats`: a heartbeat that is not answered yet, and those that wait for changes.
- `shard_leader`: one term of one coordinator: heartbeats, timeouts and checks, decided with the calls in the
  `DecisionQueue` of `deciding/`.
- `member_timers`: sessions and rebalance timeouts.
- `periodic_checks`: checks without a request: topics that have changed, offsets that have expired.

Then a decision is made, without any I/O:

- `draft`: a view of the consumer groups in which requests make changes, until these become one command.
- `topic_catalog`: the existing topics.
- `heartbeat_decisions`: the effect of a heartbeat, and its answer.
- `heartbeat_omissions`: fields that a heartbeat omits because they have not changed.
- `member_changes`: a member joins, stays, leaves, or is removed.
- `group_edit`: one consumer group as the draft changes it.
- `group`: a consumer group, and the invariants of every group.
- `member`: one of its members.
- `target_assignment`: the target assignment.
- `subscriptions`: resolves names and patterns to topics.
- `assignors`: `uniform` and `range`.
- `reconciliation`: one step of a member from its current to its target assignment.
- `records`: the representation of all this in the log.

Then the command is replicated with Raft:

- `group_shard`: the replica, and the kind of coordinator that it is.
- `group_table`: the consumer groups as the log has made them, the same on every replica.

Not on the path of a heartbeat:

- `group_requests`: the kinds of requests; commits, and all other calls that are answered once.
- `committed_offsets`: decisions on commits.
- `group_transactions`: the consumer groups of this node as participants of transactions, which commit offsets.
- `enlisted_groups`: the transactions in which the groups of one leader take part.
- `administration`: decisions for administrators.
"""
