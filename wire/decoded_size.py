"""How large a batch's columns are once they are decompressed, as its payload says, before anybody decompresses them.

A megabyte of a hostile client may stand for tens of gigabytes, and Arrow allocates what the payload asks for. So
leaders refuse such batches, and whoever reads one takes it for damaged, nodes and clients alike: a prefix of each
buffer says its length, and Arrow refuses a buffer that turns out otherwise.
"""

from __future__ import annotations

import struct

from quorumlog.wire.entry import BATCH_OVERHEAD_BYTES, CorruptEntryError, Flags

#: A compressed batch may become as large as this, all its buffers together. A constant of the format, no setting:
#: replicas that compact must agree on what can be read. Producers bound batches before they compress them.
MOST_DECODED_BYTES = 64 << 20
#: What compaction adds to a batch that it leaves a single record of: the record's place.
COMPACTION_ADDS_BYTES = 64 << 10

_CONTINUATION = 0xFFFF_FFFF
_U16, _I16, _U32, _I32, _I64 = (struct.Struct(form) for form in ("<H", "<h", "<I", "<i", "<q"))
_BUFFER = struct.Struct("<qq")
#: The columns of a batch have 19 buffers. Who names thousands wants them counted.
_MOST_BUFFERS = 64
_FLAGS_AT = 2
#: Places of fields in the tables of Arrow's Message.fbs.
_MESSAGE_VERSION, _MESSAGE_HEADER = 0, 2
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
#: Arrow's metadata version since 1.0. Versions before it could name a codec in places that are not looked at here.
_VERSION_5 = 4
#: Instead of a size before a buffer that compression would not have made smaller.
_NOT_COMPRESSED = -1


class DecodedSizeError(CorruptEntryError):
    """A compressed batch would become larger than any that is read."""


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
            f"its columns would take {size} bytes once they are decompressed, and compressed batches may take"
            f" {MOST_DECODED_BYTES}"
        )


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
    """Where the description of the record batch is."""
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
    """Where a field of a flatbuffers table is; None where it is left out."""
    vtable = table - _I32.unpack_from(payload, table)[0]
    if vtable < 0:
        raise IndexError
    if 4 + 2 * number >= _U16.unpack_from(payload, vtable)[0]:
        return None
    place = _U16.unpack_from(payload, vtable + 4 + 2 * number)[0]
    return table + place if place else None
