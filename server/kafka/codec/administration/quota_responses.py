"""Kafka's messages: how much clients may do, responses.

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
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_array,
    unpack_nullable_string,
    unpack_string,
)

_D = Struct(">d")
_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    """API 48, versions 0 to 1."""

    API_KEY: ClassVar[int] = 48
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: Sequence[DescribeClientQuotasResponseEntryData] | None = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeClientQuotasResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.entries, at, left = _read_describe_client_quotas_response_entry_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(
            pack_compact_nullable_string(self.error_message) if compact else pack_nullable_string(self.error_message)
        )
        _write_describe_client_quotas_response_entry_datas(parts, self.entries, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeClientQuotasResponseEntryData:
    """``entries``, versions 0 to 1."""

    entity: Sequence[DescribeClientQuotasResponseEntityData] = ()
    values: Sequence[QuotaValue] = ()


@dataclass(slots=True)
class DescribeClientQuotasResponseEntityData:
    """``entity``, versions 0 to 1."""

    entity_type: str = ""
    entity_name: str | None = ""


@dataclass(slots=True)
class QuotaValue:
    """``values``, versions 0 to 1."""

    key: str = ""
    value: float = 0.0


def _read_describe_client_quotas_response_entry_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeClientQuotasResponseEntryData] | None, int, int]:
    compact = version == 1
    elements, at, left = (
        unpack_compact_nullable_array(data, at, 3, left) if compact else unpack_nullable_array(data, at, 3, left)
    )
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(DescribeClientQuotasResponseEntryData)
        each.entity, at, left = _read_describe_client_quotas_response_entity_datas(data, at, version, left)
        each.values, at, left = _read_quota_values(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_client_quotas_response_entry_datas(
    parts: list[Buffer], values: Sequence[DescribeClientQuotasResponseEntryData] | None, version: int
) -> None:
    compact = version == 1
    if values is None:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        _write_describe_client_quotas_response_entity_datas(parts, each.entity, version)
        _write_quota_values(parts, each.values, version)
        if compact:
            parts.append(b"\0")


def _read_describe_client_quotas_response_entity_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeClientQuotasResponseEntityData], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(DescribeClientQuotasResponseEntityData)
        each.entity_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.entity_name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_client_quotas_response_entity_datas(
    parts: list[Buffer], values: Sequence[DescribeClientQuotasResponseEntityData], version: int
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


def _read_quota_values(data: bytes, at: int, version: int, left: int) -> tuple[list[QuotaValue], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 10, left) if compact else unpack_array(data, at, 10, left)
    found = []
    for _ in range(elements):
        each = new(QuotaValue)
        each.key, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.value,) = _D.unpack_from(data, at)
        at += 8
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_quota_values(parts: list[Buffer], values: Sequence[QuotaValue], version: int) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.key) if compact else pack_string(each.key))
        parts.append(_D.pack(each.value))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterClientQuotasResponse:
    """API 49, versions 0 to 1."""

    API_KEY: ClassVar[int] = 49
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0
    entries: Sequence[AlterClientQuotasResponseEntryData] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterClientQuotasResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.entries, at, left = _read_alter_client_quotas_response_entry_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        parts.append(_I.pack(self.throttle_time_ms))
        _write_alter_client_quotas_response_entry_datas(parts, self.entries, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterClientQuotasResponseEntryData:
    """``entries``, versions 0 to 1."""

    error_code: int = 0
    error_message: str | None = ""
    entity: Sequence[AlterClientQuotasResponseEntityData] = ()


@dataclass(slots=True)
class AlterClientQuotasResponseEntityData:
    """``entity``, versions 0 to 1."""

    entity_type: str = ""
    entity_name: str | None = ""


def _read_alter_client_quotas_response_entry_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterClientQuotasResponseEntryData], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(AlterClientQuotasResponseEntryData)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.entity, at, left = _read_alter_client_quotas_response_entity_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_client_quotas_response_entry_datas(
    parts: list[Buffer], values: Sequence[AlterClientQuotasResponseEntryData], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        _write_alter_client_quotas_response_entity_datas(parts, each.entity, version)
        if compact:
            parts.append(b"\0")


def _read_alter_client_quotas_response_entity_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterClientQuotasResponseEntityData], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AlterClientQuotasResponseEntityData)
        each.entity_type, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.entity_name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_client_quotas_response_entity_datas(
    parts: list[Buffer], values: Sequence[AlterClientQuotasResponseEntityData], version: int
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
