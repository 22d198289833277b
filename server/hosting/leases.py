"""Liveness of pairs of nodes, in place of heartbeats of every idle group.

Three times per election timeout each node tells each other one, in one small message for all groups, that it lives.
A follower's idle group sleeps on its leader's word for as long as that lease stands, and a leader's for as long as its
followers answer. The lease names the sender's boot id and an epoch that grows whenever the sender stops leading a
group. Otherwise a node that restarted between two heartbeats, or was deposed in one group, would keep that group from
electing a leader by being alive: raft.md, scenario 24.

Nothing here makes anything durable or committed: a lease only decides who looks for a new leader, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.replication import NEVER
from quorumlog.server.step.events import Lease


@dataclass(slots=True)
class _Pair:
    """What this node knows of one other. Times in µs.

    Attributes:
        boot_id, epoch: of the newest lease; groups sleep under these.
        heard_round, heard_at: of the newest lease, and when it came. ``stands`` while that is recent.
        answered_round, answered_at: the newest of our own rounds that the peer has heard. ``answers`` while recent.
    """

    boot_id: int = 0
    epoch: int = 0
    heard_round: int = 0
    heard_at: int = 0
    stands: bool = False
    answered_round: int = 0
    answered_at: int = 0
    answers: bool = False


class Leases:
    """The leases of one node, given and taken, and the groups that sleep on them.

    Arguments:
        boot_id: of this process.
        timeout_us: silence after which a lease no longer stands.
        touch: hears of every group that was woken.
    """

    def __init__(self, boot_id: int, timeout_us: int, touch: Callable[[int], None]) -> None:
        self._boot_id = boot_id
        self._timeout = timeout_us
        self._touch = touch
        self._epoch = 0
        self._round = 0
        self._pairs: dict[int, _Pair] = {}
        self._led: set[int] = set()
        self._asleep: dict[int, RaftGroup] = {}

    # -- giving -----------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Another round of leases begins."""
        self._round += 1

    def grant(self, peer: int) -> Lease:
        """What to tell a peer in this round."""
        return Lease(self._boot_id, self._epoch, self._round, self._pair(peer).heard_round)

    def reachable(self) -> set[int]:
        """The peers that have answered lately: their groups' replicas may be put to sleep."""
        return {peer for peer, pair in self._pairs.items() if pair.answers}

    # -- taking -----------------------------------------------------------------------------------------------

    def heard(self, now: int, peer: int, lease: Lease) -> None:
        """A peer lives. What it no longer leads, or what its former life led, is looked at again."""
        pair = self._pair(peer)
        changed = (lease.boot_id, lease.epoch) != (pair.boot_id, pair.epoch)
        if pair.stands and changed:
            self._wake(now, lambda raft: raft.leader_id == peer)
        pair.boot_id, pair.epoch = lease.boot_id, lease.epoch
        pair.heard_round, pair.heard_at, pair.stands = lease.round, now, True
        # A round of the future was counted by this node's former life.
        if pair.answered_round < lease.heard_round <= self._round:
            pair.answered_round, pair.answered_at = lease.heard_round, now
            if not pair.answers:
                pair.answers = True
                # It was left out of what happened meanwhile.
                self._wake_led(now, peer)

    def lost(self, peer: int) -> None:
        """The connection to a peer broke. The caller tells the groups concerned."""
        pair = self._pair(peer)
        pair.stands = pair.answers = False

    def forget_peer(self, peer: int) -> None:
        """A peer that is a member of no group here is gone."""
        self._pairs.pop(peer, None)

    def on_time(self, now: int) -> None:
        """Wakes what slept on a lease that has run out."""
        for peer, pair in self._pairs.items():
            if pair.stands and now >= pair.heard_at + self._timeout:
                pair.stands = False
                self._wake(now, lambda raft, peer=peer: raft.leader_id == peer)  # type: ignore[misc]
            if pair.answers and now >= pair.answered_at + self._timeout:
                pair.answers = False
                self._wake_led(now, peer)

    @property
    def next_deadline(self) -> int:
        """When the next lease runs out, if nothing is heard; NEVER while nobody sleeps on one."""
        if not self._asleep:
            return NEVER
        earliest = NEVER - self._timeout
        for pair in self._pairs.values():
            if pair.stands and pair.heard_at < earliest:
                earliest = pair.heard_at
            if pair.answers and pair.answered_at < earliest:
                earliest = pair.answered_at
        return earliest + self._timeout

    # -- groups -----------------------------------------------------------------------------------------------

    def follow(self, now: int, group: int, raft: RaftGroup) -> None:
        """To be called after every step of a group: notes whether it is led here, and whether it sleeps."""
        if raft.is_leader:
            self._led.add(group)
        elif group in self._led:
            self._led.discard(group)
            self._epoch += 1
        if not raft.quiescent:
            self._asleep.pop(group, None)
            return
        self._asleep[group] = raft
        if not raft.is_leader and not self._pair(raft.leader_id).stands:
            # The call to sleep came late, from a connection or a life that has ended.
            self._rouse(now, group, raft)

    def forget(self, group: int) -> None:
        """There is no replica of a group here any more.

        Its peers' replicas are not woken: they go too, as soon as the metadata tell them.
        """
        self._led.discard(group)
        self._asleep.pop(group, None)

    def stir(self, now: int, raft: RaftGroup) -> None:
        """Somebody stirs a sleeping group: it wakes with what is known of its peers."""
        self._rouse(now, raft.group, raft)

    def _wake_led(self, now: int, peer: int) -> None:
        self._wake(now, lambda raft: raft.is_leader and peer in raft.configuration.members)

    def _wake(self, now: int, concerned: Callable[[RaftGroup], bool]) -> None:
        for group, raft in list(self._asleep.items()):
            if concerned(raft):
                self._rouse(now, group, raft)

    def _rouse(self, now: int, group: int, raft: RaftGroup) -> None:
        raft.wake(now, dict(self._contacts(raft.is_leader)))
        self._asleep.pop(group, None)
        self._touch(group)

    def _contacts(self, leader: bool) -> Iterable[tuple[int, int]]:
        # A leader must be heard by its followers, a follower must hear its leader: links may be cut one way.
        return ((peer, pair.answered_at if leader else pair.heard_at) for peer, pair in self._pairs.items())

    def _pair(self, peer: int) -> _Pair:
        pair = self._pairs.get(peer)
        if pair is None:
            pair = self._pairs[peer] = _Pair()
        return pair
