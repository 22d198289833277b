"""Retention by bytes and by time: a partition's leader proposes where its log starts.

Whole batches are removed, by what the offset index and the headers of a few entries say of them; nothing is ever
scanned. Bytes are compared whenever the group was stepped, which is two numbers. Time is a deadline: the expiry of the
oldest batch; a group that sleeps costs nothing until then. What is proposed takes effect when it is applied, on every
replica at the same place in the log.

A batch expires ``retention.ms`` after its largest timestamp or after the leader appended it, whichever is later. So
records of the past that are filled in now are kept for that long, whatever their timestamps say, and records without
timestamps too. (Kafka goes by timestamps alone where there are any, for a whole segment at a time, and would remove
such a segment within ``log.retention.check.interval.ms``.)
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
#: After a trim by time, the next one of the same log comes this share of retention.ms later at the soonest.
TIME_SLACK = 64
MIN_INTERVAL_US = 100_000
MAX_INTERVAL_US = 60_000_000
#: The wall clock may be set forward meanwhile: no deadline is further away than this.
MAX_WAIT_US = 3_600_000_000
#: Proposed in one step at most: thousands of partitions may expire at the same time.
TRIMS_PER_STEP = 32
#: How soon a proposal that was refused is tried again.
RETRY_US = 500_000
#: An append time further ahead than this came of a clock that was wrong, and keeps nothing: one leader whose clock
#: showed the next year would otherwise have its batches, and all after them, kept until then.
MAX_CLOCK_AHEAD_MS = 3_600_000


@dataclass(slots=True)
class _LogBeginning:
    """What the leader of a partition knows of the beginning of its log.

    Arguments:
        term, config, log_start_offset: what it was learnt for: when one of them changes, it is learnt anew.
        first: the oldest batch that is kept; None when none is.
        due: when it expires, on the node's clock (µs); None: never.
        proposed: the log start that is on its way; 0 for none.
    """

    term: int
    config: TopicConfig
    log_start_offset: int
    first: BatchRow | None = None
    due: int | None = None
    proposed: int = 0


class LogRetention:
    """Watches the partitions that this node leads.

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
        """A partition that this node leads, or led, was stepped: its log may have grown, or have begun anew."""
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
        """The oldest batch is another one."""
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
        # An earlier deadline stays: it will look again. Otherwise every trim would leave one behind.
        if beginning.due is None or due < beginning.due:
            beginning.due = due
            heapq.heappush(self._deadlines, (due, group))

    def _trim(self, now: int, wall_ms: int, partition: Partition, beginning: _LogBeginning) -> bool:
        """Proposes the log start that both limits allow, if it is a new one; whether it could not, and tries again."""
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
        """The first offset to keep: of whole batches, the fewest that hold ``retention.bytes``, and of these those that
        hold anything that is younger than ``retention.ms`` or that comes after such a batch."""
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
            # The index begins behind the compacted part, which goes with the first batch after it and not before.
            return partition.log_start_offset
        return min(start, partition.high_watermark)

    def _first_appended_since(self, partition: Partition, start: int, end: int, oldest_ms: int, wall_ms: int) -> int:
        """The first offset from ``start`` on whose batch was appended at ``oldest_ms`` or later; ``end`` if none was
        before that. Nearly always the last batch before ``end`` says it for all before it, because append times rise.
        """

        def is_young(row: BatchRow) -> bool:
            return row.base_offset >= end or self._append_time_ms(partition, row.base_offset, wall_ms) >= oldest_ms

        if end <= start or self._append_time_ms(partition, end - 1, wall_ms) < oldest_ms:
            return end
        young = self._reader.find_batch(partition.group, start, is_young)
        return end if young is None else min(young.base_offset, end)

    def _append_time_ms(self, partition: Partition, offset: int, wall_ms: int) -> int:
        """When the batch at an offset was appended; -1 if a clock that was far ahead has said so. Versions that did not
        note it left the smallest timestamp there, and where none exists, the batch counts as appended with the last one
        of the log."""
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
                # Nothing had expired after all: the deadline was one of those that come early.
                beginning.log_start_offset = -1
                self._host.touch(group)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._deadlines[0][0] if self._deadlines else None


def deletes(config: TopicConfig) -> bool:
    """Whether old records of a topic go, by bytes or by time."""
    limited = config.retention_ms >= 0 or config.retention_bytes >= 0
    return limited and not config.compacts
