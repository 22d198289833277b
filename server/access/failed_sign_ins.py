"""Delays after wrong passwords and rejected tokens.

Delays grow with consecutive failures of one user from one address, up to half a minute. Those of a user from all
addresses, and of an address for all users, stay short: distributed guessing is slowed down, but no client is locked out
by another that fails with its name, or from its address. The memory is bounded, and failures expire.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: Failures are forgotten after this time without another one (µs).
FORGOTTEN_AFTER_US = 15 * 60 * 1_000_000
#: Maximum number of remembered pairs of user and address, of users, and of addresses. Beyond it those whose last
#: failure is the oldest are forgotten.
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Failures:
    """Consecutive failures of one key.

    Arguments:
        last_us: when the last failure happened.
        until_us: no attempt is allowed before this time.
    """

    count: int
    last_us: int
    until_us: int


class _Pace:
    """Delays for one kind of key.

    Arguments:
        free: number of failures without a delay.
        first_us: the first delay; each further one is twice as long.
        longest_us: maximum delay.
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
            # After some twenty doublings every delay is the maximum.
            doublings = min(known.count - self._free - 1, 20)
            known.until_us = now + min(self._longest_us, self._first_us << doublings)
        self._known[key] = known
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


class FailedSignIns:
    """Remembers failures and computes delays."""

    def __init__(self) -> None:
        self._pairs = _Pace(free=3, first_us=500_000, longest_us=30_000_000)
        self._users = _Pace(free=10, first_us=100_000, longest_us=1_000_000)
        self._hosts = _Pace(free=20, first_us=100_000, longest_us=1_000_000)

    def __len__(self) -> int:
        return len(self._pairs) + len(self._users) + len(self._hosts)

    def wait_us(self, now: int, user: str, host: str) -> int:
        """Returns how long a user at an address has to wait before the next attempt (µs); 0: not at all.

        Arguments:
            now: microseconds on the node's clock.
            user: the given name, whether or not the user exists.
        """
        return max(
            self._pairs.wait_us(now, _pair(user, host)),
            self._users.wait_us(now, user),
            self._hosts.wait_us(now, host),
        )

    def failed(self, now: int, user: str, host: str) -> None:
        """Records a failed attempt."""
        self._pairs.failed(now, _pair(user, host))
        self._users.failed(now, user)
        self._hosts.failed(now, host)

    def succeeded(self, user: str, host: str) -> None:
        """Records a successful attempt. Failures of others with the user's name, or from the address, are kept."""
        self._pairs.forget(_pair(user, host))


def _pair(user: str, host: str) -> str:
    return f"{host} {user}"
