"""Kafka's messages: how much clients may do, requests.

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
_DT = Struct(">d?")
_T = Struct(">?")


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    """API 48, versions 0 to 1."""

    API_KEY: ClassVar[int] = 48
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    components: Sequence[QuotaComponent] = ()
    strict: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeClientQuotasRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        each.components, at, left = _read_quota_components(data, at, version, left)
        (each.strict,) = _T.unpack_from(data, at)
        at += 1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        _write_quota_components(parts, self.components, version)
        parts.append(_T.pack(self.strict))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class QuotaComponent:
    """``components``, versions 0 to 1."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""


def _read_quota_components(data: bytes, at: int, version: int, left: int) -> tuple[list[QuotaComponent], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(QuotaComponent)
        each.entity_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.match_type,) = _B.unpack_from(data, at)
        at += 1
        each.match, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_quota_components(parts: list[Buffer], values: Sequence[QuotaComponent], version: int) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.entity_type) if compact else pack_string(each.entity_type))
        parts.append(_B.pack(each.match_type))
        parts.append(pack_compact_nullable_string(each.match) if compact else pack_nullable_string(each.match))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterClientQuotasRequest:
    """API 49, versions 0 to 1."""

    API_KEY: ClassVar[int] = 49
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    entries: Sequence[AlterClientQuotasRequestEntryData] = ()
    validate_only: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterClientQuotasRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        each.entries, at, left = _read_alter_client_quotas_request_entry_datas(data, at, version, left)
        (each.validate_only,) = _T.unpack_from(data, at)
        at += 1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        _write_alter_client_quotas_request_entry_datas(parts, self.entries, version)
        parts.append(_T.pack(self.validate_only))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterClientQuotasRequestEntryData:
    """``entries``, versions 0 to 1."""

    entity: Sequence[AlterClientQuotasRequestEntityData] = ()
    ops: Sequence[QuotaOperation] = ()


@dataclass(slots=True)
class AlterClientQuotasRequestEntityData:
    """``entity``, versions 0 to 1."""

    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(slots=True)
class QuotaOperation:
    """``ops``, versions 0 to 1."""

    key: str = ""
    value: float = 0.0
    remove: bool = False


def _read_alter_client_quotas_request_entry_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterClientQuotasRequestEntryData], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AlterClientQuotasRequestEntryData)
        each.entity, at, left = _read_alter_client_quotas_request_entity_datas(data, at, version, left)
        each.ops, at, left = _read_quota_operations(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_client_quotas_request_entry_datas(
    parts: list[Buffer], values: Sequence[AlterClientQuotasRequestEntryData], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        _write_alter_client_quotas_request_entity_datas(parts, each.entity, version)
        _write_quota_operations(parts, each.ops, version)
        if compact:
            parts.append(b"\0")


def _read_alter_client_quotas_request_entity_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterClientQuotasRequestEntityData], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AlterClientQuotasRequestEntityData)
        each.entity_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.entity_name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_client_quotas_request_entity_datas(
    parts: list[Buffer], values: Sequence[AlterClientQuotasRequestEntityData], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.entity_type) if compact else pack_string(each.entity_type))
        parts.append(
            pack_compact_nullable_string(each.entity_name) if compact else pack_nullable_string(each.entity_name)
        )
        if compact:
            parts.append(b"\0")


def _read_quota_operations(data: bytes, at: int, version: int, left: int) -> tuple[list[QuotaOperation], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 11, left) if compact else unpack_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(QuotaOperation)
        each.key, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.value, each.remove = _DT.unpack_from(data, at)
        at += 9
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_quota_operations(parts: list[Buffer], values: Sequence[QuotaOperation], version: int) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.key) if compact else pack_string(each.key))
        parts.append(_DT.pack(each.value, each.remove))
        if compact:
            parts.append(b"\0")
