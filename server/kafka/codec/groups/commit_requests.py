"""Kafka's messages: offsets that consumer groups commit, requests.

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

_I = Struct(">i")
_IQ = Struct(">iq")
_IQI = Struct(">iqi")
_Q = Struct(">q")
_QH = Struct(">qh")
_QHI = Struct(">qhi")
_U = Struct(">16s")


@dataclass(slots=True)
class OffsetCommitRequest:
    """API 8, versions 2 to 10."""

    API_KEY: ClassVar[int] = 8
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None  # from version 7
    retention_time_ms: int = -1  # to version 4
    topics: Sequence[OffsetCommitRequestTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetCommitRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 8
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.generation_id_or_member_epoch,) = _I.unpack_from(data, at)
        at += 4
        each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 7:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        if version >= 5:
            each.retention_time_ms = -1
        else:
            (each.retention_time_ms,) = _Q.unpack_from(data, at)
            at += 8
        each.topics, at, left = _read_offset_commit_request_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 8
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        parts.append(_I.pack(self.generation_id_or_member_epoch))
        parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 7:
            parts.append(
                pack_compact_nullable_string(self.group_instance_id)
                if compact
                else pack_nullable_string(self.group_instance_id)
            )
        if version < 5:
            parts.append(_Q.pack(self.retention_time_ms))
        _write_offset_commit_request_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    """``topics``, versions 2 to 10."""

    name: str = ""  # to version 9
    topic_id: bytes = NO_UUID  # from version 10
    partitions: Sequence[OffsetCommitRequestPartition] = ()


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    """``partitions``, versions 2 to 10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # from version 6
    committed_metadata: str | None = ""


def _read_offset_commit_request_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetCommitRequestTopic], int, int]:
    compact = version >= 8
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetCommitRequestTopic)
        if version <= 9:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.name = ""
        if version >= 10:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partitions, at, left = _read_offset_commit_request_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_commit_request_topics(
    parts: list[Buffer], values: Sequence[OffsetCommitRequestTopic], version: int
) -> None:
    compact = version >= 8
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 9:
            parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        if version >= 10:
            parts.append(_U.pack(each.topic_id))
        _write_offset_commit_request_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_offset_commit_request_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetCommitRequestPartition], int, int]:
    compact = version >= 8
    elements, at, left = unpack_compact_array(data, at, 14, left) if compact else unpack_array(data, at, 14, left)
    found = []
    for _ in range(elements):
        each = new(OffsetCommitRequestPartition)
        if version >= 6:
            each.partition_index, each.committed_offset, each.committed_leader_epoch = _IQI.unpack_from(data, at)
            at += 16
        else:
            each.partition_index, each.committed_offset = _IQ.unpack_from(data, at)
            at += 12
            each.committed_leader_epoch = -1
        each.committed_metadata, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_commit_request_partitions(
    parts: list[Buffer], values: Sequence[OffsetCommitRequestPartition], version: int
) -> None:
    compact = version >= 8
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 6:
            parts.append(_IQI.pack(each.partition_index, each.committed_offset, each.committed_leader_epoch))
        else:
            parts.append(_IQ.pack(each.partition_index, each.committed_offset))
        parts.append(
            pack_compact_nullable_string(each.committed_metadata)
            if compact
            else pack_nullable_string(each.committed_metadata)
        )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetDeleteRequest:
    """API 47, version 0."""

    API_KEY: ClassVar[int] = 47
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32768

    group_id: str = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetDeleteRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.group_id, at = unpack_string(data, at)
        each.topics, at, left = _read_offset_delete_request_topics(data, at, version, left)
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_string(self.group_id))
        _write_offset_delete_request_topics(parts, self.topics, version)


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """``topics``, version 0."""

    name: str = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """``partitions``, version 0."""

    partition_index: int = 0


def _read_offset_delete_request_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetDeleteRequestTopic], int, int]:
    elements, at, left = unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(OffsetDeleteRequestTopic)
        each.name, at = unpack_string(data, at)
        each.partitions, at, left = _read_offset_delete_request_partitions(data, at, version, left)
        found.append(each)
    return found, at, left


