"""Topics like those of the source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, InvalidConfigError, PolicyViolationError
from quorumlog.sdk.mirror.copy_intents import TOPIC as PLANS
from quorumlog.sdk.mirror.source import SourceTopic
from quorumlog.sdk.types import NewPartitions, NewTopic, TopicPartition

#: Settings that mean here what they mean there.
_SAME = (
    "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms", "min.cleanable.dirty.ratio",
    "message.timestamp.type",
)  # fmt: skip
#: A batch here has more around its records, and may be no larger than this.
_MORE_BYTES, _MOST_BYTES = 64 << 10, 8 << 20
_KAFKA_DEFAULT_BYTES = 1_048_588


def chosen(topics: Sequence[SourceTopic], names: Collection[str] | None) -> list[SourceTopic]:
    """Those of the source's topics that are asked for.

    Raises:
        IllegalArgumentError: one is not there.
    """
    if names is None:
        return [topic for topic in topics if topic.name != PLANS]
    if absent := sorted(set(names) - {topic.name for topic in topics}):
        raise IllegalArgumentError(f"the source has no topic {absent[0]}")
    return [topic for topic in topics if topic.name in names]


def make_topics(
    admin: Admin, topics: Sequence[SourceTopic], planned: Collection[str], ends: Callable[[str, int], int]
) -> None:
    """Makes the topics that are not there yet, with as many partitions and the settings that are known here.

    Arguments:
        planned: topics of which something has been copied.
        ends: the records in a partition of a topic here, ever.

    Raises:
        IllegalStateError: a topic has records that were not copied, or more partitions than the source has.
    """
    there = set(admin.list_topics())
    for topic in topics:
        if topic.name not in there:
            _create(admin, topic)
            continue
        (described,) = admin.describe_topics([topic.name])
        count = len(described.partitions)
        if topic.name not in planned and any(ends(topic.name, number) for number in range(count)):
            raise IllegalStateError(
                f"topic {topic.name} is here already, with records: mirror into a cluster without it, or leave it out"
            )
        if count > topic.partitions:
            raise IllegalStateError(
                f"topic {topic.name} has {count} partitions here and {topic.partitions} there: keys would go elsewhere"
            )
        if count < topic.partitions:
            admin.create_partitions({topic.name: NewPartitions(topic.partitions)})


def _create(admin: Admin, topic: SourceTopic) -> None:
    new = NewTopic(topic.name, topic.partitions, topic_configs=settings_here(topic.configs))
    try:
        admin.create_topics([new])
    except (InvalidConfigError, PolicyViolationError) as refused:
        raise IllegalStateError(f"topic {topic.name} cannot be made as it is there: {refused.message}") from None


def settings_here(configs: Mapping[str, str]) -> dict[str, str]:
    """A Kafka topic's settings, as far as they are known here."""
    same = {name: configs[name] for name in _SAME if name in configs}
    if "," in same.get("cleanup.policy", ""):
        same["cleanup.policy"] = "compact"  # Both at once is not offered: what is kept too long harms nobody.
    largest = int(configs.get("max.message.bytes", _KAFKA_DEFAULT_BYTES))
    return {**same, "max.message.bytes": str(min(largest + _MORE_BYTES, _MOST_BYTES))}


def partitions_of(topics: Sequence[SourceTopic]) -> list[TopicPartition]:
    """All partitions of topics."""
    return [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
