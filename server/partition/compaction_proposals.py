"""Proposes compaction points, as the leader of partitions whose topic keeps the last record of each key."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import CompactLog, PartitionCommand


class CompactionProposals:
    """Checks the partitions that this node leads at intervals.

    Arguments:
        logs: the partitions with a replica on this node, by their Raft group.
    """

    def __init__(
        self,
        now: int,
        limits: NodeLimits,
        interval_us: int,
        host: RaftHost,
        reader: StorageReader,
        logs: Mapping[int, Partition],
    ) -> None:
        self._limits = limits
        self._interval_us = interval_us
        self._host = host
        self._reader = reader
        self._logs = logs
        self._look_due = now + interval_us

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    @property
    def next_deadline(self) -> int:
        """Time at which ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Proposes a point for each partition in which compaction gains enough."""
        if now < self._look_due:
            return
        self._look_due = now + self._interval_us
        for partition in self._logs.values():
            if partition.config.compacts and partition.leads and not partition.restoring:
                self._consider(now, wall_ms, partition)

    def _consider(self, now: int, wall_ms: int, partition: Partition) -> None:
        state = partition.compaction
        # A leader first carries out its earlier points: so points do not accumulate, and it can report the hash of the
        # result.
        if state is not None and state.pending:
            return
        end = self._end(partition)
        if end is None:
            return
        command = CompactLog(
            end_offset=end,
            timestamp_ms=wall_ms,
            delete_retention_ms=partition.config.delete_retention_ms,
            compacted_offset=partition.compacted_offset,
            content_hash=state.content_hash if state is not None else b"",
        )
        if partition.propose_command(now, PartitionCommand(compact_log=command)):
            self._host.touch(partition.group)

    def _end(self, partition: Partition) -> int | None:
        """Returns the end of the next point; None if compaction would gain too little.

        The point covers whole batches that are committed and durable here, and never the last of them, so that every
        reader finds a batch at or after any point.
        """
        group, compacted = partition.group, partition.compacted_offset
        first = self._reader.find_batch(group, compacted, any_batch)
        last = self._reader.find_batch(group, partition.high_watermark - 1, any_batch)
        if first is None or last is None or last.base_offset <= first.base_offset:
            return None
        before = self._reader.find_batch(group, last.base_offset - 1, any_batch)
        assert before is not None, f"{partition.name}: no batch before offset {last.base_offset}"
        # Without the first batch, whose size the index does not contain.
        dirty = before.end_position - first.end_position
        clean = partition.snapshot.data.size_bytes if partition.compacted_log is not None and partition.snapshot else 0
        if clean and dirty < partition.config.min_cleanable_dirty_ratio * (dirty + clean):
            return None
        limit = first.end_position + self._limits.compaction_pass_bytes
        full = self._reader.find_batch(group, first.base_offset, lambda row: row.end_position >= limit)
        many = self._reader.find_batch(group, first.base_offset + self._limits.compaction_pass_records, any_batch)
        ends = [row.last_offset + 1 for row in (full, many) if row is not None]
        return min([last.base_offset, *ends])
