"""Topic names that no client can create.

Kafka reserves four names, not a prefix: other tools create topics of their own that start with ``__``, such as
``__debezium-heartbeat.shop`` of Debezium. Kafka's four are reserved here too, so that tools that look for them never
find a user's topic.
"""

from __future__ import annotations

#: The topic whose partitions are coordinators of consumer groups rather than logs.
GROUPS_TOPIC = "__groups"
#: The topic whose partitions are transaction coordinators.
TRANSACTIONS_TOPIC = "__transactions"
#: The topics whose partitions are coordinators: their logs hold no records.
COORDINATOR_TOPICS = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
#: The name under which Kafka's DescribeQuorum reports the metadata quorum.
METADATA_TOPIC = "__cluster_metadata"
#: The cluster's own topics, and the names that Kafka reserves.
RESERVED_NAMES = frozenset(
    {*COORDINATOR_TOPICS, METADATA_TOPIC, "__consumer_offsets", "__transaction_state", "__share_group_state"}
)


def is_internal(name: str) -> bool:
    """True if a topic belongs to the cluster itself: clients neither read, write, change nor delete it."""
    return name in RESERVED_NAMES


def is_reserved(name: str) -> bool:
    """True if no client may create a topic of this name.

    A name that differs from a reserved one only in '.' and '_' is reserved, too: topics whose names collide cannot
    coexist,
    so a topic ``_.groups`` would prevent the cluster from ever creating ``__groups``.
    """
    return collision_key(name) in RESERVED_NAMES


def collision_key(name: str) -> str:
    """Returns the form that colliding names share: metric names cannot distinguish '.' from '_'."""
    return name.replace(".", "_")
