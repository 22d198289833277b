"""One replica of a partition: appends, the high watermark, reads, acknowledgements.

Its replicated state is a function of the committed log: the next offset (the high watermark), the log start and the
producer table, stored as rows of the group's table and written with the group's next transaction. The state that only a
leader has (log end offset, uncommitted batches of producers, waiting calls) is rebuilt when a leadership starts.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError, UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import NO_NODE, Entry, EntryKind, Role, Snapshot
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.metadata.records import FEATURE_LEVEL, SECOND_FEATURE_LEVEL
from quorumlog.server.metadata.topic_config import TopicConfig, parse_topic_config
from quorumlog.server.partition import refusals
from quorumlog.server.partition.acknowledgements import ACKS_ALL, ACKS_NONE, Acknowledgements, ProduceCall, Waiter
from quorumlog.server.partition.batch_admission import admitted
from quorumlog.server.partition.batch_reading import batches_between
from quorumlog.server.partition.commands import apply_command, command_in
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.compaction_state import ROW as COMPACTION_ROW
from quorumlog.server.partition.compaction_state import CompactionState
from quorumlog.server.partition.epoch_digests import content_digest
from quorumlog.server.partition.open_transactions import MAX_OPEN, OpenTransactions, opened_by
from quorumlog.server.partition.producer_state import is_named
from quorumlog.server.partition.producer_table import DuplicateBatch, ProducerTable, Refused, nobody_has_claimed
from quorumlog.server.partition.restoration import Restoration
from quorumlog.server.partition.state_slices import cut_state, snapshot_state
from quorumlog.storage.interface import StorageReader
from quorumlog.v1 import errors_pb2
from quorumlog.v1.partition_log_pb2 import (
    BeginRestore,
    CompactLog,
    CountNamedApart,
    PartitionCommand,
    PartitionSnapshot,
    TableRow,
)
from quorumlog.v1.partition_log_pb2 import OpenTransaction as OpenCommand
from quorumlog.wire.entry import NO_PRODUCER_ID, BatchHeader, TimestampType, parse_header

#: Limit of offsets: signed 64 bits.
MAX_OFFSET = (1 << 63) - 1
#: Key of the row of a partition's table that holds its progress: see `encode_meta`.
META_ROW = b"m"
_META = struct.Struct("<QqqQ")


class Partition:
    """A partition's state machine over one Raft group.

    Arguments:
        sealer: seals entries of the group.
        raft: the group's replica on this node.
        reader: durable state, for offset lookups.
        table: the group's rows as found at opening; empty for a new replica.
        names: returns the named producers according to the metadata.
    """

    def __init__(
        self,
        identity: PartitionId,
        raft: RaftGroup,
        sealer: GroupSealer,
        reader: StorageReader,
        table: dict[bytes, bytes],
        limits: NodeLimits,
        names: Callable[[], NamedProducers] = nobody_has_claimed,
        feature_level: Callable[[], int] = lambda: FEATURE_LEVEL,
    ) -> None:
        self.identity = identity
        #: The number of its Raft group.
        self.group = raft.group
        self.raft = raft
        self.config = TopicConfig()
        self._configured: Mapping[str, str] | None = None
        self._sealer = sealer
        self._reader = reader
        self._limits = limits
        self._feature_level = feature_level
        #: Leader only: the term in which it proposed that named producers are counted separately.
        self._named_apart_term = 0
        self.producers = ProducerTable(limits.producers_per_partition, names)
        #: Compaction points and the progress of this replica; None before the first point.
        self.compaction: CompactionState | None = None
        #: The restore that created it, or that is in progress.
        self.restoration: Restoration | None = None
        #: The transactions of its log; None before the first one.
        self.transactions: OpenTransactions | None = None
        self._take_table(table)
        # The table and the log start may be newer than the applied index: as of the entry at _table_index, where a
        # snapshot put them. Entries up to there change neither.
        self._applied, self.high_watermark, self.log_start_offset, self._table_index = decode_meta(table.get(META_ROW))
        self._applied_term = 0
        self._rows_due = self._all_rows_due = False
        #: The newest durable snapshot, for followers that need the entries it replaces.
        self.snapshot: Snapshot | None = None
        #: The entry that last moved the log start here; 0 before the first.
        self.trim_index = 0
        # State of `PartitionCheckpoints`: the log start at its last check of the log, and the size of the state that
        # was last written.
        self.kept_offset = self.state_bytes = 0
        # Leader only: leading_term is the term that this replica has prepared itself to lead in; 0 as a follower.
        self.log_end_offset = self.high_watermark
        self.leading_term = 0
        #: Leader only: the entry that starts a restore, once it is in the log; 0 without one.
        self._restore_begins = 0
        # Last offset and index of each readable batch whose row in the index of offsets may not be on disk yet: a
        # leader's proposals, and what a follower has applied before its own disk had it. A list, though entries are
        # removed from the front: an empty deque costs each of a thousand idle partitions 700 B.
        self._not_durable: list[tuple[int, int]] = []
        #: Counted for metrics by the modules that append and read for clients.
        self.appended_bytes = self.appended_records = self.read_bytes = 0
        self._acknowledgements = Acknowledgements()

    def configure(self, configs: Mapping[str, str]) -> None:
        """Applies the topic's configuration, of which only the explicitly set keys are given. The mapping is replaced
        on a change and never modified, so the same mapping is the same configuration."""
        if configs is not self._configured:
            self._configured = configs
            self.config = parse_topic_config(configs)

    # -- the replicated state ---------------------------------------------------------------------------------

    def apply(self, entries: list[Entry]) -> None:
        """Applies committed entries, in order."""
        for entry in entries:
            assert entry.index == self._applied + 1, f"group {self.group}: applied {self._applied}, then {entry.index}"
            self._applied, self._applied_term = entry.index, entry.term
            if entry.kind is EntryKind.BATCH:
                header = parse_header(entry.data)
                # Offsets are dense: a gap here would be a record lost, an overlap a record given twice (I8).
                assert header.base_offset == self.high_watermark, (
                    f"group {self.group}: high watermark {self.high_watermark}, next batch at {header.base_offset}"
                )
                self.high_watermark = header.last_offset + 1
                if entry.index > self.raft.durable_index and not self.leads:
                    # Others hold it durably; a leader has noted its own when it proposed them.
                    self._not_durable.append((header.last_offset, entry.index))
                if entry.index > self._table_index and not self.restoring:
                    if self.transactions is not None and header.is_control:
                        self._end_transaction(header, entry)
                    else:
                        self.producers.apply(header, entry.index, content_digest(header, entry.data))
            elif entry.kind is EntryKind.COMMAND and entry.index > self._table_index:
                apply_command(self, entry)
        self._rows_due = bool(entries) or self._rows_due
        # A deposed leader applies its successor's entries before it learns that it is no longer leader.
        assert self.log_end_offset >= self.high_watermark or not self.leads

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the state by a snapshot's; the entries after it follow, and raise the high watermark."""
        state = snapshot_state(self._reader, self.group, snapshot.data)
        assert state.next_offset >= self.high_watermark, f"group {self.group}: a snapshot of the past"
        self._not_durable.clear()
        self.snapshot = snapshot
        self._applied, self._applied_term = snapshot.last.index, snapshot.last.term
        self._table_index = state.table_index
        self.high_watermark = state.next_offset
        self.log_start_offset = max(self.log_start_offset, state.log_start_offset)
        self._take_table({row.key: row.value for row in state.rows})
        self._rows_due = self._all_rows_due = True

    def _take_table(self, table: dict[bytes, bytes]) -> None:
        self.producers.load(table)
        self.transactions = self.producers.transactions = OpenTransactions.of_table(table)
        self.compaction = CompactionState(table[COMPACTION_ROW]) if COMPACTION_ROW in table else None
        self.restoration = Restoration.of_table(table)

    def state_slices(self, next_offset: int, compacted: CompactedLog | None = None) -> list[bytes]:
        """Returns the current state, for a snapshot that ends before ``next_offset``, cut into slices.

        Arguments:
            compacted: the batches that precede it in the snapshot.
        """
        state = PartitionSnapshot(
            next_offset=next_offset,
            log_start_offset=self.log_start_offset,
            table_index=max(self._applied, self._table_index),
            rows=[TableRow(key=key, value=value) for key, value in sorted(self._all_rows().items())],
        )
        if compacted is not None:
            compacted.describe(state)
        if self._feature_level() < SECOND_FEATURE_LEVEL:
            # Older nodes would take the last slice for the whole state.
            return [state.SerializeToString(deterministic=True)]
        return cut_state(state, self._limits.snapshot_slice_bytes)

    def checkpointed(self, snapshot: Snapshot) -> None:
        """Records that a snapshot of this partition is durable: from now on it is the one to offer."""
        self.snapshot = snapshot
        if self.compaction is not None:
            self.compaction.forget_log_of_other_stage(snapshot.data.stage)

    def compact(self, command: CompactLog) -> None:
        """Applies a committed command: of the records before an offset only the last one of each key is kept."""
        if self.compaction is None:
            self.compaction = CompactionState()
        self.compaction.apply(command, self.log_start_offset, self.high_watermark, self.name)

    def compacted(self, end_offset: int, content_hash: bytes, log: CompactedLog | None) -> None:
        """Records that this replica has carried out the points up to an offset. From now on those records are read from
        ``log``, which becomes durable together with the row."""
        assert self.compaction is not None
        self.compaction.reached(end_offset, content_hash, self.name)
        self.compaction.log = log
        self._forget_aborted()
        self._rows_due = True

    @property
    def compacted_offset(self) -> int:
        """Offset below which this replica's log is compacted: offsets may be missing there."""
        return 0 if self.compaction is None else self.compaction.compacted_offset

    @property
    def compacted_log(self) -> CompactedLog | None:
        """The compacted batches, which precede the log's entries; None without any."""
        if self.compaction is None or not self.compaction.compacted_offset:
            # Its snapshot has no batches. The slices may be gone: a newer snapshot may be durable, and not yet known.
            return None
        if self.compaction.log is None and self.snapshot is not None and self.snapshot.data.slices > 1:
            self.compaction.log = CompactedLog.of_snapshot(self._reader, self.group, self.snapshot.data)
        # All slices may belong to the state.
        return self.compaction.log or None

    def trim(self, log_start_offset: int, index: int) -> None:
        """Applies a committed command, the entry at ``index``: sets the log start offset."""
        # Only committed offsets are proposed: otherwise a new leader might have to assign those offsets to other
        # records.
        assert log_start_offset <= self.high_watermark, f"{self.name}: trimmed beyond its high watermark"
        if log_start_offset > self.log_start_offset:
            self.log_start_offset = log_start_offset
            self.trim_index = index
            self._forget_aborted()

    def open_transaction(self, command: OpenCommand, index: int) -> None:
        """Applies a committed command, the entry at ``index``: opens a producer's transaction."""
        if self.transactions is None:
            self.transactions = self.producers.transactions = OpenTransactions()
        if self.transactions.apply_open(command.producer_id, opened_by(command, self.high_watermark), index):
            self.producers.raise_epoch(
                command.producer_id, command.producer_epoch, self.high_watermark, index, applied=True
            )

    def _end_transaction(self, header: BatchHeader, entry: Entry) -> None:
        """Applies a committed marker."""
        assert self.transactions is not None
        self.transactions.apply_marker(header, entry.data, entry.index)
        self.producers.raise_epoch(
            header.producer_id, header.producer_epoch, header.base_offset, entry.index, applied=True
        )

    def _forget_aborted(self) -> None:
        """Forgets the aborted transactions of which no batch is left to be read, or to be compacted."""
        if self.transactions is not None:
            waits = self.compaction is not None and self.compaction.pending
            end = self.compacted_offset if waits else max(self.compacted_offset, self.log_start_offset)
            self.transactions.aborted.forget_before(end)

    @property
    def last_stable_offset(self) -> int:
        """Offset of the first batch whose transaction may be open; the high watermark if none is."""
        if self.transactions is None:
            return self.high_watermark
        first_open = self.transactions.first_open
        if first_open is None:
            return self.high_watermark
        # A client may delete records of an open transaction. A table from a snapshot is newer than the high watermark.
        return max(self.log_start_offset, min(first_open, self.high_watermark))

    @property
    def feature_level(self) -> int:
        """The cluster's feature level, as far as this node has been notified."""
        return self._feature_level()

    @property
    def restoring(self) -> bool:
        """True while the log accepts only the content of a backup."""
        return self.restoration is not None and not self.restoration.finished

    @property
    def is_taken_by_restore(self) -> bool:
        """True on a leader that accepts only the content of a backup, now or once its log is applied."""
        return self.restoring or self._restore_begins > self._applied

    @property
    def applied_index(self) -> int:
        """Index of the last entry that its state includes."""
        return self._applied

    @property
    def table_index(self) -> int:
        """Index of the last entry that its table includes: a snapshot may have advanced it beyond the applied one."""
        return self._table_index

    def begin_restore(self, command: BeginRestore) -> None:
        """Applies a committed command: starts a restore, if the partition is empty and has none."""
        if self.high_watermark == 0 and self.restoration is None:
            self.restoration = Restoration(command.restore_id, command.compacted_offset)
            self.log_start_offset = command.log_start_offset
            self.high_watermark = command.next_offset
            # A leader's log may have entries after the command: they keep their offsets.
            self.log_end_offset = max(self.log_end_offset, command.next_offset)

    def finish_restore(self, log_start_offset: int, index: int) -> None:
        """Applies a committed command, the entry at ``index``: the restore is over."""
        if self.restoration is not None:
            self.restoration.finish()
            self.trim(log_start_offset, index)

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the rows of the table that changed, to be written with the next transaction."""
        if not self._rows_due:
            return {}
        self._rows_due = False
        rows = self.producers.take_rows()
        if self._all_rows_due:
            # The write that switches to a snapshot removes all of the old table.
            self._all_rows_due = False
            rows = {**self._all_rows()}
        elif self.compaction is not None and self.compaction.row_due:
            rows[COMPACTION_ROW] = self.compaction.row()
        if self.compaction is not None:
            self.compaction.row_due = False
        if self.transactions is not None:
            rows |= self.transactions.take_rows()
        if self.restoration is not None:
            rows |= self.restoration.take_rows()
        rows[META_ROW] = encode_meta(self._applied, self.high_watermark, self.log_start_offset, self._table_index)
        return rows

    def _all_rows(self) -> dict[bytes, bytes]:
        rows = dict(self.producers.rows())
        if self.compaction is not None:
            rows[COMPACTION_ROW] = self.compaction.row()
        if self.transactions is not None:
            rows |= self.transactions.rows()
        if self.restoration is not None:
            rows |= self.restoration.rows()
        return rows

    # -- leadership -------------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """True while this replica leads and has rebuilt its leader state."""
        return self.leading_term != 0 and self.raft.is_leader and self.raft.term == self.leading_term

    def update_leadership(self) -> list[ProduceCall]:
        """Follows the Raft role. Must be called after every step of the Raft group, before anything is appended.

        Returns the produce calls that are done because a leadership ended under them.
        """
        term = self.raft.term if self.raft.is_leader else 0
        if term == self.leading_term:
            return []
        done = self._end_leadership() if self.leading_term else []
        self.leading_term = term
        if term:
            try:
                self._begin_leadership()
            except UnreadableEntryError:
                # A log that cannot be read to its end cannot be led: tried again once it is repaired.
                self.leading_term = 0
        return done

    def _begin_leadership(self) -> None:
        tail: list[tuple[BatchHeader, int, int]] = []
        # What has opened and ended transactions since, with the end of the log there.
        steps: list[tuple[Entry, int]] = []
        self._restore_begins = 0
        index = self._applied + 1
        while index <= self.raft.last_id.index:
            for entry in self.raft.entries_between(index, self.raft.last_id.index, self._limits.fetch_bytes):
                if entry.kind is EntryKind.BATCH:
                    header = parse_header(entry.data)
                    tail.append((header, entry.index, content_digest(header, entry.data)))
                    if header.is_control:
                        steps.append((entry, header.base_offset))
                elif entry.kind is EntryKind.COMMAND:
                    body = command_in(entry).WhichOneof("body")
                    if body == "begin_restore":
                        self._restore_begins = entry.index
                    elif body == "open_transaction":
                        steps.append((entry, tail[-1][0].last_offset + 1 if tail else self.high_watermark))
                index = entry.index + 1
        # A restore has its producers in the backup.
        if not self.restoring:
            newer = [batch for batch in tail if batch[1] > self._table_index]
            self.producers.rebuild_tail([batch for batch in newer if not batch[0].is_control] if steps else newer)
            self._rebuild_transactions([step for step in steps if step[0].index > self._table_index])
        self.log_end_offset = tail[-1][0].last_offset + 1 if tail else self.high_watermark
        self._not_durable = [(each.last_offset, index) for each, index, _ in tail if index > self.raft.durable_index]

    def _rebuild_transactions(self, uncommitted: list[tuple[Entry, int]]) -> None:
        """Rebuilds the overlay of the transactions, after that of the producers: within a log epochs never fall, so the
        last one counts, whether a batch or a transaction has started it."""
        if self.transactions is not None:
            self.transactions.drop_tail()
        for entry, offset in uncommitted:
            if entry.kind is EntryKind.BATCH:
                self._append_marker(parse_header(entry.data), entry, offset)
            else:
                self._append_open(command_in(entry).open_transaction, entry.index, offset)

    def _append_open(self, command: OpenCommand, index: int, offset: int) -> None:
        """Records that a transaction opens at an offset, by an entry that is not committed yet."""
        if self.transactions is None:
            self.transactions = self.producers.transactions = OpenTransactions()
        self.transactions.append_open(command.producer_id, opened_by(command, offset), index)
        self.producers.raise_epoch(command.producer_id, command.producer_epoch, offset, index, applied=False)

    def _append_marker(self, header: BatchHeader, marker: Entry, offset: int) -> None:
        """Records that a transaction ends at an offset, by a marker that is not committed yet."""
        if self.transactions is None:
            self.transactions = self.producers.transactions = OpenTransactions()
        self.transactions.append_marker(header, marker.data, offset, marker.index)
        self.producers.raise_epoch(header.producer_id, header.producer_epoch, offset, marker.index, applied=False)

    def _end_leadership(self) -> list[ProduceCall]:
        self.producers.drop_tail()
        if self.transactions is not None:
            self.transactions.drop_tail()
        self._note_not_durable()
        return _fail(self._acknowledgements.drain(), refusals.leadership_moved(self.name, self.raft))

    def _note_not_durable(self) -> None:
        """Finds the applied batches that this disk may not have yet. The list of a former leader has batches that its
        successor has replaced."""
        self._not_durable.clear()
        # The log may start later if the next leader has sent a snapshot: nothing below it is read any longer.
        index = max(self.raft.durable_index + 1, self.raft.first_index)
        while index <= self._applied:
            for entry in self.raft.entries_between(index, self._applied, self._limits.fetch_bytes):
                if entry.kind is EntryKind.BATCH:
                    self._not_durable.append((parse_header(entry.data).last_offset, entry.index))
                index = entry.index + 1

    def end(self) -> list[ProduceCall]:
        """Ends the replica: its topic is deleted, or it was moved to other nodes.

        Returns the produce calls that are done by that.
        """
        self.leading_term = 0
        return _fail(self._acknowledgements.drain(), refusals.replica_ended(self.name))

    def fail_short_of_copies(self, live_replicas: int) -> list[ProduceCall]:
        """Fails committed batches that need more copies than the live replicas, after a replica was lost.

        Returns the produce calls that are done by that.
        """
        failure = refusals.short_of_copies(self.name, live_replicas)
        committed = self.raft.commit_index if self.raft.leads_committed else 0
        return _fail(self._acknowledgements.take_short(committed, live_replicas), failure)

    @property
    def name(self) -> str:
        """Name in the form topic-number."""
        return f"{self.identity.topic}-{self.identity.number}"

    def not_leader(self) -> errors_pb2.Error:
        """Returns the error for a request that only the leader can serve, with the known leader as a hint."""
        return refusals.not_leader(self.name, self.raft)

    # -- appending --------------------------------------------------------------------------------------------

    @property
    def offsets_left(self) -> int:
        """Number of offsets that clients may use up: every transaction that is open takes one more, for its marker."""
        kept = 0 if self.transactions is None else MAX_OPEN
        return MAX_OFFSET - kept - self.log_end_offset

    @property
    def copies_needed(self) -> int:
        """Number of durable copies that acks=all needs: max(min.insync.replicas, data quorum). The data quorum is the
        minimum number of data replicas in any quorum."""
        configuration = self.raft.configuration
        data_quorum = len(configuration.data_voters) - (len(configuration.voters) - 1) // 2
        return max(self.config.min_insync_replicas, data_quorum)

    def append(
        self, now: int, wall_ms: int, batch: bytes, acks: int, call: ProduceCall, slot: int, live_replicas: int
    ) -> errors_pb2.Error | None:
        """Checks a batch, appends it and makes its slot wait for its ``acks``.

        Arguments:
            now: microseconds; wall_ms: milliseconds since the epoch.
            live_replicas: voters that can be expected to confirm, this one included.
        Returns:
            The error if nothing was appended (always definite), otherwise None.
        """
        if not self.leads:
            return self.not_leader()
        if self.is_taken_by_restore:
            return refusals.being_restored(self.name)
        header = admitted(
            batch, acks, wall_ms, self.identity.topic, self.config, self._limits.batch_bytes, self._feature_level
        )
        if isinstance(header, errors_pb2.Error):
            return header
        if header.record_count > self.offsets_left:
            # Counts are set by the client: with few bytes it can use up the offsets, and none beyond can be written.
            return refusals.no_offsets_left(self.name, header.record_count)
        digest = content_digest(header, batch)
        if header.producer_id != NO_PRODUCER_ID:
            verdict = self.producers.check(header, digest)
            if isinstance(verdict, Refused):
                return refusals.of_batch(verdict)
            if isinstance(verdict, DuplicateBatch):
                # Never answered immediately: the original may be uncommitted, and then be lost (raft.md 22).
                self._wait(acks, call, slot, header, verdict.log_index, verdict.base_offset, -1)
                return None
        if (self.transactions is not None or header.is_transactional) and (refusal := self._refuse_outside(header)):
            return refusal
        if acks == ACKS_ALL and live_replicas < self.copies_needed:
            return refusals.too_few_replicas(self.name, live_replicas, self.copies_needed)
        if is_named(header.producer_id):
            self._have_named_counted_apart(now)
        return self._propose(now, wall_ms, batch, header, digest, acks, call, slot)

    def _refuse_outside(self, header: BatchHeader) -> errors_pb2.Error | None:
        """Returns the error for a batch that does not belong to its producer's open transaction, or to none without
        one."""
        opened = self.transactions.known(header.producer_id).opened if self.transactions is not None else None
        belongs = opened is not None and opened.epoch == header.producer_epoch
        if belongs if header.is_transactional else opened is None:
            return None
        return refusals.outside_of_transaction(self.name, header.producer_id, is_transactional=header.is_transactional)

    def _have_named_counted_apart(self, now: int) -> None:
        """Proposes that named producers are counted separately, before a named producer's batch, once all nodes support
        the command. A partition without named producers does not need it."""
        needed = not self.producers.named_apart and self._named_apart_term != self.leading_term
        if needed and self._feature_level() >= SECOND_FEATURE_LEVEL:
            proposed = self.propose_command(now, PartitionCommand(count_named_apart=CountNamedApart()))
            self._named_apart_term = self.leading_term if proposed else self._named_apart_term

    def _propose(
        self,
        now: int,
        wall_ms: int,
        batch: bytes,
        header: BatchHeader,
        digest: int,
        acks: int,
        call: ProduceCall,
        slot: int,
    ) -> errors_pb2.Error | None:
        base_offset = self.log_end_offset
        is_append_time = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        try:
            entry = self.raft.propose(now, self._sealer.batch(batch, base_offset, wall_ms, is_append_time))
        except NotLeaderError:
            return self.not_leader()
        except ProposalRefusedError as refused:
            return refusals.not_proposed(self.name, refused)
        self.producers.append(header, base_offset, entry.index, digest)
        self.log_end_offset = base_offset + header.record_count
        self._not_durable.append((self.log_end_offset - 1, entry.index))
        if acks == ACKS_NONE:
            call.fill(slot, base_offset=-1, log_append_time_ms=-1)
        else:
            append_ms = wall_ms if is_append_time else -1
            self._wait(acks, call, slot, header, entry.index, base_offset, append_ms)
        return None

    def _wait(
        self,
        acks: int,
        call: ProduceCall,
        slot: int,
        header: BatchHeader,
        index: int,
        base_offset: int,
        append_ms: int,
    ) -> None:
        next_sequence = self.producers.next_sequence(header.producer_id) if header.replayable else 0
        waiter = Waiter(index, self.copies_needed, call, slot, base_offset, append_ms, next_sequence)
        self._acknowledgements.add(acks, waiter)

    def append_restored(self, now: int, entry: bytes, last_offset: int) -> errors_pb2.Error | None:
        """Appends a checked batch of a backup at its original offset, the current end of the log.

        Arguments:
            last_offset: last offset that it must cover, including missing offsets after its records.
        """
        header = parse_header(entry)
        assert self.restoring and header.base_offset == self.log_end_offset and last_offset < MAX_OFFSET
        covered = last_offset if last_offset > header.last_offset else None
        try:
            appended = self.raft.propose(now, self._sealer.restored_batch(entry, header.base_offset, covered))
        except NotLeaderError:
            return self.not_leader()
        except ProposalRefusedError as refused:
            return refusals.takes_none(self.name, refused)
        self.log_end_offset = last_offset + 1
        self._not_durable.append((last_offset, appended.index))
        return None

    def append_marker(self, now: int, wall_ms: int, marker: bytes) -> tuple[int, int]:
        """Appends a marker that ends a transaction, as the leader; returns its index and its offset.

        Raises:
            NotLeaderError, ProposalRefusedError: Raft cannot accept it.
        """
        offset = self.log_end_offset
        entry = self.raft.propose(now, self._sealer.batch(marker, offset, wall_ms, is_append_time=False))
        self._append_marker(parse_header(entry.data), entry, offset)
        self.log_end_offset = offset + 1
        self._not_durable.append((offset, entry.index))
        return entry.index, offset

    def propose_command(self, now: int, command: PartitionCommand) -> bool:
        """Proposes a command that every replica applies once it is committed; returns False if this replica cannot
        now."""
        if not self.leads:
            return False
        try:
            entry = self.raft.propose(now, self._sealer.command(command.SerializeToString(deterministic=True)))
        except (NotLeaderError, ProposalRefusedError):
            return False
        if command.HasField("begin_restore"):
            # Until that is applied nothing may be appended: it would get an offset from before.
            self._restore_begins = entry.index
        elif command.HasField("open_transaction"):
            self._append_open(command.open_transaction, entry.index, self.log_end_offset)
        return True

    def forget_durable(self) -> None:
        """Forgets the batches whose place the index of offsets has by now. Must be called after every step of the Raft
        group: also without waiters, every batch adds to the list."""
        if self._not_durable:
            del self._not_durable[: bisect_right(self._not_durable, self.raft.durable_index, key=itemgetter(1))]

    def resolve_acknowledgements(self) -> list[ProduceCall]:
        """Fills the slots whose conditions are met, and returns the calls that are done."""
        raft = self.raft
        if not self._acknowledgements:
            return []
        # Until an entry of the own term is committed, older ones may still be lost (Raft §5.4.2). Entries that the
        # followers alone have made durable are committed, but not yet below our high watermark: a producer that has
        # received its acknowledgement would ask for the end of the partition and not find its record.
        committed = min(raft.commit_index, self._applied) if raft.leads_committed else 0
        done = []
        for waiter in self._acknowledgements.resolve(committed, raft.durable_index, raft.match_of, self.copies_needed):
            waiter.call.fill(
                waiter.slot,
                base_offset=waiter.base_offset,
                log_append_time_ms=waiter.append_time_ms,
                log_start_offset=self.log_start_offset,
                leader_epoch=raft.term,
                next_sequence=waiter.next_sequence,
            )
            if waiter.call.done:
                done.append(waiter.call)
        return done

    # -- reading ----------------------------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int) -> errors_pb2.Error | None:
        """Returns the error if a client has another leader epoch (KIP-320); -1 is not checked."""
        if leader_epoch in (-1, self.raft.term):
            return None
        return refusals.other_epoch(self.name, self.raft, leader_epoch)

    def check_readable(self, leader_epoch: int) -> errors_pb2.Error | None:
        """Returns the error if this replica may not serve reads: it must lead, with a committed entry of its own term
        (I11)."""
        if not self.leads:
            return self.not_leader()
        # Applied, not only committed: a lookup in the very step in which that entry commits would otherwise return a
        # high watermark below what the last leader has acknowledged.
        if self._applied_term != self.raft.term:
            return refusals.not_ready(self.name)
        return self.check_epoch(leader_epoch)

    @property
    def follows(self) -> bool:
        """True while this replica may serve committed records although it does not lead (KIP-392): it is a voter in
        contact with a leader, and its log is complete.

        Everything that it has applied is committed, so it never serves a record that may be lost. It may lack newer
        ones; a replica without a leader, one that was removed, or one that is being filled could lack them
        indefinitely.
        """
        raft = self.raft
        return (
            raft.role is Role.FOLLOWER
            and raft.leader_id != NO_NODE
            and raft.node_id in raft.configuration.data_voters
            and not raft.log.has_pending_snapshot
            and not self.restoring
        )

    def check_follower(self, leader_epoch: int) -> errors_pb2.Error | None:
        """Returns the error if this replica may serve no reads as a follower."""
        return self.check_epoch(leader_epoch) if self.follows else self.not_leader()

    def check_offset(self, offset: int) -> errors_pb2.Error | None:
        """Returns the error if an offset may not be fetched: it must be between the log start and the log end. A
        follower cannot tell where the log ends: it accepts offsets beyond its own."""
        if self.log_start_offset <= offset <= (self.log_end_offset if self.leads else MAX_OFFSET):
            return None
        return refusals.outside(
            self.name, offset, self.log_start_offset, self.log_end_offset if self.leads else self.high_watermark
        )

    def read_stable(self, offset: int, max_bytes: int) -> list[bytes]:
        """Does the same as ``read``, with batches before the last stable offset alone."""
        end = self.last_stable_offset
        if offset >= end:
            return []
        batches = self.read(offset, max_bytes)
        while batches and parse_header(batches[-1]).base_offset >= end:
            batches.pop()
        return batches

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        """Returns committed batches from the one that contains ``offset``, as stored; at least one if there is one.

        Raises:
            UnreadableEntryError: the first of them is damaged.
        """
        if offset >= self.high_watermark:
            return []
        compacted = self.compacted_log
        if compacted is not None and (batches := compacted.read(offset, max_bytes)):
            return batches
        # Compaction may have left nothing from the offset to its point, where the index on disk may still have batches
        # that the log no longer has.
        offset = max(offset, self.compacted_offset)
        index = self._reader.find_offset(self.group, offset)
        if index is None:
            index = next((index for last_offset, index in self._not_durable if last_offset >= offset), None)
        if index is None and self.restoration is not None:
            return []  # Nothing was appended since a restore started after this offset.
        assert index is not None, f"{self.name}: offset {offset} is below the high watermark but in no index"
        return batches_between(self.raft, index, self._applied, max_bytes)


def encode_meta(applied: int, high_watermark: int, log_start_offset: int, table_index: int) -> bytes:
    """Returns the meta row: the progress of a partition's state.

    Arguments:
        applied: index of the last entry applied to the state.
        high_watermark, log_start_offset: offsets.
        table_index: index of the last entry applied to the table; a snapshot may advance it beyond ``applied``.
    """
    return _META.pack(applied, high_watermark, log_start_offset, table_index)


def decode_meta(row: bytes | None) -> tuple[int, int, int, int]:
    """Returns applied index, high watermark, log start offset and table index of a meta row; zeros without one."""
    return _META.unpack(row) if row is not None else (0, 0, 0, 0)


def _fail(waiters: Iterator[Waiter], failure: errors_pb2.Error) -> list[ProduceCall]:
    done = []
    for waiter in waiters:
        waiter.call.fill(waiter.slot, error=failure, base_offset=-1, log_append_time_ms=-1)
        if waiter.call.done:
            done.append(waiter.call)
    return done
