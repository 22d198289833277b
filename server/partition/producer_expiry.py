"""Has producers forgotten that have been silent for long.

A leader notes now and then how far each of its logs has come; when a note is old enough, it proposes that the producers
without a name whose last batch lies at or below it be forgotten. So a batch needs no time of its own, the replicas
agree, and a partition that nobody writes to costs a look in hours. A new leader begins with no notes: a producer is
remembered for at least the time set, for a good deal longer where leaderships move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quorumlog.server.node_service import NodeService
from quorumlog.server.partition.partition import Partition
from quorumlog.v1.partition_log_pb2 import ForgetProducers, PartitionCommand

#: How often the partitions are looked at within the time after which a producer is forgotten.
LOOKS = 8


class ProducerExpiry(NodeService):
    """The notes of a node's partitions.

    Arguments:
        expiration_us: silence after which a producer may be forgotten.
        partitions: those with a replica on this node.
        touch: tells the host that a group has something to do.
    """

    def __init__(
        self, now: int, expiration_us: int, partitions: Iterable[Partition], touch: Callable[[int], None]
    ) -> None:
        self._expiration_us = expiration_us
        self._partitions = partitions
        self._touch = touch
        self._interval_us = max(1, expiration_us // LOOKS)
        self._notes: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self._look_due = now + self._interval_us

    @property
    def next_deadline(self) -> int:
        """When ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Looks at the partitions when it is time."""
        if now < self._look_due:
            return
        self._look_due = now + self._interval_us
        before, self._notes = self._notes, {}
        for partition in self._partitions:
            # Without producers to forget, or as a follower, there is nothing to note.
            if partition.leads and partition.producers.oldest_index is not None:
                term, notes = before.get(partition.group, (partition.leading_term, []))
                if term != partition.leading_term:
                    notes = []
                self._look(now, partition, notes)
                self._notes[partition.group] = (partition.leading_term, notes)

    def _look(self, now: int, partition: Partition, notes: list[tuple[int, int]]) -> None:
        old = None
        while notes and notes[0][0] <= now - self._expiration_us:
            _, old = notes.pop(0)
        last = partition.raft.last_id.index
        if not notes or notes[-1][1] != last:
            notes.append((now, last))
        oldest = partition.producers.oldest_index
        if old is None or oldest is None or oldest > old:
            return
        if partition.propose_command(now, PartitionCommand(forget_producers=ForgetProducers(up_to_index=old))):
            self._touch(partition.group)
