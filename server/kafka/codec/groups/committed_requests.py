"""Kafka's messages: committed offsets of consumer groups, requests.

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
    not_null,
    pack_compact_count,
    pack_compact_int32_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_int32_array,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_int32_array,
    unpack_nullable_array,
    unpack_string,
)

_I = Struct(">i")
_T = Struct(">?")
_U = Struct(">16s")


@dataclass(slots=True)
class OffsetFetchRequest:
    """API 9, versions 1 to 10."""

    API_KEY: ClassVar[int] = 9
    LOWEST: ClassVar[int] = 1
    HIGHEST: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    group_id: str = ""  # to version 7
    topics: Sequence[OffsetFetchRequestTopic] | None = ()  # to version 7
    groups: Sequence[OffsetFetchRequestGroup] = ()  # from version 8
    require_stable: bool = False  # from version 7

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[OffsetFetchRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        each = new(cls)
        if version <= 7:
            each.group_id, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.group_id = ""
        if version <= 7:
            each.topics, at, left = _read_offset_fetch_request_topics(data, at, version, left)
        else:
            each.topics = ()
        if version >= 8:
            each.groups, at, left = _read_offset_fetch_request_groups(data, at, version, left)
        else:
            each.groups = ()
        if version >= 7:
            (each.require_stable,) = _T.unpack_from(data, at)
            at += 1
        else:
            each.require_stable = False
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 6
        if version <= 7:
            parts.append(pack_compact_string(self.group_id) if compact else pack_string(self.group_id))
        if version <= 7:
            _write_offset_fetch_request_topics(parts, self.topics, version)
        if version >= 8:
            _write_offset_fetch_request_groups(parts, self.groups, version)
        if version >= 7:
            parts.append(_T.pack(self.require_stable))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    """``topics``, versions 1 to 7."""

    name: str = ""
    partition_indexes: Sequence[int] = ()


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    """``groups``, versions 8 to 10."""

    group_id: str = ""
    member_id: str | None = None  # from version 9
    member_epoch: int = -1  # from version 9
    topics: Sequence[OffsetFetchRequestTopics] | None = ()


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    """``topics``, versions 8 to 10."""

    name: str = ""  # to version 9
    topic_id: bytes = NO_UUID  # from version 10
    partition_indexes: Sequence[int] = ()


def _read_offset_fetch_request_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchRequestTopic] | None, int, int]:
    compact = version >= 6
    if version >= 2:
        elements, at, left = (
            unpack_compact_nullable_array(data, at, 3, left) if compact else unpack_nullable_array(data, at, 3, left)
        )
    else:
        elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(OffsetFetchRequestTopic)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partition_indexes, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_request_topics(
    parts: list[Buffer], values: Sequence[OffsetFetchRequestTopic] | None, version: int
) -> None:
    compact = version >= 6
    if values is None and version >= 2:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    values = not_null(values)
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        parts.append(
            pack_compact_int32_array(each.partition_indexes) if compact else pack_int32_array(each.partition_indexes)
        )
        if compact:
            parts.append(b"\0")


def _read_offset_fetch_request_groups(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchRequestGroup], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OffsetFetchRequestGroup)
        each.group_id, at = unpack_compact_string(data, at)
        if version >= 9:
            each.member_id, at = unpack_compact_nullable_string(data, at)
        else:
            each.member_id = None
        if version >= 9:
            (each.member_epoch,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.member_epoch = -1
        each.topics, at, left = _read_offset_fetch_request_topicss(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_request_groups(
    parts: list[Buffer], values: Sequence[OffsetFetchRequestGroup], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.group_id))
        if version >= 9:
            parts.append(pack_compact_nullable_string(each.member_id))
        if version >= 9:
            parts.append(_I.pack(each.member_epoch))
        _write_offset_fetch_request_topicss(parts, each.topics, version)
        parts.append(b"\0")


def _read_offset_fetch_request_topicss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OffsetFetchRequestTopics] | None, int, int]:
    elements, at, left = unpack_compact_nullable_array(data, at, 3, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(OffsetFetchRequestTopics)
        if version <= 9:
            each.name, at = unpack_compact_string(data, at)
        else:
            each.name = ""
        if version >= 10:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partition_indexes, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_offset_fetch_request_topicss(
    parts: list[Buffer], values: Sequence[OffsetFetchRequestTopics] | None, version: int
) -> None:
    if values is None:
        parts.append(pack_compact_count(-1))
        return
    parts.append(pack_compact_count(len(values)))
    for each in values:
        if version <= 9:
            parts.append(pack_compact_string(each.name))
        if version >= 10:
            parts.append(_U.pack(each.topic_id))
        parts.append(pack_compact_int32_array(each.partition_indexes))
        parts.append(b"\0")
