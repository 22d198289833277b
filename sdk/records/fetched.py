"""Fetched batches before they are returned: trimmed, cut to the limit of a poll, converted to records or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.errors import CorruptRecordError, UnreadableBatchError
from quorumlog.sdk.records.record_batch import DecodedBatch, DecodedRun, UnreadableBatch, decode, decode_runs
from quorumlog.sdk.types import ConsumerRecord, Headers, TopicPartition
from quorumlog.wire.entry import BatchHeader, CorruptEntryError, TimestampType, is_of_transaction, verify_batch
from quorumlog.wire.payload import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    LOG_SCHEMA,
    OFFSET_DELTA,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    has_gaps,
)

_COLUMNS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
#: Schema of the tables that ``poll_arrow`` returns.
CONSUMED_SCHEMA = pa.schema(_COLUMNS)
#: Constant columns of this length are cached and sliced, so that a batch's share of them costs nothing.
_KEPT_ROWS = 16_384
#: As an Arrow value: for a Python number, pyarrow searches the disk for the dateutil package at every call.
_US_PER_MS = pa.scalar(1_000, pa.int64())
_NO_ROWS = pa.RecordBatch.from_pylist([], LOG_SCHEMA)
_new_record: Callable[[type[ConsumerRecord], Iterable[object]], ConsumerRecord] = tuple.__new__


class FetchedRows(NamedTuple):
    """Rows of one stored batch, or of several that were decoded as one.

    The first row is at ``offset``. The others follow it one by one, except in a compacted batch, whose rows have
    offsets of their own. Some have no row: they only move a reader to ``offset``, behind a batch that was skipped, or
    behind markers and aborted records, which the node leaves out.

    Arguments:
        size_bytes: memory that the rows keep.
        leader_epoch: in which the batch was appended.
        stored_bytes: size of the entries that the rows come from.
        header: of the first of these.
        skipped: set if the batch before ``offset`` is unreadable and was skipped.
        covered_to: the offset after those behind the rows that hold no record for this reader; 0 without any.
    """

    tp: TopicPartition
    offset: int
    header: BatchHeader
    columns: pa.RecordBatch
    size_bytes: int
    leader_epoch: int
    stored_bytes: int = 0
    skipped: UnreadableBatchError | None = None
    covered_to: int = 0

    @classmethod
    def of_entry(cls, tp: TopicPartition, entry: bytes) -> FetchedRows:
        """Returns all rows of a stored batch.

        Raises:
            CorruptRecordError: it is damaged.
        """
        return cls.of_batch(tp, len(entry), decode(entry))

    @classmethod
    def of_batch(cls, tp: TopicPartition, stored_bytes: int, batch: DecodedBatch) -> FetchedRows:
        """Returns all rows of a decoded batch."""
        header, term, columns = batch
        # Decompressed rows no longer share the entry's memory, and may be far larger. Rows of Kafka's batches may share
        # their memory, so that each has its part of it.
        size = columns.nbytes if header.is_kafka else columns.get_total_buffer_size()
        return cls(tp, header.base_offset, header, columns, max(stored_bytes, size), term, stored_bytes)

    @classmethod
    def of_skipped(cls, stored_bytes: int, batch: UnreadableBatch, error: UnreadableBatchError) -> FetchedRows:
        """Returns an empty placeholder for a skipped batch: readers continue at the offset after it."""
        place = error.partition, error.next_offset, batch.header, _NO_ROWS
        return cls(*place, 0, batch.leader_epoch, stored_bytes, skipped=error)

    @classmethod
    def of_cover(cls, tp: TopicPartition, stored_bytes: int, header: BatchHeader, leader_epoch: int) -> FetchedRows:
        """Returns no rows for a cover, or a marker: readers continue at the offset after it."""
        return cls(tp, header.last_offset + 1, header, _NO_ROWS, 0, leader_epoch, stored_bytes)

    @property
    def is_empty(self) -> bool:
        """True without rows: readers only continue at ``offset``."""
        return not self.columns.num_rows

    @property
    def next_offset(self) -> int:
        """The offset at which readers continue behind the rows."""
        return max(self._offset_of(self.columns.num_rows - 1) + 1, self.covered_to)

    def _offset_of(self, row: int) -> int:
        if has_gaps(self.columns):
            delta: int = self.columns.column(OFFSET_DELTA)[row].as_py()
            return self.header.base_offset + delta
        return self.offset + row

    def offsets(self) -> pa.Array[Any]:
        """Returns the offset of each row."""
        if has_gaps(self.columns):
            deltas = self.columns.column(OFFSET_DELTA).cast(pa.int64())
            return pc.add(deltas, pa.scalar(self.header.base_offset, pa.int64()))
        return pc.add(_ramp(self.columns.num_rows), pa.scalar(self.offset, pa.int64()))

    def first_at_time(self, timestamp_ms: int, offset: int) -> tuple[int, int] | None:
        """Returns offset and timestamp (ms) of the first row at or after ``timestamp_ms`` and at or after
        ``offset``."""
        if self.next_offset <= offset:
            return None
        rows = self.starting_at(offset)
        append_time_ms = self.append_time_ms()
        if append_time_ms is not None:
            return (rows.offset, append_time_ms) if append_time_ms >= timestamp_ms else None
        times = pc.divide(rows.columns.column(TIMESTAMP).view(pa.int64()), _US_PER_MS)
        row: int = pc.index(pc.greater_equal(times, pa.scalar(timestamp_ms, pa.int64())), True).as_py()
        return (rows._offset_of(row), times[row].as_py()) if row >= 0 else None

    def append_time_ms(self) -> int | None:
        """Returns the common timestamp of all rows (ms) if the leader set it; None otherwise, and for a compacted
        batch."""
        by_leader = self.header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return self.header.max_timestamp_ms if by_leader and not has_gaps(self.columns) else None

    def split(self, rows: int) -> tuple[FetchedRows, FetchedRows]:
        """Returns the first ``rows`` rows and the others; the latter, which keep the bytes alive, have the whole
        size."""
        head = self._replace(columns=self.columns.slice(0, rows), size_bytes=0, covered_to=0)
        rest = self._replace(offset=self._offset_of(rows), columns=self.columns.slice(rows))
        return head, rest

    def continuing(self, offset: int, covered_to: int) -> FetchedRows:
        """Returns the rows at or after an offset, which may be none: a batch may cover offsets behind its records, as
        the last one of a restored log.

        Arguments:
            covered_to: the offset after all that the batch, and a cover behind it, cover.
        """
        if self.next_offset > offset:
            return self.starting_at(offset)._replace(covered_to=covered_to)
        return self._replace(offset=covered_to, columns=_NO_ROWS, size_bytes=0)

    def starting_at(self, offset: int) -> FetchedRows:
        """Returns the rows at or after an offset; at least one must exist."""
        if offset <= self.offset:
            return self
        if has_gaps(self.columns):
            wanted = pa.scalar(offset - self.header.base_offset, pa.uint32())
            before: int = pc.less(self.columns.column(OFFSET_DELTA), wanted).true_count
        else:
            before = offset - self.offset
        return self._replace(offset=self._offset_of(before), columns=self.columns.slice(before))


def rows_from(
    tp: TopicPartition,
    entries: Sequence[bytes],
    offset: int,
    compacted_offset: int = 0,
    *,
    skip_unreadable: bool = False,
) -> Iterator[FetchedRows]:
    """Verifies and decodes fetched entries from ``offset`` on, one by one or several together. The first may start
    before it and is trimmed.

    Arguments:
        compacted_offset: below it offsets may be missing.
        skip_unreadable: yield ``FetchedRows.of_skipped`` for an unreadable batch instead of raising.

    Raises:
        UnreadableBatchError: the records of a batch with a right checksum cannot be decoded.
        CorruptRecordError: a batch is damaged, or the entries skip or repeat offsets. Never skipped: a node that sends
            such a batch must not go unnoticed.
    """
    expected = offset
    parts = _parts(entries)
    number = 0
    while number < len(entries):
        try:
            part = next(parts)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"{tp.topic}-{tp.partition} at offset {expected}: {error}; seek beyond the batch to continue"
            ) from None
        headers = part.headers
        first, last_offset = headers[0], headers[-1].last_offset
        skips = first.base_offset > max(expected, compacted_offset)
        repeats = last_offset < expected or (number and first.base_offset < expected)
        if skips or repeats:
            raise CorruptRecordError(
                f"{tp.topic}-{tp.partition}: offset {expected} should come next,"
                f" but the batch holds {first.base_offset} to {last_offset}"
            )
        stored_bytes = sum(map(len, entries[number : number + len(headers)]))
        if isinstance(part, UnreadableBatch):
            found = UnreadableBatchError.of(tp, first.base_offset, last_offset, first.record_count, part.reason)
            if not skip_unreadable:
                raise found
            yield FetchedRows.of_skipped(stored_bytes, part, found)
        elif first.is_control:
            yield FetchedRows.of_cover(tp, stored_bytes, first, part.leader_epochs[0])
        else:
            cover = _cover_at(entries, number + len(headers), last_offset + 1)
            if cover is not None:
                # Together with the rows, so that their reader is behind the cover at once.
                next(parts)
                last_offset = cover.last_offset
                stored_bytes += len(entries[number + len(headers)])
                number += 1
            batch = DecodedBatch(first, part.leader_epochs[0], part.columns)
            yield FetchedRows.of_batch(tp, stored_bytes, batch).continuing(expected, last_offset + 1)
        number += len(headers)
        expected = last_offset + 1


def _cover_at(entries: Sequence[bytes], number: int, offset: int) -> BatchHeader | None:
    """Returns the header of an entry if it is an intact cover, or marker, at an offset."""
    if number >= len(entries) or not is_of_transaction(entries[number]):
        return None
    try:
        _, header = verify_batch(entries[number])
    except CorruptEntryError:
        return None  # Its own turn reports it, after the rows before it.
    return header if header.is_control and header.base_offset == offset else None


def _parts(entries: Sequence[bytes]) -> Iterator[DecodedRun | UnreadableBatch]:
    for run in decode_runs(entries):
        if isinstance(run, UnreadableBatch):
            yield run
        else:
            yield from run.cut()


def to_records(
    fetched: FetchedRows,
    key_deserializer: Callable[[bytes], Any] | None = None,
    value_deserializer: Callable[[bytes], Any] | None = None,
) -> list[ConsumerRecord]:
    """Returns the rows as records."""
    columns = fetched.columns
    keys = columns.column(KEY).to_pylist()
    values = columns.column(VALUE).to_pylist()
    if key_deserializer is not None:
        keys = [None if key is None else key_deserializer(key) for key in keys]
    if value_deserializer is not None:
        values = [None if value is None else value_deserializer(value) for value in values]
    offsets: Iterable[Any] = range(fetched.offset, fetched.offset + len(values))
    if has_gaps(columns):
        offsets = fetched.offsets().to_pylist()
    # zip and tuple.__new__ keep the loop in C: a fifth of the cost of calling the class.
    rows = zip(
        repeat(fetched.tp.topic), repeat(fetched.tp.partition), offsets, _timestamps_ms(fetched), keys, values,
        _headers(columns.column(HEADERS)), strict=False,
    )  # fmt: skip
    return list(map(_new_record, repeat(ConsumerRecord), rows))


def _timestamps_ms(fetched: FetchedRows) -> Iterable[int | None]:
    append_time_ms = fetched.append_time_ms()
    if append_time_ms is not None:
        return repeat(append_time_ms)
    microseconds = fetched.columns.column(TIMESTAMP).view(pa.int64())
    milliseconds: list[int | None] = pc.divide(microseconds, _US_PER_MS).to_pylist()
    return milliseconds


def _headers(column: pa.Array[Any]) -> Iterable[Headers]:
    if column.null_count == len(column):
        return repeat(())
    return [[(pair["key"], pair["value"]) for pair in pairs] if pairs else () for pairs in column.to_pylist()]


def to_table(fetched: Iterable[FetchedRows]) -> pa.Table:
    """Returns the rows as one table of :data:`CONSUMED_SCHEMA`; keys, values and headers point into the fetched
    bytes."""
    return pa.Table.from_batches([_with_place(rows) for rows in fetched], CONSUMED_SCHEMA)


def _with_place(fetched: FetchedRows) -> pa.RecordBatch:
    count = fetched.columns.num_rows
    append_time_ms = fetched.append_time_ms()
    if append_time_ms is not None:
        timestamps: pa.Array[Any] = pa.array([append_time_ms * 1_000] * count, TIMESTAMP_TYPE)
    else:
        timestamps = fetched.columns.column(TIMESTAMP)
    return pa.RecordBatch.from_arrays(
        [
            _constant(fetched.tp.topic, pa.string(), count),
            _constant(fetched.tp.partition, pa.int32(), count),
            fetched.offsets(),
            timestamps,
            fetched.columns.column(KEY),
            fetched.columns.column(VALUE),
            fetched.columns.column(HEADERS),
        ],
        schema=CONSUMED_SCHEMA,
    )


def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array[Any]:
    return _kept_constant(value, kind).slice(0, count) if count <= _KEPT_ROWS else pa.array([value] * count, kind)


@lru_cache(maxsize=256)
def _kept_constant(value: str | int, kind: pa.DataType) -> pa.Array[Any]:
    return pa.array([value] * _KEPT_ROWS, kind)


def _ramp(count: int) -> pa.Array[Any]:
    return _kept_ramp().slice(0, count) if count <= _KEPT_ROWS else pa.array(range(count), pa.int64())


@lru_cache(maxsize=1)
def _kept_ramp() -> pa.Array[Any]:
    return pa.array(range(_KEPT_ROWS), pa.int64())
