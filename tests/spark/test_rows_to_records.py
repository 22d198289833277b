"""Rows on their way from Spark into the log: where each goes, and in what order."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.sdk.cluster.metadata import DEFAULT_MAX_MESSAGE_BYTES
from quorumlog.sdk.records.record_batch import encode, without_dead_headers
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import KEYLESS_RUN, Spread, TargetPartition, cut, rows_of, spread
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, Codec
from quorumlog.wire.payload import HEADERS_TYPE, LOG_SCHEMA, write_payload

NOW_MS = 1_700_000_000_000


def rows(**columns: list[Any]) -> pa.Table:
    return rows_of(pa.RecordBatch.from_pydict(columns), "t")


def how(task: int = 0, rows_before: int = 0, **partition_counts: int) -> Spread:
    shapes = {topic: TopicShape(topic.encode(), count) for topic, count in partition_counts.items()}
    return Spread(shapes, NOW_MS, task, rows_before)


def pieces(records: pa.Table, largest: int = 1 << 20) -> list[pa.RecordBatch]:
    return list(cut(records, largest))


def values(written: list[tuple[TargetPartition, pa.Table]]) -> dict[tuple[str, int], list[bytes]]:
    return {(target.topic, target.partition): records.column("value").to_pylist() for target, records in written}


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


def test_a_row_with_an_empty_list_of_headers_has_none() -> None:
    one = [{"key": "h", "value": b"1"}]
    table = rows(value=["1", "2"], partition=pa.array([0, 0], pa.int32()), headers=pa.array([[], one], HEADERS_TYPE))
    ((_, records),) = spread(table, how(t=1))
    assert records.column("headers").to_pylist() == [None, one]


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


def test_a_header_without_a_name_is_one_clear_line() -> None:
    for headers in ([{"key": None, "value": b"1"}], [None]):
        with pytest.raises(DeliveryError, match="a header without a name"):
            rows(value=[b"1"], headers=pa.array([headers], HEADERS_TYPE))


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
