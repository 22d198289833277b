"""Stored batches to Spark's columns: exact types, exact offsets, bounded batches."""

import datetime as dt
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from quorumlog.sdk.spark.errors import DataLossError, SchemaError
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.ranges import exact
from quorumlog.sdk.spark.rows import ALONE_BYTES, MAX_BYTES, TARGET_BYTES, StoredRows, gather, spark_batches
from quorumlog.sdk.spark.schema import check_projection, ddl

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
FULL = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)
ARROW = to_arrow_schema(FULL, timezone="UTC")
LOG_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def stored(
    offset: int, values: Iterable[bytes | None], timestamp_type: int = 0, append_ms: int | None = None
) -> StoredRows:
    values = list(values)
    columns = {
        "key": [None if index % 3 == 0 else b"k%d" % index for index in range(len(values))],
        "value": values,
        "timestamp": [1_700_000_000_000_000 + offset + index for index in range(len(values))],
        "headers": [None if index % 2 else [{"key": "h", "value": None}] for index in range(len(values))],
    }
    batch = pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in LOG_SCHEMA], schema=LOG_SCHEMA)
    return StoredRows(offset, timestamp_type, append_ms, batch)


def spark(rows: Iterable[StoredRows], schema: pa.Schema = ARROW) -> list[pa.RecordBatch]:
    return list(spark_batches(rows, "t", 7, schema))


def test_small_batches_are_gathered_into_one_with_every_column() -> None:
    (batch,) = spark([stored(5, [b"a", None]), stored(7, [b""], timestamp_type=1, append_ms=1_800_000_000_000)])
    assert batch.schema.equals(ARROW)
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == [5, 6, 7]
    assert batch.column("value").to_pylist() == [b"a", None, b""]
    assert batch.column("key").to_pylist() == [None, b"k1", None]
    assert batch.column("topic").to_pylist() == ["t"] * 3
    assert batch.column("partition").to_pylist() == [7] * 3
    assert batch.column("timestampType").to_pylist() == [0, 0, 1]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": None}], None, [{"key": "h", "value": None}]]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        1_700_000_000_000_005,
        1_700_000_000_000_006,
        1_800_000_000_000_000,
    ]
    assert batch.column("timestamp")[2].as_py() == dt.datetime.fromtimestamp(1_800_000_000, dt.UTC)


def test_only_the_columns_asked_for_in_their_order() -> None:
    wanted = to_arrow_schema(StructType([FULL["offset"], FULL["value"]]), timezone="UTC")
    (batch,) = spark([stored(0, [b"x", b"y"])], wanted)
    assert batch.schema.names == ["offset", "value"]
    assert batch.to_pylist() == [{"offset": 0, "value": b"x"}, {"offset": 1, "value": b"y"}]


