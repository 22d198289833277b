"""Retention by bytes and by time: a partition's leader proposes its log start.

Whole batches are removed, based on the offset index and the headers of a few entries; nothing is ever scanned. Bytes
are compared after every step of the group, which costs a comparison of two numbers. Time is a deadline: the expiry of
the oldest batch; an idle group costs nothing until then. A proposal takes effect when it is applied, on every replica
at the same place in the log. With cleanup.policy=compact,delete the log start moves through the compacted batches too,
by their index; a compaction also removes the old records between younger ones.

A batch expires ``retention.ms`` after its largest timestamp or after the leader appended it, whichever is later. So
records of the past that are backfilled now are kept for that long, whatever their timestamps, and records without
timestamps too. (Kafka uses timestamps alone if there are any, for a whole segment at a time, and would remove such a
segment within ``log.retention.check.interval.ms``.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.batch_ages import append_time_ms, first_since
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog

#: A log is trimmed once it exceeds its limit by this share, so that every trim is worth its checkpoint.
BYTES_SLACK = 16
#: Minimum time between two trims of the same log by time, as a share of retention.ms.
TIME_SLACK = 64
MIN_INTERVAL_US = 100_000
MAX_INTERVAL_US = 60_000_000
#: Maximum delay of a deadline, because the wall clock may be set forward in the meantime.
MAX_WAIT_US = 3_600_000_000
#: Maximum number of proposals in one step: thousands of partitions may expire at the same time.
TRIMS_PER_STEP = 32
#: Retry interval of a proposal that was refused.
RETRY_US = 500_000


@dataclass(slots=True)
class _LogBeginning:
    """A leader's view of the beginning of a partition's log.

    Arguments:
        term, config, log_start_offset, compacted_offset: the view is valid for these values, and computed again when
            one of them changes.
        first: the oldest batch that is kept and not compacted; None without batches.
        clean_bytes: size of the compacted batches after the first that is kept; 0 if it is not known.
        due: its expiry, on the node's clock (µs); None if it never expires.
        proposed: the proposed log start that is not applied yet; 0 for none.
    """

    term: int
    config: TopicConfig
    log_start_offset: int
    compacted_offset: int = 0
    first: BatchRow | None = None
    clean_bytes: int = 0
    due: int | None = None
    proposed: int = 0


class LogRetention:
    """Applies retention to the partitions that this node leads.

    Arguments:
        logs: the partitions with a replica on this node, by their Raft group.
    """

    def __init__(self, host: RaftHost, reader: StorageReader, logs: Mapping[int, Partition]) -> None:
        self._host = host
        self._reader = reader
        self._logs = logs
        self._beginnings: dict[int, _LogBeginning] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)

    def after_round(self, now: int, wall_ms: int, partition: Partition) -> None:
        """Checks a partition that this node leads, or led, after a step: its log may have grown, or have another
        beginning."""
        group, config = partition.group, partition.config
        if not partition.leads or not deletes(config) or partition.restoring:
            self._beginnings.pop(group, None)
            return
        beginning = self._beginnings.get(group)
        if beginning is None or beginning.term != partition.raft.term or beginning.config != config:
            beginning = self._beginnings[group] = _LogBeginning(partition.raft.term, config, -1)
        place = beginning.log_start_offset, beginning.compacted_offset
        if place != (partition.log_start_offset, partition.compacted_offset) or beginning.first is None:
            self._find_first_batch(now, wall_ms, partition, beginning)
        if beginning.first is not None and beginning.proposed <= partition.log_start_offset:
            last = self._reader.last_batch(group)
            limit = config.retention_bytes
            if limit >= 0 and last is not None:
                excess = beginning.clean_bytes + last.end_position - beginning.first.end_position - limit
                if excess > limit // BYTES_SLACK:
                    self._trim(now, wall_ms, partition, beginning)

    def _find_first_batch(self, now: int, wall_ms: int, partition: Partition, beginning: _LogBeginning) -> None:
        """Finds the oldest batch again, and sets its deadline."""
        trimmed = beginning.first is not None
        start = beginning.log_start_offset = partition.log_start_offset
        beginning.compacted_offset, beginning.clean_bytes = partition.compacted_offset, 0
        last = self._reader.last_batch(partition.group)
        if last is None or last.last_offset < start:
            beginning.first = None
            return
        beginning.first = self._reader.find_batch(partition.group, max(start, partition.compacted_offset), any_batch)
        compacted = _compacted_from(partition, start)
        since_ms = compacted.kept_since_ms(start) if compacted is not None else None
        if compacted is not None:
            beginning.clean_bytes = compacted.bytes_after(start)
        retention_ms = beginning.config.retention_ms
        if beginning.first is not None and retention_ms >= 0:
            if since_ms is None:
                appended_ms = append_time_ms(partition, beginning.first.base_offset, wall_ms)
                since_ms = max(beginning.first.max_timestamp_ms, appended_ms)
            wait_us = (since_ms + retention_ms - wall_ms) * 1000 + 1000
            soonest = 0
            if trimmed:
                soonest = min(max(retention_ms * 1000 // TIME_SLACK, MIN_INTERVAL_US), MAX_INTERVAL_US)
            self._set_deadline(partition.group, beginning, now + min(max(wait_us, soonest), MAX_WAIT_US))

    def _set_deadline(self, group: int, beginning: _LogBeginning, due: int) -> None:
        # An earlier deadline stays, and triggers a check. Otherwise every trim would leave one behind.
        if beginning.due is None or due < beginning.due:
            beginning.due = due
            heapq.heappush(self._deadlines, (due, group))
            self._deadline_moved()

    def _trim(self, now: int, wall_ms: int, partition: Partition, beginning: _LogBeginning) -> bool:
        """Proposes the log start that both limits allow, if it is new. Returns True if the proposal failed and will be
        retried."""
        start = self._log_start(wall_ms, partition)
        if start <= max(partition.log_start_offset, beginning.proposed):
            return False
        if partition.propose_command(now, PartitionCommand(trim_log=TrimLog(log_start_offset=start))):
            beginning.proposed = start
            self._host.touch(partition.group)
            return False
        self._set_deadline(partition.group, beginning, now + RETRY_US)
        return True

    def _log_start(self, wall_ms: int, partition: Partition) -> int:
        """Returns the first offset to keep: of whole batches, the fewest that hold ``retention.bytes``, and of these
        those that are younger than ``retention.ms`` or that follow such a batch. What follows the first batch of an
        open transaction is kept."""
        group, config = partition.group, partition.config
        start = partition.log_start_offset
        last = self._reader.last_batch(group)
        if last is None:
            return start
        compacted = _compacted_from(partition, start)
        if compacted is not None:
            start = self._first_kept(wall_ms, partition, compacted, last)
            if start < compacted.end_offset:
                return start
            start = max(start, partition.compacted_offset)
        end, limit, retention_ms = last.end_position, config.retention_bytes, config.retention_ms
        if limit >= 0:
            kept = self._reader.find_batch(group, start, lambda row: end - row.end_position < limit)
            start = max(start, kept.base_offset if kept is not None else last.last_offset + 1)
        if retention_ms >= 0:
            start = first_since(self._reader, partition, start, wall_ms - retention_ms, wall_ms)
        if start <= partition.compacted_offset and compacted is None:
            # The index starts after the compacted part. If nothing is known of the ages there, it is removed with the
            # first batch after it and not before.
            return partition.log_start_offset
        return min(start, partition.last_stable_offset)

    def _first_kept(self, wall_ms: int, partition: Partition, compacted: CompactedLog, last: BatchRow) -> int:
        """Returns the first offset to keep if it is in the compacted part, otherwise the end of that part."""
        config, start = partition.config, partition.log_start_offset
        needed_bytes = None
        if config.retention_bytes >= 0:
            first = self._reader.find_batch(partition.group, partition.compacted_offset, any_batch)
            # Without the first batch that is not compacted, whose size the index does not contain.
            needed_bytes = config.retention_bytes - (last.end_position - first.end_position if first is not None else 0)
        oldest_ms = wall_ms - config.retention_ms if config.retention_ms >= 0 else None
        return compacted.first_kept(start, oldest_ms, needed_bytes)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Trims the logs whose oldest batch has expired, some of them in this step."""
        for _ in range(TRIMS_PER_STEP):
            if not self._deadlines or self._deadlines[0][0] > now:
                return
            due, group = heapq.heappop(self._deadlines)
            beginning, partition = self._beginnings.get(group), self._logs.get(group)
            if beginning is None or beginning.due != due:
                continue
            if partition is None or not partition.leads:
                del self._beginnings[group]
                continue
            beginning.due = None
            tries_again = self._trim(now, wall_ms, partition, beginning)
            if not tries_again and beginning.proposed <= partition.log_start_offset:
                # Nothing had expired: the deadline was one of those that are early.
                beginning.log_start_offset = -1
                self._host.touch(group)

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        return self._deadlines[0][0] if self._deadlines else None


def deletes(config: TopicConfig) -> bool:
    """True if old records of a topic are removed, by bytes or by time."""
    limited = config.retention_ms >= 0 or config.retention_bytes >= 0
    return limited and config.deletes


def _compacted_from(partition: Partition, offset: int) -> CompactedLog | None:
    """Returns the compacted batches if some may reach an offset, and the times are known from which their ages
    count."""
    if offset >= partition.compacted_offset:
        return None
    compacted = partition.compacted_log
    return compacted if compacted is not None and compacted.has_append_times else None
