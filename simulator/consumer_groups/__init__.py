"""Consumer groups in virtual time: members by the SDK's protocol and by Kafka's, in the simulated world.

May import: `checkers`, `models`, `simulator`.

- ``groups``: one consumer group, whose members come, go, die and stand still.
- ``classic_groups``: one classic group, likewise; ``classic_members``: one of its members.
- ``group_members``: one member; ``kafka_membership``: what makes it one of Kafka's clients; ``partition_work``: its
  work on one partition.
- ``member_link``: how a member reaches nodes, and finds its coordinator.
- ``group_probe``: asks, linearizably, how a group stands.
"""
