"""Rows on their way from Spark into the log: where each goes, in what order, and what a second run adds."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.sdk.cluster.metadata import DEFAULT_MAX_MESSAGE_BYTES
from quorumlog.sdk.records.record_batch import encode, without_dead_headers
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import KEYLESS_RUN, Spread, TargetPartition, cut, rest_of, rows_of, spread
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, Codec
from quorumlog.wire.payload import HEADERS_TYPE, LOG_SCHEMA, write_payload

NOW_MS = 1_700_000_000_000


def rows(**columns: list[Any]) -> pa.Table:
    return rows_of(pa.RecordBatch.from_pydict(columns), "t")


def how(task: int = 0, rows_before: int | None = 0, **partition_counts: int) -> Spread:
    shapes = {topic: TopicShape(topic.encode(), count) for topic, count in partition_counts.items()}
    return Spread(shapes, NOW_MS, task, rows_before)


def pieces(records: pa.Table, largest: int = 1 << 20) -> list[pa.RecordBatch]:
    return list(cut(records, largest))


def values(written: list[tuple[TargetPartition, pa.Table]]) -> dict[tuple[str, int], list[bytes]]:
    return {(target.topic, target.partition): records.column("value").to_pylist() for target, records in written}


def stored(table: pa.Table, by: Spread, partition: int) -> dict[TargetPartition, list[pa.RecordBatch]]:
    """Returns the records in the log after a run that stopped after one partition."""
    return {target: pieces(records) for target, records in spread(table, by) if target.partition == partition}


def test_rows_go_where_they_say_else_by_key_else_in_turn_and_keep_their_order() -> None:
    table = rows(
        key=[b"a", None, b"a", b"other", None],
        value=["1", "2", "3", "4", "5"],
        partition=pa.array([None, 2, None, 0, None], pa.int32()),
    )
    # Kafka's partition of the key b"a" among three is 1; rows without key or partition start with the task's number.
    assert values(list(spread(table, how(task=5, t=3)))) == {
        ("t", 0): [b"4"],
        ("t", 1): [b"1", b"3"],
        ("t", 2): [b"2", b"5"],
    }


def test_a_row_with_an_empty_list_of_headers_has_none_and_is_recognized_when_it_comes_again() -> None:
    one = [{"key": "h", "value": b"1"}]
    table = rows(value=["1", "2"], partition=pa.array([0, 0], pa.int32()), headers=pa.array([[], one], HEADERS_TYPE))
    ((_, records),) = spread(table, how(t=1))
    assert records.column("headers").to_pylist() == [None, one]
    assert rest_of(table, stored(table, how(t=1), 0), how(t=1)) == []


def test_a_column_says_the_topic_of_each_row() -> None:
    table = rows_of(pa.RecordBatch.from_pydict({"topic": ["b", "a", "b"], "value": [b"1", b"2", b"3"]}), None)
    assert values(list(spread(table, how(a=1, b=1)))) == {("a", 0): [b"2"], ("b", 0): [b"1", b"3"]}


def test_rows_without_a_key_fill_one_partition_before_they_go_to_the_next() -> None:
    table = rows(value=[b"%d" % number for number in range(KEYLESS_RUN + 1)])
    assert [records.num_rows for _, records in spread(table, how(t=2))] == [KEYLESS_RUN, 1]


def test_rows_without_a_key_go_on_where_the_last_ones_ended() -> None:
    table = rows(value=[b"%d" % number for number in range(KEYLESS_RUN)])
    by = how(task=1, rows_before=2 * KEYLESS_RUN - 10, t=3)
    assert values(list(spread(table, by))) == {
        ("t", 0): table.column("value").to_pylist()[10:],
        ("t", 2): table.column("value").to_pylist()[:10],
    }
    around = rows(value=[b"%d" % number for number in range(2 * KEYLESS_RUN + 1)])
    there = values(list(spread(around, how(t=2))))
    assert there["t", 0] == [*around.column("value").to_pylist()[:KEYLESS_RUN], b"%d" % (2 * KEYLESS_RUN)]


def test_rows_without_a_timestamp_have_that_of_the_first_run() -> None:
    ((_, records),) = spread(rows(value=[b"1"]), how(t=1))
    assert encode(pieces(records)[0], Codec.NONE).max_timestamp_ms == NOW_MS


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"topic": ["t", None]}, "a row's topic is null"),
        ({"topic": ["t", "t"], "partition": pa.array([0, 3], pa.int32())}, "partition 3 of topic t, which has 3"),
        ({"topic": ["t", "t"], "partition": pa.array([0, -1], pa.int32())}, "partition is -1"),
    ],
)
def test_rows_that_cannot_go_anywhere_are_one_clear_line(columns: dict[str, Any], line: str) -> None:
    with pytest.raises(DeliveryError, match=line):
        list(spread(rows_of(pa.RecordBatch.from_pydict({**columns, "value": ["1", "2"]}), None), how(t=3)))


def test_a_second_run_adds_what_the_first_one_has_not_written_whatever_the_order() -> None:
    keys = [b"%d" % (number % 7) for number in range(40)]
    first = rows(key=keys, value=[b"%d" % number for number in range(40)])
    again = rows(key=keys[::-1], value=[b"%d" % number for number in reversed(range(40))])
    by = how(t=3)
    there = stored(first, by, partition=1)
    rest = values(rest_of(again, there, by))
    everything = values(list(spread(first, by)))
    assert {place: sorted(found) for place, found in rest.items()} == {
        place: sorted(found) for place, found in everything.items() if place[1] != 1
    }


@pytest.mark.parametrize(
    ("column", "mine", "theirs"),
    [
        ("key", [b"k", b"l"], [b"k", b"m"]),
        ("timestamp", [1, 2], [1, 3]),
        ("headers", [[("a", b"1")], [("b", b"1")]], [[("a", b"1")], [("b", b"2")]]),
        ("headers", [[("a", b"1")], [("b", b"1")]], [[("a", b"1")], None]),
        ("headers", [[("a", b"1")], [("b", None)]], [[("a", b"1")], [("c", None)]]),
    ],
)
def test_a_repeated_task_whose_rows_are_shuffled_differs_in_any_column(
    column: str, mine: list[Any], theirs: list[Any]
) -> None:
    """In another order they are compared one by one, and not as a whole."""

    def made(given: list[Any]) -> pa.Table:
        kind = {"timestamp": pa.timestamp("us", "UTC"), "headers": HEADERS_TYPE}.get(column)
        if column == "headers":
            given = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in given]
        return rows(value=[b"v", b"v"], **{column: pa.array(given, kind)})

    by = how(rows_before=None, t=1)
    there = stored(made(mine[::-1]), by, 0)
    assert rest_of(made(mine), there, by) == []
    with pytest.raises(DeliveryError, match="1 records that an earlier run"):
        rest_of(made(theirs), there, by)


def test_rows_that_may_come_again_in_another_order_go_to_the_same_partitions_whatever_the_order() -> None:
    """Rows that may be repeated in another order go to the same partitions, whatever their order.

    Otherwise, one of two concurrent runs would write a record to one partition, and the other run to another one.
    """
    numbers = [b"%d" % number for number in range(3 * KEYLESS_RUN)]
    by = how(task=4, rows_before=None, t=3)
    there = values(list(spread(rows(value=numbers), by)))
    assert there == {("t", 1): numbers}
    assert values(list(spread(rows(value=numbers[::-1]), by))) == {("t", 1): numbers[::-1]}


def test_a_second_run_counts_equal_rows_and_keeps_the_order_of_what_it_adds() -> None:
    by = how(rows_before=None, t=1)
    first = rows(value=[b"same", b"a", b"same"])
    there = stored(first.slice(0, 2), by, 0)
    assert values(rest_of(first, there, by)) == {("t", 0): [b"same"]}
    again = rows(value=[b"same", b"same", b"b", b"a"])
    assert values(rest_of(again, there, by)) == {("t", 0): [b"same", b"b"]}


def test_a_row_that_names_its_partition_is_not_taken_for_an_equal_one_that_does_not() -> None:
    table = rows(value=[b"same", b"same"], partition=pa.array([None, 0], pa.int32()))
    by = how(task=1, rows_before=None, t=2)
    there = {target: pieces(records) for target, records in spread(table, by)}
    assert set(there) == {("t", 0), ("t", 1)}
    assert rest_of(table, there, by) == []


def test_batches_are_no_larger_than_the_topic_takes() -> None:
    random = Random(1)
    table = rows(value=[random.randbytes(random.randrange(1, 30_000)) for _ in range(200)])
    ((_, records),) = spread(table, how(t=1))
    for largest in (100_000, 300_000):
        for codec in Codec:
            cut_here = [without_dead_headers(piece) for piece in pieces(records, largest)]
            sizes = [BATCH_OVERHEAD_BYTES + len(encode(piece, codec).payload) for piece in cut_here]
            assert largest // 2 < max(sizes) <= largest
    assert len(pieces(records, 1_024)) == 200


def test_rows_go_by_the_partitions_that_the_first_run_saw_and_may_name_those_that_there_are() -> None:
    by = replace(how(rows_before=None, t=8), first_counts={"t": 2})
    table = rows(value=[b"%d" % number for number in range(50)], key=[b"%d" % number for number in range(50)])
    assert {partition for _, partition in values(list(spread(table, by)))} == {0, 1}
    named = rows(value=[b"1"], partition=pa.array([7], pa.int32()))
    assert values(list(spread(named, by))) == {("t", 7): [b"1"]}


def test_a_header_without_a_name_is_one_clear_line() -> None:
    for headers in ([{"key": None, "value": b"1"}], [None]):
        with pytest.raises(DeliveryError, match="a header without a name"):
            rows(value=[b"1"], headers=pa.array([headers], HEADERS_TYPE))


def test_a_second_run_with_other_rows_is_refused() -> None:
    by = how(t=1)
    there = stored(rows(value=[b"1", b"2"]), by, partition=0)
    with pytest.raises(DeliveryError, match="1 records that an earlier run of this batch wrote to topic t partition 0"):
        rest_of(rows(value=[b"1", b"3"]), there, by)
    with pytest.raises(DeliveryError, match="2 records that an earlier run of this batch wrote to topic t partition 0"):
        rest_of(rows(value=[]), there, by)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_was_read_back_is_sent_again_byte_for_byte(codec: Codec) -> None:
    """Otherwise the log would not recognise it as a duplicate."""
    table = rows(key=[None, b"k"] * 5_000, value=[b"%d" % (number * number) for number in range(10_000)])
    for _, records in spread(table, how(t=3)):
        for batch in pieces(records):
            written = write_payload(batch, codec)
            assert write_payload(pa.ipc.read_record_batch(pa.py_buffer(written), LOG_SCHEMA), codec) == written


def test_a_topic_that_does_not_say_takes_what_the_nodes_take() -> None:
    assert TopicConfig().max_message_bytes == DEFAULT_MAX_MESSAGE_BYTES
