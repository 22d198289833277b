"""Kafka's messages: topics and their partitions, page by page, responses.

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
    pack_compact_nullable_int32_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_presence,
    skip_tags,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_presence,
)

_H = Struct(">h")
_HIII = Struct(">hiii")
_I = Struct(">i")
_UT = Struct(">16s?")


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    """API 75, version 0."""

    API_KEY: ClassVar[int] = 75
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: NextPageBegin | None = None

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeTopicPartitionsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_describe_topic_partitions_response_topics(data, at, version, left)
        each.next_cursor, at, left = _read_next_page_begin(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.throttle_time_ms))
        _write_describe_topic_partitions_response_topics(parts, self.topics, version)
        _write_next_page_begin(parts, self.next_cursor, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    """``topics``, version 0."""

    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NO_UUID
    is_internal: bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    """``partitions``, version 0."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()


@dataclass(slots=True)
class NextPageBegin:
    """``next_cursor``, version 0."""

    topic_name: str = ""
    partition_index: int = 0


def _read_describe_topic_partitions_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeTopicPartitionsResponseTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 26, left)
    found = []
    for _ in range(elements):
        each = new(DescribeTopicPartitionsResponseTopic)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.name, at = unpack_compact_nullable_string(data, at)
        each.topic_id, each.is_internal = _UT.unpack_from(data, at)
        at += 17
        each.partitions, at, left = _read_describe_topic_partitions_response_partitions(data, at, version, left)
        (each.topic_authorized_operations,) = _I.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_describe_topic_partitions_response_topics(
    parts: list[Buffer], values: Sequence[DescribeTopicPartitionsResponseTopic], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_nullable_string(each.name))
        parts.append(_UT.pack(each.topic_id, each.is_internal))
        _write_describe_topic_partitions_response_partitions(parts, each.partitions, version)
        parts.append(_I.pack(each.topic_authorized_operations))
        parts.append(b"\0")


def _read_describe_topic_partitions_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeTopicPartitionsResponsePartition], int, int]:
    elements, at, left = unpack_compact_array(data, at, 20, left)
    found = []
    for _ in range(elements):
        each = new(DescribeTopicPartitionsResponsePartition)
        each.error_code, each.partition_index, each.leader_id, each.leader_epoch = _HIII.unpack_from(data, at)
        at += 14
        each.replica_nodes, at, left = unpack_compact_int32_array(data, at, left)
        each.isr_nodes, at, left = unpack_compact_int32_array(data, at, left)
        each.eligible_leader_replicas, at, left = unpack_compact_nullable_int32_array(data, at, left)
        each.last_known_elr, at, left = unpack_compact_nullable_int32_array(data, at, left)
        each.offline_replicas, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_describe_topic_partitions_response_partitions(
    parts: list[Buffer], values: Sequence[DescribeTopicPartitionsResponsePartition], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_HIII.pack(each.error_code, each.partition_index, each.leader_id, each.leader_epoch))
        parts.append(pack_compact_int32_array(each.replica_nodes))
        parts.append(pack_compact_int32_array(each.isr_nodes))
        parts.append(pack_compact_nullable_int32_array(each.eligible_leader_replicas))
        parts.append(pack_compact_nullable_int32_array(each.last_known_elr))
        parts.append(pack_compact_int32_array(each.offline_replicas))
        parts.append(b"\0")


def _read_next_page_begin(data: bytes, at: int, version: int, left: int) -> tuple[NextPageBegin | None, int, int]:
    is_there, at = unpack_presence(data, at)
    if not is_there:
        return None, at, left
    each = new(NextPageBegin)
    each.topic_name, at = unpack_compact_string(data, at)
    (each.partition_index,) = _I.unpack_from(data, at)
    at += 4
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_next_page_begin(parts: list[Buffer], each: NextPageBegin | None, version: int) -> None:
    parts.append(pack_presence(each is not None))
    if each is None:
        return
    parts.append(pack_compact_string(each.topic_name))
    parts.append(_I.pack(each.partition_index))
    parts.append(b"\0")
