"""Kafka's messages: transactions and producers, as operators see them, requests.

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
    pack_compact_int64_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_compact_string_array,
    skip_tags,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_int64_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_compact_string_array,
)

_Q = Struct(">q")


@dataclass(slots=True)
class DescribeProducersRequest:
    """API 61, version 0."""

    API_KEY: ClassVar[int] = 61
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: Sequence[ProducersTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeProducersRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.topics, at, left = _read_producers_topics(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        _write_producers_topics(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ProducersTopic:
    """``topics``, version 0."""

    name: str = ""
    partition_indexes: Sequence[int] = ()


def _read_producers_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[ProducersTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ProducersTopic)
        each.name, at = unpack_compact_string(data, at)
        each.partition_indexes, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_producers_topics(parts: list[Buffer], values: Sequence[ProducersTopic], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(pack_compact_int32_array(each.partition_indexes))
        parts.append(b"\0")


@dataclass(slots=True)
class DescribeTransactionsRequest:
    """API 65, version 0."""

    API_KEY: ClassVar[int] = 65
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    transactional_ids: Sequence[str] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeTransactionsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.transactional_ids, at, left = unpack_compact_string_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_compact_string_array(self.transactional_ids))
        parts.append(b"\0")


@dataclass(slots=True)
class ListTransactionsRequest:
    """API 66, versions 0 to 2."""

    API_KEY: ClassVar[int] = 66
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1  # from version 1
    transactional_id_pattern: str | None = None  # from version 2

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListTransactionsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.state_filters, at, left = unpack_compact_string_array(data, at, left)
        each.producer_id_filters, at, left = unpack_compact_int64_array(data, at, left)
        if version >= 1:
            (each.duration_filter,) = _Q.unpack_from(data, at)
            at += 8
        else:
            each.duration_filter = -1
        if version == 2:
            each.transactional_id_pattern, at = unpack_compact_nullable_string(data, at)
        else:
            each.transactional_id_pattern = None
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_compact_string_array(self.state_filters))
        parts.append(pack_compact_int64_array(self.producer_id_filters))
        if version >= 1:
            parts.append(_Q.pack(self.duration_filter))
        if version == 2:
            parts.append(pack_compact_nullable_string(self.transactional_id_pattern))
        parts.append(b"\0")
