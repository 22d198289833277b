"""Kafka's messages: records in, responses.

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
    check_end,
    new,
    pack_compact_count,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    pack_tags,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_string,
    unpack_tags,
)

_I = Struct(">i")
_IHQH = Struct(">ihqh")
_IHQQ = Struct(">ihqq")
_IHQQQ = Struct(">ihqqq")
_II = Struct(">ii")
_U = Struct(">16s")


@dataclass(slots=True)
class ProduceResponse:
    """API 0, versions 3 to 13."""

    API_KEY: ClassVar[int] = 0
    LOWEST: ClassVar[int] = 3
    HIGHEST: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: int = 0
    node_endpoints: Sequence[ProduceResponseNodeEndpoint] = ()  # from version 10

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ProduceResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        each = new(cls)
        each.responses, at, left = _read_topic_produce_responses(data, at, version, left)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.node_endpoints = ()
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged and version >= 10:
                    begin, end = tagged[0]
                    each.node_endpoints, begin, left = _read_produce_response_node_endpoints(data, begin, version, left)
                    check_end(begin, end)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 9
        _write_topic_produce_responses(parts, self.responses, version)
        parts.append(_I.pack(self.throttle_time_ms))
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if version >= 10 and self.node_endpoints:
                inner: list[Buffer] = []
                _write_produce_response_node_endpoints(inner, self.node_endpoints, version)
                tagged.append((0, inner))
            parts.append(pack_tags(tagged))


@dataclass(slots=True)
class TopicProduceResponse:
    """``responses``, versions 3 to 13."""

    name: str = ""  # to version 12
    topic_id: bytes = NO_UUID  # from version 13
    partition_responses: Sequence[PartitionProduceResponse] = ()


@dataclass(slots=True)
class PartitionProduceResponse:
    """``partition_responses``, versions 3 to 13."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1  # from version 5
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()  # from version 8
    error_message: str | None = None  # from version 8
    current_leader: ProduceResponseLeaderIdAndEpoch | None = None  # from version 10


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """``record_errors``, versions 8 to 13."""

    batch_index: int = 0
    batch_index_error_message: str | None = None


@dataclass(slots=True)
class ProduceResponseLeaderIdAndEpoch:
    """``current_leader``, versions 10 to 13."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ProduceResponseNodeEndpoint:
    """``node_endpoints``, versions 10 to 13."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


def _read_topic_produce_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[TopicProduceResponse], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(TopicProduceResponse)
        if version <= 12:
            each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.name = ""
        if version >= 13:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partition_responses, at, left = _read_partition_produce_responses(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_topic_produce_responses(parts: list[Buffer], values: Sequence[TopicProduceResponse], version: int) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 12:
            parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        if version >= 13:
            parts.append(_U.pack(each.topic_id))
        _write_partition_produce_responses(parts, each.partition_responses, version)
        if compact:
            parts.append(b"\0")


def _read_partition_produce_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[PartitionProduceResponse], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 22, left) if compact else unpack_array(data, at, 22, left)
    found = []
    for _ in range(elements):
        each = new(PartitionProduceResponse)
        if version >= 5:
            each.index, each.error_code, each.base_offset, each.log_append_time_ms, each.log_start_offset = (
                _IHQQQ.unpack_from(data, at)
            )
            at += 30
        else:
            each.index, each.error_code, each.base_offset, each.log_append_time_ms = _IHQQ.unpack_from(data, at)
            at += 22
            each.log_start_offset = -1
        if version >= 8:
            each.record_errors, at, left = _read_batch_index_and_error_messages(data, at, version, left)
        else:
            each.record_errors = ()
        if version >= 8:
            each.error_message, at = (
                unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
            )
        else:
            each.error_message = None
        each.current_leader = None
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged and version >= 10:
                    begin, end = tagged[0]
                    each.current_leader, begin, left = _read_produce_response_leader_id_and_epoch(
                        data, begin, version, left
                    )
                    check_end(begin, end)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_partition_produce_responses(
    parts: list[Buffer], values: Sequence[PartitionProduceResponse], version: int
) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 5:
            parts.append(
                _IHQQQ.pack(
                    each.index, each.error_code, each.base_offset, each.log_append_time_ms, each.log_start_offset
                )
            )
        else:
            parts.append(_IHQQ.pack(each.index, each.error_code, each.base_offset, each.log_append_time_ms))
        if version >= 8:
            _write_batch_index_and_error_messages(parts, each.record_errors, version)
        if version >= 8:
            parts.append(
                pack_compact_nullable_string(each.error_message)
                if compact
                else pack_nullable_string(each.error_message)
            )
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if version >= 10 and each.current_leader is not None:
                inner: list[Buffer] = []
                _write_produce_response_leader_id_and_epoch(inner, each.current_leader, version)
                tagged.append((0, inner))
            parts.append(pack_tags(tagged))


def _read_batch_index_and_error_messages(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[BatchIndexAndErrorMessage], int, int]:
    compact = version >= 9
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(BatchIndexAndErrorMessage)
        (each.batch_index,) = _I.unpack_from(data, at)
        at += 4
        each.batch_index_error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_batch_index_and_error_messages(
    parts: list[Buffer], values: Sequence[BatchIndexAndErrorMessage], version: int
) -> None:
    compact = version >= 9
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.batch_index))
        parts.append(
            pack_compact_nullable_string(each.batch_index_error_message)
            if compact
            else pack_nullable_string(each.batch_index_error_message)
        )
        if compact:
            parts.append(b"\0")


def _read_produce_response_leader_id_and_epoch(
    data: bytes, at: int, version: int, left: int
) -> tuple[ProduceResponseLeaderIdAndEpoch, int, int]:
    each = new(ProduceResponseLeaderIdAndEpoch)
    each.leader_id, each.leader_epoch = _II.unpack_from(data, at)
    at += 8
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_produce_response_leader_id_and_epoch(
    parts: list[Buffer], each: ProduceResponseLeaderIdAndEpoch, version: int
) -> None:
    parts.append(_II.pack(each.leader_id, each.leader_epoch))
    parts.append(b"\0")


def _read_produce_response_node_endpoints(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ProduceResponseNodeEndpoint], int, int]:
    elements, at, left = unpack_compact_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(ProduceResponseNodeEndpoint)
        (each.node_id,) = _I.unpack_from(data, at)
        at += 4
        each.host, at = unpack_compact_string(data, at)
        (each.port,) = _I.unpack_from(data, at)
        at += 4
        each.rack, at = unpack_compact_nullable_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_produce_response_node_endpoints(
    parts: list[Buffer], values: Sequence[ProduceResponseNodeEndpoint], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.node_id))
        parts.append(pack_compact_string(each.host))
        parts.append(_I.pack(each.port))
        parts.append(pack_compact_nullable_string(each.rack))
        parts.append(b"\0")


@dataclass(slots=True)
class InitProducerIdResponse:
    """API 22, versions 0 to 5."""

    API_KEY: ClassVar[int] = 22
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[InitProducerIdResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        each = new(cls)
        each.throttle_time_ms, each.error_code, each.producer_id, each.producer_epoch = _IHQH.unpack_from(data, at)
        at += 16
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 2
        parts.append(_IHQH.pack(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch))
        if compact:
            parts.append(b"\0")
