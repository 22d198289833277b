"""Many deadlines, most of which move away again and again before they come.

One entry of a heap per deadline, however often it is moved: when it comes up too early, it is set anew. So a sign of
life costs one assignment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import IntEnum


class Due(IntEnum):
    """What is due."""

    SESSION = 1  #: a member has been silent for its session
    ROUND = 2  #: a round of joins has lasted as long as it may
    SYNC = 3  #: members have had their time to sync
    NAME = 4  #: who was given an id has not come back with it
    CALL = 5  #: a call that waits is to be answered


#: What is due, in which group, of which member or call.
DeadlineKey = tuple[Due, str, str]


class Deadlines:
    """Deadlines by key, in µs."""

    def __init__(self) -> None:
        self._due: dict[DeadlineKey, int] = {}
        self._armed: dict[DeadlineKey, int] = {}
        self._heap: list[tuple[int, DeadlineKey]] = []

    def __contains__(self, key: DeadlineKey) -> bool:
        return key in self._due

    def put(self, key: DeadlineKey, due: int) -> None:
        """Sets a deadline, or moves it."""
        self._due[key] = due
        armed = self._armed.get(key)
        if armed is None or due < armed:
            self._armed[key] = due
            heapq.heappush(self._heap, (due, key))

    def drop(self, key: DeadlineKey) -> None:
        """A deadline is none any more."""
        self._due.pop(key, None)

    def take_due(self, now: int) -> Iterator[DeadlineKey]:
        """Those that have come; each comes once."""
        while self._heap and self._heap[0][0] <= now:
            armed, key = heapq.heappop(self._heap)
            if self._armed.get(key) != armed:
                continue
            del self._armed[key]
            due = self._due.get(key)
            if due is not None and due <= now:
                del self._due[key]
                yield key
            elif due is not None:
                self.put(key, due)

    @property
    def next_deadline(self) -> int | None:
        """When ``take_due`` may have something."""
        while self._heap and (
            self._armed.get(self._heap[0][1]) != self._heap[0][0] or self._heap[0][1] not in self._due
        ):
            armed, key = heapq.heappop(self._heap)
            if self._armed.get(key) == armed:
                del self._armed[key]
        return self._heap[0][0] if self._heap else None
