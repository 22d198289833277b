"""Kafka's messages: topics made, grown, emptied and deleted, responses.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar

from quorumlog.server.kafka.codec.primitives import (
    NO_UUID,
    Buffer,
    check_end,
    new,
    not_null,
    pack_compact_count,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    pack_tags,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_string,
    unpack_tags,
)

_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_IQH = Struct(">iqh")
_TBT = Struct(">?b?")
_UH = Struct(">16sh")


@dataclass(slots=True)
class CreateTopicsResponse:
    """API 19, versions 2 to 7."""

    API_KEY: ClassVar[int] = 19
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5

    throttle_time_ms: int = 0
    topics: Sequence[CreatableTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreateTopicsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_creatable_topic_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        parts.append(_I.pack(self.throttle_time_ms))
        _write_creatable_topic_results(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreatableTopicResult:
    """``topics``, versions 2 to 7."""

    name: str = ""
    topic_id: bytes = NO_UUID  # from version 7
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0  # from version 5
    num_partitions: int = -1  # from version 5
    replication_factor: int = -1  # from version 5
    configs: Sequence[CreatableTopicConfigs] | None = ()  # from version 5


@dataclass(slots=True)
class CreatableTopicConfigs:
    """``configs``, versions 5 to 7."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


def _read_creatable_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatableTopicResult], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(CreatableTopicResult)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 7:
            each.topic_id, each.error_code = _UH.unpack_from(data, at)
            at += 18
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.topic_id = NO_UUID
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if version >= 5:
            each.num_partitions, each.replication_factor = _IH.unpack_from(data, at)
            at += 6
        else:
            each.num_partitions = -1
            each.replication_factor = -1
        if version >= 5:
            each.configs, at, left = _read_creatable_topic_configss(data, at, version, left)
        else:
            each.configs = ()
        each.topic_config_error_code = 0
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged:
                    begin, end = tagged[0]
                    (each.topic_config_error_code,) = _H.unpack_from(data, begin)
                    begin += 2
                    check_end(begin, end)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_creatable_topic_results(parts: list[Buffer], values: Sequence[CreatableTopicResult], version: int) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        if version >= 7:
            parts.append(_UH.pack(each.topic_id, each.error_code))
        else:
            parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        if version >= 5:
            parts.append(_IH.pack(each.num_partitions, each.replication_factor))
        if version >= 5:
            _write_creatable_topic_configss(parts, each.configs, version)
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if each.topic_config_error_code != 0:
                inner: list[Buffer] = []
                inner.append(_H.pack(each.topic_config_error_code))
                tagged.append((0, inner))
            parts.append(pack_tags(tagged))


def _read_creatable_topic_configss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatableTopicConfigs] | None, int, int]:
    elements, at, left = unpack_compact_nullable_array(data, at, 6, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(CreatableTopicConfigs)
        each.name, at = unpack_compact_string(data, at)
        each.value, at = unpack_compact_nullable_string(data, at)
        each.read_only, each.config_source, each.is_sensitive = _TBT.unpack_from(data, at)
        at += 3
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_creatable_topic_configss(
    parts: list[Buffer], values: Sequence[CreatableTopicConfigs] | None, version: int
) -> None:
    if values is None:
        parts.append(pack_compact_count(-1))
        return
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(pack_compact_nullable_string(each.value))
        parts.append(_TBT.pack(each.read_only, each.config_source, each.is_sensitive))
        parts.append(b"\0")


@dataclass(slots=True)
class DeleteTopicsResponse:
    """API 20, versions 1 to 6."""

    API_KEY: ClassVar[int] = 20
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0
    responses: Sequence[DeletableTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteTopicsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.responses, at, left = _read_deletable_topic_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        parts.append(_I.pack(self.throttle_time_ms))
        _write_deletable_topic_results(parts, self.responses, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeletableTopicResult:
    """``responses``, versions 1 to 6."""

    name: str | None = ""
    topic_id: bytes = NO_UUID  # from version 6
    error_code: int = 0
    error_message: str | None = None  # from version 5


def _read_deletable_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeletableTopicResult], int, int]:
    compact = version >= 4
    elements, at, left = unpack_compact_array(data, at, 4, left) if compact else unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(DeletableTopicResult)
        if version == 6:
            each.name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 6:
            each.topic_id, each.error_code = _UH.unpack_from(data, at)
            at += 18
        else:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.topic_id = NO_UUID
        if version >= 5:
            each.error_message, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.error_message = None
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_deletable_topic_results(parts: list[Buffer], values: Sequence[DeletableTopicResult], version: int) -> None:
    compact = version >= 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version == 6:
            parts.append(pack_compact_nullable_string(each.name) if compact else pack_nullable_string(each.name))
        else:
            parts.append(pack_compact_string(not_null(each.name)) if compact else pack_string(not_null(each.name)))
        if version >= 6:
            parts.append(_UH.pack(each.topic_id, each.error_code))
        else:
            parts.append(_H.pack(each.error_code))
        if version >= 5:
            parts.append(
                pack_compact_nullable_string(each.error_message)
                if compact
                else pack_nullable_string(each.error_message)
            )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreatePartitionsResponse:
    """API 37, versions 0 to 3."""

    API_KEY: ClassVar[int] = 37
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    results: Sequence[CreatePartitionsTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreatePartitionsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results, at, left = _read_create_partitions_topic_results(data, at, version, left)
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
        _write_create_partitions_topic_results(parts, self.results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """``results``, versions 0 to 3."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None


def _read_create_partitions_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatePartitionsTopicResult], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 5, left) if compact else unpack_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(CreatePartitionsTopicResult)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
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


def _write_create_partitions_topic_results(
    parts: list[Buffer], values: Sequence[CreatePartitionsTopicResult], version: int
) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(_H.pack(each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteRecordsResponse:
    """API 21, versions 0 to 2."""

    API_KEY: ClassVar[int] = 21
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteRecordsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_delete_records_topic_results(data, at, version, left)
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
        _write_delete_records_topic_results(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """``topics``, versions 0 to 2."""

    name: str = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """``partitions``, versions 0 to 2."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


def _read_delete_records_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteRecordsTopicResult], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(DeleteRecordsTopicResult)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_delete_records_partition_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_records_topic_results(
    parts: list[Buffer], values: Sequence[DeleteRecordsTopicResult], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_delete_records_partition_results(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_delete_records_partition_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteRecordsPartitionResult], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 14, left) if compact else unpack_array(data, at, 14, left)
    found = []
    for _ in range(elements):
        each = new(DeleteRecordsPartitionResult)
        each.partition_index, each.low_watermark, each.error_code = _IQH.unpack_from(data, at)
        at += 14
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_records_partition_results(
    parts: list[Buffer], values: Sequence[DeleteRecordsPartitionResult], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IQH.pack(each.partition_index, each.low_watermark, each.error_code))
        if compact:
            parts.append(b"\0")
