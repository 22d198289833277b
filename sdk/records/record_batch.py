"""Record batches between Python, Arrow and the bytes of ``entry.py`` and ``payload.py``.

Encoding costs one copy (Arrow buffers into the message) and the batch's own join with its header; decoding costs none:
the columns point into the entry's bytes, unless Arrow has to decompress them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.errors import CorruptRecordError, IllegalArgumentError
from quorumlog.sdk.types import Headers
from quorumlog.wire.columns import KafkaEntry, read_columns, read_kafka_runs
from quorumlog.wire.entry import (
    Attributes,
    BatchHeader,
    Codec,
    CorruptEntryError,
    EnvelopeKind,
    TimestampType,
    parse_header,
    verify,
    verify_batch,
)
from quorumlog.wire.kafka.entry import is_kafka
from quorumlog.wire.payload import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    LOG_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    null_headers,
    write_payload,
)

#: Bytes of a record in a batch besides its key and value: three list offsets, the timestamp, validity bits.
RECORD_OVERHEAD_BYTES = 21
#: Bytes of a header besides its key and value.
HEADER_OVERHEAD_BYTES = 9
#: Bytes of a batch besides its records: envelope, header and Arrow's own description, rounded up.
BATCH_BASE_BYTES = 1024

_CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
#: As Arrow values: given a Python number, pyarrow looks for the dateutil package on disk at every call.
_NS_PER_MS = pa.scalar(1_000_000, pa.int64())
_US_PER_MS = pa.scalar(1_000, pa.int64())


def codec_named(name: str | None) -> Codec:
    """Returns the codec called ``none`` (or None), ``lz4`` or ``zstd``."""
    codec = _CODECS.get("none" if name is None else str(name))
    if codec is None:
        raise IllegalArgumentError(f"compression_type is {name!r}: choose one of none, lz4, zstd")
    return codec


class EncodedPayload(NamedTuple):
    """A payload and its values for the batch header. Timestamps in milliseconds."""

    payload: bytes
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    attributes: Attributes


def batch_from_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ns: array[int],
    headers: Mapping[int, Headers],
) -> pa.RecordBatch:
    """Builds the Arrow batch of records that were gathered one by one.

    Arguments:
        keys, values: one per record; ``keys`` may be empty when no record has one.
        timestamps_ns: nanoseconds since the epoch, by the clock; truncated to whole milliseconds here.
        headers: of records that have any, by row.
    """
    count = len(values)
    nanoseconds = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(timestamps_ns)])
    microseconds = pc.multiply(pc.divide(nanoseconds, _NS_PER_MS), _US_PER_MS)
    columns: list[pa.Array[Any]] = [
        pa.array(keys, pa.binary()) if keys else pa.nulls(count, pa.binary()),
        pa.array(values, pa.binary()),
        microseconds.view(TIMESTAMP_TYPE),
        _headers_column(headers, count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LOG_SCHEMA)


def one_batch(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns all rows of several batches of one schema, in order; copied unless there is only one batch."""
    if len(pieces) == 1:
        return pieces[0]
    (whole,) = pa.Table.from_batches(pieces).combine_chunks().to_batches()
    return whole


def _headers_column(headers: Mapping[int, Headers], count: int) -> pa.Array[Any]:
    if not headers:
        return null_headers(count)
    rows = [None] * count
    for row, pairs in headers.items():
        rows[row] = [{"key": name, "value": value} for name, value in pairs]  # type: ignore[call-overload]
    return pa.array(rows, HEADERS_TYPE)


def encode(batch: pa.RecordBatch, codec: Codec) -> EncodedPayload:
    """Encodes an Arrow batch of :data:`LOG_SCHEMA` whose timestamps are all set."""
    extremes: Any = pc.min_max(batch.column(TIMESTAMP).view(pa.int64())).as_py()
    return EncodedPayload(
        write_payload(batch, codec),
        batch.num_rows,
        extremes["min"] // 1_000,
        extremes["max"] // 1_000,
        Attributes.NULL_KEYS if batch.column(KEY).null_count else Attributes.NONE,
    )


