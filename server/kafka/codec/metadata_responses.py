"""Kafka's messages: nodes, topics and leaders, responses.

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
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_int32_array,
    unpack_nullable_string,
    unpack_string,
)

_B = Struct(">b")
_H = Struct(">h")
_HII = Struct(">hii")
_HIII = Struct(">hiii")
_I = Struct(">i")
_IH = Struct(">ih")
_T = Struct(">?")
_UT = Struct(">16s?")


@dataclass(slots=True)
class MetadataResponse:
    """API 3, versions 0 to 13."""

    API_KEY: ClassVar[int] = 3
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    throttle_time_ms: int = 0  # from version 3
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: str | None = None  # from version 2
    controller_id: int = -1  # from version 1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: int = -2147483648  # versions 8 to 10
    error_code: int = 0  # from version 13

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[MetadataResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        each = new(cls)
        if version >= 3:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.throttle_time_ms = 0
        each.brokers, at, left = _read_metadata_response_brokers(data, at, version, left)
        if version >= 2:
            each.cluster_id, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.cluster_id = None
        if version >= 1:
            (each.controller_id,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.controller_id = -1
        each.topics, at, left = _read_metadata_response_topics(data, at, version, left)
        if version >= 13:
            (each.error_code,) = _H.unpack_from(data, at)
            at += 2
            each.cluster_authorized_operations = -2147483648
        elif version >= 11:
            each.cluster_authorized_operations = -2147483648
            each.error_code = 0
        elif version >= 8:
            (each.cluster_authorized_operations,) = _I.unpack_from(data, at)
            at += 4
            each.error_code = 0
        else:
            each.cluster_authorized_operations = -2147483648
            each.error_code = 0
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        if version >= 3:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_metadata_response_brokers(parts, self.brokers, version)
        if version >= 2:
            parts.append(
                pack_compact_nullable_string(self.cluster_id) if compact else pack_nullable_string(self.cluster_id)
            )
        if version >= 1:
            parts.append(_I.pack(self.controller_id))
        _write_metadata_response_topics(parts, self.topics, version)
        if version >= 13:
            parts.append(_H.pack(self.error_code))
        elif version >= 11:
            pass
        elif version >= 8:
            parts.append(_I.pack(self.cluster_authorized_operations))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class MetadataResponseBroker:
    """``brokers``, versions 0 to 13."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None  # from version 1


@dataclass(slots=True)
class MetadataResponseTopic:
    """``topics``, versions 0 to 13."""

    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NO_UUID  # from version 10
    is_internal: bool = False  # from version 1
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: int = -2147483648  # from version 8


