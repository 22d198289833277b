"""Counters and timers as in Kafka's clients: in total, and recent.

*Recent* is the current window and the one before it, of 30 s each (Kafka's ``metrics.num.samples`` and
``metrics.sample.window.ms``). Each measure has one thread that writes it. Any thread may read: reading changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds.
WINDOW_S = 30.0


@dataclass(slots=True)
class _Window:
    """Events of one window: their number, the sum and the maximum of their amounts."""

    began_s: float
    times: int = 0
    amount: float = 0.0
    most: float = 0.0


class Measure:
    """A series of amounts: records of a batch, bytes of a request, milliseconds of a response.

    Arguments:
        now_s: monotonic seconds, as in every method.

    Attributes:
        times: number of amounts since the client was created.
        total: their sum since then.
    """

    __slots__ = ("_before", "_current", "times", "total")

    def __init__(self, now_s: float) -> None:
        self.times = 0
        self.total = 0.0
        self._current = _Window(now_s)
        self._before: _Window | None = None

    def add(self, amount: float, now_s: float) -> None:
        """Adds one amount."""
        current = self._current
        if now_s >= current.began_s + WINDOW_S:
            late = now_s >= current.began_s + 2 * WINDOW_S
            self._before = None if late else current
            current = self._current = _Window(now_s)
        self.times += 1
        self.total += amount
        current.times += 1
        current.amount += amount
        current.most = max(current.most, amount)

    def rate(self, now_s: float) -> float:
        """Returns the recent amount per second.

        A window that has just started counts as a whole one, as in Kafka: one batch in the first millisecond is not a
        rate of thousands.
        """
        windows = self._recent(now_s)
        if not windows:
            return 0.0
        return sum(each.amount for each in windows) / max(now_s - windows[0].began_s, WINDOW_S)

    def average(self, now_s: float) -> float:
        """Returns the recent average amount; NaN if there was none."""
        windows = self._recent(now_s)
        times = sum(each.times for each in windows)
        return sum(each.amount for each in windows) / times if times else float("nan")

    def most(self, now_s: float) -> float:
        """Returns the largest recent amount; NaN if there was none."""
        return max((each.most for each in self._recent(now_s) if each.times), default=float("nan"))

    def _recent(self, now_s: float) -> list[_Window]:
        """Returns the recent windows, the older one first."""
        windows = [each for each in (self._before, self._current) if each is not None]
        return [each for each in windows if now_s < each.began_s + 2 * WINDOW_S]
