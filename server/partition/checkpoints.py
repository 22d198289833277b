"""Removes the beginning of partitions' logs, once their log start has moved.

The log start is moved by a command in the log; each replica then checkpoints independently: a snapshot that holds only
the partition's table replaces all entries before the first batch that is still needed, and storage sweeps those away
later. Thousands of partitions may be trimmed at once, so they are queued here, and few checkpoints are in progress at
any time.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import any_batch
from quorumlog.storage.interface import StorageReader

#: Maximum number of partition checkpoints in progress: they share one transaction, and reading for each takes a moment.
MAX_UNDER_WAY = 32
#: States of at most this size are written whenever a batch can be removed by it, larger ones only if that removes as
#: many bytes as they have: a table of thousands of producers is not rewritten for every batch that expires.
SMALL_STATE_BYTES = 4 << 10


class PartitionCheckpoints:
    """The partitions of a node whose log may have entries before the log start.

    Arguments:
        logs: the partitions with a replica on this node, by their Raft group.
    """

    def __init__(
        self, host: RaftHost, reader: StorageReader, logs: Mapping[int, Partition], snapshots: Snapshots
    ) -> None:
        self._host = host
        self._reader = reader
        self._logs = logs
        self._snapshots = snapshots
        self._due: dict[int, None] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.after_events(self.after_events)

    def consider(self, partition: Partition) -> None:
        """Queues the partition, whose log start has moved since the last check, and starts a checkpoint if possible."""
        self._due[partition.group] = None
        if len(self._snapshots.checkpoints) < MAX_UNDER_WAY:
            self._try_checkpoint(partition.group)

    def after_events(self, now: int, wall_ms: int) -> None:
        """Starts queued checkpoints, because whatever delayed them ends with a step."""
        if self._due:
            self.begin_due()

    def begin_due(self) -> None:
        """Starts as many of the queued checkpoints as may be in progress."""
        for group in list(self._due) if self._due else ():
            if len(self._snapshots.checkpoints) >= MAX_UNDER_WAY:
                return
            self._try_checkpoint(group)

    def _try_checkpoint(self, group: int) -> None:
        partition = self._logs.get(group)
        if partition is None:
            del self._due[group]
            return
        raft = partition.raft
        # The log must be durable up to the command that moved the log start, and the snapshot that did: then the offset
        # index holds every batch before it, and none of an older log.
        durable = raft.durable_index >= max(partition.trim_index, raft.anchor.index)
        if durable and self._snapshots.may_checkpoint(group):
            del self._due[group]
            partition.kept_offset = partition.log_start_offset
            self._checkpoint(partition)

    def _checkpoint(self, partition: Partition) -> None:
        group, raft = partition.group, partition.raft
        first = self._reader.find_batch(group, 0, any_batch)
        last = self._reader.last_batch(group)
        if first is None or last is None:
            return
        needed = self._reader.find_batch(group, partition.log_start_offset, any_batch)
        given_up = (last if needed is None else needed).end_position - first.end_position
        if needed == first or given_up < partition.state_bytes > SMALL_STATE_BYTES:
            return
        anchor = min(raft.applied_index, raft.durable_index)
        if needed is not None:
            anchor = min(anchor, needed.index - 1)
        next_offset = needed.base_offset if needed is not None else last.last_offset + 1
        if anchor <= raft.anchor.index:
            return
        try:
            end = raft.entry_id(anchor)
        except UnreadableEntryError:
            return  # checked again with the next entries; the entry may be repaired until then
        # The slices of the former snapshot are gone as soon as this one is durable, and that becomes known only later.
        # What reads need of them until then is loaded here.
        _ = partition.compacted_log
        checkpoint = self._snapshots.checkpoints.open(group)
        for part in partition.state_slices(next_offset):
            checkpoint.add(part)
        partition.state_bytes = checkpoint.size_bytes
        checkpoint.finish(end, raft.configuration, partition.checkpointed)
        self._host.after_durable(self.begin_due)
