"""Descriptions of transactions, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from quorumlog.sdk.types import TopicPartition


class TransactionState(Enum):
    """State of a transactional id, named as in Kafka."""

    #: It has had no transaction.
    EMPTY = "Empty"
    #: A transaction is open.
    ONGOING = "Ongoing"
    #: The newest transaction is committed; some participants do not have the outcome yet.
    PREPARE_COMMIT = "PrepareCommit"
    #: The newest transaction is aborted; some participants do not have the outcome yet.
    PREPARE_ABORT = "PrepareAbort"
    #: The newest transaction is committed everywhere.
    COMPLETE_COMMIT = "CompleteCommit"
    #: The newest transaction is aborted everywhere.
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(frozen=True, slots=True, order=True)
class TransactionPlace:
    """Start of a transaction in the log of its coordinator: it identifies the transaction."""

    term: int
    index: int


class TransactionListing(NamedTuple):
    """A transactional id in a list.

    Arguments:
        started_ms: when its open transaction started, in milliseconds since the epoch; None without one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionState
    started_ms: int | None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, with the participants of its open transaction, and of decided ones that have not ended.

    Arguments:
        transaction_timeout_ms: how long its transactions may be open.
        started_ms: when its open transaction started, in milliseconds since the epoch; None without one.
        place: where that started; None without one.
        cause: why the newest transaction was decided: "producer", "timeout", "new instance" or "operator"; None while
            one is open, and before the first.
        writers: number of processes that write in it.
        partitions, groups: the participants; for each whether it still misses the outcome of a decided transaction.
            Partitions of topics that the caller may not describe are left out.
        coordinator: the node that answered.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    started_ms: int | None
    place: TransactionPlace | None
    cause: str | None
    writers: int
    partitions: dict[TopicPartition, bool]
    groups: dict[str, bool]
    coordinator: int


class DescribedProducer(NamedTuple):
    """A producer that a partition remembers.

    Arguments:
        last_sequence: the sequence of its last record; None without any in this epoch.
        last_timestamp_ms: the largest timestamp in its last batch; None if that is no longer kept.
        transaction_start_offset: the start of its open transaction; None without one.
        coordinator: the number of that transaction's coordinator; None without one.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    transaction_start_offset: int | None
    coordinator: int | None


class PartitionProducers(NamedTuple):
    """The producers of a partition, sorted by id.

    Arguments:
        last_stable_offset: readers of committed records do not pass it; it is below the high watermark while a
            transaction is open.
    """

    producers: list[DescribedProducer]
    high_watermark: int
    last_stable_offset: int
