"""Virtual time: a heap of (microseconds, sequence number, action), and the hash of all events.

Nothing in a simulation reads a clock or the global random generator; two runs of one seed therefore do the same things
in the same order, and their traces have the same hash.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from hashlib import blake2b


class Timer:
    """An action that will run, unless it is cancelled."""

    __slots__ = ("action", "when")

    def __init__(self, when: int, action: Callable[[], None]) -> None:
        self.when = when
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancels the action. Cancelling twice, or afterwards, has no effect."""
        self.action = None


class Scheduler:
    """The simulation's clock.

    Arguments:
        seed: every random stream of the simulation is derived from it.

    ``listener`` receives the time and the text of every trace line.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.executed = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Timer]] = []
        self._trace = blake2b(digest_size=16)
        self.listener: Callable[[int, str], None] | None = None

    def stream(self, name: str) -> random.Random:
        """Returns a separate random generator for one part, so that one part's draws do not affect another's."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, when: int, action: Callable[[], None]) -> Timer:
        """Runs ``action`` at ``when`` (µs); if that has passed, now, after all actions that are already due."""
        timer = Timer(max(when, self.now), action)
        self._sequence += 1
        heapq.heappush(self._heap, (timer.when, self._sequence, timer))
        return timer

    def after(self, delay: int, action: Callable[[], None]) -> Timer:
        """Runs ``action`` in ``delay`` µs."""
        return self.at(self.now + delay, action)

    def run(self, until: int, stop: Callable[[], bool] | None = None) -> bool:
        """Runs actions up to ``until``, or until ``stop`` returns True (called after each action).

        Returns:
            True if ``stop`` ended it.
        """
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            when, _, timer = pop(heap)
            action = timer.action
            if action is None:
                continue
            assert when >= self.now, "time went back"
            self.now = when
            self.executed += 1
            timer.action = None
            action()
            if stop is not None and stop():
                return True
        self.now = max(self.now, until)
        return False

    def trace(self, text: str) -> None:
        """Adds an event to the trace."""
        self._trace.update(f"{self.now} {text}\n".encode())
        if self.listener is not None:
            self.listener(self.now, text)

    def trace_hash(self) -> str:
        """Returns the hash of everything traced so far."""
        return self._trace.hexdigest()
