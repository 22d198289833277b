"""Decodes the records of Kafka batches to columns, and encodes columns as such records.

A record consists of its length, attributes (u8, 0), the distances of its timestamp and offset to the batch's, key,
value and headers. Lengths and distances are signed varints, "zigzag" as in Protocol Buffers; -1 is the length of null.

Decoding costs Python time for each record, less where ``kernels`` can do it; so it is done by consumers. Encoding
is done by Arrow throughout. Leaders check what Kafka's clients send (``produced``), but logs also have batches
from before they did, and restores bring some: everything is checked here, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.wire.entry import TimestampType
from quorumlog.wire.kafka.batch import (
    HEADER_BYTES,
    Bytes,
    KafkaBatchHeader,
    KafkaCodec,
    build_kafka_batch,
    impossible,
)
from quorumlog.wire.kafka.compression import deflate, inflate
from quorumlog.wire.kafka.kernels import LEAST_FOR_KERNELS, Inflated, plain_parts
from quorumlog.wire.payload import (
    COMPACTED_SCHEMA,
    HEADERS,
    HEADERS_TYPE,
    KEY,
    LOG_SCHEMA,
    OFFSET_DELTA,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    has_gaps,
    null_headers,
)

#: An array, or a scalar for all rows. Arrow's stubs do not declare what most kernels accept.
Column: TypeAlias = Any

#: Length, attributes, two distances, two lengths and the number of headers: a byte each.
SMALLEST_RECORD_BYTES = 7
_SMALLEST_HEADER_BYTES = 2
_MOST_VARINT_BITS, _MOST_VARLONG_BITS = 32, 64
#: Numbers of records, and of headers, that exist as Python objects at a time. A record's headers exist at the same
#: time, so this is also their maximum number. A header takes two bytes, its objects are some forty times larger.
_CHUNK_RECORDS = 1 << 16
_CHUNK_HEADERS = 1 << 16
#: Largest number of milliseconds that fits into 64 bits as microseconds.
_MOST_MS = (1 << 63) // 1000 - 1


def read_kafka_columns(batch: Bytes, header: KafkaBatchHeader) -> pa.RecordBatch:
    """Returns the records of a batch whose checksum has been checked.

    They have ``LOG_SCHEMA``, or ``COMPACTED_SCHEMA`` if offsets between them are missing. Timestamps are as a reader
    sees them, also of batches with append time. A header's key that is not UTF-8 has U+FFFD in it, as in Kafka's own
    consumer.

    Raises:
        KafkaBatchError: the records do not match the header, exceed the maximum size, or one of them has too many
            headers.
    """
    return read_inflated(inflated(batch, header))


def inflated(batch: Bytes, header: KafkaBatchHeader) -> Inflated:
    """Returns a batch with its records decompressed.

    Raises:
        KafkaBatchError: they exceed the maximum size, or have fewer bytes than so many records take.
    """
    records = inflate(memoryview(batch)[HEADER_BYTES:], header.codec)
    if header.record_count * SMALLEST_RECORD_BYTES > len(records):
        raise impossible(f"{header.record_count} records in {len(records)} bytes")
    return Inflated(header, records)


def read_inflated(batch: Inflated) -> pa.RecordBatch:
    """Does the same as ``read_kafka_columns`` for a decompressed batch."""
    header, records = batch
    if header.record_count >= LEAST_FOR_KERNELS and (parts := plain_parts(batch)) is not None:
        return _joined_rows(parts)
    chunks: list[pa.RecordBatch] = []
    at, left = 0, header.record_count
    try:
        while left:
            chunk, at = _read_chunk(records, at, min(_CHUNK_RECORDS, left), header)
            _check_order(chunk, chunks[-1] if chunks else None, header)
            chunks.append(chunk)
            left -= chunk.num_rows
    except IndexError:
        raise impossible("a record that is cut off") from None
    if at != len(records):
        raise impossible(f"{len(records) - at} bytes behind the last record")
    columns = _joined_rows(chunks)
    if header.last_offset_delta == header.record_count - 1:
        return columns.select(LOG_SCHEMA.names)
    return columns.cast(COMPACTED_SCHEMA)


def _joined_rows(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _check_order(chunk: pa.RecordBatch, before: pa.RecordBatch | None, header: KafkaBatchHeader) -> None:
    """Checks the offset deltas of each chunk of records as soon as it is read.

    A few kilobytes may repeat a delta ten million times, and reading all of them first would take half a minute.

    Raises:
        KafkaBatchError: they are not in order.
    """
    deltas: Column = chunk.column(OFFSET_DELTA)
    last = -1 if before is None else before.column(OFFSET_DELTA)[-1].as_py()
    if header.last_offset_delta == header.record_count - 1:
        if not deltas.equals(pc.add(counting(len(deltas)), _number(last + 1))):
            raise impossible("offsets that are not consecutive")
        return
    rising = len(deltas) == 1 or pc.all(pc.less(deltas[:-1], deltas[1:])).as_py()
    if not rising or deltas[0].as_py() <= last or deltas[-1].as_py() > header.last_offset_delta:
        raise impossible(f"offsets that are not in order up to {header.last_offset_delta}")


def _read_chunk(data: bytes, at: int, most: int, header: KafkaBatchHeader) -> tuple[pa.RecordBatch, int]:
    """Returns records as columns, with their offset deltas, and the position of the next one.

    Python objects are many times larger than small records, so they are created for a limited number of records at a
    time,
    and for fewer if those have many headers.
    """
    keys, values, times, headers = [], [], [], []
    deltas: list[int] = []
    headers_left = _CHUNK_HEADERS
    while len(deltas) < most and headers_left > 0:
        key, value, time, pairs, delta, at = _read_record(data, at)
        keys.append(key)
        values.append(value)
        times.append(time)
        headers.append(pairs)
        deltas.append(delta)
        headers_left -= len(pairs) if pairs else 0
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        _timestamps(times, header),
        pa.array(headers, HEADERS_TYPE) if any(headers) else null_headers(len(deltas)),
        pa.array(deltas, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=COMPACTED_SCHEMA.names), at


def read_keys_and_times(data: bytes, header: KafkaBatchHeader) -> tuple[int, bool]:
    """Returns the largest timestamp (ms) of a producer's records, and whether some have no key.

    All of them are checked as when they are read, but without columns, which cost more than a few records. Headers'
    keys must be UTF-8 here, because some clients cannot read others.

    Raises:
        KafkaBatchError: the records do not match the header.
    """
    at, latest, has_null_keys = 0, -_MOST_MS, False
    try:
        for place in range(header.record_count):
            key, _, time, _, delta, at = _read_record(data, at, "strict")
            if delta != place:
                raise impossible("offsets that are not consecutive")
            has_null_keys |= key is None
            at_ms = _checked_ms(header.base_timestamp_ms + time)
            latest = max(latest, at_ms)
    except IndexError:
        raise impossible("a record that is cut off") from None
    except UnicodeDecodeError:
        raise impossible("a header whose key is not UTF-8") from None
    if at != len(data):
        raise impossible(f"{len(data) - at} bytes behind the last record")
    return latest, has_null_keys


_Record: TypeAlias = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None, int, int]


def _read_record(data: bytes, at: int, not_utf8: str = "replace") -> _Record:
    """Returns key, value, timestamp delta, headers and offset delta of a record, and the position of the next one.

    Arguments:
        not_utf8: treatment of headers' keys that are not UTF-8, as an error handler of ``bytes.decode``.
    """
    length, at = _unpack_varint(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise IndexError
    time, at = _unpack_varint(data, at + 1, _MOST_VARLONG_BITS)
    delta, at = _unpack_varint(data, at)
    key, at = _unpack_bytes(data, at)
    value, at = _unpack_bytes(data, at)
    count, at = _unpack_varint(data, at)
    if count < 0 or count * _SMALLEST_HEADER_BYTES > max(end - at, 0):
        raise impossible(f"{count} headers in {end - at} bytes")
    if count > _CHUNK_HEADERS:
        raise impossible(f"a record of {count} headers, the maximum is {_CHUNK_HEADERS}")
    pairs: list[tuple[str, bytes | None]] | None = [] if count else None
    for _ in range(count):
        name, at = _unpack_bytes(data, at)
        content, at = _unpack_bytes(data, at)
        if name is None or pairs is None:
            raise impossible("a header without a key")
        pairs.append((name.decode(errors=not_utf8), content))
    if at != end:
        raise impossible(f"a record of {length} bytes takes {at - end + length}")
    return key, value, time, pairs, delta, at


def _unpack_varint(data: bytes, at: int, most_bits: int = _MOST_VARINT_BITS) -> tuple[int, int]:
    raw = data[at]
    at += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= most_bits:
                raise impossible(f"a varint of more than {most_bits} bits")
        if raw >> most_bits:
            raise impossible(f"a varint of more than {most_bits} bits")
    return raw >> 1 ^ -(raw & 1), at


def _unpack_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _unpack_varint(data, at)
    if size < 0:
        if size != -1:
            raise impossible(f"a length of {size}")
        return None, at
    end = at + size
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _timestamps(deltas: list[int], header: KafkaBatchHeader) -> Column:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        times = [header.max_timestamp_ms] * len(deltas)
    else:
        times = [header.base_timestamp_ms + delta for delta in deltas]
    _checked_ms(max(times))
    _checked_ms(min(times))
    return pc.multiply(pa.array(times, pa.int64()), _MICROSECONDS).cast(TIMESTAMP_TYPE)


def _checked_ms(timestamp_ms: int) -> int:
    if not -_MOST_MS <= timestamp_ms <= _MOST_MS:
        raise impossible(f"a timestamp out of range: {timestamp_ms} ms")
    return timestamp_ms


def write_kafka_batch(
    columns: pa.RecordBatch,
    *,
    base_offset: int,
    last_offset: int,
    codec: KafkaCodec = KafkaCodec.NONE,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Returns the batch of columns in ``LOG_SCHEMA`` or ``COMPACTED_SCHEMA``, without a Python loop over records.

    Arguments:
        columns: at least one row. A row without a timestamp gets that of the first row that has one.
        base_offset, last_offset: of the batch. With ``LOG_SCHEMA``, its rows have all offsets from the first one on.
        append_time_ms: with ``LOG_APPEND_TIME``, the batch's timestamp.
    """
    count = columns.num_rows
    times = milliseconds_of(columns.column(TIMESTAMP))
    first = times[0].as_py()
    latest = append_time_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else pc.max(times).as_py()
    bodies = _joined(
        _ZERO_BYTE,
        _varints(pc.subtract(times, times[0])),
        _varints(_int64(columns.column(OFFSET_DELTA)) if has_gaps(columns) else counting(count)),
        *_with_length(columns.column(KEY)),
        *_with_length(columns.column(VALUE)),
        *_headers(columns.column(HEADERS)),
    )
    records = _values(_joined(_varints(_int64(pc.binary_length(bodies))), bodies))
    header = KafkaBatchHeader(
        base_offset, leader_epoch, codec, timestamp_type, is_transactional, False, last_offset - base_offset, first,
        latest, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    return build_kafka_batch(header, deflate(records, codec))


def counting(count: int) -> Column:
    """Returns the numbers from 0 to ``count`` - 1."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(_ONE, count)), _ONE)


def milliseconds_of(timestamps: Column) -> Column:
    """Returns timestamps as whole milliseconds since the epoch, with nulls replaced by the first one that is not."""
    known = pc.drop_null(timestamps)
    first = known[0] if len(known) else pa.scalar(0, timestamps.type)
    # Rounds down to whole milliseconds, also before 1970.
    return (
        pc.floor_temporal(timestamps.fill_null(first), unit="millisecond")
        .cast(pa.timestamp("ms", tz="UTC"))
        .cast(pa.int64())
    )


def _with_length(column: Column) -> tuple[Column, Column]:
    """Returns lengths as varints, -1 for null, and the values."""
    return _varints(_int64(pc.binary_length(column)).fill_null(-1)), column.cast(pa.binary())


def _headers(column: Column) -> Iterator[Column]:
    """Yields the number of headers of each record, and all of them as one value."""
    if column.null_count == len(column):
        yield _ZERO_BYTE
        return
    counts = _int64(pc.list_value_length(column)).fill_null(0)
    yield _varints(counts)
    pairs = column.flatten()
    names = pc.struct_field(pairs, 0).fill_null("")
    each = _joined(*_with_length(names), *_with_length(pc.struct_field(pairs, 1)))
    offsets: Column = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())])
    yield pc.binary_join(pa.ListArray.from_arrays(offsets, each), b"")


def _int64(column: Column) -> Column:
    return column.cast(pa.int64())


def _varints(numbers: Column) -> Column:
    """Encodes signed numbers of 55 bits as varints: seven bits per byte, as many bytes as the largest one needs."""
    raw = pc.bit_wise_xor(pc.shift_left(numbers, _ONE), pc.shift_right(numbers, _TO_SIGN))
    most = pc.max(raw).as_py()
    parts: list[Column] = []
    for shift, low, end in _GROUPS:
        byte: Column = pc.bit_wise_and(pc.shift_right(raw, shift), _SEVEN_BITS)
        byte = pc.if_else(pc.greater_equal(raw, end), pc.bit_wise_or(byte, _MORE_FOLLOWS), byte)
        if parts:
            byte = pc.if_else(pc.greater_equal(raw, low), byte, _NO_NUMBER)
        parts.append(_ONE_BYTE.take(byte))
        if most < end.as_py():
            break
    return parts[0] if len(parts) == 1 else _joined(*parts)


def _joined(*parts: Column) -> Column:
    """Concatenates the values of each row. Null counts as empty."""
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="skip")


def _values(column: Column) -> bytes:
    """Concatenates all values of a column without nulls."""
    _, offsets, data = column.buffers()
    first, last = (struct.unpack_from("<i", offsets, 4 * (column.offset + row))[0] for row in (0, len(column)))
    return bytes(data.slice(first, last - first))


def _number(value: int | None) -> Column:
    return pa.scalar(value, pa.int64())


# Constants: for a bare Python number, Arrow guesses a type, and searches for a library each time if it is not
# installed.
_ONE, _SEVEN_BITS, _MORE_FOLLOWS, _NO_NUMBER = (_number(value) for value in (1, 0x7F, 0x80, None))
#: Copies the sign to all bits. Arrow cannot shift by 63.
_TO_SIGN = _number(62)
#: For each byte of a varint: the position of its bits, the smallest number that has it, and the smallest that has
#: another one.
_GROUPS = [(_number(shift), _number(1 << shift), _number(1 << shift + 7)) for shift in range(0, 56, 7)]
_MICROSECONDS = _number(1000)
_NOTHING, _ZERO_BYTE = (pa.scalar(value, pa.binary()) for value in (b"", b"\0"))
_ONE_BYTE: Column = pa.array([bytes((byte,)) for byte in range(256)], pa.binary())
