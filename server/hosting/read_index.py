"""Linearizable reads without a write: the rounds of heartbeats that confirm leaderships (Raft thesis §6.4).

A leader may answer what is committed only after a quorum has confirmed, by a heartbeat sent after the question came,
that it still leads. Otherwise one that was cut off and replaced could name a state behind what its successor has
acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable


class HeartbeatRounds:
    """Gives questions the heartbeat rounds that confirm them.

    Arguments:
        confirm: sends a heartbeat of a group now and returns its round; None while this node cannot write.
    """

    def __init__(self, confirm: Callable[[int], int | None]) -> None:
        self._confirm = confirm
        self._newest: dict[int, tuple[int, int]] = {}

    def begin(self, now: int, group: int) -> int | None:
        """A round that begins now: all questions of one step share it, and none gets one from before it was asked.

        Otherwise a question would be confirmed by a heartbeat that had been answered before it came: raft.md 15.
        """
        at, heartbeat = self._newest.get(group, (-1, 0))
        if at == now:
            return heartbeat
        fresh = self._confirm(group)
        if fresh is not None:
            self._newest[group] = (now, fresh)
        return fresh

    def forget(self, group: int) -> None:
        """There is no replica of a group here any more."""
        self._newest.pop(group, None)
