"""``poll_arrow`` hands out the bytes that came: what it adds to them is small, and nothing of them is copied."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest

from quorumlog.sdk.records.fetched import FetchedRows, rows_from, to_table
from quorumlog.sdk.records.record_batch import batch_from_columns, encode
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import Codec, build_batch, seal_batch

TP = TopicPartition("orders", 3)
ROWS = 1000
VALUE_BYTES = 500


def response(codec: Codec, batches: int = 20) -> data_plane_pb2.FetchResponse:
    """An answer as it comes from the transport."""
    answer = data_plane_pb2.FetchResponse()
    result = answer.results.add(partition=3, high_watermark=ROWS * batches)
    for number in range(batches):
        keys = [b"key-%d" % row for row in range(ROWS)]
        values = [b"%0*d" % (VALUE_BYTES, row) for row in range(ROWS)]
        times = array("q", [1_700_000_000_000_000_000] * ROWS)
        made = encode(batch_from_columns(keys, values, times, {}), codec)
        batch = build_batch(
            made.payload,
            record_count=ROWS,
            codec=codec,
            base_timestamp_ms=made.base_timestamp_ms,
            max_timestamp_ms=made.max_timestamp_ms,
        )
        result.entries.append(
            seal_batch(batch, group=1, term=1, index=number + 1, previous_hash=0, base_offset=number * ROWS)
        )
    return data_plane_pb2.FetchResponse.FromString(answer.SerializeToString())


def addresses(chunk: pa.Array) -> list[tuple[int, int]]:
    """Returns where the buffers of an array lie, as (start, end)."""
    return [(buffer.address, buffer.address + buffer.size) for buffer in chunk.buffers() if buffer is not None]


def test_keys_values_and_times_of_an_uncompressed_batch_lie_in_the_bytes_that_came() -> None:
    entries = list(response(Codec.NONE).results[0].entries)
    spans = [(pa.py_buffer(entry).address, pa.py_buffer(entry).address + len(entry)) for entry in entries]
    table = to_table(rows_from(TP, entries, 0))
    for name in ("key", "value", "timestamp"):
        column = table.column(name)
        assert column.num_chunks == len(entries)
        for chunk, (begin, end) in zip(column.chunks, spans, strict=True):
            assert all(begin <= first <= last <= end for first, last in addresses(chunk)), name


@pytest.mark.parametrize(
    ("codec", "per_row"), [(Codec.NONE, 20), (Codec.LZ4, VALUE_BYTES + 60), (Codec.ZSTD, VALUE_BYTES + 60)]
)
def test_beside_decompression_only_the_offsets_take_memory(codec: Codec, per_row: int) -> None:
    entries = list(response(codec).results[0].entries)
    to_table(rows_from(TP, entries[:1], 0))  # Constant columns are kept from now on.
    before = pa.total_allocated_bytes()
    table = to_table(rows_from(TP, entries, 0))
    assert table.num_rows == ROWS * len(entries)
    assert pa.total_allocated_bytes() - before <= per_row * table.num_rows
    assert table.column("offset").to_pylist() == list(range(table.num_rows))


def test_cutting_a_batch_for_a_poll_copies_nothing() -> None:
    (entry,) = response(Codec.NONE, batches=1).results[0].entries
    rows = FetchedRows.of_entry(TP, entry)
    head, rest = rows.split(100)
    values = [part.columns.column(1) for part in (rows, head, rest)]
    assert addresses(values[0]) == addresses(values[1]) == addresses(values[2])
