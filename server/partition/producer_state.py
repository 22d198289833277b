"""The state of one idempotent producer in a partition: its epoch, and its last batches."""

from __future__ import annotations

import struct
from typing import NamedTuple

from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, SEQUENCE_MODULUS, BatchHeader

#: Batches remembered per producer: as many as a producer may have in flight.
REMEMBERED_BATCHES = 5
#: The largest epoch of a producer with transactions: Kafka's batches have 16 bits for it.
MAX_TRANSACTIONAL_EPOCH = (1 << 15) - 1

_ROW_HEAD = struct.Struct("<qQBB")
_ROW_BATCH = struct.Struct("<iIqQ")


def is_named(producer_id: int) -> bool:
    """True if an id belongs to a named identity."""
    return producer_id >= FIRST_NAMED_PRODUCER_ID


class RememberedBatch(NamedTuple):
    """A batch of a producer: its position in the sequence, in the offsets and in the log."""

    base_sequence: int
    record_count: int
    base_offset: int
    log_index: int

    @property
    def next_sequence(self) -> int:
        """The sequence that follows it."""
        return (self.base_sequence + self.record_count) % SEQUENCE_MODULUS


class ProducerState(NamedTuple):
    """One producer's epoch.

    Arguments:
        batches: its last ones, oldest first, at least one. In an epoch that a transaction started, the first is
            the entry that did, without records.
        records: number of records in all consecutive batches of the epoch here.
        replayable: True if the epoch may be sent again from its start.
    """

    epoch: int
    batches: tuple[RememberedBatch, ...]
    records: int
    replayable: bool

    @property
    def last(self) -> RememberedBatch:
        """Its newest batch."""
        return self.batches[-1]

    @property
    def next_sequence(self) -> int:
        """The sequence of the next batch."""
        return self.last.next_sequence

    def remembered(self, header: BatchHeader) -> RememberedBatch | None:
        """Returns the remembered batch with the header's sequence and count; None if it is not remembered."""
        for batch in self.batches:
            if batch.base_sequence == header.base_sequence and batch.record_count == header.record_count:
                return batch
        return None

    def is_older(self, header: BatchHeader) -> bool:
        """True if a batch is wholly before the remembered ones, within what this producer has sent in the epoch.

        Sequences wrap: only the number of records distinguishes an old batch from one that is far ahead.
        """
        oldest = self.batches[0].base_sequence
        remembered = (self.next_sequence - oldest) % SEQUENCE_MODULUS
        distance = (oldest - header.base_sequence) % SEQUENCE_MODULUS
        return header.record_count <= distance <= min(self.records - remembered, SEQUENCE_MODULUS // 2)


def without_batches(epoch: int, offset: int, index: int) -> ProducerState:
    """Returns the state of a producer at the start of an epoch that a transaction, not a batch, has started.

    Arguments:
        offset: the end of the log there.
        index: of the entry.
    """
    return ProducerState(epoch, (RememberedBatch(0, 0, offset, index),), 0, replayable=False)


def with_batch(known: ProducerState | None, header: BatchHeader, base_offset: int, index: int) -> ProducerState:
    """Returns the state after a further batch."""
    batch = RememberedBatch(header.base_sequence, header.record_count, base_offset, index)
    if known is None or header.producer_epoch > known.epoch:
        return ProducerState(header.producer_epoch, (batch,), header.record_count, header.replayable)
    assert header.producer_epoch == known.epoch and index > known.last.log_index
    batches = (*known.batches[1 - REMEMBERED_BATCHES :], batch)
    return ProducerState(known.epoch, batches, known.records + header.record_count, header.replayable)


def encode(state: ProducerState) -> bytes:
    """Returns the row of a state."""
    head = _ROW_HEAD.pack(state.epoch, state.records, state.replayable, len(state.batches))
    return head + b"".join(_ROW_BATCH.pack(*batch) for batch in state.batches)


def decode(row: bytes) -> ProducerState:
    """Returns the state in a row."""
    epoch, records, replayable, count = _ROW_HEAD.unpack_from(row)
    batches = tuple(RememberedBatch(*fields) for fields in _ROW_BATCH.iter_unpack(row[_ROW_HEAD.size :]))
    assert len(batches) == count > 0
    return ProducerState(epoch, batches, records, bool(replayable))
