"""Many deadlines, most of which are postponed repeatedly before they pass.

Each deadline has one heap entry, however often it is moved: when the entry comes up too early, it is armed again. So a
heartbeat costs one assignment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import IntEnum


class Due(IntEnum):
    """A kind of deadline."""

    SESSION = 1  #: the session of a member expires
    ROUND = 2  #: a round of joins ends
    SYNC = 3  #: the time for members to sync ends
    NAME = 4  #: a client that was assigned an id has not joined with it
    CALL = 5  #: a call that waits must be answered


#: The kind of deadline, the group, and the member or call.
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
        """Removes a deadline."""
        self._due.pop(key, None)

    def take_due(self, now: int) -> Iterator[DeadlineKey]:
        """Yields the deadlines that have passed, each once."""
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
        """Time at which ``take_due`` may yield something."""
        while self._heap and (
            self._armed.get(self._heap[0][1]) != self._heap[0][0] or self._heap[0][1] not in self._due
        ):
            armed, key = heapq.heappop(self._heap)
            if self._armed.get(key) == armed:
                del self._armed[key]
        return self._heap[0][0] if self._heap else None
