"""Creates topics like those of the source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, InvalidConfigError, PolicyViolationError
from quorumlog.sdk.mirror.copy_intents import TOPIC as PLANS
from quorumlog.sdk.mirror.source import SourceTopic
from quorumlog.sdk.types import NewPartitions, NewTopic, TopicPartition

#: Settings with the same meaning here.
_SAME = (
    "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms", "min.cleanable.dirty.ratio",
    "message.timestamp.type",
)  # fmt: skip
#: A batch here has more overhead around its records, and may be no larger than the second value.
_MORE_BYTES, _MOST_BYTES = 64 << 10, 8 << 20
_KAFKA_DEFAULT_BYTES = 1_048_588


def chosen(topics: Sequence[SourceTopic], names: Collection[str] | None) -> list[SourceTopic]:
    """Returns the topics of the source to copy.

    Raises:
        IllegalArgumentError: one does not exist.
    """
    if names is None:
        return [topic for topic in topics if topic.name != PLANS]
    if absent := sorted(set(names) - {topic.name for topic in topics}):
        raise IllegalArgumentError(f"the source has no topic {absent[0]}")
    return [topic for topic in topics if topic.name in names]


def make_topics(
    admin: Admin, topics: Sequence[SourceTopic], planned: Collection[str], ends: Callable[[str, int], int]
) -> None:
    """Creates missing topics, with the same number of partitions and the settings that are supported here.

    Arguments:
        planned: topics of which something has been copied.
        ends: number of records ever written to a partition of a topic here.

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
    """Returns the settings of a Kafka topic that are supported here."""
    same = {name: configs[name] for name in _SAME if name in configs}
    if "," in same.get("cleanup.policy", ""):
        same["cleanup.policy"] = "compact"  # Both at once is not supported: keeping records too long is harmless.
    largest = int(configs.get("max.message.bytes", _KAFKA_DEFAULT_BYTES))
    return {**same, "max.message.bytes": str(min(largest + _MORE_BYTES, _MOST_BYTES))}


def partitions_of(topics: Sequence[SourceTopic]) -> list[TopicPartition]:
    """Returns all partitions of topics."""
    return [TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)]