def _write_offset_delete_request_topics(
    parts: list[Buffer], values: Sequence[OffsetDeleteRequestTopic], version: int
) -> None:
    parts.append(pack_count(len(values)))
    for each in values:
        parts.append(pack_string(each.name))
        _write_offset_delete_request_partitions(parts, each.partitions, version)


def _read_offset_delete_request_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetDeleteRequestPartition], int, int]:
    elements, at, left = unpack_array(data, at, 4, left)
    found = []
    for _ in range(elements):
        each = new(OffsetDeleteRequestPartition)
        (each.partition_index,) = _I.unpack_from(data, at)
        at += 4
        found.append(each)
    return found, at, left


def _write_offset_delete_request_partitions(
    parts: list[Buffer], values: Sequence[OffsetDeleteRequestPartition], version: int
) -> None:
    parts.append(pack_count(len(values)))
    parts.extend(_I.pack(each.partition_index) for each in values)


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    """API 28, versions 0 to 5."""

    API_KEY: ClassVar[int] = 28
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1  # from version 3
    member_id: str = ""  # from version 3
    group_instance_id: str | None = None  # from version 3
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[TxnOffsetCommitRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        each.transactional_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 3:
            each.producer_id, each.producer_epoch, each.generation_id = _QHI.unpack_from(data, at)
            at += 14
        else:
            each.producer_id, each.producer_epoch = _QH.unpack_from(data, at)
            at += 10
            each.generation_id = -1
        if version >= 3:
            each.member_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.member_id = ""
        if version >= 3:
            each.group_instance_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.group_instance_id = None
        each.topics, at, left = _read_txn_offset_commit_request_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        parts.append(pack_compact_string(self.transactional_id) if compact else pack_string(self.transactional_id))
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        if version >= 3:
            parts.append(_QHI.pack(self.producer_id, self.producer_epoch, self.generation_id))
        else:
            parts.append(_QH.pack(self.producer_id, self.producer_epoch))
        if version >= 3:
            parts.append(pack_compact_string(self.member_id) if compact else pack_string(self.member_id))
        if version >= 3:
            parts.append(
                pack_compact_nullable_string(self.group_instance_id)
                if compact
                else pack_nullable_string(self.group_instance_id)
            )
        _write_txn_offset_commit_request_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    """``topics``, versions 0 to 5."""

    name: str = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    """``partitions``, versions 0 to 5."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # from version 2
    committed_metadata: str | None = ""


def _read_txn_offset_commit_request_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[TxnOffsetCommitRequestTopic], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(TxnOffsetCommitRequestTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_txn_offset_commit_request_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_txn_offset_commit_request_topics(
    parts: list[Buffer], values: Sequence[TxnOffsetCommitRequestTopic], version: int
) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_txn_offset_commit_request_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_txn_offset_commit_request_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[TxnOffsetCommitRequestPartition], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 14, left) if compact else unpack_array(data, at, 14, left)
    found = []
    for _ in range(elements):
        each = new(TxnOffsetCommitRequestPartition)
        if version >= 2:
            each.partition_index, each.committed_offset, each.committed_leader_epoch = _IQI.unpack_from(data, at)
            at += 16
        else:
            each.partition_index, each.committed_offset = _IQ.unpack_from(data, at)
            at += 12
            each.committed_leader_epoch = -1
        each.committed_metadata, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_txn_offset_commit_request_partitions(
    parts: list[Buffer], values: Sequence[TxnOffsetCommitRequestPartition], version: int
) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 2:
            parts.append(_IQI.pack(each.partition_index, each.committed_offset, each.committed_leader_epoch))
        else:
            parts.append(_IQ.pack(each.partition_index, each.committed_offset))
        parts.append(
            pack_compact_nullable_string(each.committed_metadata)
            if compact
            else pack_nullable_string(each.committed_metadata)
        )
        if compact:
            parts.append(b"\0")
