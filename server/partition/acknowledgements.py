"""Produce calls in progress: the conditions each still waits for, and the moment when it may be answered."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
#: Number of waiters at which those of finished calls are removed.
SWEEP_ABOVE = 1_024


@dataclass(slots=True)
class ProduceCall:
    """One ProduceRequest: a result slot per batch; answered once all slots are filled or its deadline has passed."""

    request_id: int
    response: data_plane_pb2.ProduceResponse
    deadline: int
    remaining: int
    open_slots: set[int] = field(default_factory=set)

    def fill(self, slot: int, **fields: object) -> None:
        """Fills a slot once; a slot that the timeout has filled stays unchanged."""
        if slot in self.open_slots:
            self.open_slots.discard(slot)
            self.remaining -= 1
            result = self.response.results[slot]
            for name, value in fields.items():
                if name == "error":
                    result.error.CopyFrom(value)  # type: ignore[arg-type]
                else:
                    setattr(result, name, value)

    def fill_start(self, slot: int, log_start_offset: int) -> None:
        """Adds the log start offset to the result of a refused batch."""
        self.response.results[slot].log_start_offset = log_start_offset

    def time_out(self) -> None:
        """Fills the open slots with a timeout: their batches are in the log, and their outcome is not known."""
        late = error(
            ErrorCode.REQUEST_TIMED_OUT,
            "appended, but not confirmed by enough replicas in time; retry with the same sequence",
            definite=False,
        )
        for slot in sorted(self.open_slots):
            self.fill(slot, error=late, base_offset=-1, log_append_time_ms=-1)

    def abandon(self) -> None:
        """Closes all slots, because the client is gone."""
        self.open_slots.clear()

    @property
    def done(self) -> bool:
        """True once every batch has its result."""
        return self.remaining == 0


class Waiter(NamedTuple):
    """A batch in the log that a slot of a call waits for.

    Arguments:
        copies: number of durable data replicas that it needs.
        next_sequence: the next sequence to report for a replayable epoch.
    """

    log_index: int
    copies: int
    call: ProduceCall
    slot: int
    base_offset: int
    append_time_ms: int
    next_sequence: int = 0


class Acknowledgements:
    """Waiters of one partition while this replica leads it, in the order of the log."""

    __slots__ = ("_all", "_leader", "_order", "_sweep_at")

    def __init__(self) -> None:
        self._all: list[tuple[int, int, Waiter]] = []
        self._leader: list[tuple[int, int, Waiter]] = []
        self._order = count()
        self._sweep_at = SWEEP_ABOVE

    def add(self, acks: int, waiter: Waiter) -> None:
        """Adds a waiter: with ACKS_ALL for commit and copies, with ACKS_LEADER for the leader's own disk."""
        heap = self._all if acks == ACKS_ALL else self._leader
        heapq.heappush(heap, (waiter.log_index, next(self._order), waiter))
        if len(self) > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Removes the waiters of calls that timed out or were abandoned.

        Otherwise the retries of one batch that is short of copies would accumulate here for as long as the replica is
        down.
        """
        for heap in (self._all, self._leader):
            heap[:] = [item for item in heap if item[2].slot in item[2].call.open_slots]
            heapq.heapify(heap)
        self._sweep_at = max(SWEEP_ABOVE, 2 * len(self))

    def __len__(self) -> int:
        return len(self._all) + len(self._leader)

    def resolve(
        self, committed: int, durable: int, index_on: Callable[[int], int], copies_needed: int
    ) -> Iterator[Waiter]:
        """Removes and yields the waiters that may be answered now.

        Arguments:
            copies_needed: durable copies that a batch appended now would need. A waiter never needs more than that,
                because replicas may have been removed since.
            committed: the commit index, once an entry of the leader's own term is committed; otherwise 0.
            durable: the leader's own durable index.
            index_on: returns the highest index that is durable on that many replicas.
        """
        while self._leader and self._leader[0][0] <= durable:
            yield heapq.heappop(self._leader)[2]
        while self._all and self._all[0][0] <= committed:
            waiter = self._all[0][2]
            if waiter.log_index > index_on(min(waiter.copies, copies_needed)):
                return
            heapq.heappop(self._all)
            yield waiter

    def take_short(self, committed: int, live: int) -> Iterator[Waiter]:
        """Removes and yields the waiters that are committed but need more copies than there are live replicas."""
        while self._all and self._all[0][0] <= committed and self._all[0][2].copies > live:
            yield heapq.heappop(self._all)[2]

    def drain(self) -> Iterator[Waiter]:
        """Removes and yields all waiters: the leadership ended, and the outcome of their batches is not known."""
        for heap in (self._leader, self._all):
            while heap:
                yield heapq.heappop(heap)[2]

    def __bool__(self) -> bool:
        return bool(self._all or self._leader)
