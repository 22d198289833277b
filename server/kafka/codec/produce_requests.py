"""Kafka's messages: records in, requests.

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
    pack_compact_nullable_records,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_records,
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_records,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_records,
    unpack_nullable_string,
    unpack_string,
)

_HI = Struct(">hi")
_I = Struct(">i")
_IQH = Struct(">iqh")
_U = Struct(">16s")


@dataclass(slots=True)
class ProduceRequest:
    """API 0, versions 3 to 13."""

    API_KEY: ClassVar[int] = 0
    LOWEST: ClassVar[int] = 3
    HIGHEST: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: Sequence[TopicProduceData] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ProduceRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        each = new(cls)
        each.transactional_id, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        each.acks, each.timeout_ms = _HI.unpack_from(data, at)
        at += 6
        each.topic_data, at, left = _read_topic_produce_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        parts.append(
            pack_compact_nullable_string(self.transactional_id)
            if compact
            else pack_nullable_string(self.transactional_id)
        )
        parts.append(_HI.pack(self.acks, self.timeout_ms))
        _write_topic_produce_datas(parts, self.topic_data, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class TopicProduceData:
    """``topic_data``, versions 3 to 13."""

    name: str = ""  # to version 12
    topic_id: bytes = NO_UUID  # from version 13
    partition_data: Sequence[PartitionProduceData] = ()


@dataclass(slots=True)
class PartitionProduceData:
    """``partition_data``, versions 3 to 13."""

    index: int = 0
    records: Buffer | None = None


def _read_topic_produce_datas(data: bytes, at: int, version: int, left: int) -> tuple[list[TopicProduceData], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(TopicProduceData)
        if version <= 12:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.name = ""
        if version >= 13:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partition_data, at, left = _read_partition_produce_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_topic_produce_datas(parts: list[Buffer], values: Sequence[TopicProduceData], version: int) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 12:
            parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        if version >= 13:
            parts.append(_U.pack(each.topic_id))
        _write_partition_produce_datas(parts, each.partition_data, version)
        if compact:
            parts.append(b"\0")


def _read_partition_produce_datas(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[PartitionProduceData], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(PartitionProduceData)
        (each.index,) = _I.unpack_from(data, at)
        at += 4
        each.records, at = unpack_compact_nullable_records(data, at) if compact else unpack_nullable_records(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_partition_produce_datas(parts: list[Buffer], values: Sequence[PartitionProduceData], version: int) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.index))
        parts.extend(pack_compact_nullable_records(each.records) if compact else pack_nullable_records(each.records))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class InitProducerIdRequest:
    """API 22, versions 0 to 5."""

    API_KEY: ClassVar[int] = 22
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 2

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # from version 3
    producer_epoch: int = -1  # from version 3

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[InitProducerIdRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.transactional_id, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if version >= 3:
            each.transaction_timeout_ms, each.producer_id, each.producer_epoch = _IQH.unpack_from(data, at)
            at += 14
        else:
            (each.transaction_timeout_ms,) = _I.unpack_from(data, at)
            at += 4
            each.producer_id = -1
            each.producer_epoch = -1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(
            pack_compact_nullable_string(self.transactional_id)
            if compact
            else pack_nullable_string(self.transactional_id)
        )
        if version >= 3:
            parts.append(_IQH.pack(self.transaction_timeout_ms, self.producer_id, self.producer_epoch))
        else:
            parts.append(_I.pack(self.transaction_timeout_ms))
        if compact:
            parts.append(b"\0")
