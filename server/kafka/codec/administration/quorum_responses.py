"""Kafka's messages: voters of the metadata, and their progress, responses.

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
    skip_tags,
    unpack_compact_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
)

_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_IIQ = Struct(">iiq")
_IQ = Struct(">iq")
_IQQQ = Struct(">iqqq")
_IUQQQ = Struct(">i16sqqq")
_W = Struct(">H")


@dataclass(slots=True)
class DescribeQuorumResponse:
    """API 55, versions 0 to 2."""

    API_KEY: ClassVar[int] = 55
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    error_code: int = 0
    error_message: str | None = ""  # from version 2
    topics: Sequence[QuorumTopic] = ()
    nodes: Sequence[QuorumNode] = ()  # from version 2

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeQuorumResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version == 2:
            each.error_message, at = unpack_compact_nullable_string(data, at)
        else:
            each.error_message = ""
        each.topics, at, left = _read_quorum_topics(data, at, version, left)
        if version == 2:
            each.nodes, at, left = _read_quorum_nodes(data, at, version, left)
        else:
            each.nodes = ()
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_H.pack(self.error_code))
        if version == 2:
            parts.append(pack_compact_nullable_string(self.error_message))
        _write_quorum_topics(parts, self.topics, version)
        if version == 2:
            _write_quorum_nodes(parts, self.nodes, version)
        parts.append(b"\0")


@dataclass(slots=True)
class QuorumTopic:
    """``topics``, versions 0 to 2."""

    topic_name: str = ""
    partitions: Sequence[QuorumPartition] = ()


@dataclass(slots=True)
class QuorumPartition:
    """``partitions``, versions 0 to 2."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""  # from version 2
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[QuorumReplicaState] = ()
    observers: Sequence[QuorumReplicaState] = ()


@dataclass(slots=True)
class QuorumReplicaState:
    """``current_voters``, versions 0 to 2."""

    replica_id: int = 0
    replica_directory_id: bytes = NO_UUID  # from version 2
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1  # from version 1
    last_caught_up_timestamp: int = -1  # from version 1


@dataclass(slots=True)
class QuorumNode:
    """``nodes``, version 2."""

    node_id: int = 0
    listeners: Sequence[QuorumListener] = ()


@dataclass(slots=True)
class QuorumListener:
    """``listeners``, version 2."""

    name: str = ""
    host: str = ""
    port: int = 0


def _read_quorum_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[QuorumTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(QuorumTopic)
        each.topic_name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_quorum_partitions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_quorum_topics(parts: list[Buffer], values: Sequence[QuorumTopic], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic_name))
        _write_quorum_partitions(parts, each.partitions, version)
        parts.append(b"\0")


def _read_quorum_partitions(data: bytes, at: int, version: int, left: int) -> tuple[list[QuorumPartition], int, int]:
    elements, at, left = unpack_compact_array(data, at, 25, left)
    found = []
    for _ in range(elements):
        each = new(QuorumPartition)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        if version == 2:
            each.error_message, at = unpack_compact_nullable_string(data, at)
        else:
            each.error_message = ""
        each.leader_id, each.leader_epoch, each.high_watermark = _IIQ.unpack_from(data, at)
        at += 16
        each.current_voters, at, left = _read_quorum_replica_states(data, at, version, left)
        each.observers, at, left = _read_quorum_replica_states(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_quorum_partitions(parts: list[Buffer], values: Sequence[QuorumPartition], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.error_code))
        if version == 2:
            parts.append(pack_compact_nullable_string(each.error_message))
        parts.append(_IIQ.pack(each.leader_id, each.leader_epoch, each.high_watermark))
        _write_quorum_replica_states(parts, each.current_voters, version)
        _write_quorum_replica_states(parts, each.observers, version)
        parts.append(b"\0")


def _read_quorum_replica_states(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[QuorumReplicaState], int, int]:
    elements, at, left = unpack_compact_array(data, at, 13, left)
    found = []
    for _ in range(elements):
        each = new(QuorumReplicaState)
        if version >= 2:
            (
                each.replica_id,
                each.replica_directory_id,
                each.log_end_offset,
                each.last_fetch_timestamp,
                each.last_caught_up_timestamp,
            ) = _IUQQQ.unpack_from(data, at)
            at += 44
        elif version >= 1:
            each.replica_id, each.log_end_offset, each.last_fetch_timestamp, each.last_caught_up_timestamp = (
                _IQQQ.unpack_from(data, at)
            )
            at += 28
            each.replica_directory_id = NO_UUID
        else:
            each.replica_id, each.log_end_offset = _IQ.unpack_from(data, at)
            at += 12
            each.replica_directory_id = NO_UUID
            each.last_fetch_timestamp = -1
            each.last_caught_up_timestamp = -1
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_quorum_replica_states(parts: list[Buffer], values: Sequence[QuorumReplicaState], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        if version >= 2:
            parts.append(
                _IUQQQ.pack(
                    each.replica_id,
                    each.replica_directory_id,
                    each.log_end_offset,
                    each.last_fetch_timestamp,
                    each.last_caught_up_timestamp,
                )
            )
        elif version >= 1:
            parts.append(
                _IQQQ.pack(
                    each.replica_id, each.log_end_offset, each.last_fetch_timestamp, each.last_caught_up_timestamp
                )
            )
        else:
            parts.append(_IQ.pack(each.replica_id, each.log_end_offset))
        parts.append(b"\0")


def _read_quorum_nodes(data: bytes, at: int, version: int, left: int) -> tuple[list[QuorumNode], int, int]:
    elements, at, left = unpack_compact_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(QuorumNode)
        (each.node_id,) = _I.unpack_from(data, at)
        at += 4
        each.listeners, at, left = _read_quorum_listeners(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_quorum_nodes(parts: list[Buffer], values: Sequence[QuorumNode], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.node_id))
        _write_quorum_listeners(parts, each.listeners, version)
        parts.append(b"\0")


def _read_quorum_listeners(data: bytes, at: int, version: int, left: int) -> tuple[list[QuorumListener], int, int]:
    elements, at, left = unpack_compact_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(QuorumListener)
        each.name, at = unpack_compact_string(data, at)
        each.host, at = unpack_compact_string(data, at)
        (each.port,) = _W.unpack_from(data, at)
        at += 2
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_quorum_listeners(parts: list[Buffer], values: Sequence[QuorumListener], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(pack_compact_string(each.host))
        parts.append(_W.pack(each.port))
        parts.append(b"\0")
