"""Carries out compaction points on this node: one pass at a time, in the background, bounded in rate and memory.

The pass itself runs in jobs between the node's steps, each a piece of reading and sorting; its output is staged a few
batches per transaction. When all of it is durable, one transaction makes it the partition's snapshot and removes the
entries that it replaces. Until then the log is unchanged: if a pass ends early (by a crash, a received snapshot, a
deleted topic), it leaves unreferenced slices, and the points stay in the table, to be carried out from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.types import EntryId, EntryKind
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.checkpoint_writer import Checkpoint
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.partition.aborted_ranges import AbortedBatches
from quorumlog.server.partition.compacted_log import CompactedIndex, CompactedLog
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.events import EventLog, Job, JobDone
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.storage.interface import DamageError, StorageReader
from quorumlog.wire.entry import BatchHeader, is_of_transaction, parse_header

if TYPE_CHECKING:
    from quorumlog.server.partition.compaction_pass import CompactionWork

#: Bytes of compacted batches in one transaction, at least one batch: the transactions of all groups wait for it.
STAGED_PER_TRANSACTION = 1 << 20
#: Delay before another attempt to start or end a pass, while a snapshot is being sent or the disk is nearly full.
RETRY_US = 500_000
#: Unreadable batches that a pass reports in the log; ``partition_compacted`` counts all of them.
NAMED_PER_PASS = 10


class _Section(NamedTuple):
    """The part of a log that one pass compacts.

    Arguments:
        points: the points that the pass carries out, in order.
        target: the entry that ends with the last of them.
        known: True if every replica has the same content there, so that its hash may be compared.
    """

    points: list[CompactionPoint]
    target: EntryId
    known: bool


class _CompactionRun:
    """One pass in progress.

    Attributes:
        busy: True while a piece of work is being done, or batches are being staged.
        unreadable: number of batches whose records the pass cannot read, and that it keeps unchanged.
        waiting: batches to be staged.
        index: of the staged batches.
        due: time at which the next piece of work may start (µs).
    """

    def __init__(
        self,
        partition: Partition,
        section: _Section,
        checkpoint: Checkpoint,
        reader: StorageReader,
        limits: NodeLimits,
        now: int,
    ) -> None:
        self.partition = partition
        self.section = section
        self.checkpoint = checkpoint
        self.busy = False
        self.waiting: deque[bytes] = deque()
        self.begun = self.due = now
        self.read_bytes = 0
        self.unreadable = 0
        self.job = 0
        self.content_hash: bytes | None = None
        self._reader = reader
        self._limits = limits
        self._clean = partition.compacted_log
        known = self._clean is not None and self._clean.has_append_times
        self.index = CompactedIndex(known or any(point.append_time_step_ms for point in section.points))
        self._first_index = partition.raft.anchor.index + 1
        # All transactions with a first offset before the last point had ended when it was proposed.
        transactions, end = partition.transactions, section.points[-1].end_offset
        self._aborted = None if transactions is None else AbortedBatches(transactions.aborted.between(0, end))
        self._work: Iterator[CompactionWork | bytes] | None = None

    def next_piece(self) -> CompactionWork | bytes:
        """Does the next piece of work, on the jobs' thread; the last one returns the hash of the content."""
        if self._work is None:
            self._work = self._pieces()
        return next(self._work)

    def _pieces(self) -> Iterator[CompactionWork | bytes]:
        # A node that never compacts never loads Arrow.
        from quorumlog.server.partition.compaction_pass import CleanSection, CompactionPass

        clean = self._clean
        compaction = CompactionPass(
            self.partition.group,
            self.section.points,
            CleanSection(clean.batches, clean.has_append_times) if clean is not None else CleanSection(tuple),
            self._dirty,
            self._limits.compaction_batch_bytes,
            self._limits.compaction_chunk_bytes,
        )
        yield from compaction.run()
        yield compaction.content_hash

    def _dirty(self) -> Iterator[bytes]:
        index, last_index = self._first_index, self.section.target.index
        while index <= last_index:
            chunk = self._limits.compaction_chunk_bytes
            for entry in self._reader.entries(self.partition.group, index, last_index, chunk):
                if entry.kind is EntryKind.BATCH and not self._leaves_out(entry.data):
                    yield entry.data
                index = entry.index + 1

    def _leaves_out(self, entry: bytes) -> bool:
        """True for a marker, and for a batch of an aborted transaction."""
        if self._aborted is None or not is_of_transaction(entry):
            return False
        header = parse_header(entry)
        return header.is_control or self._aborted.holds(header.producer_id, header.base_offset)