class DecodedBatch(NamedTuple):
    """A fetched batch: its header, the leader epoch (term) in which it was written, and its columns."""

    header: BatchHeader
    leader_epoch: int
    columns: pa.RecordBatch


class UnreadableBatch(NamedTuple):
    """A batch whose records cannot be decoded although its checksum is right: its producer wrote it so.

    Every replica has the same bytes, so reading it again does not help.

    Arguments:
        header: of its entry.
        leader_epoch: in which it was appended.
        reason: one line that says what is wrong.
    """

    header: BatchHeader
    leader_epoch: int
    reason: str

    @property
    def headers(self) -> Sequence[BatchHeader]:
        """Its only header, as of a run."""
        return (self.header,)


def decode(entry: bytes) -> DecodedBatch:
    """Verifies and decodes a whole entry of kind BATCH, its payload included.

    Raises:
        CorruptRecordError: the checksum, the structure or the payload is wrong.
    """
    batch = decode_entry(entry)
    if isinstance(batch, UnreadableBatch):
        raise CorruptRecordError(batch.reason)
    return batch


def decode_entry(entry: bytes) -> DecodedBatch | UnreadableBatch:
    """Same as ``decode``, but returns a batch whose records cannot be decoded as an `UnreadableBatch`.

    Raises:
        CorruptRecordError: the entry itself is damaged: its checksum or its structure is wrong.
    """
    try:
        envelope = verify(entry)
        if envelope.kind is not EnvelopeKind.BATCH:
            raise CorruptRecordError(f"expected a record batch, got an entry of kind {envelope.kind.name}")
        header = parse_header(entry)
    except CorruptEntryError as error:
        raise CorruptRecordError(str(error)) from None
    try:
        return DecodedBatch(header, envelope.term, read_columns(entry, header))
    except CorruptEntryError as error:
        return UnreadableBatch(header, envelope.term, str(error))


class DecodedRun(NamedTuple):
    """Consecutive fetched batches that were decoded as one.

    Arguments:
        headers, leader_epochs: of each batch.
        columns: the records of all of them.
    """

    headers: Sequence[BatchHeader]
    leader_epochs: Sequence[int]
    columns: pa.RecordBatch

    def cut(self) -> Iterator[DecodedRun]:
        """Yields the run in as few parts as possible that are each like one batch.

        Such a part has no missing offsets, one epoch, and a timestamp of its own for each record.
        """
        first = row = 0
        for end in range(1, len(self.headers) + 1):
            if end < len(self.headers) and self._continues(end):
                continue
            headers = self.headers[first:end]
            count = sum(header.record_count for header in headers)
            yield DecodedRun(headers, self.leader_epochs[first:end], self.columns.slice(row, count))
            first, row = end, row + count

    def _continues(self, at: int) -> bool:
        before, header = self.headers[at - 1], self.headers[at]
        return (
            header.base_offset == before.base_offset + before.record_count
            and header.timestamp_type is before.timestamp_type is TimestampType.CREATE_TIME
            and self.leader_epochs[at] == self.leader_epochs[at - 1]
        )


def decode_runs(entries: Sequence[bytes]) -> Iterator[DecodedRun | UnreadableBatch]:
    """Same as ``decode_entry`` for several entries of a log. Consecutive small Kafka batches are decoded together.

    Raises:
        CorruptRecordError: at the first damaged entry, after those before it were returned.
    """
    at = 0
    while at < len(entries):
        end = at
        while end < len(entries) and is_kafka(entries[end]):
            end += 1
        if end - at > 1:
            yield from _decode_kafka(entries[at:end])
            at = end
        else:
            batch = decode_entry(entries[at])
            if isinstance(batch, UnreadableBatch):
                yield batch
            else:
                yield DecodedRun((batch.header,), (batch.leader_epoch,), batch.columns)
            at += 1


