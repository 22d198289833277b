"""Retention by bytes and by time: a partition's leader proposes where its log starts.

Whole batches go, by what the offset index says of them; nothing is ever scanned. Bytes are compared whenever the group
was stepped, which is two numbers. Time is a deadline: the expiry of the oldest batch; a group that sleeps costs nothing
until then. What is proposed takes effect when it is applied, on every replica at the same place in the log.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.broker.replicas import Partitions
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.node_service import NodeService
from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionCommand, TrimLog

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


@dataclass(slots=True)
class _Watch:
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


class Retention(NodeService):
    """Watches the partitions that this node leads.

    Arguments:
        touch: a group has something to do.
    """

    def __init__(self, partitions: Partitions, reader: StorageReader, touch: Callable[[int], None]) -> None:
        self._partitions = partitions
        self._reader = reader
        self._touch = touch
        self._watches: dict[int, _Watch] = {}
        self._deadlines: list[tuple[int, int]] = []

    def after_round(self, now: int, wall_ms: int, partition: Partition) -> None:
        """A group that this node leads, or led, was stepped: its log may have grown, or have begun anew."""
        group, config = partition.group, partition.config
        if not partition.leads or not deletes(config):
            self._watches.pop(group, None)
            return
        watch = self._watches.get(group)
        if watch is None or watch.term != partition.raft.term or watch.config != config:
            watch = self._watches[group] = _Watch(partition.raft.term, config, -1)
        if watch.log_start_offset != partition.log_start_offset or watch.first is None:
            self._learn(now, wall_ms, partition, watch)
        if watch.first is not None and watch.proposed <= partition.log_start_offset:
            last = self._reader.last_batch(group)
            limit = config.retention_bytes
            if limit >= 0 and last is not None:
                excess = last.end_position - watch.first.end_position - limit
                if excess > limit // BYTES_SLACK:
                    self._trim(now, wall_ms, partition, watch)

    def _learn(self, now: int, wall_ms: int, partition: Partition, watch: _Watch) -> None:
        """The oldest batch is another one."""
        trimmed = watch.first is not None
        watch.log_start_offset = partition.log_start_offset
        last = self._reader.last_batch(partition.group)
        if last is None or last.last_offset < partition.log_start_offset:
            watch.first = None
            return
        watch.first = self._reader.find_batch(partition.group, partition.log_start_offset, any_batch)
        retention_ms = watch.config.retention_ms
        if watch.first is not None and retention_ms >= 0:
            wait_us = (watch.first.max_timestamp_ms + retention_ms - wall_ms) * 1000 + 1000
            soonest = 0
            if trimmed:
                soonest = min(max(retention_ms * 1000 // TIME_SLACK, MIN_INTERVAL_US), MAX_INTERVAL_US)
            self._arm(partition.group, watch, now + min(max(wait_us, soonest), MAX_WAIT_US))

    def _arm(self, group: int, watch: _Watch, due: int) -> None:
        # An earlier deadline stays: it will look again. (Else every trim would leave one behind.)
        if watch.due is None or due < watch.due:
            watch.due = due
            heapq.heappush(self._deadlines, (due, group))

    def _trim(self, now: int, wall_ms: int, partition: Partition, watch: _Watch) -> None:
        """Proposes the log start that both limits allow, if it is a new one."""
        start = self._log_start(wall_ms, partition)
        if start <= max(partition.log_start_offset, watch.proposed):
            return
        if partition.propose_command(now, PartitionCommand(trim_log=TrimLog(log_start_offset=start))):
            watch.proposed = start
            self._touch(partition.group)
        else:
            self._arm(partition.group, watch, now + RETRY_US)

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
            kept = self._reader.find_batch(group, start, lambda row: row.max_timestamp_ms >= wall_ms - retention_ms)
            start = max(start, kept.base_offset if kept is not None else last.last_offset + 1)
        if start <= partition.compacted_offset:
            # The index begins behind the compacted part, which goes with the first batch after it and not before.
            return partition.log_start_offset
        return min(start, partition.high_watermark)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Trims the logs whose oldest batch has expired, some of them in this step."""
        for _ in range(TRIMS_PER_STEP):
            if not self._deadlines or self._deadlines[0][0] > now:
                return
            due, group = heapq.heappop(self._deadlines)
            watch, partition = self._watches.get(group), self._partitions.logs.get(group)
            if watch is None or watch.due != due:
                continue
            if partition is None or not partition.leads:
                del self._watches[group]
                continue
            watch.due = None
            self._trim(now, wall_ms, partition, watch)
            if watch.due is None and watch.proposed <= partition.log_start_offset:
                # Nothing had expired after all: the deadline was one of those that come early.
                watch.log_start_offset = -1
                self._touch(group)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._deadlines[0][0] if self._deadlines else None


def deletes(config: TopicConfig) -> bool:
    """Whether old records of a topic go, by bytes or by time."""
    limited = config.retention_ms >= 0 or config.retention_bytes >= 0
    return limited and not config.compacts
