"""Elections: the follower's timer and lease, and the ballot of a campaign."""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet

from quorumlog.raft.options import RaftOptions
from quorumlog.raft.quorum import Halves, Outcome, outcome
from quorumlog.raft.types import EntryId


class ElectionTimer:
    """When to campaign, and whether a living leader holds the votes of others up (thesis §6.2, the lease).

    Attributes:
        deadline: microseconds; campaign then unless the leader is heard before.
    """

    __slots__ = ("_contact", "_deaf_until", "_hurry_until", "_leased", "_options", "_rng", "_timeout", "deadline")

    def __init__(self, options: RaftOptions, rng: random.Random, now: int) -> None:
        self._options = options
        self._rng = rng
        self._contact = now
        self._leased = False
        self._deaf_until = now
        self._hurry_until = now
        self._timeout = 0
        self.deadline = now
        self.restart(now)

    def restart(self, now: int) -> None:
        """A new wait, of a new random length."""
        base = self._options.election_timeout_us
        self._timeout = base + int(self._rng.random() * base)
        self.deadline = now + self._timeout

    def retry_soon(self, now: int) -> None:
        """A campaign came to nothing: a short wait if the leader is known to be gone, else a whole one."""
        self.restart(now)
        if now < self._hurry_until:
            self.deadline = now + self._short_delay()

    def heard_leader(self, now: int) -> None:
        """The leader sent something, also something that was refused (scenario 13: a rejected append counts)."""
        if now < self._deaf_until:
            return
        self._contact = now
        self._leased = True
        self._hurry_until = now
        self.deadline = now + self._timeout

    def leader_lost(self, now: int) -> None:
        """The connection to the leader broke: look soon, with jitter, and hold nobody's vote up for it."""
        self._leased = False
        # What arrives within the shortest delay was sent before the connection broke, perhaps by a process that is dead
        # by now. (Else its last heartbeat, overtaken by the news on another stream, costs a whole election timeout.)
        self._deaf_until = now + self._options.peer_lost_delay_us[0]
        self._hurry_until = now + 2 * self._options.election_timeout_us
        self.deadline = min(self.deadline, now + self._short_delay())

    def end_lease(self) -> None:
        """There is no leader any more whose lease could hold."""
        self._leased = False

    def lease_holds(self, now: int) -> bool:
        """True while a leader was heard so recently that nobody may vote against it."""
        return self._leased and now < self._contact + self._options.election_timeout_us

    def _short_delay(self) -> int:
        low, high = self._options.peer_lost_delay_us
        return low + int(self._rng.random() * (high - low))


class Ballot:
    """The votes of one campaign, or of its pre-vote. A node's first answer counts."""

    __slots__ = ("_votes",)

    def __init__(self) -> None:
        self._votes: dict[int, bool] = {}

    def record(self, voter: int, granted: bool) -> None:
        """A vote came in."""
        self._votes.setdefault(voter, granted)

    def outcome(self, halves: Halves, absent: AbstractSet[int] = frozenset()) -> Outcome:
        """How it stands, expecting nothing more of ``absent`` nodes."""
        return outcome(halves, self._votes, absent)


def is_up_to_date(last_index: int, last_term: int, own: EntryId) -> bool:
    """Raft §5.4.1: a log that ends in (``last_index``, ``last_term``) holds all that is committed of one's ``own``."""
    return last_term > own.term or (last_term == own.term and last_index >= own.index)
