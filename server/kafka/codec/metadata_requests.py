"""Kafka's messages: nodes, topics and leaders, requests.

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
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_array,
    unpack_nullable_string,
    unpack_string,
)

_T = Struct(">?")
_TB = Struct(">?b")
_TBT = Struct(">?b?")
_TT = Struct(">??")
_TTT = Struct(">???")
_U = Struct(">16s")


@dataclass(slots=True)
class MetadataRequest:
    """API 3, versions 0 to 13."""

    API_KEY: ClassVar[int] = 3
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: bool = True  # from version 4
    include_cluster_authorized_operations: bool = False  # versions 8 to 10
    include_topic_authorized_operations: bool = False  # from version 8

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[MetadataRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        each = new(cls)
        each.topics, at, left = _read_metadata_request_topics(data, at, version, left)
        if version >= 11:
            each.allow_auto_topic_creation, each.include_topic_authorized_operations = _TT.unpack_from(data, at)
            at += 2
            each.include_cluster_authorized_operations = False
        elif version >= 8:
            (
                each.allow_auto_topic_creation,
                each.include_cluster_authorized_operations,
                each.include_topic_authorized_operations,
            ) = _TTT.unpack_from(data, at)
            at += 3
        elif version >= 4:
            (each.allow_auto_topic_creation,) = _T.unpack_from(data, at)
            at += 1
            each.include_cluster_authorized_operations = False
            each.include_topic_authorized_operations = False
        else:
            each.allow_auto_topic_creation = True
            each.include_cluster_authorized_operations = False
            each.include_topic_authorized_operations = False
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        _write_metadata_request_topics(parts, self.topics, version)
        if version >= 11:
            parts.append(_TT.pack(self.allow_auto_topic_creation, self.include_topic_authorized_operations))
        elif version >= 8:
            parts.append(
                _TTT.pack(
                    self.allow_auto_topic_creation,
                    self.include_cluster_authorized_operations,
                    self.include_topic_authorized_operations,
                )
            )
        elif version >= 4:
            parts.append(_T.pack(self.allow_auto_topic_creation))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class MetadataRequestTopic:
    """``topics``, versions 0 to 13."""

    topic_id: bytes = NO_UUID  # from version 10
    name: str | None = ""


def _read_metadata_request_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[MetadataRequestTopic] | None, int, int]:
    compact = version >= 9
    if version >= 1:
        elements, at, left = (
            unpack_compact_nullable_array(data, at, 2, left) if compact else unpack_nullable_array(data, at, 2, left)
        )
    else:
        elements, at, left = unpack_compact_array(data, at, 2, left) if compact else unpack_array(data, at, 2, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(MetadataRequestTopic)
        if version >= 10:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        if version >= 10:
            each.name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_metadata_request_topics(
    parts: list[Buffer], values: Sequence[MetadataRequestTopic] | None, version: int
) -> None:
    compact = version >= 9
    if values is None and version >= 1:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    values = not_null(values)
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 10:
            parts.append(_U.pack(each.topic_id))
        if version >= 10:
            parts.append(pack_compact_nullable_string(each.name) if compact else pack_nullable_string(each.name))
        else:
            parts.append(pack_compact_string(not_null(each.name)) if compact else pack_string(not_null(each.name)))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeClusterRequest:
    """API 60, versions 0 to 2."""

    API_KEY: ClassVar[int] = 60
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # from version 1
    include_fenced_brokers: bool = False  # from version 2

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeClusterRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        if version >= 2:
            each.include_cluster_authorized_operations, each.endpoint_type, each.include_fenced_brokers = (
                _TBT.unpack_from(data, at)
            )
            at += 3
        elif version >= 1:
            each.include_cluster_authorized_operations, each.endpoint_type = _TB.unpack_from(data, at)
            at += 2
            each.include_fenced_brokers = False
        else:
            (each.include_cluster_authorized_operations,) = _T.unpack_from(data, at)
            at += 1
            each.endpoint_type = 1
            each.include_fenced_brokers = False
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        if version >= 2:
            parts.append(
                _TBT.pack(self.include_cluster_authorized_operations, self.endpoint_type, self.include_fenced_brokers)
            )
        elif version >= 1:
            parts.append(_TB.pack(self.include_cluster_authorized_operations, self.endpoint_type))
        else:
            parts.append(_T.pack(self.include_cluster_authorized_operations))
        parts.append(b"\0")
