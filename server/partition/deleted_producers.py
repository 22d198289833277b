"""Has partitions forget the named producers whose names were deleted.

The leader of a partition looks when it hears of a deletion, and when its leadership begins: what it knows then may be
from a leader that had not heard of it. In between nothing of a deleted identity can come in, for a leader takes nothing
of one that it knows to be deleted. So a look that finds nothing holds until the next of the two, and nobody looks at a
partition that no named producer has written to.

What a look finds is proposed as a command and forgotten by every replica at the same place in the log, after all of the
identity's batches that this leader may have taken. A leader that falls before that is committed leaves it to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from quorumlog.server.broker.replicas import Partitions
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.node_service import NodeService
from quorumlog.server.partition.partition import Partition
from quorumlog.v1.partition_log_pb2 import ForgetNamedProducers, PartitionCommand

#: Partitions looked at in one step: thousands may have to be after one deletion.
LOOKS_PER_STEP = 32
#: Time between two such steps, and before a look is repeated that has proposed something, or could not (µs).
INTERVAL_US = 50_000
#: Producers in one command.
COMMAND_PRODUCERS = 1_000


class DeletedProducers(NodeService):
    """The partitions led by a node that may remember producers whose names were deleted.

    Arguments:
        names: gives the named producers as the metadata have them.
        touch: tells the host that a group has something to do.
    """

    def __init__(
        self, partitions: Partitions, names: Callable[[], NamedProducers], touch: Callable[[int], None]
    ) -> None:
        self._partitions = partitions
        self._names = names
        self._touch = touch
        self._heard_of = 0
        #: Groups to be looked at, in turn, each with the entry to wait for: its term and index.
        self._due: dict[int, tuple[int, int]] = {}
        self._look_due: int | None = None

    def metadata_changed(self, now: int) -> None:
        """The metadata were applied further: names may have been deleted."""
        deleted_index = self._names().deleted_index
        if deleted_index != self._heard_of:
            self._heard_of = deleted_index
            for partition in self._partitions.logs.values():
                self.consider(now, partition)

    def consider(self, now: int, partition: Partition) -> None:
        """A leadership has begun here, or a name was deleted."""
        if self._heard_of and partition.leads and partition.producers.has_named:
            self._due.setdefault(partition.group, (0, 0))
            self._look_due = self._look_due or now

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Looks at some of the partitions that are due."""
        if self._look_due is None or now < self._look_due:
            return
        for group in list(islice(self._due, LOOKS_PER_STEP)):
            proposed = self._due.pop(group)
            partition = self._partitions.logs.get(group)
            if partition is not None and partition.leads:
                self._look(now, partition, proposed)
        self._look_due = now + INTERVAL_US if self._due else None

    def _look(self, now: int, partition: Partition, proposed: tuple[int, int]) -> None:
        raft = partition.raft
        if proposed[0] != raft.term or proposed[1] <= raft.applied_index:
            producers = partition.producers.deleted()[:COMMAND_PRODUCERS]
            if not producers:
                return
            body = ForgetNamedProducers(producer_ids=producers, deleted_index=self._names().deleted_index)
            if partition.propose_command(now, PartitionCommand(forget_named_producers=body)):
                proposed = (raft.term, raft.last_id.index)
                self._touch(partition.group)
        self._due[partition.group] = proposed
