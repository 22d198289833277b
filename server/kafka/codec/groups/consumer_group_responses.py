"""Kafka's messages: consumer groups whose coordinator assigns, responses.

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
    pack_compact_string_array,
    pack_presence,
    skip_tags,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_compact_string_array,
    unpack_presence,
)

_B = Struct(">b")
_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_II = Struct(">ii")
_U = Struct(">16s")


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    """API 68, versions 0 to 1."""

    API_KEY: ClassVar[int] = 68
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: GivenAssignment | None = None

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ConsumerGroupHeartbeatResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.member_id, at = unpack_compact_nullable_string(data, at)
        each.member_epoch, each.heartbeat_interval_ms = _II.unpack_from(data, at)
        at += 8
        each.assignment, at, left = _read_given_assignment(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_nullable_string(self.error_message))
        parts.append(pack_compact_nullable_string(self.member_id))
        parts.append(_II.pack(self.member_epoch, self.heartbeat_interval_ms))
        _write_given_assignment(parts, self.assignment, version)
        parts.append(b"\0")


@dataclass(slots=True)
class GivenAssignment:
    """``assignment``, versions 0 to 1."""

    topic_partitions: Sequence[GivenTopicPartitions] = ()


@dataclass(slots=True)
class GivenTopicPartitions:
    """``topic_partitions``, versions 0 to 1."""

    topic_id: bytes = NO_UUID
    partitions: Sequence[int] = ()


def _read_given_assignment(data: bytes, at: int, version: int, left: int) -> tuple[GivenAssignment | None, int, int]:
    is_there, at = unpack_presence(data, at)
    if not is_there:
        return None, at, left
    each = new(GivenAssignment)
    each.topic_partitions, at, left = _read_given_topic_partitionss(data, at, version, left)
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_given_assignment(parts: list[Buffer], each: GivenAssignment | None, version: int) -> None:
    parts.append(pack_presence(each is not None))
    if each is None:
        return
    _write_given_topic_partitionss(parts, each.topic_partitions, version)
    parts.append(b"\0")


def _read_given_topic_partitionss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[GivenTopicPartitions], int, int]:
    elements, at, left = unpack_compact_array(data, at, 18, left)
    found = []
    for _ in range(elements):
        each = new(GivenTopicPartitions)
        (each.topic_id,) = _U.unpack_from(data, at)
        at += 16
        each.partitions, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_given_topic_partitionss(parts: list[Buffer], values: Sequence[GivenTopicPartitions], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_U.pack(each.topic_id))
        parts.append(pack_compact_int32_array(each.partitions))
        parts.append(b"\0")


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    """API 69, versions 0 to 1."""

    API_KEY: ClassVar[int] = 69
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    groups: Sequence[DescribedConsumerGroup] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ConsumerGroupDescribeResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.groups, at, left = _read_described_consumer_groups(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.throttle_time_ms))
        _write_described_consumer_groups(parts, self.groups, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribedConsumerGroup:
    """``groups``, versions 0 to 1."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[DescribedConsumerMember] = ()
    authorized_operations: int = -2147483648


@dataclass(slots=True)
class DescribedConsumerMember:
    """``members``, versions 0 to 1."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment | None = None
    target_assignment: DescribedAssignment | None = None
    member_type: int = -1  # from version 1


@dataclass(slots=True)
class DescribedAssignment:
    """``assignment``, versions 0 to 1."""

    topic_partitions: Sequence[DescribedTopicPartitions] = ()


@dataclass(slots=True)
class DescribedTopicPartitions:
    """``topic_partitions``, versions 0 to 1."""

    topic_id: bytes = NO_UUID
    topic_name: str = ""
    partitions: Sequence[int] = ()


def _read_described_consumer_groups(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedConsumerGroup], int, int]:
    elements, at, left = unpack_compact_array(data, at, 20, left)
    found = []
    for _ in range(elements):
        each = new(DescribedConsumerGroup)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.group_id, at = unpack_compact_string(data, at)
        each.group_state, at = unpack_compact_string(data, at)
        each.group_epoch, each.assignment_epoch = _II.unpack_from(data, at)
        at += 8
        each.assignor_name, at = unpack_compact_string(data, at)
        each.members, at, left = _read_described_consumer_members(data, at, version, left)
        (each.authorized_operations,) = _I.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_consumer_groups(
    parts: list[Buffer], values: Sequence[DescribedConsumerGroup], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        parts.append(pack_compact_string(each.group_id))
        parts.append(pack_compact_string(each.group_state))
        parts.append(_II.pack(each.group_epoch, each.assignment_epoch))
        parts.append(pack_compact_string(each.assignor_name))
        _write_described_consumer_members(parts, each.members, version)
        parts.append(_I.pack(each.authorized_operations))
        parts.append(b"\0")


def _read_described_consumer_members(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedConsumerMember], int, int]:
    elements, at, left = unpack_compact_array(data, at, 16, left)
    found = []
    for _ in range(elements):
        each = new(DescribedConsumerMember)
        each.member_id, at = unpack_compact_string(data, at)
        each.instance_id, at = unpack_compact_nullable_string(data, at)
        each.rack_id, at = unpack_compact_nullable_string(data, at)
        (each.member_epoch,) = _I.unpack_from(data, at)
        at += 4
        each.client_id, at = unpack_compact_string(data, at)
        each.client_host, at = unpack_compact_string(data, at)
        each.subscribed_topic_names, at, left = unpack_compact_string_array(data, at, left)
        each.subscribed_topic_regex, at = unpack_compact_nullable_string(data, at)
        each.assignment, at, left = _read_described_assignment(data, at, version, left)
        each.target_assignment, at, left = _read_described_assignment(data, at, version, left)
        if version >= 1:
            (each.member_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.member_type = -1
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_consumer_members(
    parts: list[Buffer], values: Sequence[DescribedConsumerMember], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.member_id))
        parts.append(pack_compact_nullable_string(each.instance_id))
        parts.append(pack_compact_nullable_string(each.rack_id))
        parts.append(_I.pack(each.member_epoch))
        parts.append(pack_compact_string(each.client_id))
        parts.append(pack_compact_string(each.client_host))
        parts.append(pack_compact_string_array(each.subscribed_topic_names))
        parts.append(pack_compact_nullable_string(each.subscribed_topic_regex))
        _write_described_assignment(parts, not_null(each.assignment), version)
        _write_described_assignment(parts, not_null(each.target_assignment), version)
        if version >= 1:
            parts.append(_B.pack(each.member_type))
        parts.append(b"\0")


def _read_described_assignment(data: bytes, at: int, version: int, left: int) -> tuple[DescribedAssignment, int, int]:
    each = new(DescribedAssignment)
    each.topic_partitions, at, left = _read_described_topic_partitionss(data, at, version, left)
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_described_assignment(parts: list[Buffer], each: DescribedAssignment, version: int) -> None:
    _write_described_topic_partitionss(parts, each.topic_partitions, version)
    parts.append(b"\0")


def _read_described_topic_partitionss(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedTopicPartitions], int, int]:
    elements, at, left = unpack_compact_array(data, at, 19, left)
    found = []
    for _ in range(elements):
        each = new(DescribedTopicPartitions)
        (each.topic_id,) = _U.unpack_from(data, at)
        at += 16
        each.topic_name, at = unpack_compact_string(data, at)
        each.partitions, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_topic_partitionss(
    parts: list[Buffer], values: Sequence[DescribedTopicPartitions], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_U.pack(each.topic_id))
        parts.append(pack_compact_string(each.topic_name))
        parts.append(pack_compact_int32_array(each.partitions))
        parts.append(b"\0")
