"""Kafka's messages: consumer groups, from outside, responses.

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
    pack_bytes,
    pack_compact_bytes,
    pack_compact_count,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_bytes,
    unpack_compact_array,
    unpack_compact_bytes,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_string,
)

_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")


@dataclass(slots=True)
class ListGroupsResponse:
    """API 16, versions 0 to 5."""

    API_KEY: ClassVar[int] = 16
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # from version 1
    error_code: int = 0
    groups: Sequence[ListedGroup] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListGroupsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.throttle_time_ms = 0
        each.groups, at, left = _read_listed_groups(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        if version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_H.pack(self.error_code))
        _write_listed_groups(parts, self.groups, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ListedGroup:
    """``groups``, versions 0 to 5."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""  # from version 4
    group_type: str = ""  # from version 5


def _read_listed_groups(data: bytes, at: int, version: int, left: int) -> tuple[list[ListedGroup], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ListedGroup)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.protocol_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 4:
            each.group_state, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.group_state = ""
        if version == 5:
            each.group_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.group_type = ""
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_listed_groups(parts: list[Buffer], values: Sequence[ListedGroup], version: int) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.group_id) if compact else pack_string(each.group_id))
        parts.append(pack_compact_string(each.protocol_type) if compact else pack_string(each.protocol_type))
        if version >= 4:
            parts.append(pack_compact_string(each.group_state) if compact else pack_string(each.group_state))
        if version == 5:
            parts.append(pack_compact_string(each.group_type) if compact else pack_string(each.group_type))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeGroupsResponse:
    """API 15, versions 0 to 6."""

    API_KEY: ClassVar[int] = 15
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5

    throttle_time_ms: int = 0  # from version 1
    groups: Sequence[DescribedGroup] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeGroupsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        each = new(cls)
        if version >= 1:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        each.groups, at, left = _read_described_groups(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        if version >= 1:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_described_groups(parts, self.groups, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribedGroup:
    """``groups``, versions 0 to 6."""

    error_code: int = 0
    error_message: str | None = None  # from version 6
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: int = -2147483648  # from version 3


@dataclass(slots=True)
class DescribedGroupMember:
    """``members``, versions 0 to 6."""

    member_id: str = ""
    group_instance_id: str | None = None  # from version 4
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


def _read_described_groups(data: bytes, at: int, version: int, left: int) -> tuple[list[DescribedGroup], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 12, left) if compact else unpack_array(data, at, 12, left)
    found = []
    for _ in range(elements):
        each = new(DescribedGroup)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version == 6:
            each.error_message, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.error_message = None
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.group_state, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.protocol_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.protocol_data, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.members, at, left = _read_described_group_members(data, at, version, left)
        if version >= 3:
            (each.authorized_operations,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.authorized_operations = -2147483648
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_described_groups(parts: list[Buffer], values: Sequence[DescribedGroup], version: int) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        if version == 6:
            parts.append(
                pack_compact_nullable_string(each.error_message)
                if compact
                else pack_nullable_string(each.error_message)
            )
        parts.append(pack_compact_string(each.group_id) if compact else pack_string(each.group_id))
        parts.append(pack_compact_string(each.group_state) if compact else pack_string(each.group_state))
        parts.append(pack_compact_string(each.protocol_type) if compact else pack_string(each.protocol_type))
        parts.append(pack_compact_string(each.protocol_data) if compact else pack_string(each.protocol_data))
        _write_described_group_members(parts, each.members, version)
        if version >= 3:
            parts.append(_I.pack(each.authorized_operations))
        if compact:
            parts.append(b"\0")


def _read_described_group_members(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedGroupMember], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 7, left) if compact else unpack_array(data, at, 7, left)
    found = []
    for _ in range(elements):
        each = new(DescribedGroupMember)
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 4:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        each.client_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.client_host, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.member_metadata, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        each.member_assignment, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_described_group_members(parts: list[Buffer], values: Sequence[DescribedGroupMember], version: int) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id) if compact else pack_string(each.member_id))
        if version >= 4:
            parts.append(
                pack_compact_nullable_string(each.group_instance_id)
                if compact
                else pack_nullable_string(each.group_instance_id)
            )
        parts.append(pack_compact_string(each.client_id) if compact else pack_string(each.client_id))
        parts.append(pack_compact_string(each.client_host) if compact else pack_string(each.client_host))
        parts.append(pack_compact_bytes(each.member_metadata) if compact else pack_bytes(each.member_metadata))
        parts.append(pack_compact_bytes(each.member_assignment) if compact else pack_bytes(each.member_assignment))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteGroupsResponse:
    """API 42, versions 0 to 2."""

    API_KEY: ClassVar[int] = 42
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    results: Sequence[DeletableGroupResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteGroupsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results, at, left = _read_deletable_group_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        parts.append(_I.pack(self.throttle_time_ms))
        _write_deletable_group_results(parts, self.results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeletableGroupResult:
    """``results``, versions 0 to 2."""

    group_id: str = ""
    error_code: int = 0


def _read_deletable_group_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeletableGroupResult], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(DeletableGroupResult)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_deletable_group_results(parts: list[Buffer], values: Sequence[DeletableGroupResult], version: int) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.group_id) if compact else pack_string(each.group_id))
        parts.append(_H.pack(each.error_code))
        if compact:
            parts.append(b"\0")
