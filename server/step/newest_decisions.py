"""Decisions on transactions that a leader has received, for a while: also those for which nothing was open.

What was enlisted at or before the newest decision of its producer is over, however late it arrives.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from quorumlog.wire.kafka.control import LogPlace

#: How long decisions are remembered: longer than a request to enlist may take (µs).
REMEMBERED_US = 60_000_000
#: How many of them are remembered.
MAX_REMEMBERED = 65_536

_NOWHERE = LogPlace(0, 0)
KeyT = TypeVar("KeyT", bound=Hashable)


class NewestDecisions(Generic[KeyT]):
    """The newest decision for each producer in a participant."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[KeyT, tuple[LogPlace, int]] = {}

    def newest(self, key: KeyT) -> LogPlace:
        """Returns the place of the newest decision; (0, 0) without any."""
        known = self._newest.get(key)
        return _NOWHERE if known is None else known[0]

    def remember(self, key: KeyT, decided: LogPlace, now: int) -> bool:
        """Remembers a decision for a minute; returns False if too many are remembered.

        Arguments:
            now: microseconds.
        """
        if len(self._newest) >= MAX_REMEMBERED and key not in self._newest:
            self._newest = {each: value for each, value in self._newest.items() if value[1] > now - REMEMBERED_US}
            if len(self._newest) >= MAX_REMEMBERED:
                return False
        self._newest[key] = (max(decided, self.newest(key)), now)
        return True

    def clear(self) -> None:
        """Forgets all decisions."""
        self._newest.clear()
