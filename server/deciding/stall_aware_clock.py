"""A clock that stops while the process is suspended."""

from __future__ import annotations

#: A node steps at least at every heartbeat of its own. If two steps are this much time, and this many intervals, apart,
#: it was stalled.
STANDSTILL_US = 500_000
STANDSTILL_INTERVALS = 5


class AwakeClock:
    """A clock that stops while the node itself is stalled.

    A process that was suspended, or got no CPU time, received no heartbeats, so its members were not silent: by this
    clock sessions are as old as the time in which heartbeats could have been received. Otherwise a coordinator that
    resumes would remove every member of its consumer groups.

    Arguments:
        interval_us: interval between two steps of an idle node.

    Attributes:
        now: the node's clock (µs).
        awake_us: this clock (µs).
        wall_ms: milliseconds since the epoch.
        stood_still: True if the node was stalled before this step.
    """

    def __init__(self, now: int, interval_us: int) -> None:
        self._standstill_us = max(STANDSTILL_US, STANDSTILL_INTERVALS * interval_us)
        self.now = self.awake_us = now
        self.wall_ms = 0
        self.stood_still = False

    def step(self, now: int, wall_ms: int) -> None:
        """Starts a step of the node."""
        passed = now - self.now
        self.stood_still = passed >= self._standstill_us
        self.awake_us += 0 if self.stood_still else passed
        self.now, self.wall_ms = now, wall_ms

    def due(self, awake_us: int) -> int:
        """Returns the time of the node's clock at which this clock will show the given time."""
        return self.now + awake_us - self.awake_us

    def at(self, now: int) -> int:
        """Returns what this clock will show at the given time of the node's clock, if the node is not stalled."""
        return self.awake_us + now - self.now
