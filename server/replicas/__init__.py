"""This node's replicas according to the metadata: registry, elections, reassignments, removal, in-sync replicas.

May import: `partition`, `groups`, `deciding`, `hosting`, `metadata`, `server` itself.

- `broker`: the communication with the controller: registration, heartbeats, reports, producer ids.
- `replicas`: the registry of the partition replicas on this node.
- `replica_factory`: creates replicas from their durable state.
- `replica_tombstones`: records of replicas that were moved away.
- `damaged_replicas`: replicas that were found damaged beyond repair when the node started.
- `retired_directories`: data directories that were given up as lost, whose messages this node ignores.
- `replica_removal`: removes replicas that were deleted or moved away.
- `leader_reports`: reports of led partitions to the controller: leaderships, in-sync sets.
- `log_sizes`: sizes of the led logs, and the bytes that the replicas being added still lack.
- `leader_elections`: transfers leaderships to preferred leaders.
- `leader_balance`: decides which leaderships are transferred, and when.
- `sole_copy_check`: reads a replica that will be the only copy, before the others are removed.
- `reassignments`: moves led partitions to other nodes, step by step.
"""
