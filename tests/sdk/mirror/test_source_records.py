"""A source's records and topics in a mirror: times, the source's own topics, and batches that never come."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from quorumlog.sdk.errors import IllegalStateError, NetworkError
from quorumlog.sdk.mirror.commands import _timestamp_ms
from quorumlog.sdk.mirror.mirror import STALLED_S, LapOptions, Mirror
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
        self.positions: dict[TopicPartition, int] = {}

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, 9

    def known_end(self, partition: TopicPartition) -> int:
        return 9

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self.positions = positions

    def take(self, most: int, timeout_s: float) -> Taken:
        records, self.records = self.records, []
        return Taken(records, {}, ())


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.2
        return self.now_s


def stalled(skip_to: dict[TopicPartition, int]) -> tuple[Mirror, StalledSource, Clock]:
    plans: Any = SimpleNamespace(write=lambda plans: None)
    source, clock = StalledSource(), Clock()
    anything: Any = source
    copier = Mirror(
        anything,
        plans,
        lambda lap, records, latest_ms: {records[0].partition: [records[0].offset]},
        LapOptions(skip_to=skip_to),
        clock=clock,
    )
    copier.resume([ORDERS])
    assert copier.lap() == 1
    return copier, source, clock


def test_a_source_that_stalls_ends_the_mirror() -> None:
    """The line names the partition, the offset and the option with which the mirror continues."""
    copier, _, clock = stalled({})
    begun_s = clock.now_s
    while clock.now_s < begun_s + STALLED_S - 5:
        assert copier.lap() == 0
    clock.now_s += 10
    with pytest.raises(IllegalStateError, match=r"orders, partition 0: the batch at offset 1 .*--skip-to orders-0:OFF"):
        copier.lap()
    assert clock.now_s >= begun_s + STALLED_S


def test_open_transactions_do_not_stall_the_mirror() -> None:
    """The library reports the high watermark, and returns nothing behind the last stable offset."""
    copier, source, clock = stalled({})
    source.bounds = lambda partition: (0, 1)  # type: ignore[method-assign]
    for _ in range(3):
        clock.now_s += STALLED_S + 10
        assert copier.lap() == 0
    source.bounds = lambda partition: (0, 9)  # type: ignore[method-assign]
    assert copier.lap() == 0
    clock.now_s += STALLED_S + 10
    with pytest.raises(IllegalStateError, match="the batch at offset 1"):
        copier.lap()


def test_a_stalled_batch_is_skipped_on_request(caplog: pytest.LogCaptureFixture) -> None:
    copier, source, clock = stalled({ORDERS: 4})
    assert copier.lap() == 0
    clock.now_s += STALLED_S + 10
    assert copier.lap() == 0
    assert source.positions == {ORDERS: 4}
    assert "skipped offsets 1 to 3 of orders-0" in caplog.text


def test_reported_batches_are_named_or_skipped() -> None:
    """A batch that the library reports is not waited for; the option does not apply before its offset is reached."""
    for skip_to, expected in (({}, None), ({ORDERS: 1}, None), ({ORDERS: 4}, 4)):
        copier, source, _ = stalled(skip_to)
        reports = [Taken([], {}, (), {ORDERS: (1, "CRC")})]
        source.take = lambda most, timeout_s: reports.pop() if reports else Taken([], {}, ())  # type: ignore[method-assign] # noqa: B023
        if expected is None:
            with pytest.raises(IllegalStateError, match=r"offset 1 of the source cannot be read \(CRC\)"):
                copier.lap()
        else:
            copier.lap()
            assert source.positions == {ORDERS: expected}


def test_partitions_without_a_leader_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their next batch may be readable: no option to skip it is offered."""
    copier, source, clock = stalled({})

    def bounds(partition: TopicPartition) -> tuple[int, int]:
        raise NetworkError("no leader")

    monkeypatch.setattr(source, "bounds", bounds)
    for _ in range(3):
        clock.now_s += STALLED_S + 10
        assert copier.lap() == 0


def test_busy_neighbours_do_not_make_a_partition_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that waits behind those of others has not stalled."""
    monkeypatch.setattr("quorumlog.sdk.mirror.mirror.LAP_RECORDS", 1)
    copier, source, clock = stalled({})
    other = TopicPartition("clicks", 0)
    copier.add([other])
    for offset in range(5):
        source.records = [SourceRecord(other, offset, 5, None, b"v", ())]
        clock.now_s += STALLED_S + 10
        assert copier.lap() == 1
