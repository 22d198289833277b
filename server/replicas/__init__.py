"""This node's replicas as the metadata want them: registry, elections, moves, endings, in-sync replicas.

May import: `partition`, `groups`, `hosting`, `metadata`, `server` itself.

- `broker`: the conversation with the controller: registration, heartbeats, reports, producer ids.
- `replicas`: the registry of the partition replicas on this node.
- `replica_factory`: makes replicas from what is durable of them.
- `replica_tombstones`: what is remembered of replicas that were moved away.
- `damaged_replicas`: replicas that were found damaged beyond repair when the node started.
- `retired_directories`: data directories that were given up as lost, to which this node no longer listens.
- `replica_removal`: ends replicas that were deleted or moved away.
- `leader_reports`: what is told the controller of led partitions: leaderships, in-sync sets.
- `log_sizes`: sizes of the led logs, and how much the replicas being added still lack.
- `leader_elections`: hands leaderships over to preferred leaders.
- `leader_balance`: which leaderships are handed over, and when.
- `sole_copy_check`: reads a replica that is to be the only copy, before the others are given up.
- `reassignments`: moves led partitions to other nodes, step by step.
"""
