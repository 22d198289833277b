"""Decides if a leader's witnesses get entries that not all data replicas have.

A witness votes by index and term, and has no payload to provide. If it has an entry that only the leader has, then no
other data replica can be elected with its vote: if that leader fails, the group waits for its disk. So as long as the
data replicas replicate, a witness gets an entry after all of them. It is *engaged*, and gets entries immediately, when
one of them is gone, because then the group could commit nothing without it.

Slowness does not matter: the leader of a slow follower may fail like any other. That is why the decision depends on
connections and silence, and not on which replicas count as in sync.
"""

from __future__ import annotations

from collections.abc import Collection

from quorumlog.raft.progress import Progress, ProgressState


class Engagement:
    """State of the witnesses of one term: engaged or not.

    Arguments:
        silence_us: a data replica that was silent for this time is gone.
        committed: the commit index with which the leader opened its term. A data replica that is known to lack some of
            it cannot be elected anyway.

    Attributes:
        engaged: witnesses are sent everything.
    """

    __slots__ = ("_committed", "_mark_at", "_mark_index", "_silence_us", "engaged")

    def __init__(self, silence_us: int, committed: int) -> None:
        self._silence_us = silence_us
        self._committed = committed
        self._mark_index = 0
        self._mark_at = 0
        self.engaged = False

    def review(self, now: int, last_index: int, followers: Collection[Progress]) -> None:
        """Updates ``engaged``.

        Arguments:
            now: microseconds.
            last_index: end of the leader's log.
            followers: the other data replicas with a vote.
        """
        if any(self._is_gone(now, follower) for follower in followers):
            self.engaged = True
            self._mark(now, last_index)
        elif self.engaged:
            self._end_when_caught_up(now, last_index, followers)

    def _is_gone(self, now: int, follower: Progress) -> bool:
        if follower.lost or now - follower.last_contact >= self._silence_us:
            return True
        if follower.state is ProgressState.REPLICATE:
            return follower.match_index < self._committed
        return follower.state is ProgressState.SNAPSHOT

    def _end_when_caught_up(self, now: int, last_index: int, followers: Collection[Progress]) -> None:
        """Ends the engagement once every data replica has, within the permitted silence, what the log had at its start.

        It does not end with the first sign of life: a data replica that returns may have to copy for hours, and until
        then the group would commit nothing.
        """
        replicates = all(follower.state is ProgressState.REPLICATE for follower in followers)
        if not replicates or any(follower.match_index < self._mark_index for follower in followers):
            return
        if now - self._mark_at < self._silence_us:
            self.engaged = False
        else:
            self._mark(now, last_index)

    def _mark(self, now: int, last_index: int) -> None:
        self._mark_index = last_index
        self._mark_at = now
