"""Calls that wait for a reply: each is removed once, when it is answered, abandoned or expired."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

#: Number of deadlines beyond twice the pending ones at which stale deadlines are removed.
SWEEP_ABOVE = 1_024


class TimedCall(Protocol):
    """A call with a deadline (µs) and a number that is unique among the pending calls. Neither changes."""

    @property
    def request_id(self) -> int:
        """The call's number."""

    @property
    def deadline(self) -> int:
        """The time by which the call is answered."""


CallT = TypeVar("CallT", bound=TimedCall)


class CallDeadlines(Protocol):
    """Deadlines of a set of pending calls, read in every step.

    Usually there are no calls, so ``deadlines`` is checked first: it is empty then.
    """

    deadlines: list[tuple[int, int]]

    @property
    def next_deadline(self) -> int | None:
        """The deadline of the next call to expire."""


class PendingCalls(Generic[CallT]):
    """Pending calls by number, in order of arrival. The owner decides what an expired call is answered.

    Arguments:
        limit: maximum number of pending calls; the caller checks ``full`` before it adds one.

    Attributes:
        deadlines: a heap of (deadline, number); it may still contain calls that were removed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[int, CallT] = {}
        self.deadlines: list[tuple[int, int]] = []

    @property
    def full(self) -> bool:
        """True if no further call may be added."""
        return len(self._calls) >= self._limit

    def add(self, call: CallT) -> None:
        """Adds a call."""
        # A call that replaced another with the same number would leave that one without a reply forever.
        assert call.request_id not in self._calls, f"call {call.request_id} is already pending"
        self._calls[call.request_id] = call
        heapq.heappush(self.deadlines, (call.deadline, call.request_id))
        if len(self.deadlines) > SWEEP_ABOVE + 2 * len(self._calls):
            # Calls answered early leave their deadlines behind: with a long timeout, those of several minutes.
            self.deadlines = [(each.deadline, number) for number, each in self._calls.items()]
            heapq.heapify(self.deadlines)

    def get(self, request_id: int) -> CallT | None:
        """Returns the pending call with this number, or None."""
        return self._calls.get(request_id)

    def take(self, request_id: int) -> CallT | None:
        """Removes and returns a call; None if it is no longer pending."""
        return self._calls.pop(request_id, None)

    def take_expired(self, now: int) -> Iterable[CallT]:
        """Removes and yields the calls whose deadline has passed, earliest first."""
        # This runs in every step of a node, and usually no call has expired.
        return self._each_expired(now) if self.deadlines and self.deadlines[0][0] <= now else ()

    def _each_expired(self, now: int) -> Iterator[CallT]:
        while self.deadlines and self.deadlines[0][0] <= now:
            call = self._calls.pop(heapq.heappop(self.deadlines)[1], None)
            if call is not None:
                yield call

    @property
    def next_deadline(self) -> int | None:
        """The deadline of the next call to expire; None if no call is pending."""
        while self.deadlines and self.deadlines[0][1] not in self._calls:
            heapq.heappop(self.deadlines)
        return self.deadlines[0][0] if self.deadlines else None

    def __iter__(self) -> Iterator[CallT]:
        """Iterates over a copy of the pending calls, so that calls can be removed during the iteration."""
        return iter(list(self._calls.values()))

    def __len__(self) -> int:
        return len(self._calls)
