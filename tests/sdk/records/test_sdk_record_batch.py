"""Batches survive the way through their bytes, and nothing damaged or foreign gets out of them."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.sdk.errors import CorruptRecordError, IllegalArgumentError
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA, FetchedRows, rows_from, to_records, to_table
from quorumlog.sdk.records.record_batch import (
    BATCH_BASE_BYTES,
    HEADER_OVERHEAD_BYTES,
    LOG_SCHEMA,
    RECORD_OVERHEAD_BYTES,
    batch_from_columns,
    decode,
    encode,
    split_by_bytes,
    to_log_schema,
    without_dead_headers,
)
from quorumlog.sdk.types import TopicPartition
from quorumlog.wire.entry import Attributes, Codec, TimestampType, build_batch, build_compacted, seal_batch
from quorumlog.wire.payload import COMPACTED_SCHEMA, HEADERS_TYPE, write_payload

TP = TopicPartition("t", 0)
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def stored(
    rows: list[Row], codec: Codec = Codec.NONE, base_offset: int = 0, append_time_ms: int | None = None
) -> bytes:
    keys = [key for key, _, _, _ in rows] if any(key is not None for key, _, _, _ in rows) else []
    columns = batch_from_columns(
        keys,
        [value for _, value, _, _ in rows],
        array("q", [timestamp * 1_000_000 for _, _, timestamp, _ in rows]),
        {i: headers for i, (_, _, _, headers) in enumerate(rows) if headers},
    )
    made = encode(columns, codec)
    batch = build_batch(
        made.payload,
        record_count=made.record_count,
        codec=codec,
        base_timestamp_ms=made.base_timestamp_ms,
        max_timestamp_ms=made.max_timestamp_ms,
    )
    return seal_batch(
        batch, group=1, term=3, index=9, previous_hash=5, base_offset=base_offset, append_time_ms=append_time_ms
    )


bytes_or_null = st.none() | st.binary(max_size=40)
rows_strategy = st.lists(
    st.tuples(
        bytes_or_null,
        bytes_or_null,
        st.integers(0, 9_000_000_000_000),
        st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@given(rows=rows_strategy, codec=st.sampled_from(list(Codec)))
@settings(max_examples=80, deadline=None)
def test_records_come_out_as_they_went_in(rows: list[Row], codec: Codec) -> None:
    entry = stored(rows, codec, base_offset=7)
    decoded = decode(entry)
    assert decoded.header.record_count == len(rows)
    assert decoded.header.append_time_ms == min(timestamp for _, _, timestamp, _ in rows)
    assert decoded.header.max_timestamp_ms == max(timestamp for _, _, timestamp, _ in rows)
    assert decoded.leader_epoch == 3
    records = to_records(next(rows_from(TP, [entry], 7)))
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in records] == rows
    assert [r.offset for r in records] == list(range(7, 7 + len(rows)))
    table = to_table(list(rows_from(TP, [entry], 7)))
    assert table.schema == CONSUMED_SCHEMA
    assert table.column("value").to_pylist() == [value for _, value, _, _ in rows]
    assert table.column("offset").to_pylist() == [r.offset for r in records]


def test_what_the_accumulator_reckons_is_what_a_batch_takes() -> None:
    for size, headers in ((0, 0), (100, 0), (1000, 3)):
        count = 1000
        rows: list[Row] = [(b"k" * 10, b"v" * size, 1, [("name", b"value")] * headers)] * count
        reckoned = BATCH_BASE_BYTES + count * (
            RECORD_OVERHEAD_BYTES + 10 + size + headers * (HEADER_OVERHEAD_BYTES + 4 * len("name") + len(b"value"))
        )
        assert 0.7 * reckoned <= len(stored(rows)) <= reckoned, (size, headers)


@pytest.mark.parametrize("position", [0, 9, 30, 45, 60, 100, 300, -1])
def test_a_flipped_bit_anywhere_is_noticed(position: int) -> None:
    entry = bytearray(stored([(None, b"value" * 50, 1, [])]))
    entry[position] ^= 4
    with pytest.raises(CorruptRecordError):
        decode(bytes(entry))


@pytest.mark.parametrize("payload", [b"", b"not arrow at all", b"\xff" * 800])
def test_a_payload_that_is_not_arrow_is_an_error_of_its_own(payload: bytes) -> None:
    batch = build_batch(payload, record_count=1, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    with pytest.raises(CorruptRecordError, match="not Arrow"):
        decode(batch)


def test_offsets_inside_a_foreign_payload_are_validated_before_use() -> None:
    made = encode(batch_from_columns([], [b"abcdef"] * 4, array("q", [1] * 4), {}), Codec.NONE)
    payload = bytearray(made.payload)
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 6, 12, 18, 24))
    at = bytes(payload).index(offsets)
    payload[at + 8 : at + 12] = (2_000_000_000).to_bytes(4, "little")
    batch = build_batch(bytes(payload), record_count=4, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0)
    with pytest.raises(CorruptRecordError):
        decode(batch)


def test_a_header_that_counts_wrong_is_noticed() -> None:
    made = encode(batch_from_columns([], [b"a", b"b"], array("q", [1, 1]), {}), Codec.NONE)
    batch = build_batch(made.payload, record_count=3, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0)
    with pytest.raises(CorruptRecordError, match="states 3 records but has 2"):
        decode(batch)


def test_append_time_replaces_every_timestamp() -> None:
    entry = stored([(None, b"a", 5, []), (None, b"b", 6, [])], append_time_ms=777)
    (rows,) = rows_from(TP, [entry], 0)
    assert [record.timestamp for record in to_records(rows)] == [777, 777]
    assert [t.timestamp() for t in to_table([rows]).column("timestamp").to_pylist()] == [0.777, 0.777]


def values_of(rows: list[FetchedRows]) -> list[bytes]:
    return [record.value for part in rows for record in to_records(part)]


def test_a_batch_that_begins_before_the_fetch_offset_is_trimmed() -> None:
    entries = [
        stored([(None, b"%d" % i, 1, []) for i in range(5)], base_offset=10),
        stored([(None, b"next", 1, [])], base_offset=15),
    ]
    rows = list(rows_from(TP, entries, 13))
    assert values_of(rows) == [b"3", b"4", b"next"]
    assert [part.offset for part in rows] == [13, 15]
    assert rows[-1].next_offset == 16


@pytest.mark.parametrize("second_base", [14, 16, 10])
def test_entries_that_skip_or_repeat_offsets_are_refused(second_base: int) -> None:
    batch: list[Row] = [(None, b"x", 1, [])] * 5
    with pytest.raises(CorruptRecordError, match="offset 15 should come next"):
        list(rows_from(TP, [stored(batch, base_offset=10), stored(batch, base_offset=second_base)], 10))


@pytest.mark.parametrize("base", [11, 0])
def test_a_first_batch_without_the_wanted_offset_is_refused(base: int) -> None:
    with pytest.raises(CorruptRecordError, match="offset 10 should come next"):
        list(rows_from(TP, [stored([(None, b"x", 1, [])], base_offset=base)], 10))


def compacted(base_offset: int, deltas: list[int], codec: Codec = Codec.NONE, **changes: int) -> bytes:
    plain = batch_from_columns(
        [], [b"%d" % (base_offset + delta) for delta in deltas], array("q", [1_000_000] * len(deltas)), {}
    )
    columns = pa.RecordBatch.from_arrays([*plain.columns, pa.array(deltas, pa.uint32())], schema=COMPACTED_SCHEMA)
    header = {"base_offset": base_offset, "last_offset": base_offset + deltas[-1], "record_count": len(deltas)}
    return build_compacted(
        write_payload(columns, codec),
        group=1,
        codec=codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=0,
        max_timestamp_ms=5,
        **(header | changes),
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("start", range(3, 20))
def test_gaps_inside_and_between_compacted_batches_are_passed(start: int, codec: Codec) -> None:
    entries = [
        compacted(3, [0, 1, 5], codec),
        compacted(12, [0, 2], codec),
        stored([(None, b"%d" % offset, 1, []) for offset in (18, 19)], base_offset=18),
    ]
    kept = [3, 4, 8, 12, 14, 18, 19]
    first = next(place for place, last in enumerate((8, 14, 19)) if last >= start)
    rows = list(rows_from(TP, entries[first:], start, compacted_offset=18))
    wanted = [offset for offset in kept if offset >= start]
    assert [record.offset for part in rows for record in to_records(part)] == wanted
    assert values_of(rows) == [b"%d" % offset for offset in wanted]
    assert to_table(rows).column("offset").to_pylist() == wanted
    assert rows[-1].next_offset == 20
    assert [record.timestamp for part in rows for record in to_records(part)] == [1] * len(wanted)
    split = [half for part in rows for half in (part.split(1) if part.columns.num_rows > 1 else (part,))]
    assert [record.offset for part in split for record in to_records(part)] == wanted
    assert all(before.next_offset <= after.offset for before, after in pairwise(split))


def test_a_gap_above_the_compaction_point_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match="offset 9 should come next"):
        list(rows_from(TP, [compacted(3, [0, 5]), compacted(12, [0, 2])], 3, compacted_offset=11))


@pytest.mark.parametrize(
    ("deltas", "changes"),
    [([0, 5, 3], {}), ([1, 2], {}), ([0, 2, 2, 9], {}), ([0, 4], {"last_offset": 6}), ([0, 4], {"record_count": 3})],
)
def test_a_compacted_batch_that_contradicts_itself_is_refused(deltas: list[int], changes: dict[str, int]) -> None:
    with pytest.raises(CorruptRecordError):
        decode(compacted(3, deltas, **changes))


def test_a_restored_batch_may_cover_offsets_behind_its_last_record() -> None:
    header, _, columns = decode(compacted(3, [0, 4], last_offset=9))
    assert (header.last_offset, columns.num_rows) == (9, 2)


def test_the_header_says_whether_some_record_has_no_key() -> None:
    for keys, wanted in (
        ([b"a", None], Attributes.NULL_KEYS),
        ([], Attributes.NULL_KEYS),
        ([b"a", b""], Attributes(0)),
    ):
        assert encode(batch_from_columns(keys, [b"v"] * 2, array("q", [1, 1]), {}), Codec.NONE).attributes == wanted


def test_a_users_table_is_brought_to_the_log_schema() -> None:
    table = to_log_schema(pa.table({"value": ["ä", None], "key": pa.array([b"k", None], pa.large_binary())}), 42)
    assert table.schema == LOG_SCHEMA
    assert table.column("value").to_pylist() == ["ä".encode(), None]
    assert [t.timestamp() for t in table.column("timestamp").to_pylist()] == [0.042, 0.042]
    assert table.column("headers").null_count == 2


def test_a_record_with_an_empty_list_of_headers_has_none() -> None:
    one = [{"key": "h", "value": None}]
    table = to_log_schema(
        pa.table({"value": [b"a", b"b", b"c"], "headers": pa.array([[], one, None], HEADERS_TYPE)}), 1
    )
    assert table.column("headers").to_pylist() == [None, one, None]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"key": [b"k"]}, "has no column 'value'"),
        ({"value": [b"v"], "topic": ["t"]}, "has columns \\['topic'\\]"),
        ({"value": [1.5]}, "column 'value' is double, not binary"),
        ({"value": [b"v"], "timestamp": pa.array([1], pa.timestamp("us"))}, "has no time zone"),
    ],
)
def test_a_table_that_is_no_log_is_refused_in_one_line(columns: dict[str, object], line: str) -> None:
    with pytest.raises(IllegalArgumentError, match=line):
        to_log_schema(pa.table(columns), 1)


def test_a_table_is_cut_into_batches_within_the_limit_whatever_its_rows_weigh() -> None:
    values = [b"x" * (10 if i < 900 else 5000) for i in range(1000)]
    table = to_log_schema(pa.table({"value": values}), 1)
    pieces = split_by_bytes(table.combine_chunks().to_batches()[0], 20_000)
    assert [v for piece in pieces for v in piece.column(1).to_pylist()] == values
    for piece in pieces:
        written = encode(without_dead_headers(piece), Codec.NONE).payload
        assert len(written) <= 20_000 + BATCH_BASE_BYTES
