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
        offset: of the first row; the others follow without a gap, unless ``offsets`` says where they are.
        timestamp_type: 0 as the producer set it, 1 as the leader did.
        append_time_ms: the one timestamp of all rows where the leader set it, else None.
        columns: key, value, timestamp (us, UTC) and headers.
        offsets: of every row of a compacted batch, else None.
        compacted_offset: below it offsets may be missing.
        producer_id, producer_epoch: of the idempotent producer that wrote them; -1 for others, and once compacted.
    """

    offset: int
    timestamp_type: int
    append_time_ms: int | None
    columns: pa.RecordBatch
    offsets: Column | None = None
    compacted_offset: int = 0
    producer_id: int = -1
    producer_epoch: int = -1

    @property
    def end(self) -> int:
        """The offset after the last row."""
        if self.offsets is not None and len(self.offsets):
            last: int = self.offsets[-1].as_py()
            return last + 1
        return self.offset + int(self.columns.num_rows)

    def clip(self, start: int, end: int) -> StoredRows:
        """The rows with offsets in [start, end), without a copy."""
        if self.offsets is None:
            first, last = max(start, self.offset), min(end, self.end)
            return self.rows(first - self.offset, max(last - first, 0))
        first, last = (pc.less(self.offsets, pa.scalar(each)).true_count for each in (start, end))
        return self.rows(first, max(last - first, 0))

    def rows(self, first: int, count: int) -> StoredRows:
        """``count`` rows from the row ``first`` on, without a copy."""
        if self.offsets is None:
            return self._replace(offset=self.offset + first, columns=self.columns.slice(first, count))
        offsets = self.offsets.slice(first, count)
        offset = offsets[0].as_py() if len(offsets) else self.offset
        return self._replace(offset=offset, columns=self.columns.slice(first, count), offsets=offsets)

    def all_offsets(self) -> Column:
        """The offset of each row."""
        if self.offsets is not None:
            return self.offsets
        ones = pa.repeat(pa.scalar(1, pa.int64()), self.columns.num_rows)
        return pc.cumulative_sum(ones, start=pa.scalar(self.offset - 1, pa.int64()))


def spark_batches(
    rows: Iterable[StoredRows], topic: str, partition: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Gathers rows of one partition into batches of ``schema``, each at most 32 MiB unless one row is larger."""
    waiting: list[StoredRows] = []
    waiting_bytes = 0
    for whole in rows:
        for piece in _cut(whole):
            size = _size(piece)
            if waiting and waiting_bytes + size > MAX_BYTES:
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
    middle = rows.columns.num_rows // 2
    yield from _cut(rows.rows(0, middle))
    yield from _cut(rows.rows(middle, rows.columns.num_rows - middle))


def _assemble(chunks: list[StoredRows], topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of rows in offset order."""
    count = sum(chunk.columns.num_rows for chunk in chunks)
    arrays = [_column(field, chunks, count, topic, partition) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(field: pa.Field[Any], chunks: list[StoredRows], count: int, topic: str, partition: int) -> Column:
    if field.name == "topic":
        return pa.repeat(topic, count)
    if field.name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), count)
    if field.name == "offset":
        return _joined([chunk.all_offsets() for chunk in chunks])
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