@dataclass(slots=True)
class MetadataResponsePartition:
    """``partitions``, versions 0 to 13."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1  # from version 7
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()  # from version 5


def _read_metadata_response_brokers(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[MetadataResponseBroker], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 10, left) if compact else unpack_array(data, at, 10, left)
    found = []
    for _ in range(elements):
        each = new(MetadataResponseBroker)
        (each.node_id,) = _I.unpack_from(data, at)
        at += 4
        each.host, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        (each.port,) = _I.unpack_from(data, at)
        at += 4
        if version >= 1:
            each.rack, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.rack = None
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_metadata_response_brokers(
    parts: list[Buffer], values: Sequence[MetadataResponseBroker], version: int
) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.node_id))
        parts.append(pack_compact_string(each.host) if compact else pack_string(each.host))
        parts.append(_I.pack(each.port))
        if version >= 1:
            parts.append(pack_compact_nullable_string(each.rack) if compact else pack_nullable_string(each.rack))
        if compact:
            parts.append(b"\0")


def _read_metadata_response_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[MetadataResponseTopic], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 8, left) if compact else unpack_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(MetadataResponseTopic)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        if version >= 12:
            each.name, at = unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        else:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        if version >= 10:
            each.topic_id, each.is_internal = _UT.unpack_from(data, at)
            at += 17
        elif version >= 1:
            (each.is_internal,) = _T.unpack_from(data, at)
            at += 1
            each.topic_id = NO_UUID
        else:
            each.topic_id = NO_UUID
            each.is_internal = False
        each.partitions, at, left = _read_metadata_response_partitions(data, at, version, left)
        if version >= 8:
            (each.topic_authorized_operations,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.topic_authorized_operations = -2147483648
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_metadata_response_topics(parts: list[Buffer], values: Sequence[MetadataResponseTopic], version: int) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        if version >= 12:
            parts.append(pack_compact_nullable_string(each.name) if compact else pack_nullable_string(each.name))
        else:
            parts.append(pack_compact_string(not_null(each.name)) if compact else pack_string(not_null(each.name)))
        if version >= 10:
            parts.append(_UT.pack(each.topic_id, each.is_internal))
        elif version >= 1:
            parts.append(_T.pack(each.is_internal))
        _write_metadata_response_partitions(parts, each.partitions, version)
        if version >= 8:
            parts.append(_I.pack(each.topic_authorized_operations))
        if compact:
            parts.append(b"\0")


def _read_metadata_response_partitions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[MetadataResponsePartition], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 18, left) if compact else unpack_array(data, at, 18, left)
    found = []
    for _ in range(elements):
        each = new(MetadataResponsePartition)
        if version >= 7:
            each.error_code, each.partition_index, each.leader_id, each.leader_epoch = _HIII.unpack_from(data, at)
            at += 14
        else:
            each.error_code, each.partition_index, each.leader_id = _HII.unpack_from(data, at)
            at += 10
            each.leader_epoch = -1
        each.replica_nodes, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        each.isr_nodes, at, left = (
            unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
        )
        if version >= 5:
            each.offline_replicas, at, left = (
                unpack_compact_int32_array(data, at, left) if compact else unpack_int32_array(data, at, left)
            )
        else:
            each.offline_replicas = ()
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_metadata_response_partitions(
    parts: list[Buffer], values: Sequence[MetadataResponsePartition], version: int
) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 7:
            parts.append(_HIII.pack(each.error_code, each.partition_index, each.leader_id, each.leader_epoch))
        else:
            parts.append(_HII.pack(each.error_code, each.partition_index, each.leader_id))
        parts.append(pack_compact_int32_array(each.replica_nodes) if compact else pack_int32_array(each.replica_nodes))
        parts.append(pack_compact_int32_array(each.isr_nodes) if compact else pack_int32_array(each.isr_nodes))
        if version >= 5:
            parts.append(
                pack_compact_int32_array(each.offline_replicas) if compact else pack_int32_array(each.offline_replicas)
            )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class DescribeClusterResponse:
    """API 60, versions 0 to 2."""

    API_KEY: ClassVar[int] = 60
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # from version 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: int = -2147483648

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeClusterResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        if version >= 1:
            (each.endpoint_type,) = _B.unpack_from(data, at)
            at += 1
        else:
            each.endpoint_type = 1
        each.cluster_id, at = unpack_compact_string(data, at)
        (each.controller_id,) = _I.unpack_from(data, at)
        at += 4
        each.brokers, at, left = _read_describe_cluster_brokers(data, at, version, left)
        (each.cluster_authorized_operations,) = _I.unpack_from(data, at)
        at += 4
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_nullable_string(self.error_message))
        if version >= 1:
            parts.append(_B.pack(self.endpoint_type))
        parts.append(pack_compact_string(self.cluster_id))
        parts.append(_I.pack(self.controller_id))
        _write_describe_cluster_brokers(parts, self.brokers, version)
        parts.append(_I.pack(self.cluster_authorized_operations))
        parts.append(b"\0")


@dataclass(slots=True)
class DescribeClusterBroker:
    """``brokers``, versions 0 to 2."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # from version 2


def _read_describe_cluster_brokers(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribeClusterBroker], int, int]:
    elements, at, left = unpack_compact_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(DescribeClusterBroker)
        (each.broker_id,) = _I.unpack_from(data, at)
        at += 4
        each.host, at = unpack_compact_string(data, at)
        (each.port,) = _I.unpack_from(data, at)
        at += 4
        each.rack, at = unpack_compact_nullable_string(data, at)
        if version >= 2:
            (each.is_fenced,) = _T.unpack_from(data, at)
            at += 1
        else:
            each.is_fenced = False
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_describe_cluster_brokers(parts: list[Buffer], values: Sequence[DescribeClusterBroker], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.broker_id))
        parts.append(pack_compact_string(each.host))
        parts.append(_I.pack(each.port))
        parts.append(pack_compact_nullable_string(each.rack))
        if version >= 2:
            parts.append(_T.pack(each.is_fenced))
        parts.append(b"\0")
