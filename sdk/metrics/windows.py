"""Counts and times as Kafka's clients show them: in all, and of late.

*Of late* is the window under way and the one before it, of 30 s each (Kafka's ``metrics.num.samples`` and
``metrics.sample.window.ms``). Each figure has one thread that writes it. Any thread may read: reading changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds.
WINDOW_S = 30.0


@dataclass(slots=True)
class _Window:
    """What happened in one window: how often, how much in all, how much at most."""

    began_s: float
    times: int = 0
    amount: float = 0.0
    most: float = 0.0


class Measure:
    """Amounts that come now and then: records of a batch, bytes of a request, seconds of an answer.

    Arguments:
        now_s: monotonic seconds, as in every method.

    Attributes:
        times: how often, since the client was made.
        total: the sum of the amounts, since then.
    """

    __slots__ = ("_before", "_current", "times", "total")

    def __init__(self, now_s: float) -> None:
        self.times = 0
        self.total = 0.0
        self._current = _Window(now_s)
        self._before: _Window | None = None

    def add(self, amount: float, now_s: float) -> None:
        """One more."""
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
        """Amount per second of late. A window that has hardly begun counts as a whole one, like Kafka's: one batch in
        the first millisecond is no rate of thousands."""
        windows = self._recent(now_s)
        if not windows:
            return 0.0
        return sum(each.amount for each in windows) / max(now_s - windows[0].began_s, WINDOW_S)

    def average(self, now_s: float) -> float:
        """The average amount of late; NaN if there was none."""
        windows = self._recent(now_s)
        times = sum(each.times for each in windows)
        return sum(each.amount for each in windows) / times if times else float("nan")

    def most(self, now_s: float) -> float:
        """The largest amount of late; NaN if there was none."""
        return max((each.most for each in self._recent(now_s) if each.times), default=float("nan"))

    def _recent(self, now_s: float) -> list[_Window]:
        """The windows that are not over for long, the older one first."""
        windows = [each for each in (self._before, self._current) if each is not None]
        return [each for each in windows if now_s < each.began_s + 2 * WINDOW_S]
