"""Kafka's messages: topics and their partitions, page by page, requests.

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
    pack_presence,
    skip_tags,
    unpack_compact_array,
    unpack_compact_string,
    unpack_presence,
)

_I = Struct(">i")


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """API 75, version 0."""

    API_KEY: ClassVar[int] = 75
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: Sequence[DescribedTopicRequest] = ()
    response_partition_limit: int = 2000
    cursor: PageBegin | None = None

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeTopicPartitionsRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.topics, at, left = _read_described_topic_requests(data, at, version, left)
        (each.response_partition_limit,) = _I.unpack_from(data, at)
        at += 4
        each.cursor, at, left = _read_page_begin(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        _write_described_topic_requests(parts, self.topics, version)
        parts.append(_I.pack(self.response_partition_limit))
        _write_page_begin(parts, self.cursor, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribedTopicRequest:
    """``topics``, version 0."""

    name: str = ""


@dataclass(slots=True)
class PageBegin:
    """``cursor``, version 0."""

    topic_name: str = ""
    partition_index: int = 0


def _read_described_topic_requests(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedTopicRequest], int, int]:
    elements, at, left = unpack_compact_array(data, at, 2, left)
    found = []
    for _ in range(elements):
        each = new(DescribedTopicRequest)
        each.name, at = unpack_compact_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_topic_requests(parts: list[Buffer], values: Sequence[DescribedTopicRequest], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        parts.append(b"\0")


def _read_page_begin(data: bytes, at: int, version: int, left: int) -> tuple[PageBegin | None, int, int]:
    is_there, at = unpack_presence(data, at)
    if not is_there:
        return None, at, left
    each = new(PageBegin)
    each.topic_name, at = unpack_compact_string(data, at)
    (each.partition_index,) = _I.unpack_from(data, at)
    at += 4
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_page_begin(parts: list[Buffer], each: PageBegin | None, version: int) -> None:
    parts.append(pack_presence(each is not None))
    if each is None:
        return
    parts.append(pack_compact_string(each.topic_name))
    parts.append(_I.pack(each.partition_index))
    parts.append(b"\0")
