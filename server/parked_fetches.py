"""Fetches that wait for data (long poll)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from quorumlog.v1 import data_plane_pb2

#: Deadlines beyond twice those awaited at which the others are thrown out.
SWEEP_ABOVE = 1_024


class ParkedFetches:
    """Fetches waiting until one of their partitions has more committed, or until their time is up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: dict[int, tuple[data_plane_pb2.FetchRequest, int, tuple[int, ...]]] = {}
        self._by_group: dict[int, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []

    @property
    def full(self) -> bool:
        """True when no further fetch may wait."""
        return len(self._requests) >= self._limit

    def park(
        self, request_id: int, request: data_plane_pb2.FetchRequest, deadline: int, groups: tuple[int, ...]
    ) -> None:
        """A fetch waits for any of ``groups``."""
        self._requests[request_id] = (request, deadline, groups)
        heapq.heappush(self._deadlines, (deadline, request_id))
        if len(self._deadlines) > SWEEP_ABOVE + 2 * len(self._requests):
            # Fetches answered early leave theirs behind: with a long wait those of minutes.
            self._deadlines = [(entry[1], number) for number, entry in self._requests.items()]
            heapq.heapify(self._deadlines)
        for group in groups:
            self._by_group.setdefault(group, {})[request_id] = None

    def take(self, request_id: int) -> tuple[data_plane_pb2.FetchRequest, int] | None:
        """Takes a fetch out: its request and deadline."""
        entry = self._requests.pop(request_id, None)
        if entry is None:
            return None
        request, deadline, groups = entry
        for group in groups:
            waiting = self._by_group[group]
            waiting.pop(request_id, None)
            if not waiting:
                del self._by_group[group]
        return request, deadline

    def waiting_for(self, group: int) -> tuple[int, ...]:
        """Request ids of the fetches that wait for a group."""
        return tuple(self._by_group.get(group, ()))

    def expired(self, now: int) -> Iterator[int]:
        """Request ids of the fetches whose time is up; to be taken out by the caller."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, request_id = heapq.heappop(self._deadlines)
            entry = self._requests.get(request_id)
            if entry is not None and entry[1] == deadline:
                yield request_id

    @property
    def next_deadline(self) -> int | None:
        """When the next fetch's time is up."""
        while self._deadlines and self._deadlines[0][1] not in self._requests:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def __len__(self) -> int:
        return len(self._requests)
