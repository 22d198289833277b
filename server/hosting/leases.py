"""Liveness of pairs of nodes, in place of heartbeats of every idle group.

Three times per election timeout, each node reports to every node to which it has a link that it is alive, in one small
message for all groups. A follower's idle group sleeps as long as its leader's lease is valid, and a leader's idle group
as long as its followers answer. The lease names the sender's boot id and an epoch that increases whenever the sender
stops leading a group. Otherwise a node that restarted between two heartbeats, or was deposed in one group, would keep
that group from electing a leader just by being alive: raft.md, scenario 24.

Leases make nothing durable or committed: they only decide which node looks for a new leader, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.replication import NEVER
from quorumlog.server.step.events import Lease


@dataclass(slots=True)
class _Pair:
    """The leases between this node and one peer. Times in µs.

    Attributes:
        boot_id, epoch: from the newest lease; groups sleep under these.
        heard_round, heard_at: round of the newest lease, and when it arrived. ``stands`` is True while that is recent.
        answered_round, answered_at: the newest of this node's rounds that the peer has received, and when that was
            reported. ``answers`` is True while that is recent.
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
    """The leases of one node, sent and received, and the groups that sleep on them.

    Arguments:
        boot_id: boot id of this process.
        timeout_us: silence after which a lease expires.
        touch: called with every group that was woken.
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
        """Starts another round of leases."""
        self._round += 1

    def grant(self, peer: int) -> Lease:
        """Returns the lease to send to a peer in this round."""
        return Lease(self._boot_id, self._epoch, self._round, self._pair(peer).heard_round)

    def reachable(self) -> set[int]:
        """Returns the peers that have answered recently: their groups' replicas may be put to sleep."""
        return {peer for peer, pair in self._pairs.items() if pair.answers}

    # -- taking -----------------------------------------------------------------------------------------------

    def heard(self, now: int, peer: int, lease: Lease) -> None:
        """Records a peer's lease; wakes the groups that the peer no longer leads, or led before a restart."""
        pair = self._pair(peer)
        changed = (lease.boot_id, lease.epoch) != (pair.boot_id, pair.epoch)
        if pair.stands and changed:
            self._wake(now, lambda raft: raft.leader_id == peer)
        pair.boot_id, pair.epoch = lease.boot_id, lease.epoch
        pair.heard_round, pair.heard_at, pair.stands = lease.round, now, True
        # A round beyond the current one was counted before this node restarted.
        if pair.answered_round < lease.heard_round <= self._round:
            pair.answered_round, pair.answered_at = lease.heard_round, now
            if not pair.answers:
                pair.answers = True
                # The peer missed everything that happened while it did not answer.
                self._wake_led(now, peer)

    def lost(self, peer: int) -> None:
        """Records that the connection to a peer broke. The caller notifies the groups concerned."""
        pair = self._pair(peer)
        pair.stands = pair.answers = False

    def forget_peer(self, peer: int) -> None:
        """Forgets a peer that is not a member of any group on this node."""
        self._pairs.pop(peer, None)

    def on_time(self, now: int) -> None:
        """Wakes the groups that slept on a lease that has expired."""
        for peer, pair in self._pairs.items():
            if pair.stands and now >= pair.heard_at + self._timeout:
                pair.stands = False
                self._wake(now, lambda raft, peer=peer: raft.leader_id == peer)  # type: ignore[misc]
            if pair.answers and now >= pair.answered_at + self._timeout:
                pair.answers = False
                self._wake_led(now, peer)

    @property
    def next_deadline(self) -> int:
        """The time at which the next lease expires without news from its peer; NEVER while no group sleeps."""
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
        """Records whether a group is led here and whether it sleeps; must be called after every step of the group."""
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
            # The message to sleep arrived late: from a connection, or a run of the peer, that has ended.
            self._rouse(now, group, raft)

    def forget(self, group: int) -> None:
        """Forgets a group that no longer has a replica on this node.

        Its peers' replicas are not woken: they are removed too, once the metadata reach them.
        """
        self._led.discard(group)
        self._asleep.pop(group, None)

    def stir(self, now: int, raft: RaftGroup) -> None:
        """Wakes a sleeping group on request, with the known contact times of its peers."""
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
        # A leader's messages must reach its followers, and theirs must reach it: a link may fail in one direction
        # only.
        return ((peer, pair.answered_at if leader else pair.heard_at) for peer, pair in self._pairs.items())

    def _pair(self, peer: int) -> _Pair:
        pair = self._pairs.get(peer)
        if pair is None:
            pair = self._pairs[peer] = _Pair()
        return pair
