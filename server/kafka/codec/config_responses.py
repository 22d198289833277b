"""Kafka's messages: configuration, shown and changed, responses.

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
_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_TBT = Struct(">?b?")


@dataclass(slots=True)
class DescribeConfigsResponse:
    """API 32, versions 1 to 4."""

    API_KEY: ClassVar[int] = 32
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0
    results: Sequence[DescribeConfigsResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeConfigsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results, at, left = _read_describe_configs_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        parts.append(_I.pack(self.throttle_time_ms))
        _write_describe_configs_results(parts, self.results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeConfigsResult:
    """``results``, versions 1 to 4."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """``configs``, versions 1 to 4."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: int = 0  # from version 3
    documentation: str | None = ""  # from version 3


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """``synonyms``, versions 1 to 4."""

    name: str = ""
    value: str | None = ""
    source: int = 0


def _read_describe_configs_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeConfigsResult], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 7, left) if compact else unpack_array(data, at, 7, left)
    found = []
    for _ in range(elements):
        each = new(DescribeConfigsResult)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.configs, at, left = _read_describe_configs_resource_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_configs_results(parts: list[Buffer], values: Sequence[DescribeConfigsResult], version: int) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        _write_describe_configs_resource_results(parts, each.configs, version)
        if compact:
            parts.append(b"\0")


def _read_describe_configs_resource_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeConfigsResourceResult], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 9, left) if compact else unpack_array(data, at, 9, left)
    found = []
    for _ in range(elements):
        each = new(DescribeConfigsResourceResult)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.value, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        each.read_only, each.config_source, each.is_sensitive = _TBT.unpack_from(data, at)
        at += 3
        each.synonyms, at, left = _read_describe_configs_synonyms(data, at, version, left)
        if version >= 3:
            (each.config_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.config_type = 0
        if version >= 3:
            each.documentation, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.documentation = ""
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_configs_resource_results(
    parts: list[Buffer], values: Sequence[DescribeConfigsResourceResult], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_nullable_string(each.value) if compact else pack_nullable_string(each.value))
        parts.append(_TBT.pack(each.read_only, each.config_source, each.is_sensitive))
        _write_describe_configs_synonyms(parts, each.synonyms, version)
        if version >= 3:
            parts.append(_B.pack(each.config_type))
        if version >= 3:
            parts.append(
                pack_compact_nullable_string(each.documentation)
                if compact
                else pack_nullable_string(each.documentation)
            )
        if compact:
            parts.append(b"\0")


def _read_describe_configs_synonyms(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeConfigsSynonym], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(DescribeConfigsSynonym)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.value, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        (each.source,) = _B.unpack_from(data, at)
        at += 1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_describe_configs_synonyms(
    parts: list[Buffer], values: Sequence[DescribeConfigsSynonym], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_nullable_string(each.value) if compact else pack_nullable_string(each.value))
        parts.append(_B.pack(each.source))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterConfigsResponse:
    """API 33, versions 0 to 2."""

    API_KEY: ClassVar[int] = 33
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    responses: Sequence[AlterConfigsResponseAlterConfigsResourceResponse] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterConfigsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.responses, at, left = _read_alter_configs_response_alter_configs_resource_responses(
            data, at, version, left
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
        parts.append(_I.pack(self.throttle_time_ms))
        _write_alter_configs_response_alter_configs_resource_responses(parts, self.responses, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterConfigsResponseAlterConfigsResourceResponse:
    """``responses``, versions 0 to 2."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


def _read_alter_configs_response_alter_configs_resource_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AlterConfigsResponseAlterConfigsResourceResponse], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(AlterConfigsResponseAlterConfigsResourceResponse)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_alter_configs_response_alter_configs_resource_responses(
    parts: list[Buffer], values: Sequence[AlterConfigsResponseAlterConfigsResourceResponse], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    """API 44, versions 0 to 1."""

    API_KEY: ClassVar[int] = 44
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0
    responses: Sequence[IncrementalAlterConfigsResponseAlterConfigsResourceResponse] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[IncrementalAlterConfigsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 1
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.responses, at, left = _read_incremental_alter_configs_response_alter_configs_resource_responses(
            data, at, version, left
        )
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
        _write_incremental_alter_configs_response_alter_configs_resource_responses(parts, self.responses, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class IncrementalAlterConfigsResponseAlterConfigsResourceResponse:
    """``responses``, versions 0 to 1."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""


def _read_incremental_alter_configs_response_alter_configs_resource_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[IncrementalAlterConfigsResponseAlterConfigsResourceResponse], int, int]:
    compact = version == 1
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(IncrementalAlterConfigsResponseAlterConfigsResourceResponse)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        (each.resource_type,) = _B.unpack_from(data, at)
        at += 1
        each.resource_name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_incremental_alter_configs_response_alter_configs_resource_responses(
    parts: list[Buffer], values: Sequence[IncrementalAlterConfigsResponseAlterConfigsResourceResponse], version: int
) -> None:
    compact = version == 1
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        parts.append(_B.pack(each.resource_type))
        parts.append(pack_compact_string(each.resource_name) if compact else pack_string(each.resource_name))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ListConfigResourcesResponse:
    """API 74, versions 0 to 1."""

    API_KEY: ClassVar[int] = 74
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: Sequence[ConfigResource] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListConfigResourcesResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.config_resources, at, left = _read_config_resources(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        _write_config_resources(parts, self.config_resources, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ConfigResource:
    """``config_resources``, versions 0 to 1."""

    resource_name: str = ""
    resource_type: int = 16  # from version 1


def _read_config_resources(data: bytes, at: int, version: int, left: int) -> tuple[list[ConfigResource], int, int]:
    elements, at, left = unpack_compact_array(data, at, 2, left)
    found = []
    for _ in range(elements):
        each = new(ConfigResource)
        each.resource_name, at = unpack_compact_string(data, at)
        if version >= 1:
            (each.resource_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.resource_type = 16
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_config_resources(parts: list[Buffer], values: Sequence[ConfigResource], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.resource_name))
        if version >= 1:
            parts.append(_B.pack(each.resource_type))
        parts.append(b"\0")
