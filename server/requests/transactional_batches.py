"""Batches of transactions that wait until their partition takes part in the transaction.

The first batch of a transaction in a partition waits while the partition's leader enlists it with the coordinator. The
batches behind it wait too, so that those of a producer stay in order. Once the transaction is open, all of them are
appended in the same step.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.deciding.enlistment_queue import EnlistmentQueue, Settle
from quorumlog.server.deciding.transaction_participants import Enlisting
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.producer_state import MAX_TRANSACTIONAL_EPOCH
from quorumlog.server.partition.transaction_steps import transaction_of
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.wire.entry import BatchHeader, CorruptEntryError, is_of_transaction, parse_header


class _WriterHere(NamedTuple):
    """A producer that writes to a partition in a transaction. ``group`` is the partition's Raft group."""

    group: int
    transactional_id: str
    producer_id: int
    epoch: int


class TransactionalBatches:
    """The batches of this node that wait for an enlistment, in a queue for each producer and partition."""

    def __init__(self, enlisting: Enlisting) -> None:
        self._queue = EnlistmentQueue(enlisting, "batches")

    def __len__(self) -> int:
        """Returns the number of batches that wait."""
        return len(self._queue)

    def wait(
        self,
        partition: Partition,
        request: data_plane_pb2.ProduceRequest,
        header: BatchHeader,
        size_bytes: int,
        settle: Settle,
    ) -> errors_pb2.Error | None:
        """Makes a batch wait for its partition to be enlisted; see `EnlistmentQueue.wait`."""
        writer = _WriterHere(partition.group, request.transactional_id, header.producer_id, header.producer_epoch)
        item = peer_pb2.Enlistment(transactional_id=request.transactional_id, only_confirm=not request.adds_partitions)
        item.identity.producer_id, item.identity.producer_epoch = header.producer_id, header.producer_epoch
        item.participant.topic_id, item.participant.partition = partition.identity.topic_id, partition.identity.number
        return self._queue.wait(writer, item, partition.raft.term, size_bytes, settle)


def must_be_enlisted(partition: Partition, batch: bytes) -> BatchHeader | None:
    """Returns the header of a batch whose transaction is not known to be open in a partition that this node leads; None
    for all others, which are appended or refused immediately."""
    if not is_of_transaction(batch) or not partition.leads:
        return None
    try:
        header = parse_header(batch)
    except CorruptEntryError:
        return None
    is_valid = header.producer_id >= 0 and 0 <= header.producer_epoch <= MAX_TRANSACTIONAL_EPOCH
    if not header.is_transactional or header.is_of_leader or not is_valid:
        return None
    opened = transaction_of(partition, header.producer_id)
    return None if opened is not None and opened.epoch == header.producer_epoch else header
