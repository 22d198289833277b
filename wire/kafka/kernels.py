"""Decodes the records of many Kafka batches to columns at once, with Arrow's kernels.

Python iterates over the lengths of records, over many of the same size in a single stride; the content is decoded by
Arrow, whose kernels cost the same for ten records as for a thousand. So this pays off for about a megabyte at a time,
and clients' batches often have only 16 KiB: callers pass several together.

Batches that are not plain (a header in a record, a varint of more than five bytes, a contradiction) are left to
``records``, which reports what is wrong. Batches decoded here have the same result there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.wire.entry import TimestampType
from quorumlog.wire.kafka.batch import KafkaBatchHeader
from quorumlog.wire.payload import LOG_SCHEMA, TIMESTAMP_TYPE, null_headers

#: An array, or a scalar for all rows. Arrow's stubs do not declare what most kernels accept.
Column: TypeAlias = Any

#: Records visited one by one before looking for more of the same size as the last, and how many of these are skipped at
#: once.
_LOOKED_AT, _MOST_IN_A_STRIDE = 24, 4096
_MOST_VARINT_BYTES, _MOST_LENGTH_BYTES = 5, 4
#: With fewer records, the kernels' own cost exceeds that of a loop; with more, they would take too much memory.
LEAST_FOR_KERNELS, MOST_FOR_KERNELS = 256, 1 << 17
#: Numbers that are cached, and cut to the required length.
_KEPT_ROWS = 1 << 15
#: Appended to the data, so that a varint at its end can be read.
_ROOM = bytes(_MOST_VARINT_BYTES)
#: Largest number of milliseconds that fits into 64 bits as microseconds.
_MOST_MS = (1 << 63) // 1000 - 1
#: Bytes of records that Arrow's offsets can address.
_MOST_BYTES = (1 << 31) - 1 - len(_ROOM)


class Inflated(NamedTuple):
    """A batch whose checksum has been checked: its header, and its decompressed records."""

    header: KafkaBatchHeader
    records: bytes


def plain_columns(batches: Sequence[Inflated]) -> pa.RecordBatch | None:
    """Returns the records of batches, one after the other, in ``LOG_SCHEMA``; None if not all of them are plain."""
    if any(not _is_plain(header) for header, _ in batches):
        return None
    if sum(header.record_count for header, _ in batches) > MOST_FOR_KERNELS:
        return None
    data = b"".join([*(records for _, records in batches), _ROOM])
    if len(data) > _MOST_BYTES:
        return None
    starts = array("q")
    at = 0
    try:
        for header, records in batches:
            end = at + len(records)
            at = _find_records(data, at, end, header.record_count, starts)
            if at != end:
                return None
        return _read(data, starts, at, [header for header, _ in batches])
    except (IndexError, pa.ArrowException):
        return None  # A position outside of the data, or a number that is too large.


def plain_parts(batch: Inflated) -> list[pa.RecordBatch] | None:
    """Returns the records of one batch, in parts of the size that the kernels accept; None if it is not plain.

    A few kilobytes may have millions of records, each of which would cost some microseconds in Python.
    """
    header, records = batch
    if header.record_count <= MOST_FOR_KERNELS:
        plain = plain_columns([batch])
        return None if plain is None else [plain]
    if not _is_plain(header) or len(records) > _MOST_BYTES:
        return None
    data, starts, parts = records + _ROOM, array("q"), []
    try:
        if _find_records(data, 0, len(records), header.record_count, starts) != len(records):
            return None
        for first in range(0, header.record_count, MOST_FOR_KERNELS):
            some = starts[first : first + MOST_FOR_KERNELS]
            last = first + len(some)
            end = starts[last] if last < header.record_count else len(records)
            part = _read(data, some, end, [header._replace(record_count=len(some))], first_delta=first)
            if part is None:
                return None
            parts.append(part)
    except (IndexError, pa.ArrowException):
        return None
    return parts


def _is_plain(header: KafkaBatchHeader) -> bool:
    return header.timestamp_type is TimestampType.CREATE_TIME and header.last_offset_delta == header.record_count - 1


def _find_records(data: bytes, at: int, end: int, count: int, starts: array[int]) -> int:
    """Appends the positions of a batch's records, found by their lengths.

    Returns:
        ``end``, or another number if they do not end there.

    Raises:
        IndexError: one of them is outside of the data.
    """
    append = starts.append
    while count and at < end:
        before = at
        for _ in range(min(count, _LOOKED_AT)):
            before = at
            append(at)
            low = data[at]
            if low < 0x80:
                at += (low >> 1) + 1
            elif (high := data[at + 1]) < 0x80:
                at += ((high << 7 | low & 0x7F) >> 1) + 2
            else:
                at += _size_of(data, at)
        count -= min(count, _LOOKED_AT)
        size = at - before
        # Count how many more start with the same length, and so have the same size: each is followed by the next.
        more = max(0, min(count, _MOST_IN_A_STRIDE, (end - at) // size))
        for place in range(min(_MOST_LENGTH_BYTES, size) if more else 0):
            column = data[at + place : at + more * size : size]
            more = min(more, len(column) - len(column.lstrip(data[before + place : before + place + 1])))
            if data[before + place] < 0x80:
                break
        if more:
            starts.extend(range(at, at + size * more, size))
            at += size * more
            count -= more
    return -1 if count else at


def _size_of(data: bytes, at: int) -> int:
    """Returns the size of a record including its length, if the length takes more than two bytes."""
    raw = 0
    for place in range(_MOST_LENGTH_BYTES):
        byte = data[at + place]
        raw |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (raw >> 1) + place + 1
    raise IndexError


def _read(
    data: bytes, starts: array[int], end: int, headers: Sequence[KafkaBatchHeader], first_delta: int = 0
) -> pa.RecordBatch | None:
    reader = _Reader(data)
    starts.append(end)
    at, ends = _of_array(starts)[:-1], _of_array(starts)[1:]
    lengths, at = reader.varints(at)
    if not pc.add(at, lengths).equals(ends):
        return None
    at = pc.add(at, _ONE)  # skip the attributes
    times, at = reader.varints(at)
    deltas, at = reader.varints(at)
    keys, at = reader.values(at)
    values, at = reader.values(at)
    # A record without headers ends with their number, a zero byte.
    if not at.equals(pc.subtract(ends, _ONE)) or reader.most_byte(at):
        return None
    counts = [header.record_count for header in headers]
    if not deltas.equals(pc.add(_counting(counts), _number(first_delta)) if first_delta else _counting(counts)):
        return None
    times = pc.add(times, _repeated([header.base_timestamp_ms for header in headers], counts))
    extremes: Any = pc.min_max(times).as_py()
    if extremes["max"] > _MOST_MS or extremes["min"] < -_MOST_MS:
        return None
    timestamps = pc.multiply(times, _MICROSECONDS).view(TIMESTAMP_TYPE)
    return pa.RecordBatch.from_arrays([keys, values, timestamps, null_headers(len(at))], schema=LOG_SCHEMA)


class _Reader:
    """Reads columns from bytes, at positions that ascend from row to row."""

    def __init__(self, data: bytes) -> None:
        self._buffer = pa.py_buffer(data)
        self._bytes: Column = pa.Array.from_buffers(pa.uint8(), len(data), [None, self._buffer])

    def most_byte(self, at: Column) -> int:
        """Returns the largest byte at some positions."""
        return int(pc.max(self._bytes.take(at)).as_py())

    def varints(self, at: Column) -> tuple[Column, Column]:
        """Reads signed numbers; returns them and the position after each.

        Raises:
            ArrowException: one is longer than ``_MOST_VARINT_BYTES``, or outside of the data.
        """
        byte = self._bytes.take(at)
        if pc.max(byte).as_py() < 0x80:
            return _UNZIGZAG.take(byte), pc.add(at, _ONE)
        raw = pc.bit_wise_and(byte.cast(pa.int64()), _SEVEN_BITS)
        for shift in _SHIFTS:
            at = pc.add(at, _ONE)
            more = pc.greater_equal(byte, _FIRST_OF_TWO)
            # A missing byte counts as zero; its position is read nevertheless.
            byte = pc.if_else(more, self._bytes.take(at), _ZERO_BYTE)
            at = pc.if_else(more, at, pc.subtract(at, _ONE))
            raw = pc.bit_wise_or(raw, pc.shift_left(pc.bit_wise_and(byte.cast(pa.int64()), _SEVEN_BITS), shift))
            if pc.max(byte).as_py() < 0x80:
                numbers = pc.bit_wise_xor(pc.shift_right(raw, _ONE), pc.negate(pc.bit_wise_and(raw, _ONE)))
                return numbers, pc.add(at, _ONE)
        raise pa.ArrowInvalid("a varint that is too long")

    def values(self, at: Column) -> tuple[Column, Column]:
        """Reads values preceded by their lengths (-1 for null); returns them and the position after each."""
        sizes, at = self.varints(at)
        extremes: Any = pc.min_max(sizes).as_py()
        least, most = extremes["min"], extremes["max"]
        if least < -1 or most > len(self._bytes):
            raise pa.ArrowInvalid("an invalid length")
        if most <= 0 and least == -1 and most == -1:
            return pa.nulls(len(at), pa.binary()), at
        ends = pc.add(at, pc.max_element_wise(sizes, _ZERO) if least < 0 else sizes)
        if pc.max(ends).as_py() > len(self._bytes) or pc.any(pc.less(at[1:], ends[:-1])).as_py():
            raise pa.ArrowInvalid("a value that is outside of its record")
        # The lower 32 bits are where a value starts, the upper ones where it ends: as 32-bit numbers they are the
        # offsets of an array that alternates between values and the gaps between them.
        places = pc.bit_wise_or(pc.shift_left(ends, _WORD), at)
        count = len(at)
        both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, places.buffers()[1], self._buffer])
        wanted = pc.shift_left(_ramp(count), _ONE)
        if least < 0:
            wanted = pc.if_else(pc.less(sizes, _ZERO), _NO_NUMBER, wanted)
        return both.take(wanted), ends


def _of_array(numbers: array[int]) -> Column:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _ramp(count: int) -> Column:
    return _kept_ramp()[:count] if count <= _KEPT_ROWS else _of_array(array("q", range(count)))


@lru_cache(maxsize=1)
def _kept_ramp() -> Column:
    return _of_array(array("q", range(_KEPT_ROWS)))


def _counting(counts: Sequence[int]) -> Column:
    """Returns numbers from 0 on, restarted for each batch."""
    ramp = _ramp(max(counts))
    return pa.concat_arrays([ramp[:count] for count in counts])


def _repeated(numbers: Sequence[int], counts: Sequence[int]) -> Column:
    return pa.concat_arrays([pa.repeat(_number(each), count) for each, count in zip(numbers, counts, strict=True)])


def _number(value: int | None) -> Column:
    return pa.scalar(value, pa.int64())


# Constants: for a bare Python number, Arrow guesses a type, and searches for a library each time if it is not
# installed.
_ZERO, _ONE, _SEVEN_BITS, _WORD, _NO_NUMBER = (_number(value) for value in (0, 1, 0x7F, 32, None))
_MICROSECONDS = _number(1000)
_ZERO_BYTE, _FIRST_OF_TWO = (pa.scalar(value, pa.uint8()) for value in (0, 0x80))
_SHIFTS = [_number(7 * place) for place in range(1, _MOST_VARINT_BYTES)]
_UNZIGZAG: Column = pa.array([byte >> 1 ^ -(byte & 1) for byte in range(256)], pa.int64())
