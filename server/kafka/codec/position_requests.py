"""Kafka's messages: offsets by time, and ends of epochs, requests.

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
    pack_compact_string,
    pack_count,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_string,
    unpack_string,
)

_I = Struct(">i")
_IB = Struct(">ib")
_III = Struct(">iii")
_IIQ = Struct(">iiq")
_IQ = Struct(">iq")


@dataclass(slots=True)
class ListOffsetsRequest:
    """API 2, versions 1 to 11."""

    API_KEY: ClassVar[int] = 2
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 11
    FLEXIBLE_FROM: ClassVar[int] = 6

    replica_id: int = 0
    isolation_level: int = 0  # from version 2
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: int = 0  # from version 10

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListOffsetsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        if version >= 2:
            each.replica_id, each.isolation_level = _IB.unpack_from(data, at)
            at += 5
        else:
            (each.replica_id,) = _I.unpack_from(data, at)
            at += 4
            each.isolation_level = 0
        each.topics, at, left = _read_list_offsets_topics(data, at, version, left)
        if version >= 10:
            (each.timeout_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.timeout_ms = 0
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        if version >= 2:
            parts.append(_IB.pack(self.replica_id, self.isolation_level))
        else:
            parts.append(_I.pack(self.replica_id))
        _write_list_offsets_topics(parts, self.topics, version)
        if version >= 10:
            parts.append(_I.pack(self.timeout_ms))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ListOffsetsTopic:
    """``topics``, versions 1 to 11."""

    name: str = ""
    partitions: Sequence[ListOffsetsPartition] = ()


@dataclass(slots=True)
class ListOffsetsPartition:
    """``partitions``, versions 1 to 11."""

    partition_index: int = 0
    current_leader_epoch: int = -1  # from version 4
    timestamp: int = 0


def _read_list_offsets_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[ListOffsetsTopic], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ListOffsetsTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_list_offsets_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_list_offsets_topics(parts: list[Buffer], values: Sequence[ListOffsetsTopic], version: int) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_list_offsets_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_list_offsets_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ListOffsetsPartition], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 12, left) if compact else unpack_array(data, at, 12, left)
    found = []
    for _ in range(elements):
        each = new(ListOffsetsPartition)
        if version >= 4:
            each.partition_index, each.current_leader_epoch, each.timestamp = _IIQ.unpack_from(data, at)
            at += 16
        else:
            each.partition_index, each.timestamp = _IQ.unpack_from(data, at)
            at += 12
            each.current_leader_epoch = -1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_list_offsets_partitions(parts: list[Buffer], values: Sequence[ListOffsetsPartition], version: int) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 4:
            parts.append(_IIQ.pack(each.partition_index, each.current_leader_epoch, each.timestamp))
        else:
            parts.append(_IQ.pack(each.partition_index, each.timestamp))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    """API 23, versions 2 to 4."""

    API_KEY: ClassVar[int] = 23
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    replica_id: int = -2  # from version 3
    topics: Sequence[OffsetForLeaderTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetForLeaderEpochRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        if version >= 3:
            (each.replica_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.replica_id = -2
        each.topics, at, left = _read_offset_for_leader_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        if version >= 3:
            parts.append(_I.pack(self.replica_id))
        _write_offset_for_leader_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """``topics``, versions 2 to 4."""

    topic: str = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """``partitions``, versions 2 to 4."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


def _read_offset_for_leader_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetForLeaderTopic], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetForLeaderTopic)
        each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_offset_for_leader_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_for_leader_topics(parts: list[Buffer], values: Sequence[OffsetForLeaderTopic], version: int) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        _write_offset_for_leader_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_offset_for_leader_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetForLeaderPartition], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 12, left) if compact else unpack_array(data, at, 12, left)
    found = []
    for _ in range(elements):
        each = new(OffsetForLeaderPartition)
        each.partition, each.current_leader_epoch, each.leader_epoch = _III.unpack_from(data, at)
        at += 12
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_for_leader_partitions(
    parts: list[Buffer], values: Sequence[OffsetForLeaderPartition], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_III.pack(each.partition, each.current_leader_epoch, each.leader_epoch))
        if compact:
            parts.append(b"\0")