def test_offsets_and_types_stay_with_their_rows_over_gaps_and_batches_of_any_length() -> None:
    lost = [stored(0, [b"a"] * 2), stored(5, [b"b"]), stored(6, [b"c"] * 2, timestamp_type=1), stored(8, [b"d"])]
    longer = [stored(10, [b"e" * (TARGET_BYTES // 4)] * 5), stored(15, [b"f"] * 9)]
    batches = spark([*lost, *longer])
    assert [batch.column("offset").to_pylist() for batch in batches] == [
        [0, 1, 5, 6, 7, 8, 10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19, 20, 21, 22, 23],
    ]
    assert batches[0].column("timestampType").to_pylist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    assert batches[1].column("topic").to_pylist() == ["t"] * 9
    for batch in batches:
        batch.validate(full=True)


def test_batches_stay_within_their_limits_and_lose_nothing() -> None:
    large = stored(0, [bytes([index]) * (1 << 20) for index in range(80)])
    small = [stored(80 + 10 * index, [b"v" * 100_000] * 10) for index in range(40)]
    batches = spark([large, *small])
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(480))
    assert all(batch.nbytes <= MAX_BYTES + (1 << 20) for batch in batches)
    assert all(batch.nbytes >= TARGET_BYTES for batch in batches[:-1])


def test_one_row_beyond_the_limit_travels_alone() -> None:
    batches = spark([stored(0, [b"a", b"b" * (MAX_BYTES + 1), b"c"])])
    assert [batch.column("offset").to_pylist() for batch in batches] == [[0], [1], [2]]


def test_offsets_of_a_compacted_batch_stay_and_its_gaps_are_no_loss() -> None:
    gaps = stored(0, [b"0", b"4", b"7"])._replace(offsets=pa.array([0, 4, 7]), compacted_offset=9)
    log = [gaps, stored(9, [b"9", b"10"])._replace(compacted_offset=9)]
    pieces = list(exact(log, OffsetRange("t", b"", 7, 3, 10), fail_on_data_loss=True))
    (batch,) = spark(pieces)
    assert batch.column("offset").to_pylist() == [4, 7, 9]
    assert batch.column("value").to_pylist() == [b"4", b"7", b"9"]
    with pytest.raises(DataLossError, match=r"\[8, 9\)"):
        list(exact([gaps, stored(9, [b"9"])], OffsetRange("t", b"", 7, 3, 10), fail_on_data_loss=True))


def test_a_gap_behind_what_is_compacted_is_data_loss() -> None:
    """A batch beyond the compaction point is whole: what is missing before it was removed by something else."""
    below = stored(0, [b"0", b"4"])._replace(offsets=pa.array([0, 4]), compacted_offset=6)
    behind = stored(8, [b"8", b"9"])._replace(compacted_offset=6)
    with pytest.raises(DataLossError, match=r"offsets \[5, 8\) are gone"):
        list(exact([below, behind], OffsetRange("t", b"", 7, 0, 10), fail_on_data_loss=True))
    at = stored(6, [b"6", b"7"])._replace(compacted_offset=6)
    assert [rows.offset for rows in exact([below, at], OffsetRange("t", b"", 7, 0, 8), True)] == [0, 6]


def test_a_range_is_read_exactly() -> None:
    log = [stored(0, [b"0", b"1", b"2"]), stored(3, [b"3", b"4"]), stored(5, [b"5", b"6"])]
    pieces = exact(log, OffsetRange("t", b"", 7, 2, 6), fail_on_data_loss=True)
    assert [value for piece in pieces for value in piece.columns.column("value").to_pylist()] == [
        b"2",
        b"3",
        b"4",
        b"5",
    ]


@pytest.mark.parametrize(
    ("log", "gone"),
    [
        ([stored(3, [b""] * 2), stored(5, [b""] * 5)], "[1, 3)"),
        ([stored(0, [b""] * 4), stored(6, [b""] * 4)], "[4, 6)"),
        ([stored(0, [b""] * 4), stored(12, [b""] * 4)], "[4, 8)"),
        ([stored(0, [b""] * 4)], "[4, 8)"),
        ([], "[1, 8)"),
    ],
)
def test_a_gap_is_an_error_that_names_it_unless_allowed(log: list[StoredRows], gone: str) -> None:
    wanted = OffsetRange("t", b"", 7, 1, 8)
    with pytest.raises(DataLossError) as raised:
        list(exact(log, wanted, fail_on_data_loss=True))
    for word in ("topic t", "partition 7", gone, "[1, 8)"):
        assert word in str(raised.value)
    batches = spark(exact(log, wanted, fail_on_data_loss=False))
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    there = {offset for rows in log for offset in range(rows.offset, rows.end)}
    assert offsets == [offset for offset in range(1, 8) if offset in there]


def test_the_schema_is_that_of_spark_s_kafka_source() -> None:
    assert ddl(include_headers=False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz,"
        " timestampType int"
    )
    assert ddl(include_headers=True).endswith(", headers array<struct<key:string,value:binary>>")
    check_projection(FULL, include_headers=True)
    with pytest.raises(SchemaError, match="includeHeaders"):
        check_projection(FULL, include_headers=False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([StructField("valu", BinaryType())], ["'valu'", "value"]),
        ([StructField("value", StringType())], ["'value'", "binary", "string"]),
        ([StructField("timestamp", TimestampNTZType())], ["'timestamp'", "timestamp_ntz", "in DDL: timestamp_ltz"]),
        ([StructField("key", BinaryType(), nullable=False)], ["'key'", "NOT NULL"]),
        ([StructField("headers", ArrayType(HEADER, containsNull=False))], ["'headers'", "what is in it", "NOT NULL"]),
        ([StructField("key", BinaryType()), StructField("key", BinaryType())], ["'key' is there 2 times"]),
        ([], ["no columns", "key, value, topic"]),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused(fields: list[StructField], words: list[str]) -> None:
    with pytest.raises(SchemaError) as raised:
        check_projection(StructType(fields), include_headers=True)
    for word in words:
        assert word in str(raised.value)


def cover(offset: int, end: int) -> StoredRows:
    """A cover stands for markers and aborted records."""
    return StoredRows(offset, 0, None, pa.RecordBatch.from_pylist([], LOG_SCHEMA), covers_to=end)


def compacted(offsets: list[int]) -> StoredRows:
    rows = stored(offsets[0], [b"c"] * len(offsets))
    return rows._replace(offsets=pa.array(offsets, pa.int64()), compacted_offset=offsets[-1] + 1)


A = stored(0, [b"a"])


@pytest.mark.parametrize(
    ("log", "joined"),
    [
        ([stored(0, [b"a", b"b"]), stored(2, [b"c"]), stored(3, [b"d"])], [(0, 4)]),
        ([A, stored(2, [b"c"]), stored(3, [b"d"])], [(0, 1), (2, 4)]),
        ([A, stored(1, [b"b"], timestamp_type=1), stored(2, [b"c"])], [(0, 1), (1, 2), (2, 3)]),
        ([A, stored(1, [b"b"], append_ms=5), stored(2, [b"c"])], [(0, 1), (1, 2), (2, 3)]),
        ([A, compacted([1, 3]), compacted([4, 9]), stored(10, [b"d"])], [(0, 1), (1, 4), (4, 10), (10, 11)]),
        ([A, stored(1, [b"b"])._replace(covers_to=5), stored(5, [b"c"])], [(0, 1), (1, 5), (5, 6)]),
        ([A, stored(1, [])._replace(covers_to=3), stored(3, [b"c"])], [(0, 1), (1, 3), (3, 4)]),
        ([A, stored(1, [bytes(ALONE_BYTES)]), stored(2, [b"c"]), stored(3, [b"d"])], [(0, 1), (1, 2), (2, 4)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [ARROW.names, ["offset"], ["value", "topic"], ["timestampType", "headers"]])
def test_small_batches_are_joined(log: list[StoredRows], joined: list[tuple[int, int]], names: list[str]) -> None:
    """Only those that follow each other and are alike. Spark's rows are the same."""
    schema = pa.schema([ARROW.field(name) for name in names])
    gathered = list(gather(log, schema))
    assert [(rows.offset, rows.end) for rows in gathered] == joined
    assert spark(gathered, schema) == spark(log, schema)


def test_joined_batches_are_bounded() -> None:
    log = [stored(number, [bytes(ALONE_BYTES // 2)]) for number in range(40)]
    gathered = list(gather(log, ARROW))
    assert all(rows.columns.nbytes <= TARGET_BYTES for rows in gathered)
    assert len(gathered) == 3
    assert [rows.offset for rows in gathered[1:]] == [rows.end for rows in gathered[:-1]]


def test_a_loss_before_joined_batches_is_found() -> None:
    """A later compaction does not explain an earlier gap."""
    log = [stored(0, [b"a"]), stored(2, [b"c"]), stored(3, [b"d"])._replace(compacted_offset=3)]
    with pytest.raises(DataLossError, match=r"offsets \[1, 2\) are gone"):
        list(exact(gather(log, ARROW), OffsetRange("t", b"", 0, 0, 4), fail_on_data_loss=True))


def test_ranges_end_with_a_cover() -> None:
    """No row comes of it, and nothing is missing."""
    rows = [stored(0, [b"a", b"b"]), cover(2, 5)]
    assert [piece.offset for piece in exact(rows, OffsetRange("t", b"", 0, 0, 5), True)] == [0]
    assert [piece.offset for piece in exact(rows, OffsetRange("t", b"", 0, 1, 3), True)] == [1]
    assert list(exact([cover(2, 5)], OffsetRange("t", b"", 0, 3, 4), True)) == []
    with pytest.raises(DataLossError):
        list(exact(rows, OffsetRange("t", b"", 0, 0, 6), True))


def test_batches_cover_offsets_behind_their_rows() -> None:
    """As the last batch of a restored log, where a marker was. The rows have their own offsets all the same."""
    rows = [stored(0, [b"a", b"b"])._replace(covers_to=5), stored(5, [b"c"])._replace(covers_to=8)]
    whole = OffsetRange("t", b"", 0, 0, 8)
    [made] = spark_batches(exact(rows, whole, True), "t", 0, ARROW)
    assert made.column("offset").to_pylist() == [0, 1, 5]
    assert list(exact(rows, OffsetRange("t", b"", 0, 3, 5), True)) == []
    assert list(exact(rows, OffsetRange("t", b"", 0, 7, 8), True)) == []
