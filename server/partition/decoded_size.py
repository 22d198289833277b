"""How large a batch's columns are once they are decompressed, as its payload says, before anybody decompresses them.

A megabyte of a hostile client may stand for tens of gigabytes. Arrow would allocate what the payload asks for.
"""

from __future__ import annotations

import struct

from quorumlog.v1.entry import BATCH_OVERHEAD_BYTES, CorruptEntryError

_CONTINUATION = 0xFFFF_FFFF
_U16, _U32, _I32, _I64 = (struct.Struct(form) for form in ("<H", "<I", "<i", "<q"))
_BUFFER = struct.Struct("<qq")
#: Places of fields in the tables of Arrow's Message.fbs.
_MESSAGE_HEADER, _BATCH_BUFFERS = 2, 2
#: Instead of a size before a buffer that compression would not have made smaller.
_NOT_COMPRESSED = -1


def decoded_bytes(entry: bytes) -> int:
    """Bytes of all buffers of a batch's payload, decompressed.

    Raises:
        CorruptEntryError: the payload has no such description.
    """
    payload = memoryview(entry)[BATCH_OVERHEAD_BYTES:]
    try:
        return _sum_of_buffers(payload) if _is_compressed(payload) else len(payload)
    except (struct.error, IndexError):
        raise CorruptEntryError("a payload that does not describe its buffers") from None


def _is_compressed(payload: memoryview) -> bool:
    # The payload decides, not the codec that the header names: only the payload is what Arrow reads.
    return _field(payload, _batch_table(payload), 3) is not None


def _sum_of_buffers(payload: memoryview) -> int:
    body = 8 + _U32.unpack_from(payload, 4)[0]
    at = _field(payload, _batch_table(payload), _BATCH_BUFFERS)
    if at is None:
        return 0
    vector = at + _U32.unpack_from(payload, at)[0]
    total = 0
    for number in range(_U32.unpack_from(payload, vector)[0]):
        offset, length = _BUFFER.unpack_from(payload, vector + 4 + number * _BUFFER.size)
        if length < _I64.size or offset < 0:
            continue
        (size,) = _I64.unpack_from(payload, body + offset)
        total += length if size == _NOT_COMPRESSED else max(size, 0)
    return total


def _batch_table(payload: memoryview) -> int:
    """Where the description of the record batch is."""
    if _U32.unpack_from(payload, 0)[0] != _CONTINUATION:
        raise IndexError
    message = 8 + _U32.unpack_from(payload, 8)[0]
    at = _field(payload, message, _MESSAGE_HEADER)
    if at is None:
        raise IndexError
    return at + int(_U32.unpack_from(payload, at)[0])


def _field(payload: memoryview, table: int, number: int) -> int | None:
    """Where a field of a flatbuffers table is; None where it is left out."""
    vtable = table - _I32.unpack_from(payload, table)[0]
    if vtable < 0:
        raise IndexError
    if 4 + 2 * number >= _U16.unpack_from(payload, vtable)[0]:
        return None
    place = _U16.unpack_from(payload, vtable + 4 + 2 * number)[0]
    return table + place if place else None
