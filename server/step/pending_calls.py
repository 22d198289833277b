"""Calls that wait for an answer: each is taken out once, when it is answered, abandoned, or its time is up."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

#: Deadlines beyond twice those awaited at which the others are thrown out.
SWEEP_ABOVE = 1_024


class TimedCall(Protocol):
    """A call with a number, unique among those that wait together, and a deadline (µs). Neither changes."""

    @property
    def request_id(self) -> int:
        """Its number."""

    @property
    def deadline(self) -> int:
        """When it is answered at the latest."""


CallT = TypeVar("CallT", bound=TimedCall)


class CallDeadlines(Protocol):
    """What is asked in every step of all the calls that wait somewhere: mostly there are none, and ``deadlines``, which
    is looked at first, is empty."""

    deadlines: list[tuple[int, int]]

    @property
    def next_deadline(self) -> int | None:
        """When the next call's time is up."""


class PendingCalls(Generic[CallT]):
    """Calls by their number, in the order in which they came. What a call hears when its time is up is its user's part.

    Arguments:
        limit: calls that may wait; whoever adds one looks at ``full`` before.

    Attributes:
        deadlines: a heap of deadlines with the calls' numbers; those of calls that were taken out may still be there.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: dict[int, CallT] = {}
        self.deadlines: list[tuple[int, int]] = []

    @property
    def full(self) -> bool:
        """True when no further call may wait."""
        return len(self._calls) >= self._limit

    def add(self, call: CallT) -> None:
        """A call begins to wait."""
        # A call that took the place of another would leave that one without an answer for good.
        assert call.request_id not in self._calls, f"call {call.request_id} waits already"
        self._calls[call.request_id] = call
        heapq.heappush(self.deadlines, (call.deadline, call.request_id))
        if len(self.deadlines) > SWEEP_ABOVE + 2 * len(self._calls):
            # Calls answered early leave theirs behind: with a long time-out those of minutes.
            self.deadlines = [(each.deadline, number) for number, each in self._calls.items()]
            heapq.heapify(self.deadlines)

    def get(self, request_id: int) -> CallT | None:
        """A call that waits, by its number."""
        return self._calls.get(request_id)

    def take(self, request_id: int) -> CallT | None:
        """Takes a call out; None when it does not wait any more."""
        return self._calls.pop(request_id, None)

    def take_expired(self, now: int) -> Iterable[CallT]:
        """Takes out the calls whose time is up, the earliest first."""
        # Asked in every step of a node, and mostly there is none.
        return self._each_expired(now) if self.deadlines and self.deadlines[0][0] <= now else ()

    def _each_expired(self, now: int) -> Iterator[CallT]:
        while self.deadlines and self.deadlines[0][0] <= now:
            call = self._calls.pop(heapq.heappop(self.deadlines)[1], None)
            if call is not None:
                yield call

    @property
    def next_deadline(self) -> int | None:
        """When the next call's time is up."""
        while self.deadlines and self.deadlines[0][1] not in self._calls:
            heapq.heappop(self.deadlines)
        return self.deadlines[0][0] if self.deadlines else None

    def __iter__(self) -> Iterator[CallT]:
        """The calls that wait as of now: they may be taken out meanwhile."""
        return iter(list(self._calls.values()))

    def __len__(self) -> int:
        return len(self._calls)
