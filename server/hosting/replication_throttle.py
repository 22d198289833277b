"""Rate limit on log copies from this node to replicas that are being added to a partition and do not count yet.

Only learners are throttled. A voter that is behind is brought up to date at full speed: the next failure may need it.
Copies with the same limit share it, and a node may have an additional limit for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

#: Approximate size of a throttled message in bytes: between two of them, other traffic on the connection gets its turn.
PACED_BYTES = 256 << 10


class ReplicationThrottle:
    """Decides when the next bytes of copies may be sent.

    Arguments:
        node_bytes_per_second: limit for all copies from this node together; 0: no limit.

    Attributes:
        throttle_of: the limit of a group's copies, in bytes per second; 0: no limit of their own; None: never
            throttled.
        held_until: when the first of the copies that were held back may be sent (µs); None if none was.
        snapshots_first: True if slices of snapshots go before entries when both wait.
    """

    def __init__(self, node_bytes_per_second: int) -> None:
        self._node_rate = node_bytes_per_second
        self._free_at: dict[int, int] = {}
        self.throttle_of: Callable[[int], int | None] = lambda group: None
        self.held_until: int | None = None
        self.snapshots_first = False

    def begin(self, now: int) -> None:
        """Prepares for a series of ``holds`` calls: resets ``held_until`` and removes expired entries."""
        self.held_until = None
        if self._free_at:
            self._free_at = {rate: free_at for rate, free_at in self._free_at.items() if free_at > now}

    def limit_node(self, bytes_per_second: int) -> None:
        """Changes the limit for all copies from this node together; 0: no limit."""
        self._node_rate = bytes_per_second

    @property
    def is_busy(self) -> bool:
        """True if a part of a copy was sent a moment ago, so that others wait."""
        return bool(self._free_at)

    def holds(self, now: int, group: int) -> bool:
        """True if a copy of a group must wait."""
        free_at = max((self._free_at.get(rate, 0) for rate in self._rates(group)), default=0)
        if free_at <= now:
            return False
        self.held_until = free_at if self.held_until is None else min(self.held_until, free_at)
        return True

    def sent(self, now: int, group: int, size_bytes: int) -> None:
        """Charges a part of a copy that is sent: the next one waits until this one's time at the limit has passed."""
        for rate in self._rates(group):
            free_at = max(self._free_at.get(rate, 0), now)
            self._free_at[rate] = free_at + size_bytes * 1_000_000 // rate
        self.snapshots_first = not self.snapshots_first

    def is_paced(self, group: int) -> bool:
        """True if copies of a group have a limit."""
        return bool(self._rates(group))

    def _rates(self, group: int) -> tuple[int, ...]:
        own = self.throttle_of(group)
        if own is None:
            return ()
        return tuple({rate for rate in (own, self._node_rate) if rate})
