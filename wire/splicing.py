"""Protobuf's wire format for assembling large messages, or taking them apart, by hand: one copy instead of three.

Every use has a test that protobuf reads the same as what it would have written, or that the code reads what protobuf
has written.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message

_VARINT = 0
_LENGTH_DELIMITED = 2
#: Sizes of the field types that have a fixed one.
_FIXED_BYTES = {1: 8, 5: 4}
_VARINT_BITS = 70


def varint(value: int) -> bytes:
    """Returns protobuf's encoding of a length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_tag(message: type[Message], field: str) -> bytes:
    """Returns the tag before a field of bytes or of a message: its number and wire type."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decodes a number; returns it and the position after it.

    Raises:
        DecodeError: the bytes are not a number.
    """
    value = shift = 0
    while at < len(data) and shift < _VARINT_BITS:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("a number ends too late, or not at all")


def end_of_field(data: bytes, tag: int, at: int) -> int:
    """Returns the end of a field whose tag ends at ``at``.

    Raises:
        DecodeError: it is of an unknown kind, or ends behind the data.
    """
    kind = tag & 0x07
    if kind == _VARINT:
        return read_varint(data, at)[1]
    if kind == _LENGTH_DELIMITED:
        length, at = read_varint(data, at)
        at += length
    elif kind in _FIXED_BYTES:
        at += _FIXED_BYTES[kind]
    else:
        raise DecodeError(f"a field of kind {kind}")
    if at > len(data):
        raise DecodeError("a field ends behind the message")
    return at
