"""The simulated world: virtual time, network, disks, processes, clients, and the invariants checked in every step.

May import: `checkers`, `models`.

The world:

- ``scheduler``: virtual time, and the hash of all that happened.
- ``network``: connections between nodes that live, stall and break.
- ``disk``: what is written and what is synced; ``durable_raft_group``: one Raft group on it.
- ``process``: one node process, which steps the shipped node.
- ``cluster``: all of it together.

What must hold:

- ``invariants``: after every step of any node, and what it claims of its own disk.
- ``convergence``: once a cluster has healed.

Clients of partitions and of the cluster:

- ``clients``: where they find leaders, and the producer.
- ``readers``: consumers, and probes of end offsets.
- ``kafka_readers``: consumers of Kafka's protocol that fetch in sessions; ``kafka_link``: their connections to nodes.
- ``operators``: clients that delete records and names, move partitions, look up times, and replace disks.
- ``restricted_clients``: clients with few rights, and the administrator who changes these; ``rights_judge``: judges
  what nodes serve to them.
- ``limited_clients``: the administrator who changes quotas and is limited by them; ``quota_judge``: judges what nodes
  do for clients with quotas.
- ``damage_mover``: one who moves partitions away from damaged replicas.
- ``replica_sets``: what is left of a Raft group without one of its replicas.
- ``metadata_probe``: changes topics at one node and asks another, linearizably, what there is.
"""
