"""Time in which somebody could have been heard."""

from __future__ import annotations

#: A node steps at every heartbeat of its own at least. When this much time, and so many intervals, lie between two
#: steps, it stood still.
STANDSTILL_US = 500_000
STANDSTILL_INTERVALS = 5


class AwakeClock:
    """A clock that stops while the node itself stands still.

    A process that was stopped, or got no processor, did not hear anybody, and its silence is not theirs: by this clock
    sessions are as old as the time in which heartbeats could have been taken. Otherwise a coordinator that wakes up
    would throw out every member of its consumer groups.

    Arguments:
        interval_us: between two steps of a node that has nothing to do.

    Attributes:
        now: the node's clock (µs).
        awake_us: this clock (µs).
        wall_ms: milliseconds since the epoch.
        stood_still: whether the node did until this step.
    """

    def __init__(self, now: int, interval_us: int) -> None:
        self._standstill_us = max(STANDSTILL_US, STANDSTILL_INTERVALS * interval_us)
        self.now = self.awake_us = now
        self.wall_ms = 0
        self.stood_still = False

    def step(self, now: int, wall_ms: int) -> None:
        """A step of the node begins."""
        passed = now - self.now
        self.stood_still = passed >= self._standstill_us
        self.awake_us += 0 if self.stood_still else passed
        self.now, self.wall_ms = now, wall_ms

    def due(self, awake_us: int) -> int:
        """When this clock will show that time, on the node's clock."""
        return self.now + awake_us - self.awake_us
