"""Selection of the leaderships that a node returns to the preferred leaders, and the time of their return.

While a node is down, others lead its partitions. Once it is back and caught up, each leader transfers the leaderships
that the returned node should have, a few at a time. Pure: the caller passes the partitions that this node leads instead
of their preferred leaders, and gets those to transfer now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from quorumlog.server.config.options import BalanceOptions

#: Interval between checks while a transfer is about to start (µs).
LOOK_AGAIN_US = 200_000
#: Maximum wait before another transfer of the same partition, in check intervals; it doubles up to this.
LONGEST_BACKOFF = 64


class Displaced(NamedTuple):
    """A partition that this node leads instead of its preferred leader.

    Arguments:
        group: the partition's Raft group.
        preferred: the node that should lead it.
        connected_at: time since when it has been connected (µs).
        able: True if that node could lead: unfenced, in sync, connected.
        caught_up: True if it replicates, and has all that is committed.
        transferring: True if a transfer is in progress already.
    """

    group: int
    preferred: int
    connected_at: int
    able: bool
    caught_up: bool
    transferring: bool


class _HandOver(NamedTuple):
    """The last transfer of a partition. The next one is not before ``not_before``; it is forgotten ``delay`` after
    that."""

    not_before: int
    delay: int


class LeaderBalance:
    """Paces the return of leaderships.

    Every transfer of a partition, also a successful one, delays the next one of the same partition, each time twice as
    long until no transfer was needed for that time. Otherwise a node that takes over but cannot keep the leadership,
    for example because its disk fails, would get it back endlessly, and the partition would be unavailable each time.

    Attributes:
        next_deadline: time at which ``choose`` is due (µs).
    """

    def __init__(self, options: BalanceOptions, now: int) -> None:
        self._options = options
        self._able_since: dict[int, int] = {}
        self._attempts: dict[int, _HandOver] = {}
        self._asked: dict[int, None] = {}
        self.next_deadline = now + options.check_interval_us

    def check_every(self, now: int, interval_us: int) -> None:
        """Changes the check interval, from now on."""
        self._options = replace(self._options, check_interval_us=interval_us)
        self.next_deadline = min(self.next_deadline, now + interval_us)

    def ask(self, now: int, raft_groups: Iterable[int]) -> None:
        """Requests transfers now, whatever was tried before, and also if balancing is off."""
        self._asked.update(dict.fromkeys(raft_groups))
        self.next_deadline = now

    def forget(self, group: int) -> None:
        """Forgets the request for a transfer."""
        self._asked.pop(group, None)

    def is_asked(self, group: int) -> bool:
        """True if a transfer was requested and has not been started."""
        return group in self._asked

    def choose(self, now: int, displaced: Sequence[Displaced]) -> list[Displaced]:
        """Returns the transfers to start now, out of all partitions that this node leads instead of their preferred
        leaders."""
        options = self._options
        self._attempts = {
            group: attempt for group, attempt in self._attempts.items() if now < attempt.not_before + attempt.delay
        }
        self._able_since = {
            each.group: max(self._able_since.get(each.group, now), each.connected_at) for each in displaced if each.able
        }
        due = [each for each in displaced if not each.transferring and each.able and self._is_due(now, each.group)]
        under_way = sum(each.transferring for each in displaced)
        # Requested ones come first. A node that is behind for a moment is checked again soon.
        ready = sorted((each for each in due if each.caught_up), key=lambda each: each.group not in self._asked)
        chosen = ready[: max(0, options.max_transfers - under_way)]
        for each in chosen:
            self._asked.pop(each.group, None)
            self._attempts[each.group] = self._next_attempt(now, each.group)
        if due or under_way:
            self.next_deadline = now + LOOK_AGAIN_US
        elif self._able_since and options.enabled:
            self.next_deadline = now + min(options.grace_us, options.check_interval_us)
        else:
            self.next_deadline = now + options.check_interval_us
        return chosen

    def _is_due(self, now: int, group: int) -> bool:
        if group in self._asked:
            return True
        attempt = self._attempts.get(group)
        return (
            self._options.enabled
            and now - self._able_since[group] >= self._options.grace_us
            and (attempt is None or now >= attempt.not_before)
        )

    def _next_attempt(self, now: int, group: int) -> _HandOver:
        interval = self._options.check_interval_us
        before = self._attempts.get(group)
        delay = interval if before is None else min(2 * before.delay, LONGEST_BACKOFF * interval)
        return _HandOver(now + delay, delay)
