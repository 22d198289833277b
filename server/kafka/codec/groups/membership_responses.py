"""Kafka's messages: membership of classic consumer groups, responses.

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
    not_null,
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
_HI = Struct(">hi")
_I = Struct(">i")
_IH = Struct(">ih")
_IHI = Struct(">ihi")
_T = Struct(">?")


@dataclass(slots=True)
class FindCoordinatorResponse:
    """API 10, versions 0 to 6."""

    API_KEY: ClassVar[int] = 10
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # from version 1
    error_code: int = 0  # to version 3
    error_message: str | None = ""  # versions 1 to 3
    node_id: int = 0  # to version 3
    host: str = ""  # to version 3
    port: int = 0  # to version 3
    coordinators: Sequence[FoundCoordinator] = ()  # from version 4

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[FindCoordinatorResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version >= 4:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            each.error_code = 0
        elif version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.throttle_time_ms = 0
        if 1 <= version <= 3:
            each.error_message, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.error_message = ""
        if version >= 4:
            each.node_id = 0
        else:
            (each.node_id,) = _I.unpack_from(data, at)
            at += 4
        if version <= 3:
            each.host, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.host = ""
        if version >= 4:
            each.port = 0
        else:
            (each.port,) = _I.unpack_from(data, at)
            at += 4
        if version >= 4:
            each.coordinators, at, left = _read_found_coordinators(data, at, version, left)
        else:
            each.coordinators = ()
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
            parts.append(_I.pack(self.throttle_time_ms))
        elif version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_H.pack(self.error_code))
        if 1 <= version <= 3:
            parts.append(
                pack_compact_nullable_string(self.error_message)
                if compact
                else pack_nullable_string(self.error_message)
            )
        if version < 4:
            parts.append(_I.pack(self.node_id))
        if version <= 3:
            parts.append(pack_compact_string(self.host) if compact else pack_string(self.host))
        if version < 4:
            parts.append(_I.pack(self.port))
        if version >= 4:
            _write_found_coordinators(parts, self.coordinators, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class FoundCoordinator:
    """``coordinators``, versions 4 to 6."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""


