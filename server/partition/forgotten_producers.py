"""Makes partitions forget producers: those that have been inactive for long, and those whose names were deleted.

The leader of a partition decides, and proposes a command, which every replica applies at the same place in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.v1.partition_log_pb2 import ForgetNamedProducers, ForgetProducers, PartitionCommand

#: Number of checks of the partitions within the expiration time of an inactive producer.
LOOKS = 8
#: Maximum number of partitions that one step checks for deleted producers: one deletion may concern thousands.
LOOKS_PER_STEP = 32
#: Time between two such steps, and before a check is repeated that has proposed something, or could not (µs).
INTERVAL_US = 50_000
#: Maximum number of producers in one command.
COMMAND_PRODUCERS = 1_000


class ProducerExpiry:
    """Makes partitions forget unnamed producers that have been inactive for long.

    A leader notes at intervals the last index of each of its logs. When a note is old enough, the leader proposes to
    forget the unnamed producers whose last batch is at or below it. So a batch needs no time of its own, the replicas
    agree, and an idle partition costs a check every few hours. A new leader starts without notes: a producer is
    remembered for at least the expiration time, and for a good deal longer if leaderships move.

    Arguments:
        expiration_us: inactivity after which a producer may be forgotten.
        logs: the partitions with a replica on this node, by their Raft group.
    """

    def __init__(self, now: int, expiration_us: int, host: RaftHost, logs: Mapping[int, Partition]) -> None:
        self._expiration_us = expiration_us
        self._host = host
        self._logs = logs
        self._interval_us = max(1, expiration_us // LOOKS)
        self._notes: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self._look_due = now + self._interval_us

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    @property
    def next_deadline(self) -> int:
        """Time at which ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Checks the partitions when that is due."""
        if now < self._look_due:
            return
        self._look_due = now + self._interval_us
        before, self._notes = self._notes, {}
        for partition in self._logs.values():
            # A follower, or a partition without producers to forget, has nothing to note.
            if partition.leads and partition.producers.oldest_index is not None:
                term, notes = before.get(partition.group, (partition.leading_term, []))
                if term != partition.leading_term:
                    notes = []
                self._look_at_notes(now, partition, notes)
                self._notes[partition.group] = (partition.leading_term, notes)

    def _look_at_notes(self, now: int, partition: Partition, notes: list[tuple[int, int]]) -> None:
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
            self._host.touch(partition.group)


class DeletedProducers:
    """Makes partitions forget named producers whose names were deleted.

    The leader of a partition checks when it is notified of a deletion, and when its leadership starts: its producers
    may then be from a leader that had not been notified. In between no batch of a deleted identity can be added,
    because a leader accepts none of an identity that it has learned to be deleted. So a check that finds nothing is
    valid until the next of the two events, and a partition without named producers is never checked.

    A check waits for all entries that were in the log when it became due. They may include a command of an earlier
    leader that had the deletion, followed by a batch that this leader accepted before it did: in between the
    identity is not known, and after the batch it is known again.

    The command comes after all of the identity's batches that this leader may have accepted. A leader that loses its
    leadership before the command is committed leaves it to the next one.

    Arguments:
        logs: the partitions with a replica on this node, by their Raft group.
    """

    def __init__(self, host: RaftHost, metadata: CurrentImage, logs: Mapping[int, Partition]) -> None:
        self._host = host
        self._metadata = metadata
        self._logs = logs
        self._heard_of = 0
        #: Groups to be checked, in order, each with the entry to wait for: its term and index.
        self._due: dict[int, tuple[int, int]] = {}
        self._look_due: int | None = None
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)

    def metadata_changed(self, now: int) -> None:
        """Queues all partitions if names were deleted by the latest metadata."""
        deleted_index = self._metadata.image.named_producers.deleted_index
        if deleted_index != self._heard_of:
            self._heard_of = deleted_index
            for partition in self._logs.values():
                self.consider(now, partition)

    def consider(self, now: int, partition: Partition) -> None:
        """Queues a partition, after a leadership has started here or a name was deleted."""
        raft = partition.raft
        if not self._heard_of or not partition.leads:
            return
        if partition.producers.has_named or raft.applied_index < raft.last_id.index:
            self._due[partition.group] = (raft.term, raft.last_id.index)
            self._look_due = self._look_due or now
            self._deadline_moved()

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Checks some of the partitions that are due."""
        if self._look_due is None or now < self._look_due:
            return
        for group in list(islice(self._due, LOOKS_PER_STEP)):
            proposed = self._due.pop(group)
            partition = self._logs.get(group)
            if partition is not None and partition.leads:
                self._look_for_deleted(now, partition, proposed)
        self._look_due = now + INTERVAL_US if self._due else None

    def _look_for_deleted(self, now: int, partition: Partition, proposed: tuple[int, int]) -> None:
        raft = partition.raft
        if proposed[0] != raft.term or proposed[1] <= raft.applied_index:
            producers = partition.producers.deleted()[:COMMAND_PRODUCERS]
            if not producers:
                return
            body = ForgetNamedProducers(
                producer_ids=producers, deleted_index=self._metadata.image.named_producers.deleted_index
            )
            if partition.propose_command(now, PartitionCommand(forget_named_producers=body)):
                proposed = (raft.term, raft.last_id.index)
                self._host.touch(partition.group)
        self._due[partition.group] = proposed
