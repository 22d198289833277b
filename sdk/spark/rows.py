"""Stored batches to the rows that Spark sees: whole Arrow columns, nothing per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.spark.schema import HEADERS

#: Small batches are gathered up to this size before Spark gets them: each costs it a round trip to the JVM.
TARGET_BYTES = 8 << 20
#: Larger batches are cut: Spark copies a batch whole, several times.
MAX_BYTES = 32 << 20
#: What a row costs beside key, value and headers: topic, partition, offset, timestamps.
_ROW_BYTES = 48

Column: TypeAlias = "pa.Array[Any]"


class StoredRows(NamedTuple):
    """Consecutive rows of one stored batch.

    Attributes:
        offset: of the first row; the others follow without a gap.
        timestamp_type: 0 as the producer set it, 1 as the leader did.
        append_time_ms: the one timestamp of all rows where the leader set it, else None.
        columns: key, value, timestamp (us, UTC) and headers.
    """

    offset: int
    timestamp_type: int
    append_time_ms: int | None
    columns: pa.RecordBatch

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.offset + int(self.columns.num_rows)

    def clip(self, start: int, end: int) -> StoredRows:
        """The rows with offsets in [start, end), without a copy."""
        first, last = max(start, self.offset), min(end, self.end)
        return self._replace(offset=first, columns=self.columns.slice(first - self.offset, max(last - first, 0)))


def spark_batches(
    rows: Iterable[StoredRows], topic: str, partition: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Gathers rows of one partition into batches of ``schema``, each at most 32 MiB unless one row is larger."""
    waiting: list[StoredRows] = []
    waiting_bytes = 0
    for whole in rows:
        for piece in _cut(whole):
            size = _size(piece)
            if waiting and (waiting_bytes + size > MAX_BYTES or waiting[-1].end != piece.offset):
                yield _assemble(waiting, topic, partition, schema)
                waiting, waiting_bytes = [], 0
            waiting.append(piece)
            waiting_bytes += size
        if waiting_bytes >= TARGET_BYTES:
            yield _assemble(waiting, topic, partition, schema)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _assemble(waiting, topic, partition, schema)


def _size(rows: StoredRows) -> int:
    return int(rows.columns.nbytes) + rows.columns.num_rows * _ROW_BYTES


def _cut(rows: StoredRows) -> Iterator[StoredRows]:
    """Halves rows until each piece fits: values differ in size, so a cut by count alone could miss the limit."""
    if _size(rows) <= MAX_BYTES or rows.columns.num_rows == 1:
        yield rows
        return
    middle = rows.offset + rows.columns.num_rows // 2
    yield from _cut(rows.clip(rows.offset, middle))
    yield from _cut(rows.clip(middle, rows.end))


def _assemble(chunks: list[StoredRows], topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of rows whose offsets follow each other."""
    count = sum(chunk.columns.num_rows for chunk in chunks)
    arrays = [_column(field, chunks, count, topic, partition) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(field: pa.Field[Any], chunks: list[StoredRows], count: int, topic: str, partition: int) -> Column:
    if field.name == "topic":
        return pa.repeat(topic, count)
    if field.name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), count)
    if field.name == "offset":
        ones = pa.repeat(pa.scalar(1, pa.int64()), count)
        return pc.cumulative_sum(ones, start=pa.scalar(chunks[0].offset - 1, pa.int64()))
    if field.name == "timestampType":
        return _joined([pa.repeat(pa.scalar(c.timestamp_type, pa.int32()), c.columns.num_rows) for c in chunks])
    if field.name == "timestamp":
        return _joined([_timestamps(chunk) for chunk in chunks])
    return _joined([_as_type(chunk.columns.column(field.name), field) for chunk in chunks])


def _timestamps(chunk: StoredRows) -> Column:
    if chunk.append_time_ms is None:
        return chunk.columns.column("timestamp")
    return pa.repeat(pa.scalar(chunk.append_time_ms * 1000, pa.timestamp("us", "UTC")), chunk.columns.num_rows)


def _as_type(column: Column, field: pa.Field[Any]) -> Column:
    """Spark calls the items of a list ``element``, Arrow ``item``: the cast renames, it copies nothing."""
    if field.name == HEADERS and column.type != field.type:
        return column.cast(field.type)
    return column


def _joined(arrays: list[Column]) -> Column:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
