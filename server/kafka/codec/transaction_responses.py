"""Kafka's messages: transactions of producers, responses.

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
    pack_count,
    pack_string,
    skip_tags,
    unpack_array,
    unpack_compact_array,
    unpack_compact_string,
    unpack_string,
)

_I = Struct(">i")
_IH = Struct(">ih")
_IHQH = Struct(">ihqh")


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    """API 24, versions 0 to 3."""

    API_KEY: ClassVar[int] = 24
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AddPartitionsToTxnResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version == 3
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.results_by_topic_v3_and_below, at, left = _read_add_partitions_to_txn_topic_results(
            data, at, version, left
        )
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version == 3
        parts.append(_I.pack(self.throttle_time_ms))
        _write_add_partitions_to_txn_topic_results(parts, self.results_by_topic_v3_and_below, version)
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    """``results_by_topic_v3_and_below``, versions 0 to 3."""

    name: str = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    """``results_by_partition``, versions 0 to 3."""

    partition_index: int = 0
    partition_error_code: int = 0


def _read_add_partitions_to_txn_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AddPartitionsToTxnTopicResult], int, int]:
    compact = version == 3
    elements, at, left = unpack_compact_array(data, at, 3, left) if compact else unpack_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(AddPartitionsToTxnTopicResult)
        each.name, at = unpack_compact_string(data, at) if compact else unpack_string(data, at)
        each.results_by_partition, at, left = _read_add_partitions_to_txn_partition_results(data, at, version, left)
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_add_partitions_to_txn_topic_results(
    parts: list[Buffer], values: Sequence[AddPartitionsToTxnTopicResult], version: int
) -> None:
    compact = version == 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name) if compact else pack_string(each.name))
        _write_add_partitions_to_txn_partition_results(parts, each.results_by_partition, version)
        if compact:
            parts.append(b"\0")


def _read_add_partitions_to_txn_partition_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[AddPartitionsToTxnPartitionResult], int, int]:
    compact = version == 3
    elements, at, left = unpack_compact_array(data, at, 6, left) if compact else unpack_array(data, at, 6, left)
    found = []
    for _ in range(elements):
        each = new(AddPartitionsToTxnPartitionResult)
        each.partition_index, each.partition_error_code = _IH.unpack_from(data, at)
        at += 6
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        found.append(each)
    return found, at, left


def _write_add_partitions_to_txn_partition_results(
    parts: list[Buffer], values: Sequence[AddPartitionsToTxnPartitionResult], version: int
) -> None:
    compact = version == 3
    parts.append(pack_compact_count(len(values)) if compact else pack_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.partition_error_code))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    """API 25, versions 0 to 4."""

    API_KEY: ClassVar[int] = 25
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[AddOffsetsToTxnResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        if compact:
            parts.append(b"\0")


@dataclass(slots=True)
class EndTxnResponse:
    """API 26, versions 0 to 5."""

    API_KEY: ClassVar[int] = 26
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1  # from version 5
    producer_epoch: int = -1  # from version 5

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[EndTxnResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        each = new(cls)
        if version >= 5:
            each.throttle_time_ms, each.error_code, each.producer_id, each.producer_epoch = _IHQH.unpack_from(data, at)
            at += 16
        else:
            each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
            at += 6
            each.producer_id = -1
            each.producer_epoch = -1
        if compact:
            if data[at]:
                at, left = skip_tags(data, at, left)
            else:
                at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        compact = version >= 3
        if version >= 5:
            parts.append(_IHQH.pack(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch))
        else:
            parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        if compact:
            parts.append(b"\0")
