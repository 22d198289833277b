"""What a partition remembers of idempotent producers: the applied table, and an overlay of the uncommitted tail.

The applied part is a function of the committed log alone, equal on every replica. The overlay exists on a leader:
it also knows the batches that are appended but not committed. It is rebuilt whenever a leadership begins; without
that, a deposed leader would keep a truncated batch and later call its retry a duplicate (KIP-98, raft.md 22).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from quorumlog.v1.entry import SEQUENCE_MODULUS, BatchHeader
from quorumlog.v1.errors_pb2 import ErrorCode

#: Batches remembered per producer: as many as a producer may have in flight.
REMEMBERED_BATCHES = 5

ROW_PREFIX = b"p"
_ROW_KEY = struct.Struct(">cQ")
_ROW_HEAD = struct.Struct("<qB")
_ROW_BATCH = struct.Struct("<iIqQ")


class RememberedBatch(NamedTuple):
    """A batch of a producer: where it lies in its sequence, in the offsets and in the log."""

    base_sequence: int
    record_count: int
    base_offset: int
    log_index: int

    @property
    def next_sequence(self) -> int:
        """The sequence that follows it."""
        return (self.base_sequence + self.record_count) % SEQUENCE_MODULUS


class ProducerState(NamedTuple):
    """One producer's epoch and its last batches, oldest first, at least one."""

    epoch: int
    batches: tuple[RememberedBatch, ...]

    @property
    def last(self) -> RememberedBatch:
        """Its newest batch."""
        return self.batches[-1]


@dataclass(slots=True, frozen=True)
class Duplicate:
    """The batch was appended before."""

    batch: RememberedBatch


@dataclass(slots=True, frozen=True)
class Refused:
    """The batch must not be appended."""

    code: ErrorCode.ValueType
    message: str


def row_key(producer_id: int) -> bytes:
    """Key of a producer's row in the partition's table."""
    return _ROW_KEY.pack(ROW_PREFIX, producer_id)


class ProducerTable:
    """Producers of one partition.

    Arguments:
        limit: producers remembered; beyond it the one that has been silent for longest (in log order) is forgotten.
    """

    __slots__ = ("_applied", "_dirty", "_limit", "_tail")

    def __init__(self, limit: int) -> None:
        self._applied: dict[int, ProducerState] = {}
        self._tail: dict[int, ProducerState] = {}
        self._limit = limit
        self._dirty: set[int] = set()

    def check(self, header: BatchHeader) -> Duplicate | Refused | None:
        """Whether a batch may be appended now: None if so."""
        known = self._tail.get(header.producer_id) or self._applied.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            if header.base_sequence == 0:
                return None
            if known is None:
                return Refused(
                    ErrorCode.UNKNOWN_PRODUCER_ID,
                    f"producer {header.producer_id} is not known here and begins with sequence"
                    f" {header.base_sequence}; open a new producer",
                )
            return Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"epoch {header.producer_epoch} of producer {header.producer_id} begins with sequence"
                f" {header.base_sequence}, not 0",
            )
        if header.producer_epoch < known.epoch:
            return Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known.epoch}; epoch {header.producer_epoch} is fenced",
            )
        for batch in known.batches:
            if batch.base_sequence == header.base_sequence and batch.record_count == header.record_count:
                return Duplicate(batch)
        if header.base_sequence == known.last.next_sequence:
            return None
        return Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence};"
            f" {known.last.next_sequence} comes next; send the earlier batches first",
        )

    def append(self, header: BatchHeader, base_offset: int, index: int) -> None:
        """A leader appended a batch that `check` allowed."""
        if header.producer_id >= 0:
            known = self._tail.get(header.producer_id) or self._applied.get(header.producer_id)
            self._tail[header.producer_id] = _with_batch(known, header, base_offset, index)

    def apply(self, header: BatchHeader, index: int) -> None:
        """A batch is committed."""
        producer = header.producer_id
        if producer < 0:
            return
        # Taken out and put back: the dict's order is the order of last use, the same on every replica.
        state = _with_batch(self._applied.pop(producer, None), header, header.base_offset, index)
        self._applied[producer] = state
        self._dirty.add(producer)
        tail = self._tail.get(producer)
        if tail is not None and tail.last.log_index <= index:
            del self._tail[producer]
        if len(self._applied) > self._limit:
            forgotten = next(iter(self._applied))
            del self._applied[forgotten]
            self._dirty.add(forgotten)

    def rebuild_tail(self, uncommitted: Iterable[tuple[BatchHeader, int]]) -> None:
        """A leadership begins: the overlay is what the log holds beyond the applied part, (header, index) in order."""
        self._tail.clear()
        for header, index in uncommitted:
            self.append(header, header.base_offset, index)

    def drop_tail(self) -> None:
        """A leadership ended: nothing uncommitted is known any more."""
        self._tail.clear()

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Rows of the applied part that changed since the last call."""
        rows: dict[bytes, bytes | None] = {}
        for producer in sorted(self._dirty):
            state = self._applied.get(producer)
            rows[row_key(producer)] = None if state is None else _encode(state)
        self._dirty.clear()
        return rows

    def load(self, rows: dict[bytes, bytes]) -> None:
        """Takes the applied part from the partition's table rows."""
        states = []
        for key, value in rows.items():
            if key[:1] == ROW_PREFIX:
                states.append((_ROW_KEY.unpack(key)[1], _decode(value)))
        states.sort(key=lambda item: item[1].last.log_index)
        self._applied = dict(states)

    def __len__(self) -> int:
        return len(self._applied)


def _with_batch(known: ProducerState | None, header: BatchHeader, base_offset: int, index: int) -> ProducerState:
    batch = RememberedBatch(header.base_sequence, header.record_count, base_offset, index)
    if known is None or header.producer_epoch > known.epoch:
        return ProducerState(header.producer_epoch, (batch,))
    assert header.producer_epoch == known.epoch and index > known.last.log_index
    return ProducerState(known.epoch, (*known.batches[1 - REMEMBERED_BATCHES :], batch))


def _encode(state: ProducerState) -> bytes:
    head = _ROW_HEAD.pack(state.epoch, len(state.batches))
    return head + b"".join(_ROW_BATCH.pack(*batch) for batch in state.batches)


def _decode(row: bytes) -> ProducerState:
    epoch, count = _ROW_HEAD.unpack_from(row)
    batches = tuple(RememberedBatch(*fields) for fields in _ROW_BATCH.iter_unpack(row[_ROW_HEAD.size :]))
    assert len(batches) == count > 0
    return ProducerState(epoch, batches)
