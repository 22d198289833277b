"""Kafka's messages: records out, requests.

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
    pack_compact_count,
    pack_compact_int32_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_int32_array,
    pack_string,
    pack_tags,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_int32_array,
    unpack_string,
    unpack_tags,
)

_IIIBII = Struct(">iiibii")
_IIIIB = Struct(">iiiib")
_IIIIBII = Struct(">iiiibii")
_IIQIQI = Struct(">iiqiqi")
_IIQQI = Struct(">iiqqi")
_IQ = Struct(">iq")
_IQI = Struct(">iqi")
_IQQI = Struct(">iqqi")
_Q = Struct(">q")
_U = Struct(">16s")


@dataclass(slots=True)
class FetchRequest:
    """API 1, versions 4 to 18."""

    API_KEY: ClassVar[int] = 1
    LOWEST: ClassVar[int] = 4
    HIGHEST: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12

    cluster_id: str | None = None  # from version 12
    replica_id: int = -1  # to version 14
    replica_state: FetchReplicaState | None = None  # from version 15
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0  # from version 7
    session_epoch: int = -1  # from version 7
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()  # from version 7
    rack_id: str = ""  # from version 11

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[FetchRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 12
        each = new(cls)
        if version >= 15:
            (
                each.max_wait_ms,
                each.min_bytes,
                each.max_bytes,
                each.isolation_level,
                each.session_id,
                each.session_epoch,
            ) = _IIIBII.unpack_from(data, at)
            at += 21
            each.replica_id = -1
        elif version >= 7:
            (
                each.replica_id,
                each.max_wait_ms,
                each.min_bytes,
                each.max_bytes,
                each.isolation_level,
                each.session_id,
                each.session_epoch,
            ) = _IIIIBII.unpack_from(data, at)
            at += 25
        else:
            each.replica_id, each.max_wait_ms, each.min_bytes, each.max_bytes, each.isolation_level = (
                _IIIIB.unpack_from(data, at)
            )
            at += 17
            each.session_id = 0
            each.session_epoch = -1
        each.topics, at, left = _read_fetch_topics(data, at, version, left)
        if version >= 7:
            each.forgotten_topics_data, at, left = _read_forgotten_topics(data, at, version, left)
        else:
            each.forgotten_topics_data = ()
        if version >= 11:
            each.rack_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.rack_id = ""
        each.cluster_id = None
        each.replica_state = None
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged:
                    begin, end = tagged[0]
                    each.cluster_id, begin = unpack_compact_nullable_string(data, begin)
                    check_end(begin, end)
                if 1 in tagged and version >= 15:
                    begin, end = tagged[1]
                    each.replica_state, begin, left = _read_fetch_replica_state(data, begin, version, left)
                    check_end(begin, end)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 12
        if version >= 15:
            parts.append(
                _IIIBII.pack(
                    self.max_wait_ms,
                    self.min_bytes,
                    self.max_bytes,
                    self.isolation_level,
                    self.session_id,
                    self.session_epoch,
                )
            )
        elif version >= 7:
            parts.append(
                _IIIIBII.pack(
                    self.replica_id,
                    self.max_wait_ms,
                    self.min_bytes,
                    self.max_bytes,
                    self.isolation_level,
                    self.session_id,
                    self.session_epoch,
                )
            )
        else:
            parts.append(
                _IIIIB.pack(self.replica_id, self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level)
            )
        _write_fetch_topics(parts, self.topics, version)
        if version >= 7:
            _write_forgotten_topics(parts, self.forgotten_topics_data, version)
        if version >= 11:
            parts.append(pack_compact_string(self.rack_id) if compact else pack_string(self.rack_id))
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if self.cluster_id is not None:
                inner: list[Buffer] = []
                inner.append(pack_compact_nullable_string(self.cluster_id))
                tagged.append((0, inner))
            if version >= 15 and self.replica_state is not None:
                inner = []
                _write_fetch_replica_state(inner, self.replica_state, version)
                tagged.append((1, inner))
            parts.append(pack_tags(tagged))


@dataclass(slots=True)
class FetchReplicaState:
    """``replica_state``, versions 15 to 18."""

    replica_id: int = -1
    replica_epoch: int = -1


@dataclass(slots=True)
class FetchTopic:
    """``topics``, versions 4 to 18."""

    topic: str = ""  # to version 12
    topic_id: bytes = NO_UUID  # from version 13
    partitions: Sequence[FetchPartition] = ()


@dataclass(slots=True)
class FetchPartition:
    """``partitions``, versions 4 to 18."""

    partition: int = 0
    current_leader_epoch: int = -1  # from version 9
    fetch_offset: int = 0
    last_fetched_epoch: int = -1  # from version 12
    log_start_offset: int = -1  # from version 5
    partition_max_bytes: int = 0
    replica_directory_id: bytes = NO_UUID  # from version 17
    high_watermark: int = 9223372036854775807  # from version 18


@dataclass(slots=True)
class ForgottenTopic:
    """``forgotten_topics_data``, versions 7 to 18."""

    topic: str = ""  # to version 12
    topic_id: bytes = NO_UUID  # from version 13
    partitions: Sequence[int] = ()


def _read_fetch_replica_state(data: bytes, at: int, version: int, left: int) -> tuple[FetchReplicaState, int, int]:
    each = new(FetchReplicaState)
    each.replica_id, each.replica_epoch = _IQ.unpack_from(data, at)
    at += 12
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_fetch_replica_state(parts: list[Buffer], each: FetchReplicaState, version: int) -> None:
    parts.append(_IQ.pack(each.replica_id, each.replica_epoch))
    parts.append(b"\0")


def _read_fetch_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[FetchTopic], int, int]:
    compact = version >= 12
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(FetchTopic)
        if version <= 12:
            each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.topic = ""
        if version >= 13:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partitions, at, left = _read_fetch_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_fetch_topics(parts: list[Buffer], values: Sequence[FetchTopic], version: int) -> None:
    compact = version >= 12
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 12:
            parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        if version >= 13:
            parts.append(_U.pack(each.topic_id))
        _write_fetch_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_fetch_partitions(data: bytes, at: int, version: int, left: int) -> tuple[list[FetchPartition], int, int]:
    compact = version >= 12
    elements, at, left = unpack_compact_array(data, at, 16, left) if compact else unpack_array(data, at, 16, left)
    found = []
    for _ in range(elements):
        each = new(FetchPartition)
        if version >= 12:
            (
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
            ) = _IIQIQI.unpack_from(data, at)
            at += 32
        elif version >= 9:
            (
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.log_start_offset,
                each.partition_max_bytes,
            ) = _IIQQI.unpack_from(data, at)
            at += 28
            each.last_fetched_epoch = -1
        elif version >= 5:
            each.partition, each.fetch_offset, each.log_start_offset, each.partition_max_bytes = _IQQI.unpack_from(
                data, at
            )
            at += 24
            each.current_leader_epoch = -1
            each.last_fetched_epoch = -1
        else:
            each.partition, each.fetch_offset, each.partition_max_bytes = _IQI.unpack_from(data, at)
            at += 16
            each.current_leader_epoch = -1
            each.last_fetched_epoch = -1
            each.log_start_offset = -1
        each.replica_directory_id = NO_UUID
        each.high_watermark = 9223372036854775807
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged and version >= 17:
                    begin, end = tagged[0]
                    (each.replica_directory_id,) = _U.unpack_from(data, begin)
                    begin += 16
                    check_end(begin, end)
                if 1 in tagged and version == 18:
                    begin, end = tagged[1]
                    (each.high_watermark,) = _Q.unpack_from(data, begin)
                    begin += 8
                    check_end(begin, end)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_fetch_partitions(parts: list[Buffer], values: Sequence[FetchPartition], version: int) -> None:
    compact = version >= 12
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 12:
            parts.append(
                _IIQIQI.pack(
                    each.partition,
                    each.current_leader_epoch,
                    each.fetch_offset,
                    each.last_fetched_epoch,
                    each.log_start_offset,
                    each.partition_max_bytes,
                )
            )
        elif version >= 9:
            parts.append(
                _IIQQI.pack(
                    each.partition,
                    each.current_leader_epoch,
                    each.fetch_offset,
                    each.log_start_offset,
                    each.partition_max_bytes,
                )
            )
        elif version >= 5:
            parts.append(_IQQI.pack(each.partition, each.fetch_offset, each.log_start_offset, each.partition_max_bytes))
        else:
            parts.append(_IQI.pack(each.partition, each.fetch_offset, each.partition_max_bytes))
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if version >= 17 and each.replica_directory_id != NO_UUID:
                inner: list[Buffer] = []
                inner.append(_U.pack(each.replica_directory_id))
                tagged.append((0, inner))
            if version == 18 and each.high_watermark != 9223372036854775807:
                inner = []
                inner.append(_Q.pack(each.high_watermark))
                tagged.append((1, inner))
            parts.append(pack_tags(tagged))


def _read_forgotten_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[ForgottenTopic], int, int]:
    compact = version >= 12
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ForgottenTopic)
        if version <= 12:
            each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.topic = ""
        if version >= 13:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
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


def _write_forgotten_topics(parts: list[Buffer], values: Sequence[ForgottenTopic], version: int) -> None:
    compact = version >= 12
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 12:
            parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        if version >= 13:
            parts.append(_U.pack(each.topic_id))
        parts.append(pack_compact_int32_array(each.partitions) if compact else pack_int32_array(each.partitions))
        if compact:
            parts.append(b"\0")
