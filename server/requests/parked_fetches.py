"""Fetches that wait for data (long poll)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.server.requests.fetch_sessions import FetchedPartition, ServedFetchSession
from quorumlog.v1 import errors_pb2

#: Deadlines beyond twice those awaited at which the others are thrown out.
SWEEP_ABOVE = 1_024


@dataclass(slots=True)
class Found:
    """What one partition has for a fetch: an error, or entries and where its log begins and ends."""

    error: errors_pb2.Error | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    leader_epoch: int = 0
    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    compacted_offset: int = 0


@dataclass(slots=True, eq=False)
class PendingFetch:
    """A fetch that is being answered.

    Arguments:
        deadline: when it is answered with what there is (µs).
        min_bytes, max_bytes: of entries: enough to answer, and the most that an answer holds.
        found: what is to be said, by partition.
        size_bytes: of the entries in it.
        urgent: it holds an error, which no client should wait for.
    """

    request_id: int
    correlation_id: int
    session: ServedFetchSession
    deadline: int
    min_bytes: int
    max_bytes: int
    found: dict[FetchedPartition, Found] = field(default_factory=dict)
    size_bytes: int = 0
    urgent: bool = False

    def put(self, partition: FetchedPartition, found: Found | None) -> None:
        """Says this of a partition, and not what was to be said before; nothing if ``found`` is None."""
        before = self.found.get(partition)
        if before is not None:
            self.size_bytes -= before.size_bytes
        if found is None:
            self.found.pop(partition, None)
            return
        self.found[partition] = found
        self.size_bytes += found.size_bytes
        self.urgent = self.urgent or found.error is not None


class ParkedFetches:
    """Fetches waiting until one of their partitions has more committed, or until their time is up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._fetches: dict[int, PendingFetch] = {}
        self._deadlines: list[tuple[int, int]] = []

    @property
    def full(self) -> bool:
        """True when no further fetch may wait."""
        return len(self._fetches) >= self._limit

    def park(self, fetch: PendingFetch) -> None:
        """A fetch waits."""
        self._fetches[fetch.request_id] = fetch
        heapq.heappush(self._deadlines, (fetch.deadline, fetch.request_id))
        if len(self._deadlines) > SWEEP_ABOVE + 2 * len(self._fetches):
            # Fetches answered early leave theirs behind: with a long wait those of minutes.
            self._deadlines = [(parked.deadline, number) for number, parked in self._fetches.items()]
            heapq.heapify(self._deadlines)

    def get(self, request_id: int) -> PendingFetch | None:
        """A fetch that waits, by its request's id."""
        return self._fetches.get(request_id)

    def take(self, request_id: int) -> PendingFetch | None:
        """Takes a fetch out."""
        return self._fetches.pop(request_id, None)

    def expired(self, now: int) -> Iterator[PendingFetch]:
        """The fetches whose time is up; to be taken out by the caller."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, request_id = heapq.heappop(self._deadlines)
            fetch = self._fetches.get(request_id)
            if fetch is not None and fetch.deadline == deadline:
                yield fetch

    @property
    def next_deadline(self) -> int | None:
        """When the next fetch's time is up."""
        while self._deadlines and self._deadlines[0][1] not in self._fetches:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def __len__(self) -> int:
        return len(self._fetches)
