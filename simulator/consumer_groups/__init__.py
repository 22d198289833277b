"""Consumer groups in virtual time: members with the SDK's protocol and Kafka's, in the simulated world.

May import: `checkers`, `models`, `simulator`.

- ``groups``: one consumer group, whose members join, leave, crash and stall.
- ``classic_groups``: one classic group, likewise; ``classic_members``: one of its members.
- ``group_members``: one member; ``kafka_membership``: the membership of a Kafka client; ``partition_work``: its work on
  one partition.
- ``member_link``: a member's connections to nodes, and its search for the coordinator.
- ``group_probe``: describes a group, linearizably.
"""
