"""Kafka's messages: records out, responses.

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
    pack_compact_nullable_records,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_records,
    pack_string,
    pack_tags,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_nullable_array,
    unpack_compact_nullable_records,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_array,
    unpack_nullable_records,
    unpack_string,
    unpack_tags,
)

_I = Struct(">i")
_IHI = Struct(">ihi")
_IHQQ = Struct(">ihqq")
_IHQQQ = Struct(">ihqqq")
_II = Struct(">ii")
_IQ = Struct(">iq")
_QI = Struct(">qi")
_QQ = Struct(">qq")
_U = Struct(">16s")


@dataclass(slots=True)
class FetchResponse:
    """API 1, versions 4 to 18."""

    API_KEY: ClassVar[int] = 1
    LOWEST: ClassVar[int] = 4
    HIGHEST: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12

    throttle_time_ms: int = 0
    error_code: int = 0  # from version 7
    session_id: int = 0  # from version 7
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Sequence[FetchResponseNodeEndpoint] = ()  # from version 16

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[FetchResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 12
        each = new(cls)
        if version >= 7:
            each.throttle_time_ms, each.error_code, each.session_id = _IHI.unpack_from(data, at)
            at += 10
        else:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            each.error_code = 0
            each.session_id = 0
        each.responses, at, left = _read_fetchable_topic_responses(data, at, version, left)
        each.node_endpoints = ()
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged and version >= 16:
                    begin, end = tagged[0]
                    each.node_endpoints, begin, left = _read_fetch_response_node_endpoints(data, begin, version, left)
                    check_end(begin, end)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 12
        if version >= 7:
            parts.append(_IHI.pack(self.throttle_time_ms, self.error_code, self.session_id))
        else:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_fetchable_topic_responses(parts, self.responses, version)
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if version >= 16 and self.node_endpoints:
                inner: list[Buffer] = []
                _write_fetch_response_node_endpoints(inner, self.node_endpoints, version)
                tagged.append((0, inner))
            parts.append(pack_tags(tagged))


@dataclass(slots=True)
class FetchableTopicResponse:
    """``responses``, versions 4 to 18."""

    topic: str = ""  # to version 12
    topic_id: bytes = NO_UUID  # from version 13
    partitions: Sequence[PartitionData] = ()


@dataclass(slots=True)
class PartitionData:
    """``partitions``, versions 4 to 18."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1  # from version 5
    diverging_epoch: FetchResponseEpochEndOffset | None = None  # from version 12
    current_leader: FetchResponseLeaderIdAndEpoch | None = None  # from version 12
    snapshot_id: SnapshotId | None = None  # from version 12
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: int = -1  # from version 11
    records: Buffer | None = None


@dataclass(slots=True)
class FetchResponseEpochEndOffset:
    """``diverging_epoch``, versions 12 to 18."""

    epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class FetchResponseLeaderIdAndEpoch:
    """``current_leader``, versions 12 to 18."""

    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class SnapshotId:
    """``snapshot_id``, versions 12 to 18."""

    end_offset: int = -1
    epoch: int = -1


@dataclass(slots=True)
class AbortedTransaction:
    """``aborted_transactions``, versions 4 to 18."""

    producer_id: int = 0
    first_offset: int = 0


