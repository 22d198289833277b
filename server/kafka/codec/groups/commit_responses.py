"""Kafka's messages: offsets that consumer groups commit, responses.

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
    pack_compact_string,
    pack_count,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_string,
    unpack_string,
)

_HI = Struct(">hi")
_I = Struct(">i")
_IH = Struct(">ih")
_U = Struct(">16s")


@dataclass(slots=True)
class OffsetCommitResponse:
    """API 8, versions 2 to 10."""

    API_KEY: ClassVar[int] = 8
    LOWEST: ClassVar[int] = 2
    HIGHEST: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8

    throttle_time_ms: int = 0  # from version 3
    topics: Sequence[OffsetCommitResponseTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetCommitResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 8
        each = new(cls)
        if version >= 3:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        each.topics, at, left = _read_offset_commit_response_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 8
        if version >= 3:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_offset_commit_response_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    """``topics``, versions 2 to 10."""

    name: str = ""  # to version 9
    topic_id: bytes = NO_UUID  # from version 10
    partitions: Sequence[OffsetCommitResponsePartition] = ()


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    """``partitions``, versions 2 to 10."""

    partition_index: int = 0
    error_code: int = 0


def _read_offset_commit_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetCommitResponseTopic], int, int]:
    compact = version >= 8
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetCommitResponseTopic)
        if version <= 9:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.name = ""
        if version >= 10:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partitions, at, left = _read_offset_commit_response_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_commit_response_topics(
    parts: list[Buffer], values: Sequence[OffsetCommitResponseTopic], version: int
) -> None:
    compact = version >= 8
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 9:
            parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        if version >= 10:
            parts.append(_U.pack(each.topic_id))
        _write_offset_commit_response_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_offset_commit_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetCommitResponsePartition], int, int]:
    compact = version >= 8
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(OffsetCommitResponsePartition)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_commit_response_partitions(
    parts: list[Buffer], values: Sequence[OffsetCommitResponsePartition], version: int
) -> None:
    compact = version >= 8
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.error_code))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetDeleteResponse:
    """API 47, version 0."""

    API_KEY: ClassVar[int] = 47
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32768

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetDeleteResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.error_code, each.throttle_time_ms = _HI.unpack_from(data, at)
        at += 6
        each.topics, at, left = _read_offset_delete_response_topics(data, at, version, left)
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_HI.pack(self.error_code, self.throttle_time_ms))
        _write_offset_delete_response_topics(parts, self.topics, version)


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """``topics``, version 0."""

    name: str = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """``partitions``, version 0."""

    partition_index: int = 0
    error_code: int = 0


def _read_offset_delete_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetDeleteResponseTopic], int, int]:
    elements, at, left = unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(OffsetDeleteResponseTopic)
        each.name, at = unpack_string(data, at)
        each.partitions, at, left = _read_offset_delete_response_partitions(data, at, version, left)
        found.append(each)
    return found, at, left


def _write_offset_delete_response_topics(
    parts: list[Buffer], values: Sequence[OffsetDeleteResponseTopic], version: int
) -> None:
    parts.append(pack_count(len(values)))
    for each in values:
        parts.append(pack_string(each.name))
        _write_offset_delete_response_partitions(parts, each.partitions, version)


def _read_offset_delete_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetDeleteResponsePartition], int, int]:
    elements, at, left = unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(OffsetDeleteResponsePartition)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        found.append(each)
    return found, at, left


def _write_offset_delete_response_partitions(
    parts: list[Buffer], values: Sequence[OffsetDeleteResponsePartition], version: int
) -> None:
    parts.append(pack_count(len(values)))
    parts.extend(_IH.pack(each.partition_index, each.error_code) for each in values)


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    """API 28, versions 0 to 5."""

    API_KEY: ClassVar[int] = 28
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[TxnOffsetCommitResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_txn_offset_commit_response_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        parts.append(_I.pack(self.throttle_time_ms))
        _write_txn_offset_commit_response_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    """``topics``, versions 0 to 5."""

    name: str = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    """``partitions``, versions 0 to 5."""

    partition_index: int = 0
    error_code: int = 0


def _read_txn_offset_commit_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[TxnOffsetCommitResponseTopic], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(TxnOffsetCommitResponseTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partitions, at, left = _read_txn_offset_commit_response_partitions(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_txn_offset_commit_response_topics(
    parts: list[Buffer], values: Sequence[TxnOffsetCommitResponseTopic], version: int
) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_txn_offset_commit_response_partitions(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_txn_offset_commit_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[TxnOffsetCommitResponsePartition], int, int]:
    compact = version >= 3
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(TxnOffsetCommitResponsePartition)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_txn_offset_commit_response_partitions(
    parts: list[Buffer], values: Sequence[TxnOffsetCommitResponsePartition], version: int
) -> None:
    compact = version >= 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.error_code))
        if compact:
            parts.append(b"\0")
