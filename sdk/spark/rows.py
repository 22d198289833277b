"""Converts stored batches to Spark's rows: whole Arrow columns, no work per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.errors import UnreadableBatchError
from quorumlog.sdk.spark.schema import HEADERS
from quorumlog.wire.entry import TimestampType

#: Small batches are combined up to this size before Spark receives them, because each costs it some work: below a
#: megabyte that matters. More is not better: memory that is used once and released costs allocations.
TARGET_BYTES = 2 << 20
#: Batches of this size are not joined with others before they are processed: copying them would cost more.
ALONE_BYTES = 256 << 10
#: Larger batches are cut: Spark copies a batch whole, several times.
MAX_BYTES = 32 << 20
#: Bytes of a row besides key, value and headers: topic, partition, offset, timestamps.
_ROW_BYTES = 48

Column: TypeAlias = "pa.Array[Any]"


class StoredRows(NamedTuple):
    """Consecutive rows of a stored batch, or of several that were decoded together.

    Attributes:
        offset: of the first row; the others follow without a gap, unless ``offsets`` is set.
        timestamp_type: 0 if set by the producer, 1 if by the leader.
        append_time_ms: the common timestamp of all rows if the leader set it, otherwise None.
        columns: key, value, timestamp (us, UTC) and headers.
        offsets: of every row of a compacted batch, otherwise None.
        compacted_offset: below it offsets may be missing.
        skipped: why there are no rows: the batch at ``offset`` is unreadable and was skipped.
        covers_to: the offset after those that the batch covers: a cover has no rows, others may cover offsets behind
            theirs; 0: none.
    """

    offset: int
    timestamp_type: int
    append_time_ms: int | None
    columns: pa.RecordBatch
    offsets: Column | None = None
    compacted_offset: int = 0
    skipped: UnreadableBatchError | None = None
    covers_to: int = 0

    @property
    def is_empty(self) -> bool:
        """True for offsets without rows: a batch that was skipped, or a cover."""
        return not self.columns.num_rows

    @property
    def end(self) -> int:
        """The offset at which readers continue."""
        return self.skipped.next_offset if self.skipped is not None else max(self._row_end, self.covers_to)

    @property
    def _row_end(self) -> int:
        """The offset after the last row."""
        if self.offsets is not None and len(self.offsets):
            last: int = self.offsets[-1].as_py()
            return last + 1
        return self.offset + int(self.columns.num_rows)

    @property
    def is_dense(self) -> bool:
        """True for rows without missing offsets, with times of their own."""
        count = self.columns.num_rows
        is_plain = self.offsets is None and self.append_time_ms is None
        return is_plain and count > 0 and self.covers_to <= self.offset + count

    def continues(self, before: StoredRows) -> bool:
        """True if these rows directly follow other dense rows, with timestamps of the same type."""
        return self.offset == before.offset + before.columns.num_rows and self.timestamp_type == before.timestamp_type

    def clip(self, start: int, end: int) -> StoredRows:
        """Returns the rows with offsets in [start, end), without a copy."""
        if self.offsets is None:
            first, last = min(max(start, self.offset), self._row_end), min(end, self._row_end)
            return self.rows(first - self.offset, max(last - first, 0))
        first, last = (pc.less(self.offsets, pa.scalar(each)).true_count for each in (start, end))
        return self.rows(first, max(last - first, 0))

    def rows(self, first: int, count: int) -> StoredRows:
        """Returns ``count`` rows from the row ``first`` on, without a copy."""
        if self.offsets is None:
            return self._replace(offset=self.offset + first, columns=self.columns.slice(first, count), covers_to=0)
        offsets = self.offsets.slice(first, count)
        offset = offsets[0].as_py() if len(offsets) else self.offset
        return self._replace(offset=offset, columns=self.columns.slice(first, count), offsets=offsets, covers_to=0)


def gather(stored: Iterable[StoredRows], schema: pa.Schema) -> Iterator[StoredRows]:
    """Joins consecutive small batches: what follows costs as much for each batch, large or small.

    Only batches without missing offsets, whose records have times of their own, are joined. Then columns that
    ``schema`` does not have are left out.
    """
    waiting: list[StoredRows] = []
    waiting_bytes = 0
    for rows in stored:
        size = _most_bytes(rows)
        is_small = size < ALONE_BYTES and rows.is_dense
        if waiting and not (is_small and waiting_bytes + size <= TARGET_BYTES and rows.continues(waiting[-1])):
            yield _one(waiting, schema)
            waiting, waiting_bytes = [], 0
        if is_small:
            waiting.append(rows)
            waiting_bytes += size
        else:
            yield rows
    if waiting:
        yield _one(waiting, schema)


def _one(run: Sequence[StoredRows], schema: pa.Schema) -> StoredRows:
    if len(run) == 1:
        return run[0]
    table = pa.Table.from_batches([rows.columns for rows in run])
    # Without any column, a table would have no rows.
    needed = [name for name in table.column_names if name in schema.names] or ["timestamp"]
    (columns,) = table.select(needed).combine_chunks().to_batches()
    return run[0]._replace(columns=columns, covers_to=run[-1].covers_to)


def spark_batches(
    rows: Iterable[StoredRows], topic: str, partition: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Combines rows of one partition into batches of ``schema``, each at most 32 MiB unless one row is larger."""
    assembly = _Assembly(topic, partition, schema)
    waiting: list[StoredRows] = []
    waiting_bytes = 0
    for whole in rows:
        for piece, size in _cut(whole, _size(whole)):
            if waiting and waiting_bytes + size > MAX_BYTES:
                yield assembly.batch(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(piece)
            waiting_bytes += size
        if waiting_bytes >= TARGET_BYTES:
            yield assembly.batch(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield assembly.batch(waiting)


def _most_bytes(rows: StoredRows) -> int:
    """Returns at least the size of rows. Their exact size takes Arrow a dozen times as long."""
    return rows.columns.get_total_buffer_size() + rows.columns.num_rows * _ROW_BYTES


def _size(rows: StoredRows) -> int:
    return int(rows.columns.nbytes) + rows.columns.num_rows * _ROW_BYTES


def _cut(rows: StoredRows, size: int) -> Iterator[tuple[StoredRows, int]]:
    """Halves rows until each piece fits: values differ in size, so a cut by count alone could miss the limit."""
    if size <= MAX_BYTES or rows.columns.num_rows == 1:
        yield rows, size
        return
    middle = rows.columns.num_rows // 2
    for half in (rows.rows(0, middle), rows.rows(middle, rows.columns.num_rows - middle)):
        yield from _cut(half, _size(half))


class _Assembly:
    """Builds batches of one partition's rows. Constant columns are created once, and sliced afterwards."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        self._schema = schema
        self._topic = _Repeated(pa.scalar(topic, pa.string()))
        self._partition = _Repeated(pa.scalar(partition, pa.int32()))
        self._types = {kind: _Repeated(pa.scalar(int(kind), pa.int32())) for kind in TimestampType}
        self._numbers = _Numbers()

    def batch(self, chunks: list[StoredRows]) -> pa.RecordBatch:
        """Returns one batch of rows in offset order."""
        return pa.RecordBatch.from_arrays([self._column(field, chunks) for field in self._schema], schema=self._schema)

    def _column(self, field: pa.Field[Any], chunks: list[StoredRows]) -> Column:
        if field.name == "topic":
            return self._topic.times(_rows_in(chunks))
        if field.name == "partition":
            return self._partition.times(_rows_in(chunks))
        if field.name == "offset":
            return _joined([self._offsets(run) for run in _runs(chunks)])
        if field.name == "timestampType":
            kinds = groupby(chunks, key=lambda chunk: chunk.timestamp_type)
            return _joined([self._types[kind].times(_rows_in(of_kind)) for kind, of_kind in kinds])
        if field.name == "timestamp":
            return _joined([_timestamps(chunk) for chunk in chunks])
        return _joined([_as_type(chunk.columns.column(field.name), field) for chunk in chunks])

    def _offsets(self, run: list[StoredRows]) -> Column:
        if run[0].offsets is not None:
            return run[0].offsets
        return pc.add(self._numbers.up_to(_rows_in(run)), pa.scalar(run[0].offset, pa.int64()))


class _Repeated:
    """A column with one repeated value."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._held: Column = pa.nulls(0, value.type)

    def times(self, count: int) -> Column:
        """Returns the value ``count`` times."""
        if len(self._held) < count:
            self._held = pa.repeat(self._value, _rounded(count))
        return self._held.slice(0, count)


class _Numbers:
    """A column with the numbers 0, 1, 2 and so on."""

    def __init__(self) -> None:
        self._held: Column = pa.nulls(0, pa.int64())

    def up_to(self, end: int) -> Column:
        """Returns the numbers below ``end``."""
        if len(self._held) < end:
            ones = pa.repeat(pa.scalar(1, pa.int64()), _rounded(end))
            self._held = pc.cumulative_sum(ones, start=pa.scalar(-1, pa.int64()))
        return self._held.slice(0, end)


def _rounded(count: int) -> int:
    """Returns a rounded length: batches differ slightly in length, and a longer column serves the next one, too."""
    return 1 << (count - 1).bit_length()


def _rows_in(chunks: Iterable[StoredRows]) -> int:
    return sum(chunk.columns.num_rows for chunk in chunks)


def _runs(chunks: Iterable[StoredRows]) -> Iterator[list[StoredRows]]:
    """Yields chunks with consecutive offsets together; each chunk with offsets of its own alone."""
    run: list[StoredRows] = []
    for chunk in chunks:
        if run and (chunk.offsets is not None or run[-1].offsets is not None or chunk.offset != run[-1].end):
            yield run
            run = []
        run.append(chunk)
    if run:
        yield run


def _timestamps(chunk: StoredRows) -> Column:
    if chunk.append_time_ms is None:
        return chunk.columns.column("timestamp")
    return pa.repeat(pa.scalar(chunk.append_time_ms * 1000, pa.timestamp("us", "UTC")), chunk.columns.num_rows)


def _as_type(column: Column, field: pa.Field[Any]) -> Column:
    """Renames list items with a cast that copies nothing: Spark calls them ``element``, Arrow ``item``."""
    if field.name == HEADERS and column.type != field.type:
        return column.cast(field.type)
    return column


def _joined(arrays: list[Column]) -> Column:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
