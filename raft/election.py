"""Elections: the follower's timer and lease, and the ballot of a campaign."""

from __future__ import annotations

import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from quorumlog.raft.options import RaftOptions
from quorumlog.raft.quorum import Halves, VoteOutcome, outcome
from quorumlog.raft.types import EntryId


class Turn(NamedTuple):
    """Where a voter stands among those that may lead next: ``place`` 0 is the preferred one's, ``of`` their number."""

    place: int
    of: int


def turn_of(node: int, voters: Sequence[int], gone: AbstractSet[int]) -> Turn:
    """The turn of a node among ``voters``, in the order of preference, without those that cannot lead next."""
    waiting = [voter for voter in voters if voter == node or voter not in gone]
    place = waiting.index(node) if node in waiting else len(waiting)
    return Turn(place, max(len(waiting), place + 1))


def claim(node: int, last_index: int, last_term: int, voters: Sequence[int]) -> tuple[int, int, int, int]:
    """How pre-candidates compare: by the longer log, then by the order of preference. The greatest claim wins."""
    preference = -voters.index(node) if node in voters else -len(voters)
    return (last_term, last_index, preference, node)


class ElectionTimer:
    """When to campaign, and whether the lease of a living leader forbids votes against it (thesis §6.2).

    A voter's turn shifts its waits within their bounds and never beyond: a voter that is alone waits no longer for it.

    Attributes:
        deadline: microseconds; campaign then unless the leader is heard before.
    """

    __slots__ = (
        "_contact",
        "_deaf_until",
        "_gives_way",
        "_hurry_until",
        "_leased",
        "_options",
        "_rng",
        "_timeout",
        "deadline",
    )

    def __init__(self, options: RaftOptions, rng: random.Random, now: int, turn: Turn) -> None:
        self._options = options
        self._rng = rng
        self._contact = now
        self._leased = False
        self._deaf_until = now
        self._hurry_until = now
        self._gives_way = False
        self._timeout = 0
        self.deadline = now
        self.restart(now, turn)

    def restart(self, now: int, turn: Turn) -> None:
        """A new wait, of a new random length."""
        base = self._options.election_timeout_us
        self._gives_way = True
        # Half of it is chance alone: here nobody knows who else is still there.
        self._timeout = base + int((self._rng.random() + turn.place / turn.of) / 2 * base)
        self.deadline = now + self._timeout

    def retry_soon(self, now: int, turn: Turn) -> None:
        """A campaign came to nothing: waits a short time if the leader is known to be gone, otherwise a whole one."""
        self.restart(now, turn)
        if self.hurries(now):
            self.deadline = now + self._short_delay(turn)

    def heard_leader(self, now: int) -> None:
        """The leader sent something, also something that was refused (scenario 13: a rejected append counts)."""
        if self.is_deaf(now):
            return
        self._contact = now
        self._leased = True
        self._hurry_until = now
        self.deadline = now + self._timeout

    def resume(self, contact: int, turn: Turn) -> None:
        """Ends a sleep in which others watched the leader; it was last heard at ``contact``."""
        self._contact = max(self._contact, contact)
        self._leased = True
        self.restart(self._contact, turn)

    def is_deaf(self, now: int) -> bool:
        """True just after the connection to the leader broke: what it says was said before."""
        return now < self._deaf_until

    def leader_lost(self, now: int, turn: Turn) -> None:
        """The connection to the leader broke: campaigns soon, with jitter, and its lease holds no more."""
        self._leased = False
        # What arrives within the shortest delay was sent before the connection broke, perhaps by a process that is dead
        # by now. The news of the break may overtake its last heartbeat on another stream. Without this rule that
        # heartbeat costs a whole election timeout.
        self._deaf_until = now + self._options.peer_lost_delay_us[0]
        self._hurry_until = now + 2 * self._options.election_timeout_us
        self._gives_way = True
        self.deadline = min(self.deadline, now + self._short_delay(turn))

    def hurries(self, now: int) -> bool:
        """Whether the connection to the leader broke, and campaigns follow one another soon because of that. Without a
        majority they come to nothing: that ends after two election timeouts."""
        return now < self._hurry_until

    def pre_vote_granted(self, now: int) -> None:
        """Another one is about to stand: it gets time to save its own vote and to ask for ours.

        Otherwise, on slow disks, this node's own campaign for the same term splits the vote. It happens once in a wait,
        and for no longer than the longest short delay: a pre-vote is no sign of a leader, and its sender may never win.
        """
        if self._gives_way:
            self._gives_way = False
            self.deadline = max(self.deadline, now + self._options.peer_lost_delay_us[1])

    def end_lease(self) -> None:
        """No leader is left whose lease could hold."""
        self._leased = False

    def lease_holds(self, now: int) -> bool:
        """True while a leader was heard so recently that nobody may vote against it."""
        return self._leased and now < self._contact + self._options.election_timeout_us

    def _short_delay(self, turn: Turn) -> int:
        low, high = self._options.peer_lost_delay_us
        return low + int((turn.place + self._rng.random()) / turn.of * (high - low))


class Ballot:
    """The votes of one campaign, or of its pre-vote. A node's first answer counts."""

    __slots__ = ("_votes",)

    def __init__(self) -> None:
        self._votes: dict[int, bool] = {}

    def record(self, voter: int, granted: bool) -> None:
        """A vote came in."""
        self._votes.setdefault(voter, granted)

    def outcome(self, halves: Halves, absent: AbstractSet[int] = frozenset()) -> VoteOutcome:
        """How it stands, expecting nothing more of ``absent`` nodes."""
        return outcome(halves, self._votes, absent)


def is_up_to_date(last_index: int, last_term: int, own: EntryId) -> bool:
    """Raft §5.4.1: a log that ends in (``last_index``, ``last_term``) holds all that is committed of one's ``own``."""
    return last_term > own.term or (last_term == own.term and last_index >= own.index)
