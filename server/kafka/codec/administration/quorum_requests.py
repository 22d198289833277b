"""Kafka's messages: voters of the metadata, and their progress, requests.

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
    skip_tags,
    unpack_compact_array,
    unpack_compact_string,
)

_I = Struct(">i")


@dataclass(slots=True)
class DescribeQuorumRequest:
    """API 55, versions 0 to 2."""

    API_KEY: ClassVar[int] = 55
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: Sequence[NamedQuorumTopic] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeQuorumRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.topics, at, left = _read_named_quorum_topics(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        _write_named_quorum_topics(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class NamedQuorumTopic:
    """``topics``, versions 0 to 2."""

    topic_name: str = ""
    partitions: Sequence[NamedQuorumPartition] = ()


@dataclass(slots=True)
class NamedQuorumPartition:
    """``partitions``, versions 0 to 2."""

    partition_index: int = 0


def _read_named_quorum_topics(data: bytes, at: int, version: int, left: int) -> tuple[list[NamedQuorumTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(NamedQuorumTopic)
        each.topic_name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_named_quorum_partitions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_named_quorum_topics(parts: list[Buffer], values: Sequence[NamedQuorumTopic], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic_name))
        _write_named_quorum_partitions(parts, each.partitions, version)
        parts.append(b"\0")


def _read_named_quorum_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[NamedQuorumPartition], int, int]:
    elements, at, left = unpack_compact_array(data, at, 5, left)
    found = []
    for _ in range(elements):
        each = new(NamedQuorumPartition)
        (each.partition_index,) = _I.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_named_quorum_partitions(parts: list[Buffer], values: Sequence[NamedQuorumPartition], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.partition_index))
        parts.append(b"\0")
