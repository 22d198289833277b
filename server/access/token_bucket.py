"""One limit per second: a bucket that fills at that rate, and takes debt."""

from __future__ import annotations

import math

#: What a full bucket holds, in seconds of its rate: so much may come at once.
BURST_S = 1
_SECOND_US = 1_000_000


class TokenBucket:
    """Tokens that come at a rate, up to a burst of them.

    Whoever finds no debt takes what they need, be it more than there is: a request is larger than a bucket, or not
    known before it is answered. Whoever comes next waits until the debt is paid. So no more passes from one moment to
    another than the rate gives in that time, one burst, and what was taken last (KIP-599).

    Arguments:
        rate: tokens per second, above 0.
        now: microseconds on the node's clock. The bucket is full.
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
        """From now on tokens come at another rate. A debt stays."""
        self._fill(now)
        self._rate = rate
        self._balance = min(self._balance, self.burst)

    def take(self, now: int, amount: float) -> None:
        """Takes tokens, whether there are as many or not."""
        self._fill(now)
        self._balance -= amount

    def wait_us(self, now: int) -> int:
        """How long until there is no debt any more, in microseconds, rounded up."""
        self._fill(now)
        return 0 if self._balance >= 0 else math.ceil(-self._balance / self._rate * _SECOND_US)

    def is_full(self, now: int) -> bool:
        """Whether it is as one that nobody has taken from: nothing is lost with it."""
        self._fill(now)
        return self._balance >= self.burst

    def _fill(self, now: int) -> None:
        if now > self._at:
            self._balance = min(self.burst, self._balance + (now - self._at) * self._rate / _SECOND_US)
            self._at = now
