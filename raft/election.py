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
    """A voter's position among those that may lead next: ``place`` 0 is the preferred one's, ``of`` their number."""

    place: int
    of: int


def turn_of(node: int, voters: Sequence[int], gone: AbstractSet[int]) -> Turn:
    """Returns the turn of a node among ``voters``, in order of preference, without those that cannot lead next."""
    waiting = [voter for voter in voters if voter == node or voter not in gone]
    place = waiting.index(node) if node in waiting else len(waiting)
    return Turn(place, max(len(waiting), place + 1))


def claim(node: int, last_index: int, last_term: int, voters: Sequence[int]) -> tuple[int, int, int, int]:
    """Returns the rank of a pre-candidate: by the longer log, then by preference. The greatest rank wins."""
    preference = -voters.index(node) if node in voters else -len(voters)
    return (last_term, last_index, preference, node)


class ElectionTimer:
    """Determines when to campaign, and if the lease of a living leader forbids votes against it (thesis §6.2).

    A voter's turn shifts its waits within their bounds and never beyond: a voter without rivals waits no longer for it.

    Attributes:
        deadline: microseconds; campaign then unless a message of the leader arrives before.
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
        """Starts a new wait, of a new random length."""
        base = self._options.election_timeout_us
        self._gives_way = True
        # Half of it is random only: the timer cannot tell which other voters are alive.
        self._timeout = base + int((self._rng.random() + turn.place / turn.of) / 2 * base)
        self.deadline = now + self._timeout

    def retry_soon(self, now: int, turn: Turn) -> None:
        """Waits after a failed campaign: a short time if the leader is known to be gone, otherwise a whole one."""
        self.restart(now, turn)
        if self.hurries(now):
            self.deadline = now + self._short_delay(turn)

    def heard_leader(self, now: int) -> None:
        """Records a message of the leader, even if it was refused (scenario 13: a rejected append counts)."""
        if self.is_deaf(now):
            return
        self._contact = now
        self._leased = True
        self._hurry_until = now
        self.deadline = now + self._timeout

    def resume(self, contact: int, turn: Turn) -> None:
        """Ends a quiescence in which node leases replaced heartbeats; the leader's last message arrived at
        ``contact``."""
        self._contact = max(self._contact, contact)
        self._leased = True
        self.restart(self._contact, turn)

    def is_deaf(self, now: int) -> bool:
        """True just after the connection to the leader broke: messages that arrive now were sent before."""
        return now < self._deaf_until

    def leader_lost(self, now: int, turn: Turn) -> None:
        """Handles a broken connection to the leader: campaigns soon, with jitter, and ends its lease."""
        self._leased = False
        # Messages that arrive within the shortest delay were sent before the connection broke, perhaps by a process
        # that has crashed. The report of the break may overtake its last heartbeat on another stream. Without this
        # rule, that heartbeat would cost a whole election timeout.
        self._deaf_until = now + self._options.peer_lost_delay_us[0]
        self._hurry_until = now + 2 * self._options.election_timeout_us
        self._gives_way = True
        self.deadline = min(self.deadline, now + self._short_delay(turn))

    def hurries(self, now: int) -> bool:
        """True if the connection to the leader broke, so that campaigns follow one another soon.

        Without a majority they fail: that ends after two election timeouts.
        """
        return now < self._hurry_until

    def pre_vote_granted(self, now: int) -> None:
        """Delays this replica's campaign, because another one is about to campaign.

        The other gets time to save its own vote and to request ours. Otherwise, on slow disks, this node's own campaign
        for the same term would split the vote. It happens once in a wait, and for no longer than the longest short
        delay: a pre-vote does not prove that a leader exists, and its sender may never win.
        """
        if self._gives_way:
            self._gives_way = False
            self.deadline = max(self.deadline, now + self._options.peer_lost_delay_us[1])

    def end_lease(self) -> None:
        """Ends the lease: no leader is left for which it could hold."""
        self._leased = False

    def lease_holds(self, now: int) -> bool:
        """True if a message of a leader arrived so recently that this replica must not vote against it."""
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
        """Records a vote."""
        self._votes.setdefault(voter, granted)

    def outcome(self, halves: Halves, absent: AbstractSet[int] = frozenset()) -> VoteOutcome:
        """Returns the state of the vote, assuming that ``absent`` nodes will not respond."""
        return outcome(halves, self._votes, absent)


def is_up_to_date(last_index: int, last_term: int, own: EntryId) -> bool:
    """True if a log that ends in (``last_index``, ``last_term``) has everything committed in ``own`` (Raft §5.4.1)."""
    return last_term > own.term or (last_term == own.term and last_index >= own.index)
