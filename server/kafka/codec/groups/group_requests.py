"""Kafka's messages: consumer groups, from outside, requests.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    Buffer,
    new,
    pack_compact_string_array,
    pack_string_array,
    skip_tags,
    unpack_compact_string_array,
    unpack_string_array,
)

_T = Struct(">?")


@dataclass(slots=True)
class ListGroupsRequest:
    """API 16, versions 0 to 5."""

    API_KEY: ClassVar[int] = 16
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    states_filter: Sequence[str] = ()  # from version 4
    types_filter: Sequence[str] = ()  # from version 5

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListGroupsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version >= 4:
            each.states_filter, at, left = (
                unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
            )
        else:
            each.states_filter = ()
        if version == 5:
            each.types_filter, at, left = (
                unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
            )
        else:
            each.types_filter = ()
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        if version >= 4:
            parts.append(
                pack_compact_string_array(self.states_filter) if compact else pack_string_array(self.states_filter)
            )
        if version == 5:
            parts.append(
                pack_compact_string_array(self.types_filter) if compact else pack_string_array(self.types_filter)
            )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeGroupsRequest:
    """API 15, versions 0 to 6."""

    API_KEY: ClassVar[int] = 15
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5

    groups: Sequence[str] = ()
    include_authorized_operations: bool = False  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeGroupsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        each = new(cls)
        each.groups, at, left = (
            unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
        )
        if version >= 3:
            (each.include_authorized_operations,) = _T.unpack_from(data, at)
            at += 1
        else:
            each.include_authorized_operations = False
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        parts.append(pack_compact_string_array(self.groups) if compact else pack_string_array(self.groups))
        if version >= 3:
            parts.append(_T.pack(self.include_authorized_operations))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteGroupsRequest:
    """API 42, versions 0 to 2."""

    API_KEY: ClassVar[int] = 42
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    groups_names: Sequence[str] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteGroupsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        each.groups_names, at, left = (
            unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        parts.append(pack_compact_string_array(self.groups_names) if compact else pack_string_array(self.groups_names))
        if compact:
            parts.append(b"\0")
