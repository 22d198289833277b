"""Kafka's messages: size of replicas on a node's disk, requests.

Written by tools/kafka_codec.py after the message schemas of Apache Kafka 4.3.1 (Apache-2.0, see NOTICE): change that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    unpack_compact_int32_array,
    unpack_compact_nullable_array,
    unpack_compact_string,
    unpack_int32_array,
    unpack_nullable_array,
    unpack_string,
)


@dataclass(slots=True)
class DescribeLogDirsRequest:
    """API 35, versions 1 to 4."""

    API_KEY: ClassVar[int] = 35
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 2

    topics: Sequence[DescribableLogDirTopic] | None = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeLogDirsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.topics, at, left = _read_describable_log_dir_topics(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        _write_describable_log_dir_topics(parts, self.topics, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribableLogDirTopic:
    """``topics``, versions 1 to 4."""

    topic: str = ""
    partitions: Sequence[int] = ()


def _read_describable_log_dir_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribableLogDirTopic] | None, int, int]:
    compact = version >= 2
    elements, at, left = (
        unpack_compact_nullable_array(data, at, 3, left) if compact else unpack_nullable_array(data, at, 3, left)
    )
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(DescribableLogDirTopic)
        each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
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


def _write_describable_log_dir_topics(
    parts: list[Buffer], values: Sequence[DescribableLogDirTopic] | None, version: int
) -> None:
    compact = version >= 2
    if values is None:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        parts.append(pack_compact_int32_array(each.partitions) if compact else pack_int32_array(each.partitions))
        if compact:
            parts.append(b"\0")
