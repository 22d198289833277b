"""Vote requests for Raft groups that this node has not heard of yet.

A candidate may be told of a new partition before this node is. Its request is kept, so that it gets its answer when the
metadata have brought the partition here too. Otherwise the first election would wait for another election timeout.
"""

from __future__ import annotations

from quorumlog.raft.types import VoteRequest

#: More than these are not kept: the oldest gives way.
MOST_KEPT = 2_000


class EarlyVotes:
    """The newest vote request of each candidate, by Raft group."""

    def __init__(self) -> None:
        self._requests: dict[tuple[int, int], VoteRequest] = {}

    def keep(self, raft_group: int, request: VoteRequest) -> None:
        """A candidate asks for a vote in a Raft group that has no replica here."""
        self._requests[raft_group, request.sender] = request
        if len(self._requests) > MOST_KEPT:
            del self._requests[next(iter(self._requests))]

    def take(self, raft_group: int) -> list[VoteRequest]:
        """What was kept for a Raft group; from now on nothing is kept for it."""
        keys = [key for key in self._requests if key[0] == raft_group]
        return [self._requests.pop(key) for key in keys]
