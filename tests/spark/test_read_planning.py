"""Planning: which topics, partitions and offsets a read becomes."""

from collections.abc import Mapping, Sequence

import pytest

from quorumlog.sdk.spark.errors import DataLossError, OptionError, SparkSourceError
from quorumlog.sdk.spark.options import parse_batch_options
from quorumlog.sdk.spark.planning import Bounds, OffsetRange, Partition, TopicShape, plan, select
from quorumlog.sdk.spark.tasks import gather, split, tasks_of


class FixedCatalog:
    """Topics a (two partitions: [0, 10) and [5, 25)), b (one, [0, 4)) and empty (one, [3, 3)).

    The record at an offset bears ten times that as its timestamp."""

    BOUNDS: Mapping[Partition, Bounds] = {
        ("a", 0): Bounds(0, 10),
        ("a", 1): Bounds(5, 25),
        ("b", 0): Bounds(0, 4),
        ("empty", 0): Bounds(3, 3),
    }

    def topic_names(self) -> Sequence[str]:
        return ["b", "empty", "a"]

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicShape]:
        counts = {"a": 2, "b": 1, "empty": 1}
        return {name: TopicShape(name.encode(), counts[name]) for name in topics if name in counts}

    def bounds(self, shapes: Mapping[str, TopicShape], partitions: Sequence[Partition]) -> Mapping[Partition, Bounds]:
        return {partition: self.BOUNDS[partition] for partition in partitions}

    def offsets_at(
        self, shapes: Mapping[str, TopicShape], times_ms: Mapping[Partition, int]
    ) -> Mapping[Partition, int | None]:
        found = {}
        for partition, time_ms in times_ms.items():
            log_start, high_watermark = self.BOUNDS[partition]
            offset = max(log_start, -(-time_ms // 10))
            found[partition] = offset if offset < high_watermark else None
        return found


def ranges(**options: str) -> list[tuple[str, int, int, int]]:
    parsed = parse_batch_options({"quorumlog.bootstrap.servers": "h:1"} | options)
    return [(r.topic, r.partition, r.start, r.end) for r in plan(FixedCatalog(), parsed)]


def refusal(**options: str) -> str:
    with pytest.raises(SparkSourceError) as raised:
        ranges(**options)
    return str(raised.value)


def test_a_topic_is_read_from_log_start_to_high_watermark() -> None:
    assert ranges(subscribe="a") == [("a", 0, 0, 10), ("a", 1, 5, 25)]


def test_several_topics_come_by_name_and_empty_partitions_are_left_out() -> None:
    assert ranges(subscribe="empty,b,a") == [("a", 0, 0, 10), ("a", 1, 5, 25), ("b", 0, 0, 4)]


def test_a_pattern_matches_whole_names() -> None:
    assert ranges(subscribePattern="a|e") == [("a", 0, 0, 10), ("a", 1, 5, 25)]
    assert ranges(subscribePattern="nothing.*") == []
    begins_so = parse_batch_options({"quorumlog.bootstrap.servers": "h:1", "subscribePattern": "emp|mpty|b"})
    assert select(FixedCatalog(), begins_so.read.selection).partitions == [("b", 0)]


def test_assigned_partitions_only() -> None:
    assert ranges(assign='{"a": [1], "b": [0]}') == [("a", 1, 5, 25), ("b", 0, 0, 4)]


def test_offsets_of_each_partition() -> None:
    got = ranges(subscribe="a", startingOffsets='{"a": {"0": 4, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 6}}')
    assert got == [("a", 0, 4, 10), ("a", 1, 5, 6)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "a,nope"}, ["subscribe", "'nope'", "create the topic"]),
        ({"assign": '{"nope": [0]}'}, ["assign", "'nope'"]),
        ({"assign": '{"a": [0, 2]}'}, ["assign", "partition 2", "topic a", "0 to 1"]),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 1}}'}, ["startingOffsets", "a partition 1", "subscribe"]),
        ({"subscribe": "b", "endingOffsets": '{"b": {"0": 1, "7": 1}}'}, ["endingOffsets", "b partition 7"]),
        ({"subscribe": "b", "endingOffsets": '{"b": {"0": 5}}'}, ["endingOffsets", "offset 5", "partition 0", "0, 4)"]),
        ({"assign": '{"a": [1]}', "startingOffsets": '{"a": {"1": 4}}'}, ["startingOffsets", "offset 4", "[5, 25)"]),
        (
            {"subscribe": "b", "startingOffsets": '{"b": {"0": 3}}', "endingOffsets": '{"b": {"0": 2}}'},
            ["startingOffsets (offset 3)", "endingOffsets (offset 2)", "b partition 0"],
        ),
    ],
)
def test_what_cannot_be_read_is_named(options: dict[str, str], words: list[str]) -> None:
    message = refusal(**options)
    for word in words:
        assert word in message, message


