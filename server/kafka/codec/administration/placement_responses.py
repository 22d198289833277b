"""Kafka's messages: placement of replicas, and elections, responses.

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
    pack_compact_int32_array,
    pack_compact_nullable_string,
    pack_compact_string,
    pack_count,
    pack_nullable_string,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_nullable_string,
    unpack_string,
)

_I = Struct(">i")
_IH = Struct(">ih")
_ITH = Struct(">i?h")


@dataclass(slots=True)
class ElectLeadersResponse:
    """API 43, versions 0 to 2."""

    API_KEY: ClassVar[int] = 43
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0
    error_code: int = 0  # from version 1
    replica_election_results: Sequence[ReplicaElectionResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ElectLeadersResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
        else:
            (each.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            each.error_code = 0
        each.replica_election_results, at, left = _read_replica_election_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 2
        if version >= 1:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        else:
            parts.append(_I.pack(self.throttle_time_ms))
        _write_replica_election_results(parts, self.replica_election_results, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class ReplicaElectionResult:
    """``replica_election_results``, versions 0 to 2."""

    topic: str = ""
    partition_result: Sequence[PartitionElectionResult] = ()


@dataclass(slots=True)
class PartitionElectionResult:
    """``partition_result``, versions 0 to 2."""

    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""


def _read_replica_election_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ReplicaElectionResult], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ReplicaElectionResult)
        each.topic, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.partition_result, at, left = _read_partition_election_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_replica_election_results(parts: list[Buffer], values: Sequence[ReplicaElectionResult], version: int) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic) if compact else pack_string(each.topic))
        _write_partition_election_results(parts, each.partition_result, version)
        if compact:
            parts.append(b"\0")


def _read_partition_election_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[PartitionElectionResult], int, int]:
    compact = version == 2
    elements, at, left = unpack_compact_array(data, at, 8, left) if compact else unpack_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(PartitionElectionResult)
        each.partition_id, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = (
            unpack_compact_nullable_string(data, at) if compact else unpack_nullable_string(data, at)
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_partition_election_results(
    parts: list[Buffer], values: Sequence[PartitionElectionResult], version: int
) -> None:
    compact = version == 2
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_id, each.error_code))
        parts.append(
            pack_compact_nullable_string(each.error_message) if compact else pack_nullable_string(each.error_message)
        )
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    """API 45, versions 0 to 1."""

    API_KEY: ClassVar[int] = 45
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True  # from version 1
    error_code: int = 0
    error_message: str | None = ""
    responses: Sequence[ReassignableTopicResponse] = ()

    @classmethod
    def read(
        cls, data: bytes, at: int, version: int, left: int
    ) -> tuple[AlterPartitionReassignmentsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        if version >= 1:
            each.throttle_time_ms, each.allow_replication_factor_change, each.error_code = _ITH.unpack_from(data, at)
            at += 7
        else:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
            each.allow_replication_factor_change = True
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.responses, at, left = _read_reassignable_topic_responses(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        if version >= 1:
            parts.append(_ITH.pack(self.throttle_time_ms, self.allow_replication_factor_change, self.error_code))
        else:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_nullable_string(self.error_message))
        _write_reassignable_topic_responses(parts, self.responses, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ReassignableTopicResponse:
    """``responses``, versions 0 to 1."""

    name: str = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """``partitions``, versions 0 to 1."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""


def _read_reassignable_topic_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ReassignableTopicResponse], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ReassignableTopicResponse)
        each.name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_reassignable_partition_responses(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_reassignable_topic_responses(
    parts: list[Buffer], values: Sequence[ReassignableTopicResponse], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        _write_reassignable_partition_responses(parts, each.partitions, version)
        parts.append(b"\0")


def _read_reassignable_partition_responses(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ReassignablePartitionResponse], int, int]:
    elements, at, left = unpack_compact_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(ReassignablePartitionResponse)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_reassignable_partition_responses(
    parts: list[Buffer], values: Sequence[ReassignablePartitionResponse], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        parts.append(b"\0")


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    """API 46, version 0."""

    API_KEY: ClassVar[int] = 46
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[OngoingTopicReassignment] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListPartitionReassignmentsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.topics, at, left = _read_ongoing_topic_reassignments(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_nullable_string(self.error_message))
        _write_ongoing_topic_reassignments(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class OngoingTopicReassignment:
    """``topics``, version 0."""

    name: str = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """``partitions``, version 0."""

    partition_index: int = 0
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


def _read_ongoing_topic_reassignments(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OngoingTopicReassignment], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(OngoingTopicReassignment)
        each.name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_ongoing_partition_reassignments(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_ongoing_topic_reassignments(
    parts: list[Buffer], values: Sequence[OngoingTopicReassignment], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        _write_ongoing_partition_reassignments(parts, each.partitions, version)
        parts.append(b"\0")


def _read_ongoing_partition_reassignments(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[OngoingPartitionReassignment], int, int]:
    elements, at, left = unpack_compact_array(data, at, 8, left)
    found = []
    for _ in range(elements):
        each = new(OngoingPartitionReassignment)
        (each.partition_index,) = _I.unpack_from(data, at)
        at += 4
        each.replicas, at, left = unpack_compact_int32_array(data, at, left)
        each.adding_replicas, at, left = unpack_compact_int32_array(data, at, left)
        each.removing_replicas, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_ongoing_partition_reassignments(
    parts: list[Buffer], values: Sequence[OngoingPartitionReassignment], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_I.pack(each.partition_index))
        parts.append(pack_compact_int32_array(each.replicas))
        parts.append(pack_compact_int32_array(each.adding_replicas))
        parts.append(pack_compact_int32_array(each.removing_replicas))
        parts.append(b"\0")
