"""Kafka's messages: configuration, shown and changed, requests.

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
    pack_compact_int8_array,
    pack_compact_nullable_string,
    pack_compact_nullable_string_array,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_nullable_string_array,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int8_array,
    unpack_compact_nullable_string,
    unpack_compact_nullable_string_array,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_nullable_string_array,
    unpack_string,
)

_B = Struct(">b")
_T = Struct(">?")
_TT = Struct(">??")


@dataclass(slots=True)
class DescribeConfigsRequest:
    """API 32, versions 1 to 4."""

    API_KEY: ClassVar[int] = 32
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: bool = False
    include_documentation: bool = False  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeConfigsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        each.resources, at, left = _read_describe_configs_resources(data, at, version, left)
        if version >= 3:
            each.include_synonyms, each.include_documentation = _TT.unpack_from(data, at)
            at += 2
        else:
            (each.include_synonyms,) = _T.unpack_from(data, at)
            at += 1
            each.include_documentation = False
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        _write_describe_configs_resources(parts, self.resources, version)
        if version >= 3:
            parts.append(_TT.pack(self.include_synonyms, self.include_documentation))
        else:
            parts.append(_T.pack(self.include_synonyms))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeConfigsResource:
    """``resources``, versions 1 to 4."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: Sequence[str] | None = ()


def _read_describe_configs_resources(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeConfigsResource], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(DescribeConfigsResource)
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.configuration_keys, at, left = (
            unpack_compact_nullable_string_array(data, at, left)
            if compact
            else unpack_nullable_string_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_configs_resources(
    parts: list[Buffer], values: Sequence[DescribeConfigsResource], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        parts.append(
            pack_compact_nullable_string_array(each.configuration_keys)
            if compact
            else pack_nullable_string_array(each.configuration_keys)
        )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterConfigsRequest:
    """API 33, versions 0 to 2."""

    API_KEY: ClassVar[int] = 33
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    resources: Sequence[AlterConfigsRequestAlterConfigsResource] = ()
    validate_only: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterConfigsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        each.resources, at, left = _read_alter_configs_request_alter_configs_resources(data, at, version, left)
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
        compact = version == 2
        _write_alter_configs_request_alter_configs_resources(parts, self.resources, version)
        parts.append(_T.pack(self.validate_only))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterConfigsRequestAlterConfigsResource:
    """``resources``, versions 0 to 2."""

    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterConfigsRequestAlterableConfig] = ()


@dataclass(slots=True)
class AlterConfigsRequestAlterableConfig:
    """``configs``, versions 0 to 2."""

    name: str = ""
    value: str | None = ""


def _read_alter_configs_request_alter_configs_resources(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterConfigsRequestAlterConfigsResource], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(AlterConfigsRequestAlterConfigsResource)
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.configs, at, left = _read_alter_configs_request_alterable_configs(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_configs_request_alter_configs_resources(
    parts: list[Buffer], values: Sequence[AlterConfigsRequestAlterConfigsResource], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        _write_alter_configs_request_alterable_configs(parts, each.configs, version)
        if compact:
            parts.append(b"\0")


def _read_alter_configs_request_alterable_configs(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterConfigsRequestAlterableConfig], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AlterConfigsRequestAlterableConfig)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.value, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_configs_request_alterable_configs(
    parts: list[Buffer], values: Sequence[AlterConfigsRequestAlterableConfig], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_nullable_string(each.value) if compact else pack_nullable_string(each.value))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    """API 44, versions 0 to 1."""

    API_KEY: ClassVar[int] = 44
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    resources: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource] = ()
    validate_only: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[IncrementalAlterConfigsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        each.resources, at, left = _read_incremental_alter_configs_request_alter_configs_resources(
            data, at, version, left
        )
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
        _write_incremental_alter_configs_request_alter_configs_resources(parts, self.resources, version)
        parts.append(_T.pack(self.validate_only))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class IncrementalAlterConfigsRequestAlterConfigsResource:
    """``resources``, versions 0 to 1."""

    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[IncrementalAlterConfigsRequestAlterableConfig] = ()


@dataclass(slots=True)
class IncrementalAlterConfigsRequestAlterableConfig:
    """``configs``, versions 0 to 1."""

    name: str = ""
    config_operation: int = 0
    value: str | None = ""


def _read_incremental_alter_configs_request_alter_configs_resources(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterConfigsResource], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(IncrementalAlterConfigsRequestAlterConfigsResource)
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.configs, at, left = _read_incremental_alter_configs_request_alterable_configs(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_incremental_alter_configs_request_alter_configs_resources(
    parts: list[Buffer], values: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        _write_incremental_alter_configs_request_alterable_configs(parts, each.configs, version)
        if compact:
            parts.append(b"\0")


def _read_incremental_alter_configs_request_alterable_configs(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterableConfig], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(IncrementalAlterConfigsRequestAlterableConfig)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.config_operation,) = _B.unpack_from(data, at)
        at += 1
        each.value, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_incremental_alter_configs_request_alterable_configs(
    parts: list[Buffer], values: Sequence[IncrementalAlterConfigsRequestAlterableConfig], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(_B.pack(each.config_operation))
        parts.append(pack_compact_nullable_string(each.value) if compact else pack_nullable_string(each.value))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ListConfigResourcesRequest:
    """API 74, versions 0 to 1."""

    API_KEY: ClassVar[int] = 74
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    resource_types: Sequence[int] = ()  # from version 1

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListConfigResourcesRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        if version == 1:
            each.resource_types, at, left = unpack_compact_int8_array(data, at, left)
        else:
            each.resource_types = ()
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        if version == 1:
            parts.append(pack_compact_int8_array(self.resource_types))
        parts.append(b"\0")