@dataclass(slots=True)
class FetchResponseNodeEndpoint:
    """``node_endpoints``, versions 16 to 18."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


def _read_fetchable_topic_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[FetchableTopicResponse], int, int]:
    compact = version >= 12
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(FetchableTopicResponse)
        if version <= 12:
            each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        else:
            each.topic = ""
        if version >= 13:
            (each.topic_id,) = _U.unpack_from(data, at)
            at += 16
        else:
            each.topic_id = NO_UUID
        each.partitions, at, left = _read_partition_datas(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_fetchable_topic_responses(
    parts: list[Buffer], values: Sequence[FetchableTopicResponse], version: int
) -> None:
    compact = version >= 12
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version <= 12:
            parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        if version >= 13:
            parts.append(_U.pack(each.topic_id))
        _write_partition_datas(parts, each.partitions, version)
        if compact:
            parts.append(b"\0")


def _read_partition_datas(data: bytes, at: int, version: int, left: int) -> tuple[list[PartitionData], int, int]:
    compact = version >= 12
    elements, at, left = unpack_compact_array(data, at, 30, left) if compact else unpack_array(data, at, 30, left)
    found = []
    for _ in range(elements):
        each = new(PartitionData)
        if version >= 5:
            (
                each.partition_index,
                each.error_code,
                each.high_watermark,
                each.last_stable_offset,
                each.log_start_offset,
            ) = _IHQQQ.unpack_from(data, at)
            at += 30
        else:
            each.partition_index, each.error_code, each.high_watermark, each.last_stable_offset = _IHQQ.unpack_from(
                data, at
            )
            at += 22
            each.log_start_offset = -1
        each.aborted_transactions, at, left = _read_aborted_transactions(data, at, version, left)
        if version >= 11:
            (each.preferred_read_replica,) = _I.unpack_from(data, at)
            at += 4
        else:
            each.preferred_read_replica = -1
        each.records, at = unpack_compact_nullable_records(data, at) if compact else unpack_nullable_records(data, at)
        each.diverging_epoch = None
        each.current_leader = None
        each.snapshot_id = None
        if compact:
            if data[at]:
                tagged, at, left = unpack_tags(data, at, left)
                if 0 in tagged:
                    begin, end = tagged[0]
                    each.diverging_epoch, begin, left = _read_fetch_response_epoch_end_offset(
                        data, begin, version, left
                    )
                    check_end(begin, end)
                if 1 in tagged:
                    begin, end = tagged[1]
                    each.current_leader, begin, left = _read_fetch_response_leader_id_and_epoch(
                        data, begin, version, left
                    )
                    check_end(begin, end)
                if 2 in tagged:
                    begin, end = tagged[2]
                    each.snapshot_id, begin, left = _read_snapshot_id(data, begin, version, left)
                    check_end(begin, end)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_partition_datas(parts: list[Buffer], values: Sequence[PartitionData], version: int) -> None:
    compact = version >= 12
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        if version >= 5:
            parts.append(
                _IHQQQ.pack(
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.last_stable_offset,
                    each.log_start_offset,
                )
            )
        else:
            parts.append(
                _IHQQ.pack(each.partition_index, each.error_code, each.high_watermark, each.last_stable_offset)
            )
        _write_aborted_transactions(parts, each.aborted_transactions, version)
        if version >= 11:
            parts.append(_I.pack(each.preferred_read_replica))
        parts.extend(pack_compact_nullable_records(each.records) if compact else pack_nullable_records(each.records))
        if compact:
            tagged: list[tuple[int, list[Buffer]]] = []
            if each.diverging_epoch is not None:
                inner: list[Buffer] = []
                _write_fetch_response_epoch_end_offset(inner, each.diverging_epoch, version)
                tagged.append((0, inner))
            if each.current_leader is not None:
                inner = []
                _write_fetch_response_leader_id_and_epoch(inner, each.current_leader, version)
                tagged.append((1, inner))
            if each.snapshot_id is not None:
                inner = []
                _write_snapshot_id(inner, each.snapshot_id, version)
                tagged.append((2, inner))
            parts.append(pack_tags(tagged))


def _read_fetch_response_epoch_end_offset(
    data: bytes, at: int, version: int, left: int
) -> tuple[FetchResponseEpochEndOffset, int, int]:
    each = new(FetchResponseEpochEndOffset)
    each.epoch, each.end_offset = _IQ.unpack_from(data, at)
    at += 12
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_fetch_response_epoch_end_offset(
    parts: list[Buffer], each: FetchResponseEpochEndOffset, version: int
) -> None:
    parts.append(_IQ.pack(each.epoch, each.end_offset))
    parts.append(b"\0")


def _read_fetch_response_leader_id_and_epoch(
    data: bytes, at: int, version: int, left: int
) -> tuple[FetchResponseLeaderIdAndEpoch, int, int]:
    each = new(FetchResponseLeaderIdAndEpoch)
    each.leader_id, each.leader_epoch = _II.unpack_from(data, at)
    at += 8
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_fetch_response_leader_id_and_epoch(
    parts: list[Buffer], each: FetchResponseLeaderIdAndEpoch, version: int
) -> None:
    parts.append(_II.pack(each.leader_id, each.leader_epoch))
    parts.append(b"\0")


def _read_snapshot_id(data: bytes, at: int, version: int, left: int) -> tuple[SnapshotId, int, int]:
    each = new(SnapshotId)
    each.end_offset, each.epoch = _QI.unpack_from(data, at)
    at += 12
    if data[at]:
        at, left = skip_tags(data, at, left)
    else:
        at += 1
    return each, at, left


def _write_snapshot_id(parts: list[Buffer], each: SnapshotId, version: int) -> None:
    parts.append(_QI.pack(each.end_offset, each.epoch))
    parts.append(b"\0")


def _read_aborted_transactions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AbortedTransaction] | None, int, int]:
    compact = version >= 12
    elements, at, left = (
        unpack_compact_nullable_array(data, at, 16, left) if compact else unpack_nullable_array(data, at, 16, left)
    )
    if elements < 0:
        return None, at, left
    found = []
    for _ in range(elements):
        each = new(AbortedTransaction)
        each.producer_id, each.first_offset = _QQ.unpack_from(data, at)
        at += 16
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_aborted_transactions(parts: list[Buffer], values: Sequence[AbortedTransaction] | None, version: int) -> None:
    compact = version >= 12
    if values is None:
        parts.append(pack_compact_count(-1) if compact else pack_count(-1))
        return
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_QQ.pack(each.producer_id, each.first_offset))
        if compact:
            parts.append(b"\0")


def _read_fetch_response_node_endpoints(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[FetchResponseNodeEndpoint], int, int]:
    elements, at, left = unpack_compact_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(FetchResponseNodeEndpoint)
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


def _write_fetch_response_node_endpoints(
    parts: list[Buffer], values: Sequence[FetchResponseNodeEndpoint], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.node_id))
        parts.append(pack_compact_string(each.host))
        parts.append(_I.pack(each.port))
        parts.append(pack_compact_nullable_string(each.rack))
        parts.append(b"\0")
