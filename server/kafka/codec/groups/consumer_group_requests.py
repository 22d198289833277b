"""Kafka's messages: consumer groups whose coordinator assigns, requests.

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
    pack_compact_int32_array,
    pack_compact_nullable_string,
    pack_compact_nullable_string_array,
    pack_compact_string,
    pack_compact_string_array,
    skip_tags,
    unpack_compact_int32_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_string,
    unpack_compact_nullable_string_array,
    unpack_compact_string,
    unpack_compact_string_array,
)

_I = Struct(">i")
_T = Struct(">?")
_U = Struct(">16s")


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    """API 68, versions 0 to 1."""

    API_KEY: ClassVar[int] = 68
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    subscribed_topic_regex: str | None = None  # from version 1
    server_assignor: str | None = None
    topic_partitions: Sequence[OwnedTopicPartitions] | None = None

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ConsumerGroupHeartbeatRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.group_id, at = unpack_compact_string(data, at)
        each.member_id, at = unpack_compact_string(data, at)
        (each.member_epoch,) = _I.unpack_from(data, at)
        at += 4
        each.instance_id, at = unpack_compact_nullable_string(data, at)
        each.rack_id, at = unpack_compact_nullable_string(data, at)
        (each.rebalance_timeout_ms,) = _I.unpack_from(data, at)
        at += 4
        each.subscribed_topic_names, at, left = unpack_compact_nullable_string_array(data, at, left)
        if version == 1:
            each.subscribed_topic_regex, at = unpack_compact_nullable_string(data, at)
        else:
            each.subscribed_topic_regex = None
        each.server_assignor, at = unpack_compact_nullable_string(data, at)
        each.topic_partitions, at, left = _read_owned_topic_partitionss(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_compact_string(self.group_id))
        parts.append(pack_compact_string(self.member_id))
        parts.append(_I.pack(self.member_epoch))
        parts.append(pack_compact_nullable_string(self.instance_id))
        parts.append(pack_compact_nullable_string(self.rack_id))
        parts.append(_I.pack(self.rebalance_timeout_ms))
        parts.append(pack_compact_nullable_string_array(self.subscribed_topic_names))
        if version == 1:
            parts.append(pack_compact_nullable_string(self.subscribed_topic_regex))
        parts.append(pack_compact_nullable_string(self.server_assignor))
        _write_owned_topic_partitionss(parts, self.topic_partitions, version)
        parts.append(b"\0")


@dataclass(slots=True)
class OwnedTopicPartitions:
    """``topic_partitions``, versions 0 to 1."""

    topic_id: bytes = NO_UUID
    partitions: Sequence[int] = ()


def _read_owned_topic_partitionss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OwnedTopicPartitions] | None, int, int]:
    elements, at, left = unpack_compact_nullable_array(data, at, 18, left)
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(OwnedTopicPartitions)
        (each.topic_id,) = _U.unpack_from(data, at)
        at += 16
        each.partitions, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_owned_topic_partitionss(
    parts: list[Buffer], values: Sequence[OwnedTopicPartitions] | None, version: int
) -> None:
    if values is None:
        parts.append(pack_compact_count(-1))
        return
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_U.pack(each.topic_id))
        parts.append(pack_compact_int32_array(each.partitions))
        parts.append(b"\0")


@dataclass(slots=True)
class ConsumerGroupDescribeRequest:
    """API 69, versions 0 to 1."""

    API_KEY: ClassVar[int] = 69
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ConsumerGroupDescribeRequest, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.group_ids, at, left = unpack_compact_string_array(data, at, left)
        (each.include_authorized_operations,) = _T.unpack_from(data, at)
        at += 1
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(pack_compact_string_array(self.group_ids))
        parts.append(_T.pack(self.include_authorized_operations))
        parts.append(b"\0")
