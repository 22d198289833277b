"""Decisions of the active controller: creation, growth, placement, liveness and reassignment; the replica of the
metadata.

May import: `hosting`, `metadata`, `authorization`, `quotas`, `server` itself.

- `metadata_replica`: this node's replica of the metadata group, with the controller while it leads.
- `controller`: decides on requests.
- `forwarded_requests`: authorization of requests that nodes forward from clients.
- `access_decisions`: decisions on ACLs, users, revocations and quotas.
- `decision`: the outcome of a request: an answer, or commands and then an answer.
- `broker_liveness`: decides which brokers are alive.
- `topic_decisions`: decisions on topics.
- `topic_plans`: checks before topics are created or grow, and placement of their replicas.
- `coordinator_creation`: the internal topic of a kind of coordinators.
- `reassignment_decisions`: decisions on requests to move partitions.
- `rebalance_decisions`: decisions on requests for balance: a plan, and its moves.
- `rebalancing`: such a plan: replicas, bytes and leaderships spread evenly with few moves.
- `auto_repair`: automatic moves where settings allow it: balance, and nodes that are down for long.
- `feature_levels`: features that wait until all nodes are upgraded.
- `node_decisions`: decisions on nodes that leave.
- `node_drain`: drains nodes that leave, a few moves at a time.
- `replacement_placement`: chooses the node that takes over a replica.
- `disk_replacement`: replaces lost disks, step by step.
- `quorum_decisions`: decisions on the voters of the metadata quorum.
- `replica_assignment`: load and limits of nodes, and explicit assignments in requests.
- `machines`: machines as failure domains: no two replicas of a partition share one.
- `placement`: spreads replicas and leaders over nodes, machines and racks.
- `witness_placement`: placement of the witnesses of partitions with an even number of replicas.
"""
