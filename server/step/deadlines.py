"""Deadlines of a node's parts, and how long a client's request may wait."""

from __future__ import annotations

#: The wait of a request without a timeout, and the longest of any (µs).
DEFAULT_WAIT_US = 30_000_000
MAX_WAIT_US = 300_000_000


def earlier(one: int | None, other: int | None) -> int | None:
    """Returns the earlier of two deadlines (µs); None is the deadline of a part that waits for no time.

    A node asks all of its parts in every step, so a part that has nothing under way must answer at almost no cost.
    """
    if one is None:
        return other
    return one if other is None or one <= other else other


def wait_us(timeout_ms: int) -> int:
    """Returns how long a request may take, in microseconds; with a timeout of 0 the node decides."""
    return min(timeout_ms * 1000, MAX_WAIT_US) if timeout_ms else DEFAULT_WAIT_US
