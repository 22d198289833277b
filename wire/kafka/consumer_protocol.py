"""Subscriptions and assignments of classic consumer groups.

These are the first fields of Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment. Coordinators need
neither to assign; they read topics before they delete offsets, and tools show both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

#: Protocol type of members that read topics.
CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = struct.Struct(">hi")
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_Read = TypeVar("_Read")


class _NotThat(Exception):
    """Raised if the bytes are something else."""


def topics_in(metadata: bytes) -> frozenset[str] | None:
    """Returns the names of the topics that a member subscribes to; None if the bytes have another format."""
    return _read(metadata, _topics)


def partitions_in(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """Returns the partitions that a member has, by topic; None if the bytes have another format."""
    return _read(assignment, _partitions)


def _read(data: bytes, read: Callable[[bytes, int], _Read]) -> _Read | None:
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(data, 0)
        # Each item has at least two bytes: a higher count is invalid.
        if version < 0 or not 0 <= 2 * count <= len(data):
            return None
        return read(data, count)
    except (struct.error, UnicodeDecodeError, _NotThat):
        return None


def _topics(data: bytes, count: int) -> frozenset[str]:
    names, place = set(), _VERSION_AND_COUNT.size
    for _ in range(count):
        name, place = _string(data, place)
        names.add(name)
    return frozenset(names)


def _partitions(data: bytes, count: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    place = _VERSION_AND_COUNT.size
    for _ in range(count):
        name, place = _string(data, place)
        (numbers,) = _COUNT.unpack_from(data, place)
        place += _COUNT.size
        if not 0 <= 4 * numbers <= len(data) - place:
            raise _NotThat
        found[name] = struct.unpack_from(f">{numbers}i", data, place)
        place += 4 * numbers
    return found


def _string(data: bytes, place: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, place)
    place += _LENGTH.size
    if not 0 <= length <= len(data) - place:
        raise _NotThat
    return data[place : place + length].decode(), place + length