class CompactionRunner:
    """The partitions of a node that have points to carry out.

    Arguments:
        logs: the partitions with a replica on this node, by their Raft group.
        start_job: starts a piece of work; its result arrives at ``on_done``.
        free_bytes: returns how much may still be written to the disk.
        damaged: reports damaged entries.
    """

    def __init__(
        self,
        limits: NodeLimits,
        host: RaftHost,
        reader: StorageReader,
        logs: Mapping[int, Partition],
        snapshots: Snapshots,
        start_job: Callable[[Job], None],
        free_bytes: Callable[[], int],
        damaged: Callable[[DamageError], None],
        log: EventLog,
    ) -> None:
        self._limits = limits
        self._host = host
        self._reader = reader
        self._logs = logs
        self._snapshots = snapshots
        self._start_job = start_job
        self._free_bytes = free_bytes
        self._damaged = damaged
        self._log = log
        self._due: dict[int, None] = {}
        self._run: _CompactionRun | None = None
        self._now = 0
        self._number = 0
        self._look_due: int | None = None
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)

    def consider(self, now: int, partition: Partition) -> None:
        """Queues the partition if it has a new point."""
        state = partition.compaction
        if state is None or not state.pending or partition.group in self._due:
            return
        if self._run is None or self._run.partition is not partition:
            self._due[partition.group] = None
            self._look_due = now
            self._deadline_moved()

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        return self._look_due

    def on_time(self, now: int, wall_ms: int) -> None:
        """Starts or continues a pass if that is due."""
        self._now = now
        if self._look_due is None or now < self._look_due:
            return
        self._look_due = None
        if self._run is not None:
            self._continue_run(self._run)
            return
        for group in list(self._due):
            partition = self._logs.get(group)
            if partition is None or partition.compaction is None or not partition.compaction.pending:
                del self._due[group]
            elif self._may_begin(partition):
                return
            else:
                self._look_due = now + RETRY_US

    def _may_begin(self, partition: Partition) -> bool:
        try:
            return self._begin(partition)
        except UnreadableEntryError:
            return False  # tried again once the entry is repaired

    # -- passes -----------------------------------------------------------------------------------------------

    def _begin(self, partition: Partition) -> bool:
        """Starts a pass over the partition's points; returns False if that has to wait."""
        group, state, raft = partition.group, partition.compaction, partition.raft
        assert state is not None
        first = self._reader.find_batch(group, state.compacted_offset, any_batch)
        if first is None or not self._snapshots.may_checkpoint(group):
            return False
        # Batches before the log start may be gone from the disk already: those points have nothing left to do.
        while state.pending and state.pending[0].end_offset <= first.base_offset > state.compacted_offset:
            partition.compacted(state.pending[0].end_offset, b"", None)
        if not state.pending:
            return False
        points, target = self._choose(partition, first, state.pending)
        end = points[-1].end_offset
        durable = target is not None and target.index <= min(raft.durable_index, raft.applied_index)
        if target is None or not durable or end >= partition.high_watermark:
            return False
        if target.index <= raft.anchor.index:
            return False  # a snapshot is replacing what is still on the disk
        size = target.end_position - first.end_position + self._clean_bytes(partition)
        if self._free_bytes() < size + self._limits.storage_reserve_bytes:
            return False
        known = first.base_offset <= max(state.compacted_offset, points[-1].log_start_offset)
        self._run = _CompactionRun(
            partition,
            _Section(points, raft.entry_id(target.index), known),
            self._snapshots.checkpoints.open(group),
            self._reader,
            self._limits,
            self._now,
        )
        del self._due[group]
        self._continue_run(self._run)
        return True

    def set_rate(self, bytes_per_second: int) -> None:
        """Changes the maximum rate at which compaction reads, also of a pass that is running."""
        self._limits = replace(self._limits, compaction_bytes_per_second=bytes_per_second)

    def _choose(
        self, partition: Partition, first: BatchRow, pending: list[CompactionPoint]
    ) -> tuple[list[CompactionPoint], BatchRow | None]:
        """Returns the first of the points, those after it that still fit into one pass, and the batch at their end."""
        chosen: list[CompactionPoint] = []
        target: BatchRow | None = None
        for point in pending:
            row = self._reader.find_batch(partition.group, point.end_offset - 1, any_batch)
            if row is None or row.last_offset != point.end_offset - 1:
                break
            if chosen and row.end_position - first.end_position > self._limits.compaction_pass_bytes:
                break
            chosen.append(point)
            target = row
        return chosen or pending[:1], target

    def _clean_bytes(self, partition: Partition) -> int:
        return partition.snapshot.data.size_bytes if partition.snapshot is not None else 0

    def _continue_run(self, run: _CompactionRun) -> None:
        """Takes the next step of a pass: stages ready batches; otherwise starts a job; otherwise ends it."""
        if run.busy:
            return
        if run.checkpoint.abandoned:
            # The group's state was replaced by a snapshot, or is gone: the pass is useless.
            self._end(run)
        elif run.waiting:
            self._stage(run)
        elif run.content_hash is not None:
            self._finish(run)
        elif run.due > self._now:
            self._look_due = run.due
        else:
            self._number += 1
            run.job, run.busy, run.due = self._number, True, self._now
            self._start_job(Job(run.job, run.next_piece))

    def _end(self, run: _CompactionRun) -> None:
        """Ends a pass. If points are left, the partition is queued again."""
        self._run = None
        self._look_due = self._now
        self.consider(self._now, run.partition)

    def on_done(self, now: int, event: JobDone) -> None:
        """Handles the end of a piece of work.

        Raises:
            Exception: the work raised it, and its result is still needed.
        """
        self._now = now
        run = self._run
        if run is None or run.job != event.number:
            return
        run.busy = False
        if run.checkpoint.abandoned:
            self._end(run)
            return
        if isinstance(event.error, DamageError) and event.error.index is not None:
            self._damaged(event.error)
            self._snapshots.checkpoints.abandon(run.partition.group)
            self._end(run)
            self._look_due = self._now + RETRY_US
            return
        if event.error is not None:
            raise event.error
        done = cast("CompactionWork | bytes", event.result)
        if isinstance(done, bytes):
            run.content_hash = done
        else:
            run.read_bytes += done.read_bytes
            if done.unreadable is not None:
                self._note_unreadable(run, done.unreadable)
            run.waiting.extend(done.batches)
            # Limits the rate at which the pass reads.
            run.due += done.read_bytes * 1_000_000 // self._limits.compaction_bytes_per_second
        self._continue_run(run)

    def _note_unreadable(self, run: _CompactionRun, header: BatchHeader) -> None:
        run.unreadable += 1
        if run.unreadable <= NAMED_PER_PASS:
            self._log(
                "warning",
                "compaction_kept_unreadable_batch",
                partition=run.partition.name,
                first_offset=header.base_offset,
                last_offset=header.last_offset,
            )

    def _stage(self, run: _CompactionRun) -> None:
        if self._free_bytes() < self._limits.storage_reserve_bytes:
            self._log("warning", "compaction_gave_up", partition=run.partition.name, reason="the disk is nearly full")
            self._snapshots.checkpoints.abandon(run.partition.group)
            self._end(run)
            self._look_due = self._now + RETRY_US
            return
        size = 0
        while run.waiting and size < STAGED_PER_TRANSACTION:
            batch = run.waiting.popleft()
            header = parse_header(batch)
            run.index.add(header, len(batch))
            run.checkpoint.add(batch)
            size += len(batch)
        run.busy = True
        self._host.after_durable(lambda: self._staged(run))

    def _staged(self, run: _CompactionRun) -> None:
        run.busy = False
        if self._run is run:
            self._look_due = self._now
            self._deadline_moved()

    def _finish(self, run: _CompactionRun) -> None:
        """Switches to the new stage, in which everything is durable."""
        partition, group = run.partition, run.partition.group
        if self._snapshots.sender.is_sending(group):
            # Its slices, and the entries after it, must stay until the follower has them.
            self._look_due = self._now + RETRY_US
            return
        end = run.section.points[-1].end_offset
        assert run.content_hash is not None
        log = CompactedLog(self._reader, group, run.checkpoint.stage, run.index)
        partition.compacted(end, run.content_hash if run.section.known else b"", log)
        # In one transaction, because the table must not be older than the log that the same transaction removes.
        for part in partition.state_slices(end, log):
            run.checkpoint.add(part)
        run.checkpoint.finish(run.section.target, partition.raft.configuration, partition.checkpointed)
        self._log(
            "info",
            "partition_compacted",
            partition=partition.name,
            end_offset=end,
            read_bytes=run.read_bytes,
            kept_bytes=run.checkpoint.size_bytes,
            unreadable_batches=run.unreadable,
            seconds=round((self._now - run.begun) / 1e6, 3),
        )
        self._end(run)
