"""Deadlines of a node's parts, and how long a client's request may wait."""

from __future__ import annotations

#: The wait for a request without a timeout, and the maximum for any request (µs).
DEFAULT_WAIT_US = 30_000_000
MAX_WAIT_US = 300_000_000


def earlier(one: int | None, other: int | None) -> int | None:
    """Returns the earlier of two deadlines (µs); None means no deadline.

    A node calls this for all of its parts in every step, so it must cost almost nothing for a part without work.
    """
    if one is None:
        return other
    return one if other is None or one <= other else other


def wait_us(timeout_ms: int) -> int:
    """Returns how long a request may take, in microseconds: at most MAX_WAIT_US, and DEFAULT_WAIT_US for a timeout
    of 0."""
    return min(timeout_ms * 1000, MAX_WAIT_US) if timeout_ms else DEFAULT_WAIT_US
