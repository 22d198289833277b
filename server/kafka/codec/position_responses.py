"""Kafka's messages: offsets by time, and ends of epochs, responses.

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

_HIIQ = Struct(">hiiq")
_I = Struct(">i")
_IHQQ = Struct(">ihqq")
_IHQQI = Struct(">ihqqi")


@dataclass(slots=True)
class ListOffsetsResponse:
    """API 2, versions 1 to 11."""

    API_KEY: ClassVar[int] = 2
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 11
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # from version 2
    topics: Sequence[ListOffsetsTopicResponse] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListOffsetsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        if version >= 2:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        each.topics, at, left = _read_list_offsets_topic_responses(data, at, version, left)
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
            parts.append(_I.pack(self.throttle_time_ms))
        _write_list_offsets_topic_responses(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """``topics``, versions 1 to 11."""

    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """``partitions``, versions 1 to 11."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1  # from version 4


def _read_list_offsets_topic_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ListOffsetsTopicResponse], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ListOffsetsTopicResponse)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_list_offsets_partition_responses(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_list_offsets_topic_responses(
    parts: list[Buffer], values: Sequence[ListOffsetsTopicResponse], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_list_offsets_partition_responses(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_list_offsets_partition_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ListOffsetsPartitionResponse], int, int]:
    compact = version >= 6
    elements, at, left = unpack_compact_array(data, at, 22, left) if compact else unpack_array(data, at, 22, left)
    found = []
    for _ in range(elements):
        each = new(ListOffsetsPartitionResponse)
        if version >= 4:
            each.partition_index, each.error_code, each.timestamp, each.offset, each.leader_epoch = _IHQQI.unpack_from(
                data, at
            )
            at += 26
        else:
            each.partition_index, each.error_code, each.timestamp, each.offset = _IHQQ.unpack_from(data, at)
            at += 22
            each.leader_epoch = -1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_list_offsets_partition_responses(
    parts: list[Buffer], values: Sequence[ListOffsetsPartitionResponse], version: int
) -> None:
    compact = version >= 6
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 4:
            parts.append(
                _IHQQI.pack(each.partition_index, each.error_code, each.timestamp, each.offset, each.leader_epoch)
            )
        else:
            parts.append(_IHQQ.pack(each.partition_index, each.error_code, each.timestamp, each.offset))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    """API 23, versions 2 to 4."""

    API_KEY: ClassVar[int] = 23
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetForLeaderEpochResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 4
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_offset_for_leader_topic_results(data, at, version, left)
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
        _write_offset_for_leader_topic_results(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """``topics``, versions 2 to 4."""

    topic: str = ""
    partitions: Sequence[OffsetForLeaderEpochResponseEpochEndOffset] = ()


@dataclass(slots=True)
class OffsetForLeaderEpochResponseEpochEndOffset:
    """``partitions``, versions 2 to 4."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


def _read_offset_for_leader_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetForLeaderTopicResult], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetForLeaderTopicResult)
        each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_offset_for_leader_epoch_response_epoch_end_offsets(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_for_leader_topic_results(
    parts: list[Buffer], values: Sequence[OffsetForLeaderTopicResult], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        _write_offset_for_leader_epoch_response_epoch_end_offsets(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_offset_for_leader_epoch_response_epoch_end_offsets(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetForLeaderEpochResponseEpochEndOffset], int, int]:
    compact = version == 4
    elements, at, left = unpack_compact_array(data, at, 18, left) if compact else unpack_array(data, at, 18, left)
    found = []
    for _ in range(elements):
        each = new(OffsetForLeaderEpochResponseEpochEndOffset)
        each.error_code, each.partition, each.leader_epoch, each.end_offset = _HIIQ.unpack_from(data, at)
        at += 18
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_for_leader_epoch_response_epoch_end_offsets(
    parts: list[Buffer], values: Sequence[OffsetForLeaderEpochResponseEpochEndOffset], version: int
) -> None:
    compact = version == 4
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_HIIQ.pack(each.error_code, each.partition, each.leader_epoch, each.end_offset))
        if compact:
            parts.append(b"\0")
