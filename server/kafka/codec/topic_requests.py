"""Kafka's messages: topics made, grown, emptied and deleted, requests.

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
    new,
    pack_compact_count,
    pack_compact_int32_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_compact_string_array,
    pack_count,
    pack_int32_array,
    pack_nullable_string,
    pack_string,
    pack_string_array,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_compact_string_array,
    unpack_int32_array,
    unpack_nullable_array,
    unpack_nullable_string,
    unpack_string,
    unpack_string_array,
)

_I = Struct(">i")
_IH = Struct(">ih")
_IQ = Struct(">iq")
_IT = Struct(">i?")
_U = Struct(">16s")


@dataclass(slots=True)
class CreateTopicsRequest:
    """API 19, versions 2 to 7."""

    API_KEY: ClassVar[int] = 19
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5

    topics: Sequence[CreatableTopic] = ()
    timeout_ms: int = 60000
    validate_only: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreateTopicsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        each = new(cls)
        each.topics, at, left = _read_creatable_topics(data, at, version, left)
        each.timeout_ms, each.validate_only = _IT.unpack_from(data, at)
        at += 5
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 5
        _write_creatable_topics(parts, self.topics, version)
        parts.append(_IT.pack(self.timeout_ms, self.validate_only))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreatableTopic:
    """``topics``, versions 2 to 7."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """``assignments``, versions 2 to 7."""

    partition_index: int = 0
    broker_ids: Sequence[int] = ()


@dataclass(slots=True)
class CreatableTopicConfig:
    """``configs``, versions 2 to 7."""

    name: str = ""
    value: str | None = ""


def _read_creatable_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[CreatableTopic], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 10, left) if compact else unpack_array(data, at, 10, left)
    found = []
    for _ in range(elements):
        each = new(CreatableTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.num_partitions, each.replication_factor = _IH.unpack_from(data, at)
        at += 6
        each.assignments, at, left = _read_creatable_replica_assignments(data, at, version, left)
        each.configs, at, left = _read_creatable_topic_configs(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_creatable_topics(parts: list[Buffer], values: Sequence[CreatableTopic], version: int) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(_IH.pack(each.num_partitions, each.replication_factor))
        _write_creatable_replica_assignments(parts, each.assignments, version)
        _write_creatable_topic_configs(parts, each.configs, version)
        if compact:
            parts.append(b"\0")


def _read_creatable_replica_assignments(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatableReplicaAssignment], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(CreatableReplicaAssignment)
        (each.partition_index,) = _I.unpack_from(data, at)
        at += 4
        each.broker_ids, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_creatable_replica_assignments(
    parts: list[Buffer], values: Sequence[CreatableReplicaAssignment], version: int
) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.partition_index))
        parts.append(pack_compact_int32_array(each.broker_ids) if compact else pack_int32_array(each.broker_ids))
        if compact:
            parts.append(b"\0")


def _read_creatable_topic_configs(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatableTopicConfig], int, int]:
    compact = version >= 5
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(CreatableTopicConfig)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.value, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_creatable_topic_configs(parts: list[Buffer], values: Sequence[CreatableTopicConfig], version: int) -> None:
    compact = version >= 5
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_nullable_string(each.value) if compact else pack_nullable_string(each.value))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteTopicsRequest:
    """API 20, versions 1 to 6."""

    API_KEY: ClassVar[int] = 20
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4

    topics: Sequence[DeleteTopicState] = ()  # from version 6
    topic_names: Sequence[str] = ()  # to version 5
    timeout_ms: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteTopicsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        each = new(cls)
        if version == 6:
            each.topics, at, left = _read_delete_topic_states(data, at, version, left)
        else:
            each.topics = ()
        if version <= 5:
            each.topic_names, at, left = (
                unpack_compact_string_array(data, at, left) if compact else unpack_string_array(data, at, left)
            )
        else:
            each.topic_names = ()
        (each.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 4
        if version == 6:
            _write_delete_topic_states(parts, self.topics, version)
        if version <= 5:
            parts.append(
                pack_compact_string_array(self.topic_names) if compact else pack_string_array(self.topic_names)
            )
        parts.append(_I.pack(self.timeout_ms))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteTopicState:
    """``topics``, version 6."""

    name: str | None = None
    topic_id: bytes = NO_UUID


def _read_delete_topic_states(data: bytes, at: int, version: int, left: int) -> tuple[list[DeleteTopicState], int, int]:
    elements, at, left = unpack_compact_array(data, at, 18, left)
    found = []
    for _ in range(elements):
        each = new(DeleteTopicState)
        each.name, at = unpack_compact_nullable_string(data, at)
        (each.topic_id,) = _U.unpack_from(data, at)
        at += 16
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_delete_topic_states(parts: list[Buffer], values: Sequence[DeleteTopicState], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_nullable_string(each.name))
        parts.append(_U.pack(each.topic_id))
        parts.append(b"\0")


@dataclass(slots=True)
class CreatePartitionsRequest:
    """API 37, versions 0 to 3."""

    API_KEY: ClassVar[int] = 37
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: int = 0
    validate_only: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[CreatePartitionsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.topics, at, left = _read_create_partitions_topics(data, at, version, left)
        each.timeout_ms, each.validate_only = _IT.unpack_from(data, at)
        at += 5
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        _write_create_partitions_topics(parts, self.topics, version)
        parts.append(_IT.pack(self.timeout_ms, self.validate_only))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class CreatePartitionsTopic:
    """``topics``, versions 0 to 3."""

    name: str = ""
    count: int = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """``assignments``, versions 0 to 3."""

    broker_ids: Sequence[int] = ()


def _read_create_partitions_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatePartitionsTopic], int, int]:
    compact = version >= 2
    elements, at, left = unpack_compact_array(data, at, 7, left) if compact else unpack_array(data, at, 7, left)
    found = []
    for _ in range(elements):
        each = new(CreatePartitionsTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.count,) = _I.unpack_from(data, at)
        at += 4
        each.assignments, at, left = _read_create_partitions_assignments(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_create_partitions_topics(parts: list[Buffer], values: Sequence[CreatePartitionsTopic], version: int) -> None:
    compact = version >= 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(_I.pack(each.count))
        _write_create_partitions_assignments(parts, each.assignments, version)
        if compact:
            parts.append(b"\0")


def _read_create_partitions_assignments(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[CreatePartitionsAssignment] | None, int, int]:
    compact = version >= 2
    elements, at, left = (
        unpack_compact_nullable_array(data, at, 2, left) if compact else unpack_nullable_array(data, at, 2, left)
    )
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(CreatePartitionsAssignment)
        each.broker_ids, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_create_partitions_assignments(
    parts: list[Buffer], values: Sequence[CreatePartitionsAssignment] | None, version: int
) -> None:
    compact = version >= 2
    if values is None:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_int32_array(each.broker_ids) if compact else pack_int32_array(each.broker_ids))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteRecordsRequest:
    """API 21, versions 0 to 2."""

    API_KEY: ClassVar[int] = 21
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DeleteRecordsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        each.topics, at, left = _read_delete_records_topics(data, at, version, left)
        (each.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        _write_delete_records_topics(parts, self.topics, version)
        parts.append(_I.pack(self.timeout_ms))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DeleteRecordsTopic:
    """``topics``, versions 0 to 2."""

    name: str = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


@dataclass(slots=True)
class DeleteRecordsPartition:
    """``partitions``, versions 0 to 2."""

    partition_index: int = 0
    offset: int = 0


def _read_delete_records_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteRecordsTopic], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(DeleteRecordsTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_delete_records_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_records_topics(parts: list[Buffer], values: Sequence[DeleteRecordsTopic], version: int) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_delete_records_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_delete_records_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DeleteRecordsPartition], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 12, left) if compact else unpack_array(data, at, 12, left)
    found = []
    for _ in range(elements):
        each = new(DeleteRecordsPartition)
        each.partition_index, each.offset = _IQ.unpack_from(data, at)
        at += 12
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_delete_records_partitions(
    parts: list[Buffer], values: Sequence[DeleteRecordsPartition], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IQ.pack(each.partition_index, each.offset))
        if compact:
            parts.append(b"\0")
