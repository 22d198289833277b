"""The simulated world: virtual time, network, disks, processes, clients, and the invariants checked in every step.

May import: `checkers`, `models`.

The world:

- ``scheduler``: virtual time, and the hash of all that happened.
- ``network``: connections between nodes that live, stall and break.
- ``disk``: what is written and what is synced; ``durable_raft_group``: one Raft group on it.
- ``process``: one node process, which steps the shipped node.
- ``cluster``: all of it together.

What must hold:

- ``invariants``: after every step of any node.
- ``durability_claims``: what a node says of its own disk is on its disk.
- ``convergence``: once a cluster has healed.

Clients of partitions and of the cluster:

- ``clients``: where they find leaders, and the producer.
- ``readers``: consumers, and probes of end offsets.
- ``operators``: clients that delete records and names, move partitions, look up times, and replace disks.
- ``damage_mover``: one who moves partitions away from damaged replicas.
- ``replica_sets``: what is left of a Raft group without one of its replicas.
- ``metadata_probe``: changes topics at one node and asks another, linearizably, what there is.

Consumer groups:

- ``groups``: one consumer group, whose members come, go, die and stand still.
- ``classic_groups``: one classic group, likewise; ``classic_members``: one of its members.
- ``group_members``: one member; ``partition_work``: its work on one partition; ``kafka_membership``: as a client of
  Kafka's makes it one.
- ``member_link``: how a member reaches nodes, and finds its coordinator.
- ``group_probe``: asks, linearizably, how a group stands.
"""
