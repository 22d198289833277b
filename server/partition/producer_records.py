"""The producers of a partition in a backup: without indexes of the Raft log, which are new after a restore.

A producer that is restored from a backup is remembered as of the entry that restored it. That entry is committed like
the batches that it stands for, so that a duplicate may be answered; and it counts as the time of its last use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quorumlog.server.partition.epoch_digests import DIGEST_BYTES, MAX_EPOCH_BATCHES, EpochDigests
from quorumlog.server.partition.producer_state import (
    REMEMBERED_BATCHES,
    ProducerState,
    RememberedBatch,
    is_named,
)
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.admin_pb2 import ProducerBatch, ProducerRecord
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import SEQUENCE_MODULUS

#: Maximum number of producers in one step of a restore.
MAX_RESTORED_PRODUCERS = 1_000
_MAX_RECORDS = 1 << 63


class RestoredProducer(NamedTuple):
    """One producer from a backup, in the form of the table; ``digests`` only in a replayable epoch."""

    producer_id: int
    state: ProducerState
    digests: EpochDigests | None


def record_of(producer_id: int, state: ProducerState, digests: EpochDigests | None) -> ProducerRecord:
    """Returns the record of a producer for a backup."""
    batches = [
        ProducerBatch(base_sequence=each.base_sequence, record_count=each.record_count, base_offset=each.base_offset)
        for each in state.batches
        if each.record_count
    ]
    rows = (digests.row(number) or b"" for number in range(digests.rows)) if digests is not None else ()
    return ProducerRecord(
        producer_id=producer_id,
        epoch=state.epoch,
        records=state.records,
        batches=batches,
        replayable=state.replayable,
        digests=b"".join(rows),
    )


def check_records(records: Iterable[ProducerRecord]) -> errors_pb2.Error | None:
    """Returns the error if producers cannot be restored; None if they can. A client may send anything."""
    seen: set[int] = set()
    for each in records:
        problem = "is named twice" if each.producer_id in seen else _problem_with(each)
        if problem is not None:
            return error(ErrorCode.INVALID_REQUEST, f"producer {each.producer_id} cannot be restored: it {problem}")
        seen.add(each.producer_id)
    return None


def _problem_with(record: ProducerRecord) -> str | None:
    if record.producer_id < 0 or record.epoch < 0:
        return "has a negative id or epoch"
    if not 1 <= len(record.batches) <= REMEMBERED_BATCHES:
        return f"has {len(record.batches)} batches, not 1 to {REMEMBERED_BATCHES}"
    for batch in record.batches:
        counts = batch.base_sequence < SEQUENCE_MODULUS and 1 <= batch.record_count < SEQUENCE_MODULUS
        if not counts or batch.base_offset < 0:
            return "has a batch with an impossible sequence, count or offset"
    if not record.batches[-1].record_count <= record.records < _MAX_RECORDS:
        return f"has {record.records} records in all"
    if record.replayable is not bool(record.digests) or (record.replayable and not is_named(record.producer_id)):
        return "has digests without an epoch that can be replayed, or such an epoch without digests or name"
    if len(record.digests) % DIGEST_BYTES or len(record.digests) > MAX_EPOCH_BATCHES * DIGEST_BYTES:
        return f"has {len(record.digests)} bytes of digests"
    return None


def restored(records: Iterable[ProducerRecord], index: int) -> Iterator[RestoredProducer]:
    """Yields producers in the form of the table, from records that were checked before they were proposed.

    Arguments:
        index: index of the entry that restores them.
    """
    for each in records:
        batches = tuple(
            RememberedBatch(batch.base_sequence, batch.record_count, batch.base_offset, index) for batch in each.batches
        )
        state = ProducerState(each.epoch, batches, each.records, each.replayable)
        digests = EpochDigests.from_rows([each.digests]) if each.replayable else None
        yield RestoredProducer(each.producer_id, state, digests)
