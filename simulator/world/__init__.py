"""The simulated world: virtual time, network, disks, processes, clients, and the invariants checked in every step.

May import: `checkers`, `models`.

The world:

- ``scheduler``: virtual time, and the hash of all events.
- ``network``: connections between nodes that exist, stall and break.
- ``disk``: written and synced data; ``durable_raft_group``: one Raft group on it.
- ``process``: one node process, which steps the shipped node.
- ``cluster``: all of it together.

Required properties:

- ``invariants``: after every step of any node, and for claims about its own disk.
- ``convergence``: once a cluster has healed.

Clients of partitions and of the cluster:

- ``clients``: their search for leaders, and the producer.
- ``readers``: consumers, and probes of end offsets.
- ``kafka_readers``: consumers of Kafka's protocol that fetch in sessions; ``kafka_link``: their connections to nodes.
- ``transactions``: transactional producers with their coordinator, and readers of each isolation level.
- ``transactional_clients``: transactional clients that use coordinators and leaders by requests alone;
  ``consumed_offsets``: what they consume and commit; ``old_connections``: those of clients that keep their epoch;
  ``commit_holds``: backups that have their commits held.
- ``operators``: clients that delete records and names, move partitions, look up times, and replace disks.
- ``restricted_clients``: clients with few ACLs, and the administrator who changes these; ``rights_judge``: judges the
  answers that nodes give them.
- ``limited_clients``: the administrator who changes quotas and is limited by them; ``quota_judge``: judges how nodes
  throttle clients with quotas.
- ``settings_changer``: an operator who changes settings of nodes; ``settings_judge``: what nodes do with them.
- ``damage_mover``: an operator who moves partitions away from damaged replicas.
- ``replica_sets``: the rest of a Raft group without one of its replicas.
- ``metadata_probe``: changes topics at one node and reads the metadata at another, linearizably.
"""
