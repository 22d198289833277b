"""One rate limit: a bucket that fills at the rate, and allows debt."""

from __future__ import annotations

import math

#: Capacity of a bucket, in seconds of its rate.
BURST_S = 1
_SECOND_US = 1_000_000


class TokenBucket:
    """Tokens that are added at a rate, up to a burst.

    A caller that finds no debt takes as much as it needs, even more than the bucket has: a request may be larger than a
    bucket, or its size may only be known when it is answered. The next caller waits until the debt is paid. So the
    total in any period is at most the rate times its length, plus one burst, plus the last amount taken (KIP-599).

    Arguments:
        rate: tokens per second, above 0.
        now: microseconds on the node's clock. The bucket starts full.
    """

    __slots__ = ("_at", "_balance", "_rate")

    def __init__(self, rate: float, now: int) -> None:
        self._rate = rate
        self._balance = rate * BURST_S
        self._at = now

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self._rate

    @property
    def burst(self) -> float:
        """Tokens in a full bucket."""
        return self._rate * BURST_S

    def change_rate(self, now: int, rate: float) -> None:
        """Changes the rate from now on. A debt is kept."""
        self._fill(now)
        self._rate = rate
        self._balance = min(self._balance, self.burst)

    def take(self, now: int, amount: float) -> None:
        """Takes tokens, even if that results in a debt."""
        self._fill(now)
        self._balance -= amount

    def wait_us(self, now: int) -> int:
        """Returns the time until the debt is paid, in microseconds, rounded up."""
        self._fill(now)
        return 0 if self._balance >= 0 else math.ceil(-self._balance / self._rate * _SECOND_US)

    def is_full(self, now: int) -> bool:
        """True if it is full, so that nothing is lost if it is dropped."""
        self._fill(now)
        return self._balance >= self.burst

    def _fill(self, now: int) -> None:
        if now > self._at:
            self._balance = min(self.burst, self._balance + (now - self._at) * self._rate / _SECOND_US)
            self._at = now
