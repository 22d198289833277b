"""Kafka's messages: ACLs, responses.

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
_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")


@dataclass(slots=True)
class DescribeAclsResponse:
    """API 29, versions 1 to 3."""

    API_KEY: ClassVar[int] = 29
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: Sequence[DescribeAclsResource] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeAclsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.resources, at, left = _read_describe_acls_resources(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(
            pack_compact_nullable_string(self.error_message) if compact else pack_nullable_string(self.error_message)
        )
        _write_describe_acls_resources(parts, self.resources, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeAclsResource:
    """``resources``, versions 1 to 3."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: Sequence[AclDescription] = ()


@dataclass(slots=True)
class AclDescription:
    """``acls``, versions 1 to 3."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


def _read_describe_acls_resources(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeAclsResource], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(DescribeAclsResource)
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.pattern_type,) = _B.unpack_from(data, at)
        at += 1
        each.acls, at, left = _read_acl_descriptions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_acls_resources(parts: list[Buffer], values: Sequence[DescribeAclsResource], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        parts.append(_B.pack(each.pattern_type))
        _write_acl_descriptions(parts, each.acls, version)
        if compact:
            parts.append(b"\0")


def _read_acl_descriptions(data: bytes, at: int, version: int, left: int) -> tuple[list[AclDescription], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(AclDescription)
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


def _write_acl_descriptions(parts: list[Buffer], values: Sequence[AclDescription], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.principal) if compact else pack_string(each.principal))
        parts.append(pack_compact_string(each.host) if compact else pack_string(each.host))
        parts.append(_BB.pack(each.operation, each.permission_type))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreateAclsResponse:
    """API 30, versions 1 to 3."""

    API_KEY: ClassVar[int] = 30
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    results: Sequence[AclCreationResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreateAclsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results, at, left = _read_acl_creation_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(_I.pack(self.throttle_time_ms))
        _write_acl_creation_results(parts, self.results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AclCreationResult:
    """``results``, versions 1 to 3."""

    error_code: int = 0
    error_message: str | None = ""


def _read_acl_creation_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AclCreationResult], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(AclCreationResult)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_acl_creation_results(parts: list[Buffer], values: Sequence[AclCreationResult], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteAclsResponse:
    """API 31, versions 1 to 3."""

    API_KEY: ClassVar[int] = 31
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteAclsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.filter_results, at, left = _read_delete_acls_filter_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(_I.pack(self.throttle_time_ms))
        _write_delete_acls_filter_results(parts, self.filter_results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteAclsFilterResult:
    """``filter_results``, versions 1 to 3."""

    error_code: int = 0
    error_message: str | None = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


@dataclass(slots=True)
class DeleteAclsMatchingAcl:
    """``matching_acls``, versions 1 to 3."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


def _read_delete_acls_filter_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteAclsFilterResult], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(DeleteAclsFilterResult)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.matching_acls, at, left = _read_delete_acls_matching_acls(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_acls_filter_results(
    parts: list[Buffer], values: Sequence[DeleteAclsFilterResult], version: int
) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        _write_delete_acls_matching_acls(parts, each.matching_acls, version)
        if compact:
            parts.append(b"\0")


def _read_delete_acls_matching_acls(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteAclsMatchingAcl], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 11, left) if compact else unpack_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(DeleteAclsMatchingAcl)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.pattern_type,) = _B.unpack_from(data, at)
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


def _write_delete_acls_matching_acls(
    parts: list[Buffer], values: Sequence[DeleteAclsMatchingAcl], version: int
) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        parts.append(_B.pack(each.pattern_type))
        parts.append(pack_compact_string(each.principal) if compact else pack_string(each.principal))
        parts.append(pack_compact_string(each.host) if compact else pack_string(each.host))
        parts.append(_BB.pack(each.operation, each.permission_type))
        if compact:
            parts.append(b"\0")
