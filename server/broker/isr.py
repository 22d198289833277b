"""Which replicas of a partition are in sync, as its leader sees it. This never enters the commit rule.

A replica is in sync while its log held, at some moment within the last ``replica.lag.time.max.ms``, everything that the
leader's log held at that moment (Kafka's rule, KIP-16).
"""

from __future__ import annotations

from collections.abc import Mapping


class IsrTracker:
    """Follows the followers of one led partition.

    Arguments:
        now: when the leadership began (µs).
        in_sync: the members of the ISR then; they are given the benefit of the doubt for one lag time.
    """

    __slots__ = ("_caught_up_at", "_mark_at", "_mark_index")

    def __init__(self, now: int, in_sync: tuple[int, ...]) -> None:
        self._caught_up_at = dict.fromkeys(in_sync, now)
        self._mark_index: int | None = None
        self._mark_at = now

    def check(
        self, now: int, last_index: int, matches: Mapping[int, int], isr: tuple[int, ...], lag_time_max_us: int
    ) -> set[int]:
        """The followers that belong into the ISR now.

        Arguments:
            last_index: the leader's last index.
            matches: follower -> last index known durable on it.
            isr: the current ISR. Its members stay until they lag; others join once they are caught up.
        """
        members = set()
        for node, match in matches.items():
            caught_up = match >= last_index or (self._mark_index is not None and match >= self._mark_index)
            if caught_up:
                self._caught_up_at[node] = now if match >= last_index else self._mark_at
            # A member may lag for a while; a node that wants to join must be caught up now.
            recently = now - self._caught_up_at.get(node, now - lag_time_max_us - 1) <= lag_time_max_us
            if caught_up or (node in isr and recently):
                members.add(node)
        self._mark_index, self._mark_at = last_index, now
        return members
