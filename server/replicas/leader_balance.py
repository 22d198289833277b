"""Which leaderships a node gives back to the preferred leaders, and when.

After a node was down, others lead its partitions. Once it is back and caught up, each leader hands over what the
returned node should lead, a few at a time. Pure: the node says what it leads in another's place, this says what is to
be handed over now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quorumlog.server.config.options import BalanceOptions

#: How soon to look again while something is about to be handed over (µs).
LOOK_AGAIN_US = 200_000
#: The wait before the same partition is handed over once more doubles up to this many check intervals.
LONGEST_BACKOFF = 64


class Displaced(NamedTuple):
    """A partition that this node leads in the place of its preferred leader.

    Arguments:
        group: the partition's Raft group.
        preferred: the node that should lead it.
        connected_at: since when it has been connected (µs).
        able: that node could lead: unfenced, in sync, connected.
        caught_up: it replicates, and has all that is committed.
        transferring: it is being handed over already.
    """

    group: int
    preferred: int
    connected_at: int
    able: bool
    caught_up: bool
    transferring: bool


class _HandOver(NamedTuple):
    """The last handing over of a partition. Not again before ``not_before``; forgotten ``delay`` after that."""

    not_before: int
    delay: int


class LeaderBalance:
    """Paces the return of leaderships.

    Every handing over of a partition, also one that succeeded, puts off the next one of the same partition, each time
    twice as long until it has been quiet. Otherwise a node that takes over but cannot keep the leadership, say because
    its disk fails, gets it back for ever, and each time the partition stands still.

    Attributes:
        next_deadline: when ``choose`` is due (µs).
    """

    def __init__(self, options: BalanceOptions, now: int) -> None:
        self._options = options
        self._able_since: dict[int, int] = {}
        self._attempts: dict[int, _HandOver] = {}
        self._asked: dict[int, None] = {}
        self.next_deadline = now + options.check_interval_us

    def ask(self, now: int, raft_groups: Iterable[int]) -> None:
        """Somebody wants these handed over now, whatever was tried before, and also where balancing is off."""
        self._asked.update(dict.fromkeys(raft_groups))
        self.next_deadline = now

    def forget(self, group: int) -> None:
        """Nobody waits for that any more."""
        self._asked.pop(group, None)

    def is_asked(self, group: int) -> bool:
        """Whether it was asked for and has not been begun."""
        return group in self._asked

    def choose(self, now: int, displaced: Sequence[Displaced]) -> list[Displaced]:
        """What is to be handed over now, out of all that this node leads in another's place."""
        options = self._options
        self._attempts = {
            group: attempt for group, attempt in self._attempts.items() if now < attempt.not_before + attempt.delay
        }
        self._able_since = {
            each.group: max(self._able_since.get(each.group, now), each.connected_at) for each in displaced if each.able
        }
        due = [each for each in displaced if not each.transferring and each.able and self._is_due(now, each.group)]
        under_way = sum(each.transferring for each in displaced)
        # What was asked for goes first. A node that is behind for a moment is looked at again soon.
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
