"""How fast copies of logs leave this node: replicas that are added to a partition, and count for nothing yet.

Only learners are paced. A voter that is behind gets what it lacks as fast as it goes: the next failure may need it.
Copies with the same limit share it, and a node may have a limit of its own over all of them.
"""

from __future__ import annotations

from collections.abc import Callable

#: Bytes of a paced message, about: between two of them whatever else shares the wire gets its turn.
PACED_BYTES = 256 << 10


class ReplicationThrottle:
    """When the next bytes of copies may leave.

    Arguments:
        node_bytes_per_second: that all copies from this node may take together; 0: no limit.

    Attributes:
        throttle_of: the limit of a group's copies, in bytes per second; 0: none of their own; None: never paced.
        held_until: when the first of those that were held back may leave (µs); None if none was.
        snapshots_first: whose turn it is when both slices of snapshots and entries wait.
    """

    def __init__(self, node_bytes_per_second: int) -> None:
        self._node_rate = node_bytes_per_second
        self._free_at: dict[int, int] = {}
        self.throttle_of: Callable[[int], int | None] = lambda group: None
        self.held_until: int | None = None
        self.snapshots_first = False

    def begin(self, now: int) -> None:
        """It is about to be asked what may leave now."""
        self.held_until = None
        if self._free_at:
            self._free_at = {rate: free_at for rate, free_at in self._free_at.items() if free_at > now}

    @property
    def is_busy(self) -> bool:
        """Whether a part of a copy left a moment ago, so that others wait."""
        return bool(self._free_at)

    def holds(self, now: int, group: int) -> bool:
        """Whether a copy of a group must wait."""
        free_at = max((self._free_at.get(rate, 0) for rate in self._rates(group)), default=0)
        if free_at <= now:
            return False
        self.held_until = free_at if self.held_until is None else min(self.held_until, free_at)
        return True

    def sent(self, now: int, group: int, size_bytes: int) -> None:
        """A part of a copy leaves: the next one waits as long as this one may take."""
        for rate in self._rates(group):
            free_at = max(self._free_at.get(rate, 0), now)
            self._free_at[rate] = free_at + size_bytes * 1_000_000 // rate
        self.snapshots_first = not self.snapshots_first

    def is_paced(self, group: int) -> bool:
        """Whether copies of a group have a limit."""
        return bool(self._rates(group))

    def _rates(self, group: int) -> tuple[int, ...]:
        own = self.throttle_of(group)
        if own is None:
            return ()
        return tuple({rate for rate in (own, self._node_rate) if rate})