def test_offsets_out_of_range_are_clamped_when_data_loss_is_allowed() -> None:
    loose = {"failOnDataLoss": "false"}
    assert ranges(assign='{"a": [1]}', startingOffsets='{"a": {"1": 0}}', **loose) == [("a", 1, 5, 25)]
    assert ranges(subscribe="b", endingOffsets='{"b": {"0": 99}}', **loose) == [("b", 0, 0, 4)]
    assert ranges(subscribe="b", startingOffsets='{"b": {"0": 99}}', **loose) == []


def test_times_bound_each_partition() -> None:
    assert ranges(subscribe="a", startingTimestamp="61", endingTimestamp="80") == [("a", 0, 7, 8), ("a", 1, 7, 8)]
    each = {
        "startingOffsetsByTimestamp": '{"a": {"0": 0, "1": 200}}',
        "endingOffsetsByTimestamp": '{"a": {"0": 50, "1": 999}}',
    }
    assert ranges(subscribe="a", **each) == [("a", 0, 0, 5), ("a", 1, 20, 25)]
    assert ranges(subscribe="a", startingTimestamp="30", startingOffsets="earliest") == [
        ("a", 0, 3, 10),
        ("a", 1, 5, 25),
    ]


def test_a_time_behind_the_last_record_is_an_error_or_the_end() -> None:
    message = refusal(subscribe="a", startingTimestamp="100")
    for word in ["startingTimestamp", "100 ms", "topic a partition 0", "startingOffsetsByTimestampStrategy"]:
        assert word in message
    late = {"startingTimestamp": "100", "startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(subscribe="a", **late) == [("a", 1, 10, 25)]
    assert "a partition 1" in refusal(subscribe="a", startingOffsetsByTimestamp='{"a": {"0": 1}}')


def test_out_of_range_is_data_loss_and_the_rest_are_wrong_options() -> None:
    loss = {"quorumlog.bootstrap.servers": "h:1", "subscribe": "b", "endingOffsets": '{"b": {"0": 5}}'}
    with pytest.raises(DataLossError):
        plan(FixedCatalog(), parse_batch_options(loss))
    with pytest.raises(OptionError):
        plan(FixedCatalog(), parse_batch_options(loss | {"endingOffsets": '{"b": {"1": 1}}'}))


def test_splitting_covers_every_offset_once_and_in_order() -> None:
    whole = [OffsetRange("t", b"", 0, 100, 1100), OffsetRange("t", b"", 1, 0, 10), OffsetRange("t", b"", 2, 7, 8)]
    for minimum, most in [(None, 300), (8, None), (64, 100), (1, None), (5000, None), (3, 1)]:
        pieces = split(whole, minimum, most)
        assert [offset for p in pieces if p.partition == 0 for offset in range(p.start, p.end)] == list(
            range(100, 1100)
        )
        assert [offset for p in pieces if p.partition == 1 for offset in range(p.start, p.end)] == list(range(10))
        assert all(piece.start < piece.end for piece in pieces)
        assert len(pieces) >= min(minimum or 0, 1011)
        assert most is None or max(piece.end - piece.start for piece in pieces) <= most


def test_small_ranges_share_tasks_and_large_ones_do_not() -> None:
    sizes = [100, 9_000, 900, 1, 50_000, 10_000, 3, 4]
    whole = [OffsetRange("t", b"", number, 0, size) for number, size in enumerate(sizes)]
    tasks = gather(whole, 10_000)
    assert [[piece.partition for piece in task] for task in tasks] == [[0, 1, 2], [3], [4], [5], [6, 7]]
    assert gather([], 10_000) == []


def test_a_task_holds_no_more_than_asked_for_and_with_a_minimum_only_one_range() -> None:
    whole = [OffsetRange("t", b"", number, 0, 40) for number in range(8)]

    def sizes(**options: str) -> list[int]:
        read = parse_batch_options({"quorumlog.bootstrap.servers": "h:1", "subscribe": "t"} | options).read
        return [sum(piece.end - piece.start for piece in task) for task in tasks_of(whole, read)]

    assert sizes() == [320]
    assert sizes(maxRecordsPerPartition="100") == [80] * 4
    assert sizes(maxRecordsPerPartition="30") == [20] * 16
    assert sizes(minPartitions="2") == [40] * 8
    assert sizes(minPartitions="16") == [20] * 16


def test_a_query_of_more_tasks_than_spark_could_ever_run_is_refused() -> None:
    whole = [OffsetRange("t", b"", number, 0, 100_000) for number in range(3)]
    assert len(split(whole, None, 4)) == 75_000
    with pytest.raises(OptionError, match=r"maxRecordsPerPartition \(2\) makes 150000 Spark tasks, more than 100000"):
        split(whole, None, 2)
