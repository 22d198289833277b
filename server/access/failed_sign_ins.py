"""Who has to wait after wrong passwords and tokens.

Waits grow with the failures in a row of one user from one address, up to half a minute. Those of a user from all
addresses, and of an address for all users, stay short: whoever guesses on many sides is slowed down, and nobody is
locked out by a stranger who fails in their name, or at the same address. What is remembered is bounded, and forgotten
after a while.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: After so long without a failure, failures are forgotten (µs).
FORGOTTEN_AFTER_US = 15 * 60 * 1_000_000
#: Users at addresses, users, and addresses that are remembered, each. Past it those whose last failure is the oldest
#: are forgotten.
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Failures:
    """Failures in a row.

    Arguments:
        last_us: when the last one was.
        until_us: before that, nobody tries again.
    """

    count: int
    last_us: int
    until_us: int


class _Pace:
    """Waits of one kind of key.

    Arguments:
        free: failures without a wait.
        first_us: the first wait; each further one is twice as long.
        longest_us: and never longer than this.
    """

    def __init__(self, free: int, first_us: int, longest_us: int) -> None:
        self._free = free
        self._first_us = first_us
        self._longest_us = longest_us
        self._known: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def wait_us(self, now: int, key: str) -> int:
        known = self._known.get(key)
        return 0 if known is None else max(0, known.until_us - now)

    def failed(self, now: int, key: str) -> None:
        known = self._known.pop(key, None)
        if known is None or now >= known.last_us + FORGOTTEN_AFTER_US:
            known = _Failures(0, now, now)
        known.count += 1
        known.last_us = now
        if known.count > self._free:
            # Past some twenty doublings every wait is the longest one.
            doublings = min(known.count - self._free - 1, 20)
            known.until_us = now + min(self._longest_us, self._first_us << doublings)
        self._known[key] = known
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


class FailedSignIns:
    """Remembers failures, and says who has to wait."""

    def __init__(self) -> None:
        self._pairs = _Pace(free=3, first_us=500_000, longest_us=30_000_000)
        self._users = _Pace(free=10, first_us=100_000, longest_us=1_000_000)
        self._hosts = _Pace(free=20, first_us=100_000, longest_us=1_000_000)

    def __len__(self) -> int:
        return len(self._pairs) + len(self._users) + len(self._hosts)

    def wait_us(self, now: int, user: str, host: str) -> int:
        """How long a user at an address has to wait before the next attempt; 0: not at all.

        Arguments:
            now: microseconds on the node's clock.
            user: the name that was given, whether or not there is such a user.
        """
        return max(
            self._pairs.wait_us(now, _pair(user, host)),
            self._users.wait_us(now, user),
            self._hosts.wait_us(now, host),
        )

    def failed(self, now: int, user: str, host: str) -> None:
        """An attempt was wrong."""
        self._pairs.failed(now, _pair(user, host))
        self._users.failed(now, user)
        self._hosts.failed(now, host)

    def succeeded(self, user: str, host: str) -> None:
        """An attempt was right. What others did in the user's name, or at the address, is not forgotten for it."""
        self._pairs.forget(_pair(user, host))


def _pair(user: str, host: str) -> str:
    return f"{host} {user}"
