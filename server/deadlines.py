"""Deadlines of several parts of a node, put together. A node asks all of its parts in every step, so what has nothing
under way must answer for next to nothing."""

from __future__ import annotations


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two deadlines (µs); None is that of a part that waits for no time."""
    if one is None:
        return other
    return one if other is None or one <= other else other
