"""Kafka's messages: transactions of producers, requests.

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
    pack_compact_string,
    pack_count,
    pack_int32_array,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_string,
    unpack_int32_array,
    unpack_string,
)

_QH = Struct(">qh")
_QHT = Struct(">qh?")


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    """API 24, versions 0 to 3."""

    API_KEY: ClassVar[int] = 24
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 3

    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AddPartitionsToTxnRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 3
        each = new(cls)
        each.v3_and_below_transactional_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.v3_and_below_producer_id, each.v3_and_below_producer_epoch = _QH.unpack_from(data, at)
        at += 10
        each.v3_and_below_topics, at, left = _read_add_partitions_to_txn_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 3
        parts.append(
            pack_compact_string(self.v3_and_below_transactional_id)
            if compact
            else pack_string(self.v3_and_below_transactional_id)
        )
        parts.append(_QH.pack(self.v3_and_below_producer_id, self.v3_and_below_producer_epoch))
        _write_add_partitions_to_txn_topics(parts, self.v3_and_below_topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    """``v3_and_below_topics``, versions 0 to 3."""

    name: str = ""
    partitions: Sequence[int] = ()


def _read_add_partitions_to_txn_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AddPartitionsToTxnTopic], int, int]:
    compact = version == 3
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AddPartitionsToTxnTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
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


def _write_add_partitions_to_txn_topics(
    parts: list[Buffer], values: Sequence[AddPartitionsToTxnTopic], version: int
) -> None:
    compact = version == 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(pack_compact_int32_array(each.partitions) if compact else pack_int32_array(each.partitions))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    """API 25, versions 0 to 4."""

    API_KEY: ClassVar[int] = 25
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AddOffsetsToTxnRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        each.transactional_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.producer_id, each.producer_epoch = _QH.unpack_from(data, at)
        at += 10
        each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
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
        parts.append(_QH.pack(self.producer_id, self.producer_epoch))
        parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class EndTxnRequest:
    """API 26, versions 0 to 5."""

    API_KEY: ClassVar[int] = 26
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[EndTxnRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        each.transactional_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.producer_id, each.producer_epoch, each.committed = _QHT.unpack_from(data, at)
        at += 11
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
        parts.append(_QHT.pack(self.producer_id, self.producer_epoch, self.committed))
        if compact:
            parts.append(b"\0")
