"""When a leader's witnesses are sent what not all data replicas have.

A witness votes by index and term, and has no payload to give. If it knows an entry that only the leader has, then no
other data replica can be elected with its vote: when that leader dies, the group waits for its disk. So as long as
the data replicas replicate, a witness hears of an entry after all of them. It is *engaged*, and hears of it at once,
when one of them is gone, for then the group could commit nothing without it.

Being slow is no reason: the leader of a slow follower may die like any other. That is why this looks at connections
and silence, and not at who counts as in sync.
"""

from __future__ import annotations

from collections.abc import Collection

from quorumlog.raft.progress import Progress, ProgressState


class Engagement:
    """Whether the witnesses of one term are engaged.

    Arguments:
        silence_us: a data replica that was not heard for so long is gone.
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
        """Looks again.

        Arguments:
            now: microseconds.
            last_index: where the leader's log ends.
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
        """Ends it once every data replica has, within the silence that is allowed, what the log held at its beginning.

        Not with the first sign of life: a data replica that comes back has hours to copy, and until then the group
        would commit nothing.
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
