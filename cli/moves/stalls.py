"""Reports on stderr what stalled moves wait for, while a command waits for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from quorumlog.cli.rendering import node_list, plural, size

if TYPE_CHECKING:
    from quorumlog.sdk import PartitionDescription, PartitionReassignment, ReplicaCopy, TopicPartition

#: Time without progress (s). After twice this time without a partition done or a byte copied, the cause is printed, and
#: again when it changes.
STALLED_S = 5.0


class Stalls:
    """Detects stalled moves, and prints what they wait for.

    Arguments:
        say: prints a line.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._clock = clock
        self._since = clock()
        self._left: object = None
        self._left_bytes: int | None = None
        self._said = ""

    def look(self, left: object, ask: Callable[[], tuple[int, str]]) -> None:
        """Records that moves are left, and reports a stall.

        Arguments:
            left: the moves that are left; while it changes, there is no stall.
            ask: returns how many bytes are left to be copied, and what the moves wait for in one line; called rarely.
        """
        now = self._clock()
        if left != self._left:
            self._left, self._left_bytes, self._since = left, None, now
        elif now - self._since >= STALLED_S:
            left_bytes, waiting = ask()
            if left_bytes == self._left_bytes and waiting != self._said:
                self._said = waiting
                self._say(waiting)
            self._left_bytes, self._since = left_bytes, now


def what_is_waited_for(
    left: Sequence[tuple[str, PartitionDescription]],
    moves: Mapping[TopicPartition, PartitionReassignment],
    copies: Iterable[ReplicaCopy],
    down: Sequence[int],
) -> str:
    """Returns in one line what partitions wait for that are being moved, using one of them as an example.

    Arguments:
        left: the partitions, with their topics; at least one. One that needs an operator is named before others.
        moves: all moves in the cluster.
        copies: the copies that are under way.
        down: the nodes that are down.
    """
    known = {(copy.topic, copy.partition, copy.node_id): copy for copy in copies}
    reasons = []
    for topic, partition in left:
        move = next((each for at, each in moves.items() if at == (topic, partition.partition)), None)
        rank, why = _why(topic, partition, move, known, down)
        reasons.append((rank, f"{topic}-{partition.partition} {why}"))
    rank, reason = min(reasons, key=lambda each: each[0])
    return f"{plural(len(left), 'partition')} left: {reason}"


def _why(
    topic: str,
    partition: PartitionDescription,
    move: PartitionReassignment | None,
    copies: Mapping[tuple[str, int, int], ReplicaCopy],
    down: Sequence[int],
) -> tuple[int, str]:
    """Returns how urgent a partition's wait is (0: an operator must act) and what it waits for."""
    gone = [node for node in partition.replicas if node in down]
    if partition.leader is None:
        these = f"of its nodes {node_list(partition.replicas)}"
        return (
            0,
            f"has no leader, and {these} these are down: {node_list(gone)}"
            if gone
            else f"has no leader, although all {these} are up",
        )
    if move is None:
        return 3, "is waiting for its turn"
    absent = [node for node in move.adding_replicas if node in down]
    if absent:
        return 0, f"waits for node {absent[0]}, which is down: start it, or cancel the move"
    for node in move.adding_replicas:
        copy = copies.get((topic, partition.partition, node))
        if copy is not None and copy.left_bytes:
            slowly = f", at {size(move.throttle_bytes_per_second)}/s" if move.throttle_bytes_per_second else ""
            return 2, f"waits for {size(copy.left_bytes)} to be copied to node {node}{slowly}"
    if move.adding_replicas:
        return 1, f"waits for node {move.adding_replicas[0]} to start its copy, or to be in sync"
    return 1, f"waits for its leader, node {partition.leader}, to change its voters"
