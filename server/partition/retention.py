"""Retention by bytes and by time: a partition's leader proposes its log start.

Whole batches are removed, based on the offset index and the headers of a few entries; nothing is ever scanned. Bytes
are compared after every step of the group, which costs a comparison of two numbers. Time is a deadline: the expiry of
the oldest batch; an idle group costs nothing until then. A proposal takes effect when it is applied, on every replica
at the same place in the log.

A batch expires ``retention.ms`` after its largest timestamp or after the leader appended it, whichever is later. So
records of the past that are backfilled now are kept for that long, whatever their timestamps, and records without
timestamps too. (Kafka uses timestamps alone if there are any, for a whole segment at a time, and would remove such a
segment within ``log.retention.check.interval.ms``.)
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog
from quorumlog.wire.entry import parse_header

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
#: An append time further ahead than this is from a clock that was wrong, and is ignored: one leader whose clock was a
#: year ahead would otherwise have its batches, and all after them, kept until then.
MAX_CLOCK_AHEAD_MS = 3_600_000


@dataclass(slots=True)
class _LogBeginning:
    """A leader's view of the beginning of a partition's log.

    Arguments:
        term, config, log_start_offset: the view is valid for these values, and computed again when one of them changes.
        first: the oldest batch that is kept; None without batches.
        due: its expiry, on the node's clock (µs); None if it never expires.
        proposed: the proposed log start that is not applied yet; 0 for none.
    """

    term: int
    config: TopicConfig
    log_start_offset: int
    first: BatchRow | None = None
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

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

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
        if beginning.log_start_offset != partition.log_start_offset or beginning.first is None:
            self._find_first_batch(now, wall_ms, partition, beginning)
        if beginning.first is not None and beginning.proposed <= partition.log_start_offset:
            last = self._reader.last_batch(group)
            limit = config.retention_bytes
            if limit >= 0 and last is not None:
                excess = last.end_position - beginning.first.end_position - limit
                if excess > limit // BYTES_SLACK:
                    self._trim(now, wall_ms, partition, beginning)

    def _find_first_batch(self, now: int, wall_ms: int, partition: Partition, beginning: _LogBeginning) -> None:
        """Finds the oldest batch again, and sets its deadline."""
        trimmed = beginning.first is not None
        beginning.log_start_offset = partition.log_start_offset
        last = self._reader.last_batch(partition.group)
        if last is None or last.last_offset < partition.log_start_offset:
            beginning.first = None
            return
        beginning.first = self._reader.find_batch(partition.group, partition.log_start_offset, any_batch)
        retention_ms = beginning.config.retention_ms
        if beginning.first is not None and retention_ms >= 0:
            appended_ms = self._append_time_ms(partition, beginning.first.base_offset, wall_ms)
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
        those that are younger than ``retention.ms`` or that follow such a batch."""
        group, config = partition.group, partition.config
        start = partition.log_start_offset
        last = self._reader.last_batch(group)
        if last is None:
            return start
        end, limit, retention_ms = last.end_position, config.retention_bytes, config.retention_ms
        if limit >= 0:
            kept = self._reader.find_batch(group, start, lambda row: end - row.end_position < limit)
            start = max(start, kept.base_offset if kept is not None else last.last_offset + 1)
        if retention_ms >= 0:
            oldest_ms = wall_ms - retention_ms
            kept = self._reader.find_batch(group, start, lambda row: row.max_timestamp_ms >= oldest_ms)
            end_offset = kept.base_offset if kept is not None else last.last_offset + 1
            start = max(start, self._first_appended_since(partition, start, end_offset, oldest_ms, wall_ms))
        if start <= partition.compacted_offset:
            # The index starts after the compacted part, which is removed with the first batch after it and not before.
            return partition.log_start_offset
        return min(start, partition.high_watermark)

    def _first_appended_since(self, partition: Partition, start: int, end: int, oldest_ms: int, wall_ms: int) -> int:
        """Returns the first offset from ``start`` on whose batch was appended at ``oldest_ms`` or later; ``end`` if
        none was before that. Nearly always the last batch before ``end`` decides for all before it, because append
        times increase."""

        def is_young(row: BatchRow) -> bool:
            return row.base_offset >= end or self._append_time_ms(partition, row.base_offset, wall_ms) >= oldest_ms

        if end <= start or self._append_time_ms(partition, end - 1, wall_ms) < oldest_ms:
            return end
        young = self._reader.find_batch(partition.group, start, is_young)
        return end if young is None else min(young.base_offset, end)

    def _append_time_ms(self, partition: Partition, offset: int, wall_ms: int) -> int:
        """Returns the append time of the batch at an offset; -1 if it is from a clock that was far ahead. Versions that
        did not record it left the smallest timestamp there, and if none exists, the batch counts as appended with the
        last one of the log."""
        try:
            entries = partition.read(offset, 1)
        except UnreadableEntryError:
            return wall_ms  # It is not removed before it is repaired.
        if not entries:
            return wall_ms  # It is not committed yet.
        header = parse_header(entries[0])
        appended_ms = header.append_time_ms
        if max(appended_ms, header.max_timestamp_ms) < 0:
            last = partition.high_watermark - 1
            return wall_ms if header.last_offset >= last else self._append_time_ms(partition, last, wall_ms)
        return appended_ms if appended_ms <= wall_ms + MAX_CLOCK_AHEAD_MS else -1

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
    return limited and not config.compacts
