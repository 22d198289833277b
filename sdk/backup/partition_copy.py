"""Copies one partition from its leader while the cluster runs.

The leader reports the end of the log, its open transactions and its producers at one moment, the cut; only records
committed by then are copied. Markers and records of aborted and open transactions leave gaps, as those that compaction
removes. New data is added to an existing backup: batches never change, so those in the backup stay, with two
exceptions. What was open behind the last stable offset may be committed later: that part is copied again. Where
compaction is ahead of the backup, a record of the backup may have been removed together with the tombstone that deleted
it, and the backup would restore the record: then the whole partition is copied again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from quorumlog.sdk.backup.manifest import BackupFile, CorruptBackupError, PartitionBackup, SegmentFile
from quorumlog.sdk.backup.segments import (
    BackedUpBatch,
    SegmentBuilder,
    batches_in,
    checked_batch,
    range_of,
)
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import BackupStore
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.cluster.offset_search import LATEST
from quorumlog.sdk.errors import (
    IllegalStateError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    QuorumlogError,
    ServerBusyError,
    error_from_proto,
)
from quorumlog.sdk.records.fetch_answer import FetchedResult
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.wire.entry import CorruptEntryError

#: Time limit of one request to a leader.
ATTEMPT_S = 10.0
#: Attempts for a log that is trimmed, or compacted, faster than it is copied.
ATTEMPTS = 5

CountBytes = Callable[[int], None]


class CopyOptions(NamedTuple):
    """Options of one backup that are common to all partitions.

    Arguments:
        sequence: of the backup.
        limit_s: time limit of a request, leader changes included.
        count_bytes: called with the bytes of batches as they are copied.
        sizes: of requests, and of segments.
    """

    store: BackupStore
    sequence: int
    limit_s: float
    count_bytes: CountBytes
    sizes: BackupSizes


class PartitionCut(NamedTuple):
    """A partition at the moment as of which it is backed up.

    Arguments:
        end_offset: after the last committed record.
        stable_offset: the last stable offset.
        open: first offsets of open transactions, by producer id.
        producers: all except those with an open transaction: the backup lacks some of their batches.
        log: the leader's description of the log, then or later.
        described_s: when that was requested, on the monotonic clock.
    """

    end_offset: int
    stable_offset: int
    open: Mapping[int, int]
    producers: list[admin_pb2.ProducerRecord]
    log: admin_pb2.DescribePartitionLogResponse
    described_s: float


class _MovedOnError(Exception):
    """The log was trimmed or compacted during the copy."""


class PartitionCopy:
    """Copies one partition.

    Arguments:
        topic_id: of the topic to copy: another one may get its name.
        folder: of the partition's files.
        delete_retention_ms: how long the topic keeps tombstones after compaction has reached them.
    """

    def __init__(
        self, cluster: Cluster, tp: TopicPartition, topic_id: bytes, folder: str, delete_retention_ms: int,
        options: CopyOptions,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._tp = tp
        self._topic_id = topic_id
        self._folder = folder
        self._delete_retention_ms = delete_retention_ms
        self._options = options

    async def cut(self) -> PartitionCut:
        """Returns the partition as it is now.

        Raises:
            QuorumlogError: its leader did not answer.
        """
        found = await find_offsets(self._cluster, {self._tp: LATEST}, self._options.limit_s, "read_uncommitted")
        described_s = self._runtime.monotonic_s()
        log, producers = await self._describe(found[self._tp].offset)
        left_open = {each.producer_id: each.first_offset for each in log.open}
        return PartitionCut(
            log.high_watermark,
            log.last_stable_offset if log.HasField("last_stable_offset") else log.high_watermark,
            left_open,
            [each for each in producers if each.producer_id not in left_open],
            log,
            described_s,
        )

    async def copy(self, before: PartitionBackup | None, cut: PartitionCut | None = None) -> PartitionBackup:
        """Copies new data since the previous backup, or everything.

        Arguments:
            cut: as of when; None: now.

        Raises:
            IllegalStateError: the log ends before the end of the backup, or is trimmed faster than it is copied.
            QuorumlogError: it could not be read.
        """
        now = cut
        for _ in range(ATTEMPTS):
            if now is None:
                now = await self.cut()
            as_of = now if cut is None else cut._replace(log=now.log, described_s=now.described_s)
            try:
                return await self._try_copy(before, as_of)
            except _MovedOnError:
                now = None
        raise IllegalStateError(
            f"{self._name} is trimmed faster than it is copied: {ATTEMPTS} times its start was removed during the copy;"
            " raise retention, or delete.retention.ms"
        )

    @property
    def _name(self) -> str:
        return f"{self._tp.topic}-{self._tp.partition}"

    async def _try_copy(self, before: PartitionBackup | None, cut: PartitionCut) -> PartitionBackup:
        log = cut.log
        if before is not None and before.end_offset > cut.end_offset:
            raise IllegalStateError(
                f"{self._name} ends at offset {cut.end_offset}, the backup at {before.end_offset}: records were"
                " lost since; keep that backup, and take a new one somewhere else"
            )
        end, stable = max(cut.end_offset, log.log_start_offset), max(cut.stable_offset, log.log_start_offset)
        kept: list[SegmentFile] = []
        missing: list[tuple[int, int]] = []
        position, gaps_before = log.log_start_offset, log.compacted_offset
        if before is not None and log.compacted_offset <= before.next_offset:
            kept = [each for each in before.segments if log.log_start_offset < each.end_offset <= before.next_offset]
            missing = [gap for gap in before.not_backed_up if gap[1] > log.log_start_offset]
            if before.next_offset < log.log_start_offset:
                missing = [(before.next_offset, log.log_start_offset)]
            position = max(position, before.next_offset)
            gaps_before = max(gaps_before, before.compacted_offset)
        if log.compacted_offset == 0:
            found = await self._unfinished(position, stable, {segment.file.name for segment in kept})
            kept += found
            position = found[-1].end_offset if found else position
        copied, gaps_seen = await self._read(position, stable, log.compacted_offset, {})
        if stable < end:
            behind, gaps_seen = await self._read(max(position, stable), end, gaps_seen, cut.open)
            copied += behind
        took_ms = (self._runtime.monotonic_s() - cut.described_s) * 1000
        if gaps_seen > log.compacted_offset and took_ms >= self._delete_retention_ms:
            # The gaps may be of transactions only.
            after, _ = await self._describe(log.high_watermark)
            if after.compacted_offset > log.compacted_offset:
                # A tombstone that was removed before it was read may have deleted records that were read first.
                raise _MovedOnError
        file, count = await self._write_producers(cut.producers)
        return PartitionBackup(
            number=self._tp.partition,
            log_start_offset=log.log_start_offset,
            end_offset=end,
            compacted_offset=max(gaps_before, gaps_seen),
            segments=(*kept, *copied),
            producers=file,
            producer_count=count,
            not_backed_up=tuple(missing),
            stable_offset=stable if stable < end else -1,
        )

    # --- answers of the leader ------------------------------------------------------------------------------------

    async def _describe(
        self, end: int
    ) -> tuple[admin_pb2.DescribePartitionLogResponse, list[admin_pb2.ProducerRecord]]:
        """Returns the state of the log at one moment, when it ended at ``end`` or later."""

        async def attempt() -> tuple[admin_pb2.DescribePartitionLogResponse, list[admin_pb2.ProducerRecord]]:
            first = await self._ask(-1)
            producers = list(first.producers)
            page = first
            while page.more:
                page = await self._ask(producers[-1].producer_id)
                if page.applied_index != first.applied_index:
                    raise ServerBusyError(f"{self._name} is written to faster than its producers can be listed")
                producers += page.producers
            if first.high_watermark < end:
                # A deposed leader that has not learned it yet.
                self._cluster.request_refresh()
                raise LeaderNotAvailableError(f"the leader of {self._name} is not known yet: try again")
            return first, producers

        log, producers = await self._cluster.retrying(attempt, self._options.limit_s, f"the copy of {self._name}")
        if log.restoring:
            raise IllegalStateError(f"{self._name} is being restored: finish that, then take a backup")
        return log, producers

    async def _ask(self, after: int) -> admin_pb2.DescribePartitionLogResponse:
        _, node = await self._cluster.require_leader(*self._tp)
        request = admin_pb2.DescribePartitionLogRequest(
            topic_id=self._topic_id,
            partition=self._tp.partition,
            after_producer_id=after,
            timeout_ms=int(ATTEMPT_S * 1000),
        )
        try:
            return await node.call(node.admin.DescribePartitionLog(request, timeout=ATTEMPT_S))
        except QuorumlogError:
            self._cluster.request_refresh()
            raise

    async def _write_producers(self, producers: list[admin_pb2.ProducerRecord]) -> tuple[BackupFile | None, int]:
        if not producers:
            return None, 0
        content = admin_pb2.RestoredProducers(producers=producers).SerializeToString(deterministic=True)
        file = BackupFile.of(f"{self._folder}/producers-{self._options.sequence}.bin", content)
        await self._runtime.run_blocking(self._options.store.write, file.name, content)
        return file, len(producers)

    # --- batches -------------------------------------------------------------------------------------------------

    async def _unfinished(self, position: int, end: int, known: Collection[str]) -> list[SegmentFile]:
        """Returns segments of an interrupted backup that continue from ``position``."""
        found: list[SegmentFile] = []
        for name in await self._runtime.run_blocking(self._options.store.names, self._folder):
            place = range_of(name)
            if place is None or name in known or place[0] != position or place[1] > end:
                continue
            content = await self._runtime.run_blocking(self._options.store.read, name) or b""
            segment = _checked_segment(name, content, place)
            if segment is not None:
                found.append(segment)
                position = segment.end_offset
        return found

    async def _read(
        self, position: int, end: int, gaps_before: int, left_open: Mapping[int, int]
    ) -> tuple[list[SegmentFile], int]:
        """Copies the batches from ``position`` to ``end``; also returns the offset below which some were missing.

        Arguments:
            gaps_before: the offset below which some may be missing.
            left_open: first offsets of transactions to leave out, by producer id.
        """
        segments: list[SegmentFile] = []
        builder = SegmentBuilder()
        while position < end:
            result = await self._fetch(position)
            gaps_before = max(gaps_before, result.told.compacted_offset)
            before = position
            for batch in _batches_of(result, self._name):
                if batch.header.base_offset >= end:
                    break
                if batch.header.base_offset > position >= gaps_before:
                    raise IllegalStateError(
                        f"{self._name} has no records from {position} on: its node must be looked at"
                    )
                position = batch.header.last_offset + 1
                if batch.header.is_control or _is_open(batch, left_open):
                    gaps_before = max(gaps_before, position)
                    continue  # A cover, or a batch that may still be aborted: a restored log has a gap there.
                builder.add(batch)
                self._options.count_bytes(len(batch.entry))
                if builder.size_bytes >= self._options.sizes.segment_bytes:
                    segments.append(await self._write(builder))
                    builder = SegmentBuilder()
            if position == before:
                if gaps_before < end:
                    raise IllegalStateError(f"{self._name} gives no records from {position} on: look at its leader")
                break  # Compaction has removed all remaining records.
        if builder.size_bytes:
            segments.append(await self._write(builder))
        return segments, min(gaps_before, end)

    async def _write(self, builder: SegmentBuilder) -> SegmentFile:
        segment, content = builder.build(self._folder, self._options.sequence)
        # Off the event loop: other partitions are read in the meantime.
        await self._runtime.run_blocking(self._options.store.write, segment.file.name, content)
        return segment

    async def _fetch(self, position: int) -> FetchedResult:
        async def attempt() -> FetchedResult:
            _, node = await self._cluster.require_leader(*self._tp)
            most_bytes = self._options.sizes.fetch_bytes
            request = data_plane_pb2.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=most_bytes,
                takes_kafka_batches=True,
                isolation_level=data_plane_pb2.ISOLATION_LEVEL_READ_NOT_ABORTED,
            )
            request.partitions.add(
                topic_id=self._topic_id,
                partition=self._tp.partition,
                fetch_offset=position,
                leader_epoch=-1,
                max_bytes=most_bytes,
            )
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    response = await node.fetch.submit(request)
                [result] = response.results
                reported = result.told
                if reported.HasField("error"):
                    self._cluster.learn_from(self._tp.topic, reported.topic_id, self._tp.partition, reported.error)
                    raise error_from_proto(reported.error)
            except TimeoutError:
                self._cluster.request_refresh()
                raise LeaderNotAvailableError(f"the leader of {self._name} does not answer: try again") from None
            except QuorumlogError:
                self._cluster.request_refresh()
                raise
            return result

        try:
            return await self._cluster.retrying(attempt, self._options.limit_s, f"the copy of {self._name}")
        except OffsetOutOfRangeError:
            raise _MovedOnError from None


def _is_open(batch: BackedUpBatch, left_open: Mapping[int, int]) -> bool:
    header = batch.header
    first_offset = left_open.get(header.producer_id)
    return first_offset is not None and header.is_transactional and header.base_offset >= first_offset


def _batches_of(result: FetchedResult, name: str) -> list[BackedUpBatch]:
    try:
        return [checked_batch(entry) for entry in result.entries]
    except CorruptEntryError as error:
        raise IllegalStateError(f"a batch of {name} arrived damaged: {error}; try again") from None


def _checked_segment(name: str, content: bytes, place: tuple[int, int, int]) -> SegmentFile | None:
    """Returns an unlisted segment if it is complete, dense and matches its name; otherwise None."""
    position, count = place[0], 0
    try:
        for batch in batches_in(content, name):
            if batch.header.base_offset != position:
                return None
            position, count = batch.header.last_offset + 1, count + 1
    except CorruptBackupError:
        return None
    return SegmentFile(BackupFile.of(name, content), place[0], place[1], count) if position == place[1] else None
