"""Kafka's messages: membership of classic consumer groups, requests.

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
    pack_compact_string_array,
    pack_count,
    pack_nullable_string,
    pack_string,
    pack_string_array,
    skip_tags,
    unpack_array,
    unpack_bytes,
    unpack_compact_array,
    unpack_compact_bytes,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_compact_string_array,
    unpack_nullable_string,
    unpack_string,
    unpack_string_array,
)

_B = Struct(">b")
_I = Struct(">i")
_II = Struct(">ii")


@dataclass(slots=True)
class FindCoordinatorRequest:
    """API 10, versions 0 to 6."""

    API_KEY: ClassVar[int] = 10
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3

    key: str = ""  # to version 3
    key_type: int = 0  # from version 1
    coordinator_keys: Sequence[str] = ()  # from version 4

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[FindCoordinatorRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version <= 3:
            each.key, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.key = ""
        if version >= 1:
            (each.key_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.key_type = 0
        if version >= 4:
            each.coordinator_keys, at, left = (
                unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
            )
        else:
            each.coordinator_keys = ()
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        if version <= 3:
            parts.append(pack_compact_string(self.key) if compact else pack_string(self.key))
        if version >= 1:
            parts.append(_B.pack(self.key_type))
        if version >= 4:
            parts.append(
                pack_compact_string_array(self.coordinator_keys)
                if compact
                else pack_string_array(self.coordinator_keys)
            )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class JoinGroupRequest:
    """API 11, versions 0 to 9."""

    API_KEY: ClassVar[int] = 11
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1  # from version 1
    member_id: str = ""
    group_instance_id: str | None = None  # from version 5
    protocol_type: str = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: str | None = None  # from version 8

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[JoinGroupRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 1:
            each.session_timeout_ms, each.rebalance_timeout_ms = _II.unpack_from(data, at)
            at += 8
        else:
            (each.session_timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            each.rebalance_timeout_ms = -1
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 5:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        each.protocol_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.protocols, at, left = _read_join_group_request_protocols(data, at, version, left)
        if version >= 8:
            each.reason, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.reason = None
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        if version >= 1:
            parts.append(_II.pack(self.session_timeout_ms, self.rebalance_timeout_ms))
        else:
            parts.append(_I.pack(self.session_timeout_ms))
        parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 5:
            parts.append(
                pack_compact_nullable_string(self.group_instance_id)
                if compact
                else pack_nullable_string(self.group_instance_id)
            )
        parts.append(pack_compact_string(self.protocol_type) if compact else pack_string(self.protocol_type))
        _write_join_group_request_protocols(parts, self.protocols, version)
        if version >= 8:
            parts.append(pack_compact_nullable_string(self.reason) if compact else pack_nullable_string(self.reason))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    """``protocols``, versions 0 to 9."""

    name: str = ""
    metadata: bytes = b""


def _read_join_group_request_protocols(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[JoinGroupRequestProtocol], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(JoinGroupRequestProtocol)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.metadata, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_join_group_request_protocols(
    parts: list[Buffer], values: Sequence[JoinGroupRequestProtocol], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_bytes(each.metadata) if compact else pack_bytes(each.metadata))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class SyncGroupRequest:
    """API 14, versions 0 to 5."""

    API_KEY: ClassVar[int] = 14
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # from version 3
    protocol_type: str | None = None  # from version 5
    protocol_name: str | None = None  # from version 5
    assignments: Sequence[SyncGroupRequestAssignment] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[SyncGroupRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.generation_id,) = _I.unpack_from(data, at)
        at += 4
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 3:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
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
        each.assignments, at, left = _read_sync_group_request_assignments(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        parts.append(_I.pack(self.generation_id))
        parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 3:
            parts.append(
                pack_compact_nullable_string(self.group_instance_id)
                if compact
                else pack_nullable_string(self.group_instance_id)
            )
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
        _write_sync_group_request_assignments(parts, self.assignments, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    """``assignments``, versions 0 to 5."""

    member_id: str = ""
    assignment: bytes = b""


def _read_sync_group_request_assignments(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[SyncGroupRequestAssignment], int, int]:
    compact = version >= 4
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(SyncGroupRequestAssignment)
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.assignment, at = unpack_compact_bytes(data, at) if compact else unpack_bytes(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_sync_group_request_assignments(
    parts: list[Buffer], values: Sequence[SyncGroupRequestAssignment], version: int
) -> None:
    compact = version >= 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id) if compact else pack_string(each.member_id))
        parts.append(pack_compact_bytes(each.assignment) if compact else pack_bytes(each.assignment))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class GroupHeartbeatRequest:
    """API 12, versions 0 to 4."""

    API_KEY: ClassVar[int] = 12
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[GroupHeartbeatRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.generation_id,) = _I.unpack_from(data, at)
        at += 4
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 3:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        parts.append(_I.pack(self.generation_id))
        parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 3:
            parts.append(
                pack_compact_nullable_string(self.group_instance_id)
                if compact
                else pack_nullable_string(self.group_instance_id)
            )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class LeaveGroupRequest:
    """API 13, versions 0 to 5."""

    API_KEY: ClassVar[int] = 13
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""
    member_id: str = ""  # to version 2
    members: Sequence[MemberIdentity] = ()  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[LeaveGroupRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version <= 2:
            each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.member_id = ""
        if version >= 3:
            each.members, at, left = _read_member_identitys(data, at, version, left)
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
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        if version <= 2:
            parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 3:
            _write_member_identitys(parts, self.members, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class MemberIdentity:
    """``members``, versions 3 to 5."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None  # from version 5


def _read_member_identitys(data: bytes, at: int, version: int, left: int) -> tuple[list[MemberIdentity], int, int]:
    compact = version >= 4
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(MemberIdentity)
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.group_instance_id, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if version == 5:
            each.reason, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.reason = None
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_member_identitys(parts: list[Buffer], values: Sequence[MemberIdentity], version: int) -> None:
    compact = version >= 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id) if compact else pack_string(each.member_id))
        parts.append(
            pack_compact_nullable_string(each.group_instance_id)
            if compact
            else pack_nullable_string(each.group_instance_id)
        )
        if version == 5:
            parts.append(pack_compact_nullable_string(each.reason) if compact else pack_nullable_string(each.reason))
        if compact:
            parts.append(b"\0")
