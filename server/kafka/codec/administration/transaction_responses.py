"""Kafka's messages: transactions and producers, as operators see them, responses.

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
    pack_compact_string_array,
    skip_tags,
    unpack_compact_array,
    unpack_compact_int32_array,
    unpack_compact_nullable_string,
    unpack_compact_string,
    unpack_compact_string_array,
)

_H = Struct(">h")
_I = Struct(">i")
_IH = Struct(">ih")
_IQQH = Struct(">iqqh")
_Q = Struct(">q")
_QIIQIQ = Struct(">qiiqiq")


@dataclass(slots=True)
class DescribeProducersResponse:
    """API 61, version 0."""

    API_KEY: ClassVar[int] = 61
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    topics: Sequence[ProducersTopicResult] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeProducersResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.topics, at, left = _read_producers_topic_results(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.throttle_time_ms))
        _write_producers_topic_results(parts, self.topics, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ProducersTopicResult:
    """``topics``, version 0."""

    name: str = ""
    partitions: Sequence[ProducersPartitionResult] = ()


@dataclass(slots=True)
class ProducersPartitionResult:
    """``partitions``, version 0."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: Sequence[ActiveProducer] = ()


@dataclass(slots=True)
class ActiveProducer:
    """``active_producers``, version 0."""

    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


def _read_producers_topic_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ProducersTopicResult], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(ProducersTopicResult)
        each.name, at = unpack_compact_string(data, at)
        each.partitions, at, left = _read_producers_partition_results(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_producers_topic_results(parts: list[Buffer], values: Sequence[ProducersTopicResult], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.name))
        _write_producers_partition_results(parts, each.partitions, version)
        parts.append(b"\0")


def _read_producers_partition_results(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ProducersPartitionResult], int, int]:
    elements, at, left = unpack_compact_array(data, at, 9, left)
    found = []
    for _ in range(elements):
        each = new(ProducersPartitionResult)
        each.partition_index, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.error_message, at = unpack_compact_nullable_string(data, at)
        each.active_producers, at, left = _read_active_producers(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_producers_partition_results(
    parts: list[Buffer], values: Sequence[ProducersPartitionResult], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_IH.pack(each.partition_index, each.error_code))
        parts.append(pack_compact_nullable_string(each.error_message))
        _write_active_producers(parts, each.active_producers, version)
        parts.append(b"\0")


def _read_active_producers(data: bytes, at: int, version: int, left: int) -> tuple[list[ActiveProducer], int, int]:
    elements, at, left = unpack_compact_array(data, at, 37, left)
    found = []
    for _ in range(elements):
        each = new(ActiveProducer)
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        ) = _QIIQIQ.unpack_from(data, at)
        at += 36
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_active_producers(parts: list[Buffer], values: Sequence[ActiveProducer], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(
            _QIIQIQ.pack(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
        )
        parts.append(b"\0")


@dataclass(slots=True)
class DescribeTransactionsResponse:
    """API 65, version 0."""

    API_KEY: ClassVar[int] = 65
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    transaction_states: Sequence[DescribedTransaction] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[DescribeTransactionsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        (each.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        each.transaction_states, at, left = _read_described_transactions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_I.pack(self.throttle_time_ms))
        _write_described_transactions(parts, self.transaction_states, version)
        parts.append(b"\0")


@dataclass(slots=True)
class DescribedTransaction:
    """``transaction_states``, version 0."""

    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[DescribedTransactionTopic] = ()


@dataclass(slots=True)
class DescribedTransactionTopic:
    """``topics``, version 0."""

    topic: str = ""
    partitions: Sequence[int] = ()


def _read_described_transactions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedTransaction], int, int]:
    elements, at, left = unpack_compact_array(data, at, 28, left)
    found = []
    for _ in range(elements):
        each = new(DescribedTransaction)
        (each.error_code,) = _H.unpack_from(data, at)
        at += 2
        each.transactional_id, at = unpack_compact_string(data, at)
        each.transaction_state, at = unpack_compact_string(data, at)
        each.transaction_timeout_ms, each.transaction_start_time_ms, each.producer_id, each.producer_epoch = (
            _IQQH.unpack_from(data, at)
        )
        at += 22
        each.topics, at, left = _read_described_transaction_topics(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_transactions(parts: list[Buffer], values: Sequence[DescribedTransaction], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(_H.pack(each.error_code))
        parts.append(pack_compact_string(each.transactional_id))
        parts.append(pack_compact_string(each.transaction_state))
        parts.append(
            _IQQH.pack(
                each.transaction_timeout_ms, each.transaction_start_time_ms, each.producer_id, each.producer_epoch
            )
        )
        _write_described_transaction_topics(parts, each.topics, version)
        parts.append(b"\0")


def _read_described_transaction_topics(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[DescribedTransactionTopic], int, int]:
    elements, at, left = unpack_compact_array(data, at, 3, left)
    found = []
    for _ in range(elements):
        each = new(DescribedTransactionTopic)
        each.topic, at = unpack_compact_string(data, at)
        each.partitions, at, left = unpack_compact_int32_array(data, at, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_described_transaction_topics(
    parts: list[Buffer], values: Sequence[DescribedTransactionTopic], version: int
) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.topic))
        parts.append(pack_compact_int32_array(each.partitions))
        parts.append(b"\0")


@dataclass(slots=True)
class ListTransactionsResponse:
    """API 66, versions 0 to 2."""

    API_KEY: ClassVar[int] = 66
    LOWEST: ClassVar[int] = 0
    HIGHEST: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListedTransaction] = ()

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[ListTransactionsResponse, int, int]:
        """See ``primitives.KafkaMessage``."""
        each = new(cls)
        each.throttle_time_ms, each.error_code = _IH.unpack_from(data, at)
        at += 6
        each.unknown_state_filters, at, left = unpack_compact_string_array(data, at, left)
        each.transaction_states, at, left = _read_listed_transactions(data, at, version, left)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        return each, at, left

    def write(self, parts: list[Buffer], version: int) -> None:
        """See ``primitives.KafkaMessage``."""
        parts.append(_IH.pack(self.throttle_time_ms, self.error_code))
        parts.append(pack_compact_string_array(self.unknown_state_filters))
        _write_listed_transactions(parts, self.transaction_states, version)
        parts.append(b"\0")


@dataclass(slots=True)
class ListedTransaction:
    """``transaction_states``, versions 0 to 2."""

    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


def _read_listed_transactions(
    data: bytes, at: int, version: int, left: int
) -> tuple[list[ListedTransaction], int, int]:
    elements, at, left = unpack_compact_array(data, at, 11, left)
    found = []
    for _ in range(elements):
        each = new(ListedTransaction)
        each.transactional_id, at = unpack_compact_string(data, at)
        (each.producer_id,) = _Q.unpack_from(data, at)
        at += 8
        each.transaction_state, at = unpack_compact_string(data, at)
        if data[at]:
            at, left = skip_tags(data, at, left)
        else:
            at += 1
        found.append(each)
    return found, at, left


def _write_listed_transactions(parts: list[Buffer], values: Sequence[ListedTransaction], version: int) -> None:
    parts.append(pack_compact_count(len(values)))
    for each in values:
        parts.append(pack_compact_string(each.transactional_id))
        parts.append(_Q.pack(each.producer_id))
        parts.append(pack_compact_string(each.transaction_state))
        parts.append(b"\0")