def _read_found_coordinators(data: bytes, at: int, version: int, left: int) -> tuple[list[FoundCoordinator], int, int]:
    elements, at, left = unpack_compact_array(data, at, 14, left)
    found = []
    for _ in range(elements):
        each = new(FoundCoordinator)
        each.key, at = unpack_compact_string(data, at)
        (each.node_id,) = _I.unpack_from(data, at)
        at += 4
        each.host, at = unpack_compact_string(data, at)
        each.port, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_found_coordinators(parts: list[Buffer], values: Sequence[FoundCoordinator], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.key))
        parts.append(_I.pack(each.node_id))
        parts.append(pack_compact_string(each.host))
        parts.append(_IH.pack(each.port, each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        parts.append(b"\0")


@dataclass(slots=True)
class JoinGroupResponse:
    """API 11, versions 0 to 9."""

    API_KEY: ClassVar[int] = 11
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # from version 2
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None  # from version 7
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False  # from version 9
    member_id: str = ""
    members: Sequence[JoinGroupResponseMember] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[JoinGroupResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        if version >= 2:
            each.throttle_time_ms, each.error_code, each.generation_id = _IHI.unpack_from(data, at)
            at += 10
        else:
            each.error_code, each.generation_id = _HI.unpack_from(data, at)
            at += 6
            each.throttle_time_ms = 0
        if version >= 7:
            each.protocol_type, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.protocol_type = None
        if version >= 7:
            each.protocol_name, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.protocol_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.leader, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 9:
            (each.skip_assignment,) = _T.unpack_from(data, at)
            at += 1
        else:
            each.skip_assignment = False
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.members, at, left = _read_join_group_response_members(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        if version >= 2:
            parts.append(_IHI.pack(self.throttle_time_ms, self.error_code, self.generation_id))
        else:
            parts.append(_HI.pack(self.error_code, self.generation_id))
        if version >= 7:
            parts.append(
                pack_compact_nullable_string(self.protocol_type)
                if compact
                else pack_nullable_string(self.protocol_type)
            )
        if version >= 7:
            parts.append(
                pack_compact_nullable_string(self.protocol_name)
                if compact
                else pack_nullable_string(self.protocol_name)
            )
        else:
            parts.append(
                pack_compact_string(not_null(self.protocol_name))
                if compact
                else pack_string(not_null(self.protocol_name))
            )
        parts.append(pack_compact_string(self.leader) if compact else pack_string(self.leader))
        if version >= 9:
            parts.append(_T.pack(self.skip_assignment))
        parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        _write_join_group_response_members(parts, self.members, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class JoinGroupResponseMember:
    """``members``, versions 0 to 9."""

    member_id: str = ""
    group_instance_id: str | None = None  # from version 5
    metadata: bytes = b""


def _read_join_group_response_members(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[JoinGroupResponseMember], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(JoinGroupResponseMember)
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 5:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        each.metadata, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_join_group_response_members(
    parts: list[Buffer], values: Sequence[JoinGroupResponseMember], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id) if compact else pack_string(each.member_id))
        if version >= 5:
            parts.append(
                pack_compact_nullable_string(each.group_instance_id)
                if compact
                else pack_nullable_string(each.group_instance_id)
            )
        parts.append(pack_compact_bytes(each.metadata) if compact else pack_bytes(each.metadata))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class SyncGroupResponse:
    """API 14, versions 0 to 5."""

    API_KEY: ClassVar[int] = 14
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # from version 1
    error_code: int = 0
    protocol_type: str | None = None  # from version 5
    protocol_name: str | None = None  # from version 5
    assignment: bytes = b""

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SyncGroupResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.throttle_time_ms = 0
        if version == 5:
            each.protocol_type, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.protocol_type = None
        if version == 5:
            each.protocol_name, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.protocol_name = None
        each.assignment, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        if version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_H.pack(self.error_code))
        if version == 5:
            parts.append(
                pack_compact_nullable_string(self.protocol_type)
                if compact
                else pack_nullable_string(self.protocol_type)
            )
        if version == 5:
            parts.append(
                pack_compact_nullable_string(self.protocol_name)
                if compact
                else pack_nullable_string(self.protocol_name)
            )
        parts.append(pack_compact_bytes(self.assignment) if compact else pack_bytes(self.assignment))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class GroupHeartbeatResponse:
    """API 12, versions 0 to 4."""

    API_KEY: ClassVar[int] = 12
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # from version 1
    error_code: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[GroupHeartbeatResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.throttle_time_ms = 0
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        if version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_H.pack(self.error_code))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class LeaveGroupResponse:
    """API 13, versions 0 to 5."""

    API_KEY: ClassVar[int] = 13
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # from version 1
    error_code: int = 0
    members: Sequence[MemberResponse] = ()  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[LeaveGroupResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.throttle_time_ms = 0
        if version >= 3:
            each.members, at, left = _read_member_responses(data, at, version, left)
        else:
            each.members = ()
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        if version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_H.pack(self.error_code))
        if version >= 3:
            _write_member_responses(parts, self.members, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class MemberResponse:
    """``members``, versions 3 to 5."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0


def _read_member_responses(data: bytes, at: int, version: int, left: int) -> tuple[list[MemberResponse], int, int]:
    compact = version >= 4
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(MemberResponse)
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.group_instance_id, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_member_responses(parts: list[Buffer], values: Sequence[MemberResponse], version: int) -> None:
    compact = version >= 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id) if compact else pack_string(each.member_id))
        parts.append(
            pack_compact_nullable_string(each.group_instance_id)
            if compact
            else pack_nullable_string(each.group_instance_id)
        )
        parts.append(_H.pack(each.error_code))
        if compact:
            parts.append(b"\0")
