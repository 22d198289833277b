"""Kafka's messages: placement of replicas, and elections, requests.

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
    pack_compact_int32_array,
    pack_compact_nullable_int32_array,
    pack_compact_string,
    pack_count,
    pack_int32_array,
    pack_string,
    skip_tags,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_int32_array,
    unpack_compact_string,
    unpack_int32_array,
    unpack_nullable_array,
    unpack_string,
)

_B = Struct(">b")
_I = Struct(">i")
_IT = Struct(">i?")


@dataclass(slots=True)
class ElectLeadersRequest:
    """API 43, versions 0 to 2."""

    API_KEY: ClassVar[int] = 43
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    election_type: int = 0  # from version 1
    topic_partitions: Sequence[ElectableTopic] | None = ()
    timeout_ms: int = 60000

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ElectLeadersRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        if version >= 1:
            (each.election_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.election_type = 0
        each.topic_partitions, at, left = _read_electable_topics(data, at, version, left)
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
        if version >= 1:
            parts.append(_B.pack(self.election_type))
        _write_electable_topics(parts, self.topic_partitions, version)
        parts.append(_I.pack(self.timeout_ms))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ElectableTopic:
    """``topic_partitions``, versions 0 to 2."""

    topic: str = ""
    partitions: Sequence[int] = ()


def _read_electable_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ElectableTopic] | None, int, int]:
    compact = version == 2
    elements, at, left = (
        unpack_compact_nullable_array(data, at, 3, left) if compact else unpack_nullable_array(data, at, 3, left)
    )
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(ElectableTopic)
        each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_electable_topics(parts: list[Buffer], values: Sequence[ElectableTopic] | None, version: int) -> None:
    compact = version == 2
    if values is None:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        parts.append(pack_compact_int32_array(each.partitions) if compact else pack_int32_array(each.partitions))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    """API 45, versions 0 to 1."""

    API_KEY: ClassVar[int] = 45
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True  # from version 1
    topics: Sequence[ReassignableTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AlterPartitionReassignmentsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        if version >= 1:
            each.timeout_ms, each.allow_replication_factor_change = _IT.unpack_from(data, at)
            at += 5
        else:
            (each.timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            each.allow_replication_factor_change = True
        each.topics, at, left = _read_reassignable_topics(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        if version >= 1:
            parts.append(_IT.pack(self.timeout_ms, self.allow_replication_factor_change))
        else:
            parts.append(_I.pack(self.timeout_ms))
        _write_reassignable_topics(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ReassignableTopic:
    """``topics``, versions 0 to 1."""

    name: str = ""
    partitions: Sequence[ReassignablePartition] = ()


@dataclass(slots=True)
class ReassignablePartition:
    """``partitions``, versions 0 to 1."""

    partition_index: int = 0
    replicas: Sequence[int] | None = None


def _read_reassignable_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ReassignableTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ReassignableTopic)
        each.name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_reassignable_partitions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_reassignable_topics(parts: list[Buffer], values: Sequence[ReassignableTopic], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        _write_reassignable_partitions(parts, each.partitions, version)
        parts.append(b"\0")


def _read_reassignable_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ReassignablePartition], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(ReassignablePartition)
        (each.partition_index,) = _I.unpack_from(data, at)
        at += 4
        each.replicas, at, left = unpack_compact_nullable_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_reassignable_partitions(parts: list[Buffer], values: Sequence[ReassignablePartition], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.partition_index))
        parts.append(pack_compact_nullable_int32_array(each.replicas))
        parts.append(b"\0")


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    """API 46, version 0."""

    API_KEY: ClassVar[int] = 46
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    timeout_ms: int = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListPartitionReassignmentsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_list_partition_reassignments_topicss(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.timeout_ms))
        _write_list_partition_reassignments_topicss(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """``topics``, version 0."""

    name: str = ""
    partition_indexes: Sequence[int] = ()


def _read_list_partition_reassignments_topicss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ListPartitionReassignmentsTopics] | None, int, int]:
    elements, at, left = unpack_compact_nullable_array(data, at, 3, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(ListPartitionReassignmentsTopics)
        each.name, at = unpack_compact_string(data, at)
        each.partition_indexes, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_list_partition_reassignments_topicss(
    parts: list[Buffer], values: Sequence[ListPartitionReassignmentsTopics] | None, version: int
) -> None:
    if values is None:
        parts.append(pack_compact_count(-1))
        return
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(pack_compact_int32_array(each.partition_indexes))
        parts.append(b"\0")
