"""Protobuf's wire format for those who put large messages together by hand, to copy their bytes once and not thrice.

Whoever uses it has a test that protobuf reads what it would have written.
"""

from __future__ import annotations

from google.protobuf.message import Message

_LENGTH_DELIMITED = 2


def varint(value: int) -> bytes:
    """Protobuf's encoding of a length."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_tag(message: type[Message], field: str) -> bytes:
    """What stands before a field of bytes or of a message: its number and wire type."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)
