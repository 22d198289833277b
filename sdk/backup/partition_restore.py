"""Restores one partition in steps, each of which the partition's leader commits before it answers.

After any interruption it resumes at the partition's position, which the leader reports in every response.

Offsets of markers, and of records that are not in the backup, are missing behind a batch: it covers them in the
restored log, and states the offsets of its records, like a batch that compaction leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quorumlog.sdk.backup.manifest import PartitionBackup, SegmentFile
from quorumlog.sdk.backup.segments import BackedUpBatch, batches_in, stating_offsets
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import BackupStore
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import IllegalStateError, QuorumlogError
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2

#: Time limit of one attempt at a step.
ATTEMPT_S = 10.0


class StepOptions(NamedTuple):
    """Options of one restore that are common to all partitions.

    Arguments:
        restore_id: the same for all steps.
        limit_s: time limit of a step, leader changes included.
        count_bytes: called with the bytes of batches as they are restored.
        sizes: of a step.
    """

    store: BackupStore
    restore_id: bytes
    limit_s: float
    count_bytes: Callable[[int], None]
    sizes: BackupSizes


class PartitionRestore:
    """Restores one partition.

    Arguments:
        topic_id: of its topic in the fresh cluster.
    """

    def __init__(self, cluster: Cluster, tp: TopicPartition, topic_id: bytes, options: StepOptions) -> None:
        self._cluster = cluster
        self._tp = tp
        self._topic_id = topic_id
        self._options = options

    async def restore(self, backup: PartitionBackup) -> None:
        """Restores the partition, or its missing part.

        Raises:
            PolicyViolationError: a client has written to it, or it comes from another restore.
            CorruptBackupError: a file of the backup is damaged.
        """
        first = backup.segments[0].base_offset if backup.segments else backup.end_offset
        begin = admin_pb2.BeginPartitionRestore(
            log_start_offset=min(backup.log_start_offset, first),
            next_offset=first,
            compacted_offset=backup.compacted_offset,
        )
        state = await self._step(admin_pb2.RestorePartitionRequest(begin=begin))
        if state.finished:
            return
        position = await self._batches(backup, state.next_offset)
        if position != backup.end_offset:
            raise IllegalStateError(
                f"{self._tp.topic}-{self._tp.partition} came to offset {position}, not to {backup.end_offset}:"
                " verify the backup (quorumlog backup verify)"
            )
        await self._producers(backup)
        finish = admin_pb2.FinishPartitionRestore(
            log_start_offset=backup.log_start_offset, next_offset=backup.end_offset
        )
        await self._step(admin_pb2.RestorePartitionRequest(finish=finish))

    async def _batches(self, backup: PartitionBackup, position: int) -> int:
        for place, segment in enumerate(backup.segments):
            last = place + 1 == len(backup.segments)
            end = backup.end_offset if last else backup.segments[place + 1].base_offset
            if end <= position:
                self._options.count_bytes(segment.file.size_bytes)
                continue
            batches = await self._cluster.runtime.run_blocking(_batches_to, end, segment, self._options.store)
            position = await self._segment(batches, end, position)
        return position

    async def _segment(self, batches: Sequence[BackedUpBatch], end: int, position: int) -> int:
        """Appends the batches of one segment from ``position`` on; returns the end of the log.

        Arguments:
            end: start of the data after the segment.
        """
        place = 0
        while place < len(batches):
            if batches[place].header.base_offset < position:
                self._options.count_bytes(len(batches[place].entry))
                place += 1
                continue
            size, count = 0, 0
            for batch in batches[place:]:
                if count and size + len(batch.entry) > self._options.sizes.step_bytes:
                    break
                size, count = size + len(batch.entry), count + 1
            following = place + count
            next_offset = batches[following].header.base_offset if following < len(batches) else end
            step = admin_pb2.RestoreBatches(
                entries=[batch.entry for batch in batches[place:following]], next_offset=next_offset
            )
            position = (await self._step(admin_pb2.RestorePartitionRequest(append=step))).next_offset
        return position

    async def _producers(self, backup: PartitionBackup) -> None:
        if backup.producers is None:
            return
        content = await self._cluster.runtime.run_blocking(backup.producers.read, self._options.store)
        step, size, sizes = admin_pb2.RestoredProducers(), 0, self._options.sizes
        for record in admin_pb2.RestoredProducers.FromString(content).producers:
            if step.producers and (size >= sizes.step_bytes or len(step.producers) >= sizes.step_producers):
                await self._step(admin_pb2.RestorePartitionRequest(producers=step))
                step, size = admin_pb2.RestoredProducers(), 0
            step.producers.append(record)
            size += record.ByteSize()
        if step.producers:
            await self._step(admin_pb2.RestorePartitionRequest(producers=step))

    async def _step(self, request: admin_pb2.RestorePartitionRequest) -> admin_pb2.RestorePartitionResponse:
        request.topic_id, request.partition = self._topic_id, self._tp.partition
        request.restore_id, request.timeout_ms = self._options.restore_id, int(ATTEMPT_S * 1000)

        async def attempt() -> admin_pb2.RestorePartitionResponse:
            _, node = await self._cluster.require_leader(*self._tp)
            try:
                return await node.call(node.admin.RestorePartition(request, timeout=ATTEMPT_S + 1))
            except QuorumlogError:
                self._cluster.request_refresh()
                raise

        what = f"the restore of {self._tp.topic}-{self._tp.partition}"
        return await self._cluster.retrying(attempt, self._options.limit_s, what)


def _batches_to(end: int, segment: SegmentFile, store: BackupStore) -> list[BackedUpBatch]:
    """Returns the batches of a segment; each one that is followed by missing offsets states those of its records.

    Arguments:
        end: start of the data after the segment.

    Raises:
        CorruptBackupError: the file is damaged.
    """
    batches = list(batches_in(segment.file.read(store), segment.file.name))
    ends = [*(batch.header.base_offset for batch in batches[1:]), end]
    return [
        batch if batch.header.last_offset + 1 == next_offset else stating_offsets(batch)
        for batch, next_offset in zip(batches, ends, strict=True)
    ]
