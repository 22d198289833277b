"""Detects stalls of the machine itself, so that they are not attributed to the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

_TICK_S = 0.05
#: A tick that is later than this is not the cluster's fault (µs).
STALL_US = 250_000


class Watchdog:
    """Ticks in a thread of its own between ``__enter__`` and ``__exit__``; late ticks are stalls.

    Arguments:
        now_us: the clock of the run.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._stalls: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def stalls_between(self, first_us: int, last_us: int) -> int:
        """Returns the number of stalls that overlap a period."""
        return sum(1 for begin, end in self._stalls if begin <= last_us and end >= first_us)

    def _watch(self) -> None:
        before = self._now_us()
        while not self._over.wait(_TICK_S):
            now = self._now_us()
            if now - before > STALL_US + int(_TICK_S * 1_000_000):
                self._stalls.append((before, now))
            before = now