def _decode_kafka(entries: Sequence[bytes]) -> Iterator[DecodedRun | UnreadableBatch]:
    sound: list[KafkaEntry] = []
    terms: list[int] = []
    damage: CorruptRecordError | None = None
    for entry in entries:
        try:
            envelope, header = verify_batch(entry)
        except CorruptEntryError as error:
            damage = CorruptRecordError(str(error))
            break
        sound.append(KafkaEntry(entry, header))
        terms.append(envelope.term)
    at = 0
    for columns, count in read_kafka_runs(sound):
        if isinstance(columns, CorruptEntryError):
            yield UnreadableBatch(sound[at].header, terms[at], str(columns))
        else:
            headers = [header for _, header in sound[at : at + count]]
            yield DecodedRun(headers, terms[at : at + count], columns)
        at += count
    if damage is not None:
        raise damage


def to_log_schema(data: pa.Table | pa.RecordBatch, now_ms: int) -> pa.Table:
    """Converts a user's table to :data:`LOG_SCHEMA`: orders columns, casts strings, adds missing columns.

    ``value`` is required; ``key`` and ``headers`` default to null, ``timestamp`` to now, null timestamps too.

    Raises:
        IllegalArgumentError: a column is missing, unknown, or cannot be cast.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not isinstance(data, pa.Table):
        raise IllegalArgumentError(f"send_arrow takes a pyarrow Table or RecordBatch, not {type(data).__name__}")
    unknown = [name for name in data.column_names if name not in LOG_SCHEMA.names]
    if unknown or "value" not in data.column_names:
        what = f"has columns {unknown} that a log does not have" if unknown else "has no column 'value'"
        raise IllegalArgumentError(f"the table {what}: its columns are key, value, timestamp, headers")
    if len(set(data.column_names)) != len(data.column_names):
        raise IllegalArgumentError(f"the table has a column twice: {data.column_names}")
    now: Any = pa.scalar(now_ms * 1_000, TIMESTAMP_TYPE)
    columns: list[pa.ChunkedArray[Any] | pa.Array[Any]] = []
    for field in LOG_SCHEMA:
        if field.name in data.column_names:
            column = _cast(data.column(field.name), field)
            if field.name == "timestamp" and column.null_count:
                column = pc.fill_null(column, now)
            elif field.name == "headers":
                column = without_empty_headers(column)
        elif field.name == "timestamp":
            column = pa.repeat(now, data.num_rows)
        else:
            column = pa.nulls(data.num_rows, field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=LOG_SCHEMA)


def _cast(column: pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any]:
    if column.type == field.type:
        return column
    if field.name == "timestamp" and pa.types.is_timestamp(column.type) and column.type.tz is None:
        raise IllegalArgumentError(
            "column 'timestamp' has no time zone: give it one, such as timestamp('us', tz='UTC')"
        )
    try:
        return column.cast(field.type, safe=field.name != "timestamp")
    except (pa.ArrowException, NotImplementedError) as error:
        raise IllegalArgumentError(f"column {field.name!r} is {column.type}, not {field.type}: {error}") from None


def without_empty_headers(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> Any:
    """Returns a headers column, chunked or not, with null for an empty list: every other writer stores it so."""
    lengths = pc.list_value_length(column)
    if pc.min(lengths).as_py() != 0:
        return column
    return pc.if_else(pc.equal(lengths, pa.scalar(0, pa.int32())), pa.scalar(None, HEADERS_TYPE), column)


def without_dead_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the same rows; a headers column with only nulls is replaced by an empty one (see
    :func:`null_headers`)."""
    headers = batch.column(HEADERS)
    if headers.null_count != len(headers):
        return batch
    return pa.RecordBatch.from_arrays([*batch.columns[:HEADERS], null_headers(len(headers))], schema=LOG_SCHEMA)


def split_by_bytes(batch: pa.RecordBatch, limit_bytes: int) -> list[pa.RecordBatch]:
    """Cuts a batch into slices of at most ``limit_bytes`` each (a single row may exceed it), copying nothing."""
    if batch.num_rows <= 1 or batch.nbytes <= limit_bytes:
        return [batch]
    rows = max(1, batch.num_rows * limit_bytes // batch.nbytes)
    if rows >= batch.num_rows:
        rows = batch.num_rows // 2
    pieces: list[pa.RecordBatch] = []
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        # Rows differ in size: a piece may exceed the limit although the average does not.
        pieces.extend(split_by_bytes(piece, limit_bytes) if piece.nbytes > limit_bytes else [piece])
    return pieces
