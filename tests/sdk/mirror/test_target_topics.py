"""A topic is made here as far as its settings are known here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError
from quorumlog.sdk.mirror.source import KafkaSource, SourceTopic
from quorumlog.sdk.mirror.target_topics import chosen, make_topics, settings_here
from quorumlog.sdk.types import NewPartitions, NewTopic


def test_settings_that_mean_the_same_are_taken_and_others_left() -> None:
    there = {"retention.ms": "60000", "segment.bytes": "1048576", "cleanup.policy": "compact,delete"}
    here = settings_here(there)
    assert here == {"retention.ms": "60000", "cleanup.policy": "compact", "max.message.bytes": "1114124"}


def test_the_largest_batch_has_room_for_what_is_around_it_and_a_limit() -> None:
    assert settings_here({"max.message.bytes": "2000000"})["max.message.bytes"] == "2065536"
    assert settings_here({"max.message.bytes": "99000000"})["max.message.bytes"] == "8388608"


def test_a_topic_that_is_not_there_is_named() -> None:
    topics = [SourceTopic("orders", 1, {}), SourceTopic("mirror-plans", 1, {})]
    assert [topic.name for topic in chosen(topics, None)] == ["orders"]
    with pytest.raises(IllegalArgumentError, match="no topic clicks"):
        chosen(topics, ["orders", "clicks"])


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "kafka://", "http://127.0.0.1"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"kafka://127\.0\.0\.1:9092"):
        KafkaSource(address)


class Target:
    """The topics of the target, by their count of partitions."""

    def __init__(self, **topics: int) -> None:
        self.partitions = topics
        self.added: dict[str, int] = {}
        self.created: list[NewTopic] = []

    def list_topics(self) -> list[str]:
        return sorted(self.partitions)

    def describe_topics(self, names: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(partitions=range(self.partitions[name])) for name in names]

    def create_partitions(self, wanted: dict[str, NewPartitions]) -> None:
        self.added = {name: new.total_count for name, new in wanted.items()}

    def create_topics(self, topics: list[NewTopic]) -> None:
        self.created += topics


def made(target: Target, partitions: int, planned: tuple[str, ...] = ("t",), records: tuple[int, ...] = ()) -> Target:
    make_topics(target, [SourceTopic("t", partitions, {})], planned, lambda name, number: number in records)  # type: ignore[arg-type]
    return target


def test_topics_grow_with_their_source() -> None:
    assert made(Target(t=2), 5).added == {"t": 5}
    assert made(Target(t=5), 5).added == {}
    (created,) = made(Target(), 5).created
    assert (created.name, created.num_partitions) == ("t", 5)


def test_topics_with_more_partitions_are_refused() -> None:
    """Keys would go elsewhere."""
    with pytest.raises(IllegalStateError, match="has 6 partitions here and 5 there"):
        made(Target(t=6), 5)


@pytest.mark.parametrize("number", [0, 3])
def test_topics_with_other_records_are_refused(number: int) -> None:
    """In any of their partitions; a topic that has been mirrored has records, of course."""
    with pytest.raises(IllegalStateError, match="is here already, with records"):
        made(Target(t=4), 4, planned=(), records=(number,))
    made(Target(t=4), 4, planned=(), records=())
    made(Target(t=4), 4, planned=("t",), records=(number,))
