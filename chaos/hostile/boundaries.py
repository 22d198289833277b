"""Boundary values of fields: around each power of two that limits a type; empty, too many, too long."""

from __future__ import annotations

import random

from google.protobuf.descriptor import FieldDescriptor

_EDGES = (7, 8, 15, 16, 31, 32, 62, 63, 64)
_SMALL = (0, 1, -1, 2, -2, 3, 5, 100, 1000)

#: Problematic text: control characters, other scripts, reserved names, and overlong text.
TEXTS = (
    "", " ", ".", "..", "a\nb", "\0", "\x1b[2J", "\u2028", "größe", "🦆", "-1", "0", "1" * 400, "9" * 5_000, "nan",
    "x" * 249, "x" * 250, "x" * 65, "x" * 20_000, "__groups", "__other", "(", "(a*)*b", ".*", "compact", "delete",
    "99999999999999999999", "1e400", "٣",
)  # fmt: skip


def integers(bits: int, signed: bool) -> tuple[int, ...]:
    """Returns the boundaries of an integer type: both sides of each relevant power of two."""
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    values = set(_SMALL)
    for edge in _EDGES:
        for near in (-1, 0, 1):
            values |= {(1 << edge) + near, -(1 << edge) + near}
    return tuple(sorted(value for value in values if low <= value <= high))


_NUMBERS: dict[int, tuple[object, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: integers(32, True),
    FieldDescriptor.CPPTYPE_INT64: integers(64, True),
    FieldDescriptor.CPPTYPE_UINT32: integers(32, False),
    FieldDescriptor.CPPTYPE_UINT64: integers(64, False),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, float("nan"), float("inf"), 1e308),
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, -1.0, float("nan"), float("inf")),
}
_BYTES = (b"", b"\0", b"\0" * 15, b"\0" * 16, b"\xff" * 16, b"\xff" * 17, b"x" * 1_025, b"\x80" * 300)
#: Lengths of lists; rarely a very long one.
_LENGTHS = (0, 1, 1, 1, 2, 2, 3, 7, 40)
_LONG_LENGTHS = (999, 1_001, 10_001)
_ONE_IN_MANY = 0.002


def boundary(field: FieldDescriptor, chance: random.Random) -> object:
    """Returns a boundary value of a scalar field."""
    if field.enum_type is not None:
        return chance.choice((*field.enum_type.values_by_number, 99, -1, (1 << 31) - 1))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice(_BYTES)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return chance.choice(TEXTS)
    return chance.choice(_NUMBERS[field.cpp_type])


def length(chance: random.Random) -> int:
    """Returns the length of a list."""
    return chance.choice(_LONG_LENGTHS if chance.random() < _ONE_IN_MANY else _LENGTHS)
