"""Kafka's messages: committed offsets of consumer groups, responses.

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

_H = Struct(">h")
_I = Struct(">i")
_IQ = Struct(">iq")
_IQI = Struct(">iqi")
_U = Struct(">16s")


@dataclass(slots=True)
class OffsetFetchResponse:
    """API 9, versions 1 to 10."""

    API_KEY: ClassVar[int] = 9
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # from version 3
    topics: Sequence[OffsetFetchResponseTopic] = ()  # to version 7
    error_code: int = 0  # versions 2 to 7
    groups: Sequence[OffsetFetchResponseGroup] = ()  # from version 8

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetFetchResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        if version >= 3:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        if version <= 7:
            each.topics, at, left = _read_offset_fetch_response_topics(data, at, version, left)
        else:
            each.topics = ()
        if version >= 8:
            each.error_code = 0
        elif version >= 2:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
        else:
            each.error_code = 0
        if version >= 8:
            each.groups, at, left = _read_offset_fetch_response_groups(data, at, version, left)
        else:
            each.groups = ()
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        if version >= 3:
            parts.append(_I.pack(self.throttle_time_ms))
        if version <= 7:
            _write_offset_fetch_response_topics(parts, self.topics, version)
        if version >= 8:
            pass
        elif version >= 2:
            parts.append(_H.pack(self.error_code))
        if version >= 8:
            _write_offset_fetch_response_groups(parts, self.groups, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    """``topics``, versions 1 to 7."""

    name: str = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    """``partitions``, versions 1 to 7."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # from version 5
    metadata: str | None = ""
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    """``groups``, versions 8 to 10."""

    group_id: str = ""
    topics: Sequence[OffsetFetchResponseTopics] = ()
    error_code: int = 0


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    """``topics``, versions 8 to 10."""

    name: str = ""  # to version 9
    topic_id: bytes = NO_UUID  # from version 10
    partitions: Sequence[OffsetFetchResponsePartitions] = ()


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    """``partitions``, versions 8 to 10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


def _read_offset_fetch_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchResponseTopic], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchResponseTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_offset_fetch_response_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_response_topics(
    parts: list[Buffer], values: Sequence[OffsetFetchResponseTopic], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_offset_fetch_response_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_offset_fetch_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchResponsePartition], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 16, left) if compact else unpack_array(data, at, 16, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchResponsePartition)
        if version >= 5:
            each.partition_index, each.committed_offset, each.committed_leader_epoch = _IQI.unpack_from(data, at)
            at += 16
        else:
            each.partition_index, each.committed_offset = _IQ.unpack_from(data, at)
            at += 12
            each.committed_leader_epoch = -1
        each.metadata, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_response_partitions(
    parts: list[Buffer], values: Sequence[OffsetFetchResponsePartition], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 5:
            parts.append(_IQI.pack(each.partition_index, each.committed_offset, each.committed_leader_epoch))
        else:
            parts.append(_IQ.pack(each.partition_index, each.committed_offset))
        parts.append(pack_compact_nullable_string(each.metadata) if compact else pack_nullable_string(each.metadata))
        parts.append(_H.pack(each.error_code))
        if compact:
            parts.append(b"\0")


def _read_offset_fetch_response_groups(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchResponseGroup], int, int]:
    elements, at, left = unpack_compact_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchResponseGroup)
        each.group_id, at = unpack_compact_string(data, at)
        each.topics, at, left = _read_offset_fetch_response_topicss(data, at, version, left)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_response_groups(
    parts: list[Buffer], values: Sequence[OffsetFetchResponseGroup], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.group_id))
        _write_offset_fetch_response_topicss(parts, each.topics, version)
        parts.append(_H.pack(each.error_code))
        parts.append(b"\0")


def _read_offset_fetch_response_topicss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchResponseTopics], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchResponseTopics)
        if version <= 9:
            each.name, at = unpack_compact_string(data, at)
        else:
            each.name = ""
        if version >= 10:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partitions, at, left = _read_offset_fetch_response_partitionss(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_response_topicss(
    parts: list[Buffer], values: Sequence[OffsetFetchResponseTopics], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        if version <= 9:
            parts.append(pack_compact_string(each.name))
        if version >= 10:
            parts.append(_U.pack(each.topic_id))
        _write_offset_fetch_response_partitionss(parts, each.partitions, version)
        parts.append(b"\0")


def _read_offset_fetch_response_partitionss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchResponsePartitions], int, int]:
    elements, at, left = unpack_compact_array(data, at, 20, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchResponsePartitions)
        each.partition_index, each.committed_offset, each.committed_leader_epoch = _IQI.unpack_from(data, at)
        at += 16
        each.metadata, at = unpack_compact_nullable_string(data, at)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_response_partitionss(
    parts: list[Buffer], values: Sequence[OffsetFetchResponsePartitions], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_IQI.pack(each.partition_index, each.committed_offset, each.committed_leader_epoch))
        parts.append(pack_compact_nullable_string(each.metadata))
        parts.append(_H.pack(each.error_code))
        parts.append(b"\0")
