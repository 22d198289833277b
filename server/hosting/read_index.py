"""Linearizable reads without a write: heartbeat rounds that confirm leadership (Raft thesis §6.4).

A leader may answer from committed state only after a quorum has confirmed that it still leads, by a heartbeat sent
after the request arrived. Otherwise a leader that was cut off and replaced could report a state older than what its
successor has acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable


class HeartbeatRounds:
    """Assigns read requests to the heartbeat rounds that confirm them.

    Arguments:
        confirm: sends a heartbeat of a group now and returns its round; None while this node cannot write.
    """

    def __init__(self, confirm: Callable[[int], int | None]) -> None:
        self._confirm = confirm
        self._newest: dict[int, tuple[int, int]] = {}

    def begin(self, now: int, group: int) -> int | None:
        """Returns a round that starts now. All requests of one step share it, and none gets a round that started before
        it.

        Otherwise a request could be confirmed by a heartbeat that was answered before the request arrived: raft.md 15.
        """
        at, heartbeat = self._newest.get(group, (-1, 0))
        if at == now:
            return heartbeat
        fresh = self._confirm(group)
        if fresh is not None:
            self._newest[group] = (now, fresh)
        return fresh

    def forget(self, group: int) -> None:
        """Forgets a group that no longer has a replica on this node."""
        self._newest.pop(group, None)
