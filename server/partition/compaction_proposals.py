"""Proposes compaction points, as the leader of partitions whose topic keeps the last record of each key."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.batch_ages import append_time_ms, first_since
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import CompactLog, PartitionCommand

#: Append times are rounded up to this share of the topic's retention: the records are kept longer by no more than that,
#: and compacted batches are divided no more often.
APPEND_TIME_STEPS = 64
#: The same where records of any age are kept, in milliseconds: the topic may get a retention later.
STEP_WITHOUT_RETENTION_MS = 86_400_000


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
        end = self._end(wall_ms, partition)
        if end is None:
            return
        command = CompactLog(
            end_offset=end,
            timestamp_ms=wall_ms,
            delete_retention_ms=partition.config.delete_retention_ms,
            compacted_offset=partition.compacted_offset,
            content_hash=state.content_hash if state is not None else b"",
        )
        if partition.feature_level >= THIRD_FEATURE_LEVEL:
            _set_retention(command, partition.config)
        if partition.propose_command(now, PartitionCommand(compact_log=command)):
            self._host.touch(partition.group)

    def _end(self, wall_ms: int, partition: Partition) -> int | None:
        """Returns the end of the next point; None if compaction would gain too little, and nothing is too old.

        The point covers whole batches that are committed and durable here, none of an open transaction or behind one,
        none that min.compaction.lag.ms protects, and never the last of them, so that every reader finds a batch at or
        after any point.
        """
        group = partition.group
        # Retention may have passed the last point: the log no longer has what is below the log start, while the index
        # may still have it until the disk has caught up.
        start = max(partition.compacted_offset, partition.log_start_offset)
        first = self._reader.find_batch(group, start, any_batch)
        # What a transaction that is open has written may be aborted: that must not change what a pass finds.
        last = self._reader.find_batch(group, partition.last_stable_offset - 1, any_batch)
        if first is None or last is None or last.base_offset <= first.base_offset:
            return None
        end = last.base_offset
        lag_ms = partition.config.min_compaction_lag_ms
        if lag_ms:
            end = min(end, first_since(self._reader, partition, first.base_offset, wall_ms - lag_ms, wall_ms))
            if end <= first.base_offset:
                return None
        before = self._reader.find_batch(group, end - 1, any_batch)
        assert before is not None, f"{partition.name}: no batch before offset {end}"
        # Without the first batch, whose size the index does not contain.
        dirty, clean = before.end_position - first.end_position, _clean_bytes(partition)
        gains = not clean or dirty >= partition.config.min_cleanable_dirty_ratio * (dirty + clean)
        if not gains and not _is_overdue(wall_ms, partition, first):
            return None
        limit = first.end_position + self._limits.compaction_pass_bytes
        full = self._reader.find_batch(group, first.base_offset, lambda row: row.end_position >= limit)
        many = self._reader.find_batch(group, first.base_offset + self._limits.compaction_pass_records, any_batch)
        ends = [row.last_offset + 1 for row in (full, many) if row is not None]
        return min([end, *ends])


def _set_retention(command: CompactLog, config: TopicConfig) -> None:
    """Adds what nodes below feature level 3 do not carry out: the age that records may have."""
    step_ms = STEP_WITHOUT_RETENTION_MS
    if config.deletes and config.retention_ms >= 0:
        command.retention_ms = config.retention_ms
        step_ms = min(step_ms, max(1, config.retention_ms // APPEND_TIME_STEPS))
    command.append_time_step_ms = step_ms


def _clean_bytes(partition: Partition) -> int:
    """Returns the size of the compacted batches at and after the log start; of all of them if only that is known."""
    compacted = partition.compacted_log
    if compacted is None or partition.snapshot is None:
        return 0
    if compacted.has_append_times:
        return compacted.bytes_from(partition.log_start_offset)
    return partition.snapshot.data.size_bytes


def _is_overdue(wall_ms: int, partition: Partition, first: BatchRow) -> bool:
    """True if max.compaction.lag.ms has passed since the first batch that is not compacted was appended."""
    lag_ms = partition.config.max_compaction_lag_ms
    oldest_ms = wall_ms - lag_ms
    return oldest_ms > 0 and append_time_ms(partition, first.base_offset, wall_ms) < oldest_ms
