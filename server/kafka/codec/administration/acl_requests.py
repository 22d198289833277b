"""Kafka's messages: ACLs, requests.

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
    pack_compact_count,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_string,
)

_B = Struct(">b")
_BB = Struct(">bb")


@dataclass(slots=True)
class DescribeAclsRequest:
    """API 29, versions 1 to 3."""

    API_KEY: ClassVar[int] = 29
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeAclsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        (each.resource_type_filter,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name_filter, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.pattern_type_filter,) = _B.unpack_from(data, at)
        at += 1
        each.principal_filter, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.host_filter, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        each.operation, each.permission_type = _BB.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(_B.pack(self.resource_type_filter))
        parts.append(
            pack_compact_nullable_string(self.resource_name_filter)
            if compact
            else pack_nullable_string(self.resource_name_filter)
        )
        parts.append(_B.pack(self.pattern_type_filter))
        parts.append(
            pack_compact_nullable_string(self.principal_filter)
            if compact
            else pack_nullable_string(self.principal_filter)
        )
        parts.append(
            pack_compact_nullable_string(self.host_filter) if compact else pack_nullable_string(self.host_filter)
        )
        parts.append(_BB.pack(self.operation, self.permission_type))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreateAclsRequest:
    """API 30, versions 1 to 3."""

    API_KEY: ClassVar[int] = 30
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    creations: Sequence[AclCreation] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreateAclsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.creations, at, left = _read_acl_creations(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        _write_acl_creations(parts, self.creations, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AclCreation:
    """``creations``, versions 1 to 3."""

    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


def _read_acl_creations(data: bytes, at: int, version: int, left: int) -> tuple[list[AclCreation], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 8, left) if compact else unpack_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(AclCreation)
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.resource_pattern_type,) = _B.unpack_from(data, at)
        at += 1
        each.principal, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.host, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.operation, each.permission_type = _BB.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_acl_creations(parts: list[Buffer], values: Sequence[AclCreation], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        parts.append(_B.pack(each.resource_pattern_type))
        parts.append(pack_compact_string(each.principal) if compact else pack_string(each.principal))
        parts.append(pack_compact_string(each.host) if compact else pack_string(each.host))
        parts.append(_BB.pack(each.operation, each.permission_type))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteAclsRequest:
    """API 31, versions 1 to 3."""

    API_KEY: ClassVar[int] = 31
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    filters: Sequence[DeleteAclsFilter] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteAclsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.filters, at, left = _read_delete_acls_filters(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        _write_delete_acls_filters(parts, self.filters, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteAclsFilter:
    """``filters``, versions 1 to 3."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


def _read_delete_acls_filters(data: bytes, at: int, version: int, left: int) -> tuple[list[DeleteAclsFilter], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 8, left) if compact else unpack_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(DeleteAclsFilter)
        (each.resource_type_filter,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name_filter, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.pattern_type_filter,) = _B.unpack_from(data, at)
        at += 1
        each.principal_filter, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.host_filter, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        each.operation, each.permission_type = _BB.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_acls_filters(parts: list[Buffer], values: Sequence[DeleteAclsFilter], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type_filter))
        parts.append(
            pack_compact_nullable_string(each.resource_name_filter)
            if compact
            else pack_nullable_string(each.resource_name_filter)
        )
        parts.append(_B.pack(each.pattern_type_filter))
        parts.append(
            pack_compact_nullable_string(each.principal_filter)
            if compact
            else pack_nullable_string(each.principal_filter)
        )
        parts.append(
            pack_compact_nullable_string(each.host_filter) if compact else pack_nullable_string(each.host_filter)
        )
        parts.append(_BB.pack(each.operation, each.permission_type))
        if compact:
            parts.append(b"\0")
