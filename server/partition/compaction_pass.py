"""One pass of compaction: batches in, compacted batches out, bounded in memory, in small pieces of work.

A record survives if it is the last of its key below the newest point, or has no key. A tombstone (a record without a
value) does too, until a point whose timestamp reaches the delete horizon that the first point to cover it has set. With
a retention, a record survives until a point whose timestamp exceeds the record's age by that: its age counts from its
timestamp or from its append, whichever is later. All of that follows from the points and the log alone: so every
replica arrives at the same content, whether it carries out the points one by one or several at once, and whatever it
had compacted before.

Append times are rounded up when a record is first covered, because a compacted batch has one for all of its records:
batches are divided where it changes. Points of nodes below feature level 3 do not keep them. Records that such points
cover first count as appended when the first point that keeps append times was proposed.

Pure, but slow and dependent on Arrow: it runs off the node's thread, and is imported only where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.server.partition.batch_ages import MAX_CLOCK_AHEAD_MS
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.server.partition.content_hash import ContentHash
from quorumlog.wire.columns import read_columns
from quorumlog.wire.entry import (
    NO_DELETE_HORIZON,
    BatchHeader,
    Codec,
    CorruptEntryError,
    TimestampType,
    build_compacted,
    parse_header,
)
from quorumlog.wire.payload import (
    COMPACTED_SCHEMA,
    LOG_SCHEMA,
    OFFSET_DELTA,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    has_gaps,
    write_payload,
)

#: Minimum number of bytes that are read and processed at once: below that the cost per call would matter.
CHUNK_BYTES = 1 << 20
#: The keys of the dirty section are put into a hash table once per chunk of the clean one, so with many keys chunks
#: grow, up to this size.
MOST_CHUNK_BYTES = 32 << 20
#: A batch's offsets are 32-bit distances from its first.
_MOST_DELTA = (1 << 32) - 1
_PLACED = pa.schema([*LOG_SCHEMA, *(pa.field(name, pa.int64()) for name in ("offset", "horizon", "appended"))])
_OFFSET, _HORIZON, _APPENDED = 4, 5, 6
#: Used instead of the delete horizon of tombstones that one point covers first and a later one of the same pass drops.
_EXPIRED = -(1 << 62)

_FALSE: Any = pa.scalar(False, pa.bool_())

Entries = Callable[[], Iterable[bytes]]


class CleanSection(NamedTuple):
    """The batches that were compacted before.

    Arguments:
        entries: returns them, in offset order.
        has_append_times: True if their headers have the append times of their records.
    """

    entries: Entries
    has_append_times: bool = False


class _BatchTimes(NamedTuple):
    """The times that decide how long the records of a batch are kept, in milliseconds.

    Arguments:
        horizon_ms: the delete horizon of its tombstones; None without any.
        append_time_ms: when its records were appended, rounded up; None if append times are not kept.
        oldest_ms: records whose age counts from an earlier time are removed; None: none are.
    """

    horizon_ms: int | None
    append_time_ms: int | None
    oldest_ms: int | None

    def removes(self, since_ms: int) -> bool:
        """True if a record whose age counts from this time is too old."""
        return self.oldest_ms is not None and since_ms < self.oldest_ms


_NO_TIMES = _BatchTimes(None, None, None)


class CompactionWork(NamedTuple):
    """The result of a piece of a pass: the bytes that it read, and the compacted batches that are ready.

    Arguments:
        unreadable: the header of a batch that this pass kept unchanged, because its records cannot be read. A batch
            that an earlier pass has kept is not reported again.
    """

    read_bytes: int
    batches: list[bytes]
    unreadable: BatchHeader | None = None


class _Chunk(NamedTuple):
    """Batches that are processed at once; or ``unreadable``, one whose payload cannot be read."""

    rows: pa.Table | None
    codec: Codec
    timestamp_type: TimestampType
    read_bytes: int
    unreadable: bytes | None = None


class CompactionPass:
    """Compacts up to the last of some points.

    Arguments:
        group: Raft group, written into the compacted batches.
        points: at least one, in order.
        clean: the batches that were compacted before.
        dirty: returns the batches after those, up to the end of the last point; called twice.
        batch_bytes: approximate size of the compacted batches.
    """

    def __init__(
        self,
        group: int,
        points: Sequence[CompactionPoint],
        clean: CleanSection,
        dirty: Entries,
        batch_bytes: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._group = group
        self._points = list(points)
        self._clean = clean
        self._dirty = dirty
        self._batch_bytes = batch_bytes
        self._chunk_bytes = chunk_bytes
        self._hash = ContentHash()
        self._keys: pa.Array[Any] = pa.array([], pa.binary())
        self._survivors: pa.Array[Any] = pa.array([], pa.int64())
        self._waiting: list[pa.Table] = []
        self._codec, self._timestamp_type = Codec.NONE, TimestampType.CREATE_TIME

    @property
    def content_hash(self) -> bytes:
        """Hash of everything that is kept, once the pass is done."""
        return self._hash.digest()

    def run(self) -> Iterator[CompactionWork]:
        """Runs the pass, piece by piece. Exceptions of the sources propagate."""
        yield from self._find_last()
        newest = max(point.timestamp_ms for point in self._points)
        start = self._points[-1].log_start_offset
        size = max(self._chunk_bytes, min(self._keys.nbytes, MOST_CHUNK_BYTES))
        for chunk in _chunks(self._clean.entries(), size, self._written_times, start):
            yield self._keep(chunk, lambda rows: self._of_clean(rows, newest))
        for chunk in _chunks(self._dirty(), self._chunk_bytes, self._covering_times, 0):
            work = self._keep(chunk, self._of_dirty)
            yield work if chunk.unreadable is None else work._replace(unreadable=parse_header(chunk.unreadable))
        yield CompactionWork(0, self._flush())

    # -- surviving records ----------------------------------------------------------------------------------------

    def _find_last(self) -> Iterator[CompactionWork]:
        """Finds the dirty section's keys, and the offsets of their last records."""
        keys: list[pa.Table] = []
        for chunk in _chunks(self._dirty(), self._chunk_bytes, lambda _: _NO_TIMES, 0):
            if chunk.rows is not None:
                keyed = chunk.rows.select(["key", "offset"]).filter(pc.is_valid(chunk.rows.column("key")))
                keys.append(_last_of_each(keyed))
            yield CompactionWork(chunk.read_bytes, [])
        if keys:
            last = _last_of_each(pa.concat_tables(keys))
            self._keys = _whole(last.column("key"))
            offsets = _whole(last.column("offset"))
            self._survivors = offsets.take(pc.array_sort_indices(offsets))

    def _of_clean(self, rows: pa.Table, newest_ms: int) -> pa.Table:
        superseded = pc.is_in(rows.column("key"), value_set=self._keys)
        # A null horizon means that the record is not a tombstone: it compares as null, which is not true.
        expired = pc.fill_null(pc.less_equal(rows.column("horizon"), _int(newest_ms)), _FALSE)
        return rows.filter(pc.and_not(pc.and_not(self._kept_by_start(rows), superseded), expired))

    def _of_dirty(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows  # All of them were too old.
        offsets = rows.column("offset")
        survives = pc.is_in(offsets, value_set=self._survivors_between(offsets[0].as_py(), offsets[-1].as_py()))
        keep = pc.and_(self._kept_by_start(rows), pc.or_(survives, pc.is_null(rows.column("key"))))
        expired = pc.fill_null(pc.equal(rows.column("horizon"), _int(_EXPIRED)), _FALSE)
        return rows.filter(pc.and_not(keep, expired))

    def _kept_by_start(self, rows: pa.Table) -> Any:
        return pc.greater_equal(rows.column("offset"), _int(self._points[-1].log_start_offset))

    def _survivors_between(self, first: int, last: int) -> pa.Array[Any]:
        survivors = self._survivors
        begin, end = _first_at(survivors, first), _first_at(survivors, last + 1)
        return survivors.slice(begin, end - begin)

    def _covering_times(self, header: BatchHeader) -> _BatchTimes:
        """Returns the times of a batch of the dirty section, by the first point that covers it and the later ones.
        Points are ends of batches, so one covers all of it."""
        first, *later = points = [point for point in self._points if point.end_offset > header.last_offset]
        expires = any(point.timestamp_ms >= first.delete_horizon_ms for point in later)
        append_time_ms = _rounded(header, first) if first.append_time_step_ms else _first_time_kept(points)
        horizon = _EXPIRED if expires else first.delete_horizon_ms
        return _BatchTimes(horizon, append_time_ms, _oldest_ms(points))

    def _written_times(self, header: BatchHeader) -> _BatchTimes:
        """Returns the times of a compacted batch, or of an unreadable one that an earlier pass kept."""
        horizon = header.producer_epoch if header.producer_epoch != NO_DELETE_HORIZON else None
        known = self._clean.has_append_times
        append_time_ms = header.append_time_ms if known else _first_time_kept(self._points)
        return _BatchTimes(horizon, append_time_ms, _oldest_ms(self._points))

    # -- output ---------------------------------------------------------------------------------------------------

    def _keep(self, chunk: _Chunk, choose: Callable[[pa.Table], pa.Table]) -> CompactionWork:
        ready: list[bytes] = []
        if chunk.unreadable is not None:
            # Its keys are unknown. It is kept unchanged, because otherwise one invalid batch would block compaction
            # permanently.
            header = parse_header(chunk.unreadable)
            if header.last_offset >= self._points[-1].log_start_offset and not self._removes_unreadable(header):
                ready = self._flush()
                self._hash.add_unreadable(header, chunk.unreadable)
                ready.append(chunk.unreadable)
            return CompactionWork(chunk.read_bytes, ready)
        assert chunk.rows is not None
        kept = choose(chunk.rows)
        if kept.num_rows:
            self._hash.add(kept)
            if chunk.timestamp_type is not self._timestamp_type:
                ready = self._flush()
                self._timestamp_type = chunk.timestamp_type
            self._codec = max(self._codec, chunk.codec)
            self._waiting.append(kept)
            if sum(rows.nbytes for rows in self._waiting) >= self._batch_bytes:
                ready += self._flush()
        return CompactionWork(chunk.read_bytes, ready)

    def _removes_unreadable(self, header: BatchHeader) -> bool:
        """True if an unreadable batch is too old. Its header is the one that its leader wrote."""
        since_ms = max(header.append_time_ms, header.max_timestamp_ms)
        oldest_ms = _oldest_ms([point for point in self._points if point.end_offset > header.last_offset])
        return oldest_ms is not None and 0 <= since_ms < oldest_ms

    def _flush(self) -> list[bytes]:
        """Returns the rows that wait, as batches."""
        if not self._waiting:
            return []
        (rows,) = pa.concat_tables(self._waiting).combine_chunks().to_batches()
        self._waiting = []
        made = [self._batch(piece) for run in _by_times(rows) for piece in _by_size(run, self._batch_bytes)]
        self._codec = Codec.NONE
        return made

    def _batch(self, rows: pa.RecordBatch) -> bytes:
        offsets = rows.column(_OFFSET)
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        deltas = pc.subtract(offsets, _int(first)).cast(pa.uint32())
        columns = pa.RecordBatch.from_arrays([*rows.columns[:OFFSET_DELTA], deltas], schema=COMPACTED_SCHEMA)
        extremes: Any = pc.min_max(rows.column(TIMESTAMP).view(pa.int64())).as_py()
        horizon: Any = pc.max(rows.column(_HORIZON)).as_py()
        append_time_ms: Any = rows.column(_APPENDED)[0].as_py()
        if append_time_ms is None:
            append_time_ms = (extremes["min"] or 0) // 1_000
        return build_compacted(
            write_payload(columns, self._codec),
            group=self._group,
            base_offset=first,
            last_offset=last,
            record_count=rows.num_rows,
            codec=self._codec,
            timestamp_type=self._timestamp_type,
            append_time_ms=append_time_ms,
            max_timestamp_ms=(extremes["max"] or 0) // 1_000,
            delete_horizon_ms=NO_DELETE_HORIZON if horizon is None else horizon,
        )


def _last_of_each(rows: pa.Table) -> pa.Table:
    return rows.group_by("key", use_threads=False).aggregate([("offset", "max")]).rename_columns(["key", "offset"])


def _rounded(header: BatchHeader, first: CompactionPoint) -> int:
    """Returns the append time of a batch, rounded up as the first point that covers it says.

    A time from a clock that was far ahead, or none, is replaced by that of the point: the batch was appended before.
    """
    appended_ms = header.append_time_ms
    unknown = max(appended_ms, header.max_timestamp_ms) < 0
    if unknown or appended_ms > first.timestamp_ms + MAX_CLOCK_AHEAD_MS:
        appended_ms = first.timestamp_ms
    return -(-max(appended_ms, 0) // first.append_time_step_ms) * first.append_time_step_ms


def _first_time_kept(points: Sequence[CompactionPoint]) -> int | None:
    """Returns the time of the first of the points that keeps append times; None if none does."""
    return next((point.timestamp_ms for point in points if point.append_time_step_ms), None)


def _oldest_ms(points: Sequence[CompactionPoint]) -> int | None:
    """Returns the time before which the age of records may not have started, by the strictest of the points; None if
    records may have any age."""
    oldest = [point.timestamp_ms - point.retention_ms for point in points if point.retention_ms is not None]
    return max(oldest, default=None)


def _chunks(
    entries: Iterable[bytes], chunk_bytes: int, times_of: Callable[[BatchHeader], _BatchTimes], first_offset: int
) -> Iterator[_Chunk]:
    """Yields decoded batches that reach ``first_offset`` in chunks, each of one timestamp type."""
    waiting: list[pa.RecordBatch] = []
    size, read_bytes, codec, timestamp_type = 0, 0, Codec.NONE, TimestampType.CREATE_TIME
    for entry in entries:
        header = parse_header(entry)
        if header.last_offset < first_offset:
            continue
        rows = _placed(entry, header, times_of(header))
        if waiting and (rows is None or size >= chunk_bytes or header.timestamp_type is not timestamp_type):
            yield _Chunk(pa.Table.from_batches(waiting), codec, timestamp_type, read_bytes)
            waiting, size, read_bytes, codec = [], 0, 0, Codec.NONE
        if rows is None:
            yield _Chunk(None, header.codec, header.timestamp_type, len(entry), entry)
            continue
        waiting.append(rows)
        read_bytes += len(entry)
        size, codec, timestamp_type = (
            size + max(len(entry), rows.nbytes),
            max(codec, header.codec),
            header.timestamp_type,
        )
    if waiting:
        yield _Chunk(pa.Table.from_batches(waiting), codec, timestamp_type, read_bytes)


def _placed(entry: bytes, header: BatchHeader, times: _BatchTimes) -> pa.RecordBatch | None:
    """Returns a batch's rows that are not too old, each with its offset, its timestamp as readers see it, its append
    time and, for a tombstone, its delete horizon."""
    try:
        # A batch that would become too large is kept, like one that is neither Arrow nor Kafka's.
        columns = read_columns(entry, header)
    except CorruptEntryError:
        return None
    count = columns.num_rows
    key, value, timestamp, headers = columns.columns[:OFFSET_DELTA]
    if has_gaps(columns):
        offsets = pc.add(columns.column(OFFSET_DELTA).cast(pa.int64()), _int(header.base_offset))
    else:
        offsets = pc.cumulative_sum(pa.repeat(_int(1), count), start=_int(header.base_offset - 1))
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time: Any = pa.scalar(header.max_timestamp_ms * 1_000, TIMESTAMP_TYPE)
            timestamp = pa.repeat(append_time, count)
    none = pa.scalar(None, pa.int64())
    horizon = pa.nulls(count, pa.int64())
    if value.null_count and times.horizon_ms is not None:
        tombstone = pc.and_(pc.is_null(value), pc.is_valid(key))
        horizon = pc.if_else(tombstone, _int(times.horizon_ms), none)
    appended = pa.repeat(pa.scalar(times.append_time_ms, pa.int64()), count)
    arrays = [key, value, timestamp, headers, offsets, horizon, appended]
    rows = pa.RecordBatch.from_arrays(arrays, schema=_PLACED)
    if times.append_time_ms is None or not times.removes(times.append_time_ms):
        return rows
    oldest: Any = pa.scalar(times.oldest_ms * 1_000, TIMESTAMP_TYPE)  # type: ignore[operator]
    return rows.filter(pc.fill_null(pc.greater_equal(timestamp, oldest), _FALSE))


def _by_times(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Splits rows where the delete horizon of the tombstones or the append time changes, because a batch has one."""
    horizons, appended = rows.column(_HORIZON), rows.column(_APPENDED)
    begin = 0
    if rows.num_rows > 1:
        changes = pc.fill_null(pc.not_equal(appended[1:], appended[:-1]), _FALSE)
        if len(horizons) - horizons.null_count > 1:
            filled = pc.fill_null_backward(pc.fill_null_forward(horizons))
            changes = pc.or_(changes, pc.not_equal(filled[1:], filled[:-1]))
        for place in pc.indices_nonzero(changes).to_pylist():
            yield rows.slice(begin, place + 1 - begin)
            begin = place + 1
    yield rows.slice(begin)


def _by_size(rows: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Halves rows until each piece is within the limit, or a single row."""
    offsets = rows.column(_OFFSET)
    span = offsets[-1].as_py() - offsets[0].as_py()
    if rows.num_rows == 1 or (rows.nbytes <= limit_bytes and span <= _MOST_DELTA):
        yield rows
        return
    middle = rows.num_rows // 2
    yield from _by_size(rows.slice(0, middle), limit_bytes)
    yield from _by_size(rows.slice(middle), limit_bytes)


def _first_at(rising: pa.Array[Any], value: int) -> int:
    """Returns the position of the first element at or above ``value``."""
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        if rising[middle].as_py() < value:
            low = middle + 1
        else:
            high = middle
    return low


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _int(value: int) -> Any:
    return pa.scalar(value, pa.int64())
