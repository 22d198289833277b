"""What the active controller decides: creation, growth, placement, liveness and moves; the replica of the metadata.

May import: `hosting`, `metadata`, `authorization`, `quotas`, `server` itself.

- `metadata_replica`: this node's replica of the metadata group, with the controller while it leads.
- `controller`: decides on requests.
- `forwarded_requests`: permission for what nodes pass on from clients.
- `access_decisions`: decisions on ACLs, users, revocations and quotas.
- `decision`: what becomes of a request: an answer, or commands and then an answer.
- `broker_liveness`: which brokers count as present.
- `topic_decisions`: decisions on topics.
- `topic_plans`: checks before topics are created or grow, and where their replicas go.
- `coordinator_creation`: the internal topic of the coordinators of consumer groups.
- `reassignment_decisions`: decisions on wishes to move partitions.
- `rebalance_decisions`: decisions on requests for balance: a plan, and its moves.
- `rebalancing`: such a plan: replicas, bytes and leaderships spread evenly with few moves.
- `auto_repair`: moves that the controller makes unasked where settings allow it: balance, and nodes gone for long.
- `feature_levels`: what waits until all nodes are upgraded.
- `node_decisions`: decisions on nodes that leave.
- `node_drain`: empties nodes that leave, a few moves at a time.
- `replacement_placement`: which node takes over a replica.
- `disk_replacement`: replaces lost disks, step by step.
- `quorum_decisions`: decisions on who votes in the metadata quorum.
- `replica_assignment`: what nodes carry, what they may carry, and what a request assigns.
- `placement`: spreads replicas and leaders over nodes and racks.
- `witness_placement`: where the witnesses of partitions with an even number of replicas go.
"""
