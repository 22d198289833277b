"""Session timeouts and rebalance timeouts of members.

Each member has one heap entry, however often it sends heartbeats: when the entry comes up, it is armed again for what
is due then. So a heartbeat costs one assignment, and a silent member costs nothing until its timeout.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.server.groups.member import UNREVOKED, GroupMember


@dataclass(slots=True)
class _WatchedMember:
    """A member. Times in µs.

    Arguments:
        session_us: time without a heartbeat after which it counts as dead.
        heard: time of its last heartbeat.
        revoking_epoch: the epoch in which it has to release partitions; None while it has none to release. Each time
            has an epoch of its own.
        rebalance_due: deadline for that.
        armed: time of its entry in the heap.
    """

    session_us: int
    heard: int
    revoking_epoch: int | None = None
    rebalance_due: int = 0
    armed: int = 0

    @property
    def due(self) -> int:
        session = self.heard + self.session_us
        return session if self.revoking_epoch is None else min(session, self.rebalance_due)


class MemberTimers:
    """The deadlines of the members of many consumer groups."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], _WatchedMember] = {}
        self._heap: list[tuple[int, str, str]] = []

    def __len__(self) -> int:
        return len(self._watches)

    def track(self, now: int, group_id: str, member: GroupMember) -> None:
        """Tracks a new member, or follows a change of one."""
        key = (group_id, member.member_id)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _WatchedMember(member.session_timeout_ms * 1000, now)
        watch.session_us = member.session_timeout_ms * 1000
        epoch = member.member_epoch if member.state == UNREVOKED else None
        if epoch is not None and epoch != watch.revoking_epoch:
            watch.rebalance_due = now + member.rebalance_timeout_ms * 1000
        watch.revoking_epoch = epoch
        self._arm(key, watch)

    def heard(self, now: int, group_id: str, member_id: str) -> None:
        """Records a heartbeat of a member."""
        watch = self._watches.get((group_id, member_id))
        if watch is not None:
            watch.heard = now

    def forget(self, group_id: str, member_id: str) -> None:
        """Stops tracking a member."""
        self._watches.pop((group_id, member_id), None)

    def _arm(self, key: tuple[str, str], watch: _WatchedMember) -> None:
        if not watch.armed or watch.due < watch.armed:
            watch.armed = watch.due
            heapq.heappush(self._heap, (watch.armed, *key))

    def take_due(self, now: int) -> Iterator[tuple[str, str, int | None]]:
        """Yields members whose timeout has passed: the group, the member, and the epoch in which it should have
        released partitions; None for an expired session.

        Each is armed again for the same time, in case no decision is made on it.
        """
        while self._heap and self._heap[0][0] <= now:
            armed, group_id, member_id = heapq.heappop(self._heap)
            watch = self._watches.get((group_id, member_id))
            if watch is None or watch.armed != armed:
                continue
            watch.armed = 0
            if watch.heard + watch.session_us <= now:
                watch.heard = now
                yield group_id, member_id, None
            elif watch.revoking_epoch is not None and watch.rebalance_due <= now:
                watch.rebalance_due = now + watch.session_us
                yield group_id, member_id, watch.revoking_epoch
            self._arm((group_id, member_id), watch)

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``take_due`` may yield something."""
        return self._heap[0][0] if self._heap else None
