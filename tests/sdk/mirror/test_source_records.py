"""A source's records and topics in a mirror: times, the source's own topics, and batches that never come."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.mirror.commands import _timestamp_ms
from quorumlog.sdk.mirror.mirror import STALLED_S, Mirror
from quorumlog.sdk.mirror.source import KafkaSource, SourceRecord, Taken, _record
from quorumlog.sdk.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
LATEST_MS = 1_700_000_000_000


def message(kind: int, at_ms: int) -> Any:
    """A message as librdkafka hands it over: the kind of its timestamp (0 for none), and the timestamp."""
    return SimpleNamespace(
        topic=lambda: "orders",
        partition=lambda: 0,
        offset=lambda: 7,
        key=lambda: b"k",
        value=lambda: b"v",
        headers=lambda: None,
        timestamp=lambda: (kind, at_ms),
    )


@pytest.mark.parametrize(
    ("kind", "at_ms", "expected"),
    [
        (0, -1, LATEST_MS),  # No timestamp.
        (0, 5, LATEST_MS),
        (1, -1, LATEST_MS),  # As clients before version 1 of the batch format left it.
        (1, 0, 0),  # The first millisecond of 1970 is a time.
        (1, LATEST_MS - 5, LATEST_MS - 5),
        (1, LATEST_MS + 5, LATEST_MS),
        (2, LATEST_MS - 9, LATEST_MS - 9),  # The time at which the source appended it.
    ],
)
def test_a_record_without_time_gets_the_copys(kind: int, at_ms: int, expected: int) -> None:
    """Not 1970: retention would delete it at once."""
    assert _timestamp_ms(_record(message(kind, at_ms)), LATEST_MS) == expected


def source_with(*topics: str) -> KafkaSource:
    """A source whose cluster has these topics."""

    def done(result: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(result)
        return future

    source = KafkaSource("kafka://127.0.0.1:1")
    source._admin = SimpleNamespace(
        list_topics=lambda timeout: SimpleNamespace(
            topics={name: SimpleNamespace(topic=name, partitions={0: None}) for name in topics}
        ),
        describe_configs=lambda resources, request_timeout: {each: done({}) for each in resources},
    )
    return source


def test_only_the_clusters_own_topics_are_omitted(caplog: pytest.LogCaptureFixture) -> None:
    with source_with("orders", "__mine", "__consumer_offsets", "__groups") as source:
        assert [topic.name for topic in source.topics()] == ["__mine", "orders"]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.endswith("the source cluster's own topics: __consumer_offsets, __groups")


def test_no_topic_omitted_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with source_with("orders") as source:
        assert [topic.name for topic in source.topics()] == ["orders"]
    assert caplog.records == []


class StalledSource:
    """Returns one record of a partition, and nothing of what follows."""

    def __init__(self) -> None:
        self.records = [SourceRecord(ORDERS, 0, 5, None, b"v", ())]

    def start(self, partition: TopicPartition) -> int:
        return 0

    def assign(self, positions: object) -> None:
        pass

    def take(self, most: int, timeout_s: float) -> Taken:
        records, self.records = self.records, []
        return Taken(records, {}, ())


def test_a_source_that_stalls_ends_the_mirror() -> None:
    now_s = [0.0]

    def clock() -> float:
        now_s[0] += 0.2
        return now_s[0]

    plans: Any = SimpleNamespace(load=dict, write=lambda plans: None)
    source: Any = StalledSource()
    copier = Mirror(source, plans, lambda lap, records, latest_ms: {ORDERS: 0}, [ORDERS], clock=clock)
    copier.resume({})
    assert copier.lap() == 1
    begun_s = now_s[0]
    while now_s[0] < begun_s + STALLED_S - 5:
        assert copier.lap() == 0
    now_s[0] += 10
    with pytest.raises(IllegalStateError, match="nothing of orders-0 from offset 1 on"):
        copier.lap()
    assert now_s[0] >= begun_s + STALLED_S
