"""Size of a batch's columns after decompression, read from its payload before anything is decompressed.

A megabyte from a hostile client may expand to tens of gigabytes, and Arrow allocates what the payload requests. So
leaders refuse such batches, and every reader, node or client, treats one as damaged: a prefix of each buffer states its
length, and Arrow refuses a buffer of another length.
"""

from __future__ import annotations

import struct

from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, CorruptEntryError, Flags

#: Maximum size of a compressed batch after decompression, over all its buffers. A constant of the format, not a
#: setting: replicas that compact must agree on what is readable. Producers limit batches before they compress them.
MOST_DECODED_BYTES = 64 << 20
#: Added by compaction to a batch of which a single record is left: the record's position.
COMPACTION_ADDS_BYTES = 64 << 10

_CONTINUATION = 0xFFFF_FFFF
_U16, _I16, _U32, _I32, _I64 = (struct.Struct(form) for form in ("<H", "<h", "<I", "<i", "<q"))
_BUFFER = struct.Struct("<qq")
#: The columns of a batch have 19 buffers. A payload with thousands only wants to cost time.
_MOST_BUFFERS = 64
_FLAGS_AT = 2
#: Positions of fields in the tables of Arrow's Message.fbs.
_MESSAGE_VERSION, _MESSAGE_HEADER = 0, 2
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
#: Arrow's metadata version since 1.0. Earlier versions could name a codec in places that are not checked here.
_VERSION_5 = 4
#: Stored in place of a buffer's size if compression would not have made it smaller.
_NOT_COMPRESSED = -1


class DecodedSizeError(CorruptEntryError):
    """Raised if a compressed batch would exceed the maximum size after decompression."""


def check_decoded_size(entry: bytes) -> None:
    """Checks that a whole batch may be decompressed.

    Raises:
        DecodedSizeError: it would become larger than :data:`MOST_DECODED_BYTES`.
        CorruptEntryError: its payload does not describe its buffers.
    """
    payload = memoryview(entry)[BATCH_OVERHEAD_BYTES:]
    try:
        if not _is_compressed(payload):
            return
        size = _sum_of_buffers(payload)
    except (struct.error, IndexError):
        raise CorruptEntryError("a payload that does not describe its buffers") from None
    if size > MOST_DECODED_BYTES + (COMPACTION_ADDS_BYTES if entry[_FLAGS_AT] & Flags.GAPS else 0):
        raise DecodedSizeError(
            f"its columns would take {size} bytes when decompressed, the maximum for compressed batches is"
            f" {MOST_DECODED_BYTES}"
        )


def decoded_bytes(entry: bytes) -> int:
    """Returns the decompressed size of all buffers of a batch's payload, in bytes.

    Raises:
        CorruptEntryError: the payload has no such description.
    """
    payload = memoryview(entry)[BATCH_OVERHEAD_BYTES:]
    try:
        return _sum_of_buffers(payload) if _is_compressed(payload) else len(payload)
    except (struct.error, IndexError):
        raise CorruptEntryError("a payload that does not describe its buffers") from None


def _is_compressed(payload: memoryview) -> bool:
    # The payload decides, not the codec in the header: Arrow reads only the payload.
    return _field(payload, _batch_table(payload), _BATCH_COMPRESSION) is not None


def _sum_of_buffers(payload: memoryview) -> int:
    body = 8 + _U32.unpack_from(payload, 4)[0]
    at = _field(payload, _batch_table(payload), _BATCH_BUFFERS)
    if at is None:
        return 0
    vector = at + _U32.unpack_from(payload, at)[0]
    (count,) = _U32.unpack_from(payload, vector)
    if count > _MOST_BUFFERS:
        raise IndexError
    total = 0
    for number in range(count):
        offset, length = _BUFFER.unpack_from(payload, vector + 4 + number * _BUFFER.size)
        if length < _I64.size or offset < 0:
            continue
        (size,) = _I64.unpack_from(payload, body + offset)
        total += length if size == _NOT_COMPRESSED else max(size, 0)
    return total


def _batch_table(payload: memoryview) -> int:
    """Returns the position of the record batch's description."""
    if _U32.unpack_from(payload, 0)[0] != _CONTINUATION:
        raise IndexError
    message = 8 + _U32.unpack_from(payload, 8)[0]
    version = _field(payload, message, _MESSAGE_VERSION)
    if version is None or _I16.unpack_from(payload, version)[0] != _VERSION_5:
        raise IndexError
    at = _field(payload, message, _MESSAGE_HEADER)
    if at is None:
        raise IndexError
    return at + int(_U32.unpack_from(payload, at)[0])


def _field(payload: memoryview, table: int, number: int) -> int | None:
    """Returns the position of a field in a flatbuffers table; None if it is omitted."""
    vtable = table - _I32.unpack_from(payload, table)[0]
    if vtable < 0:
        raise IndexError
    if 4 + 2 * number >= _U16.unpack_from(payload, vtable)[0]:
        return None
    place = _U16.unpack_from(payload, vtable + 4 + 2 * number)[0]
    return table + place if place else None
