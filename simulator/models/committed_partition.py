"""Decisions in one partition's committed log: its records, its log start, and its valid writers.

A model beside the replicas. It receives each entry as it is committed, judges it by the earlier ones, and then
determines what a replica may store, discard and report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.simulator.models.committed_transactions import BatchFate, CommittedTransactions
from quorumlog.simulator.models.compacted_content import CompactedContent
from quorumlog.simulator.models.records import largest_timestamp_ms, values_of
from quorumlog.v1.partition_log_pb2 import CompactionState, OpenTransaction, PartitionCommand, PartitionSnapshot
from quorumlog.wire.entry import (
    ENVELOPE_BYTES,
    FIRST_NAMED_PRODUCER_ID,
    NO_PRODUCER_ID,
    SEQUENCE_MODULUS,
    BatchHeader,
    parse_header,
)

#: The row of a partition's table with the progress of a replica's own compaction; it differs between replicas.
OWN_PROGRESS_ROW = b"c"
#: The first byte of the rows of aborted transactions, which a replica removes as its own compaction proceeds.
ABORTED_ROWS = b"a"


#: An append time further in the future than this is from a wrong clock.
MOST_AHEAD_MS = 3_600_000
#: Bytes of a batch of one record beside the record, at most.
MOST_OVERHEAD_BYTES = 1_500


class Violation(Exception):
    """Raised when an invariant is violated. The message names it, the place, and the ids concerned."""


@dataclass(slots=True, frozen=True)
class TopicRetention:
    """Limits of automatic deletion for a topic; -1 sets no bound, as in the topic's configuration."""

    retained_bytes: int
    retained_ms: int


@dataclass(slots=True)
class CommittedBatch:
    """One batch of the committed log.

    Arguments:
        max_timestamp_ms: the largest timestamp of its records, whatever its header claims.
        append_time_ms: when its leader appended it, by that node's clock.
        end_bytes: the size of all batches up to and including this one.
    """

    base_offset: int
    last_offset: int
    index: int
    max_timestamp_ms: int
    append_time_ms: int
    end_bytes: int
    values: list[str]
    entry: Entry

    @property
    def offsets(self) -> range:
        """The offsets that it covers."""
        return range(self.base_offset, self.last_offset + 1)

    def kept_since_ms(self, wall_ms: int) -> int:
        """Returns the time from which its age counts. An append time far in the future is from a wrong clock."""
        appended_ms = self.append_time_ms if self.append_time_ms <= wall_ms + MOST_AHEAD_MS else 0
        return max(self.max_timestamp_ms, appended_ms)


@dataclass(slots=True)
class _ProducerPlace:
    """A producer's position in the log."""

    epoch: int
    next_sequence: int
    index: int


@dataclass(slots=True)
class CommittedPartition:
    """The committed log of one partition.

    Arguments:
        group: its Raft group, for messages.
        batches, batches_in_order: by base offset; including those that are no longer retained.
        next_offset: the offset after the last record.
        log_start: the first available offset.
        deletable: a client has requested the deletion of records below it.
        retentions: all retention limits that its topic has had.
        compaction: content left by its compaction points.
        restored, restoring: True if it comes from a backup; True if its restoration is unfinished.
        restore_began: the entry with which that started, and the log's first offset at that time.
        most_producers: number of other producers without a name that must have written since, before one is forgotten.
    """

    group: int
    batches: dict[int, CommittedBatch] = field(default_factory=dict)
    batches_in_order: list[CommittedBatch] = field(default_factory=list)
    next_offset: int = 0
    log_start: int = 0
    deletable: int = 0
    retentions: set[TopicRetention] = field(default_factory=set)
    restored: bool = False
    restoring: bool = False
    restore_began: tuple[int, int] = (0, 0)
    most_producers: int = 1 << 30
    compaction: CompactedContent = field(default_factory=CompactedContent)
    transactions: CommittedTransactions = field(init=False)
    _starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    _writers: dict[int, _ProducerPlace] = field(default_factory=dict)
    _forgotten_up_to: int = 0
    _tables: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.transactions = CommittedTransactions(self.group)

    # -- log entries -----------------------------------------------------------------------------------------------

    def commit(self, entry: Entry, wall_ms: int) -> None:
        """Applies the next committed entry.

        Arguments:
            wall_ms: the latest time that any node's clock has shown.

        Raises:
            Violation: no replica should have proposed it.
        """
        if entry.kind is EntryKind.BATCH:
            self._batch(entry)
        elif entry.kind is EntryKind.COMMAND:
            command = PartitionCommand.FromString(entry.data[ENVELOPE_BYTES:])
            body = command.WhichOneof("body")
            if body == "trim_log":
                self._trim(entry.index, command.trim_log.log_start_offset, wall_ms)
            elif body == "open_transaction":
                self._open(entry.index, command.open_transaction)
            elif body == "compact_log":
                self._check_point(entry.index, command.compact_log.end_offset)
                self.compaction.apply(command.compact_log, self.next_offset)
            elif body == "forget_producers":
                self._forgotten_up_to = max(self._forgotten_up_to, command.forget_producers.up_to_index)
            elif body == "begin_restore" and not self.next_offset and not self.restored:
                self.restored = self.restoring = True
                self.next_offset = command.begin_restore.next_offset
                self.restore_began = (entry.index, self.next_offset)
                self.log_start = command.begin_restore.log_start_offset
                self._starts.append((entry.index, self.log_start))
            elif body == "restore_producers":
                for each in command.restore_producers.producers:
                    last = each.batches[-1]
                    following = (last.base_sequence + last.record_count) % SEQUENCE_MODULUS
                    self._writers[each.producer_id] = _ProducerPlace(each.epoch, following, entry.index)
            elif body == "finish_restore" and self.restoring:
                self.restoring = False
                self.deletable = max(self.deletable, command.finish_restore.log_start_offset)
                self._trim(entry.index, command.finish_restore.log_start_offset, wall_ms)

    def _open(self, index: int, command: OpenTransaction) -> None:
        """Applies the opening of a transaction, which may start an epoch of its producer."""
        if self.transactions.apply_open(command, index, self.next_offset):
            self._raise_epoch(command.producer_id, command.producer_epoch, index)

    def _raise_epoch(self, producer: int, epoch: int, index: int) -> None:
        known = self._writers.get(producer)
        if known is None or known.epoch < epoch:
            self._writers[producer] = _ProducerPlace(epoch, 0, index)

    def _check_point(self, index: int, end: int) -> None:
        """Checks that a compaction point covers nothing that may still be aborted."""
        stable_offset = self.stable_at(index)
        if end > stable_offset:
            raise Violation(
                f"group {self.group}: entry {index} compacts up to {end}, beyond the last stable offset {stable_offset}"
            )

    def _batch(self, entry: Entry) -> None:
        header = parse_header(entry.data)
        if header.base_offset != self.next_offset:
            raise Violation(
                f"offsets of group {self.group} are not dense: batch at index {entry.index} starts at"
                f" {header.base_offset} instead of {self.next_offset}"
            )
        values = values_of(entry.data)
        wrong = self.transactions.apply_batch(header, entry.index, entry.data)
        if wrong:
            raise Violation(f"group {self.group}: batch {entry.index} {wrong}")
        if len(values) != (0 if header.is_control else header.record_count):
            raise Violation(
                f"batch {entry.index} of group {self.group} has {len(values)} values, not {header.record_count}"
            )
        if header.is_control:
            self._raise_epoch(header.producer_id, header.producer_epoch, entry.index)
        elif not self.restoring:  # Batches of a restore contain their producers.
            self._check_writer(entry.index, header)
            self._check_times(entry, header)
        before = self.batches_in_order[-1].end_bytes if self.batches_in_order else 0
        batch = CommittedBatch(
            header.base_offset,
            header.last_offset,
            entry.index,
            largest_timestamp_ms(entry.data, header),
            header.append_time_ms,
            before + len(entry.data),
            values,
            entry,
        )
        self.batches[header.base_offset] = batch
        self.batches_in_order.append(batch)
        self.next_offset = header.last_offset + 1

    def _check_times(self, entry: Entry, header: BatchHeader) -> None:
        """Checks the timestamps in a header against its records: retention and lookups by time rely on it."""
        largest = largest_timestamp_ms(entry.data, header)
        if header.max_timestamp_ms != largest:
            raise Violation(
                f"group {self.group}: the header of batch {entry.index} says that its largest timestamp is"
                f" {header.max_timestamp_ms}, but that of its records is {largest}"
            )

    def _check_writer(self, index: int, header: BatchHeader) -> None:
        """Checks that a producer's sequence numbers are consecutive, and that an older epoch never follows a newer
        one.
        """
        producer = header.producer_id
        if producer == NO_PRODUCER_ID:
            return
        known = self._writers.get(producer)
        named = producer >= FIRST_NAMED_PRODUCER_ID
        expected = 0 if known is None or header.producer_epoch > known.epoch else known.next_sequence
        restarts = known is not None and not named and header.base_sequence == 0 and self._is_forgotten(known)
        # Its transaction has opened in this epoch, so the producer was known from then on.
        restarts = restarts and producer not in self.transactions.open
        if known is not None and header.producer_epoch < known.epoch and not restarts:
            raise Violation(
                f"group {self.group}: a batch of producer {producer}'s epoch {header.producer_epoch} is committed at"
                f" index {index}, after one of epoch {known.epoch}"
            )
        if header.base_sequence != expected and not restarts:
            raise Violation(
                f"group {self.group}: sequence {header.base_sequence} of producer {producer}, epoch"
                f" {header.producer_epoch}, is committed at index {index}; expected {expected}"
            )
        self._writers[producer] = _ProducerPlace(header.producer_epoch, header.next_sequence, index)

    def _is_forgotten(self, known: _ProducerPlace) -> bool:
        """True if a producer without a name may be forgotten: by a command, or because too many others have written
        since.
        """
        others = (place for number, place in self._writers.items() if number < FIRST_NAMED_PRODUCER_ID)
        later = sum(place.index > known.index for place in others)
        return known.index <= self._forgotten_up_to or later >= self.most_producers

    def _trim(self, index: int, start: int, wall_ms: int) -> None:
        if start <= self.log_start:
            return
        if start > self.next_offset:
            raise Violation(
                f"group {self.group}: entry {index} moves the log start to {start}, beyond the committed end"
                f" {self.next_offset}"
            )
        if start > self.deletable:
            self._check_retention(index, start, wall_ms)
            if start > self.stable_at(index):
                raise Violation(f"group {self.group}: entry {index} removes records of an open transaction")
        self.log_start = start
        self._starts.append((index, start))

    def _check_retention(self, index: int, start: int, wall_ms: int) -> None:
        """Checks that the topic's configuration allows a trim without a request: only whole batches, each of them too
        old by its records and its append time, or with enough bytes after it. Below a compaction point batches are
        other ones, and what compaction removes anyway may be of any age.
        """
        where = f"group {self.group}: entry {index} moves the log start from {self.log_start} to {start}"
        compacted = self.compaction.points[-1].end_offset if self.compaction.points else 0
        if start != self.next_offset and start not in self.batches and start > compacted:
            raise Violation(f"{where}, inside a batch, without a request")
        left = self.compaction.left(compacted, self.entries()) if compacted > self.log_start else {}
        for allowed in self.retentions:
            oldest_ms = wall_ms - allowed.retained_ms
            if all(
                0 <= allowed.retained_bytes <= self._bytes_after(batch, compacted)
                or (allowed.retained_ms >= 0 and batch.kept_since_ms(wall_ms) < oldest_ms)
                or (batch.last_offset < compacted and not any(offset in left for offset in batch.offsets))
                for batch in self._between(self.log_start, start)
            ):
                return
        raise Violation(f"{where}: no {sorted(map(str, self.retentions))} that its topic has had allows that")

    def _bytes_after(self, batch: CommittedBatch, compacted: int) -> int:
        """Returns the size of the batches after one, at most. Compacted ones are in another format, which may add to
        each record as much as a batch has beside its records.
        """
        size = self.batches_in_order[-1].end_bytes - batch.end_bytes
        return size + max(0, compacted - batch.base_offset) * MOST_OVERHEAD_BYTES

    def _between(self, first: int, end: int) -> list[CommittedBatch]:
        place = bisect_right(self.batches_in_order, first, key=attrgetter("base_offset")) - 1
        return [
            batch
            for batch in self.batches_in_order[max(place, 0) :]
            if batch.last_offset >= first and batch.base_offset < end
        ]

    # -- queries ----------------------------------------------------------------------------------------------------

    def log_start_at(self, index: int) -> int:
        """Returns the log start once the entry at ``index`` is applied."""
        return self._starts[bisect_right(self._starts, index, key=lambda start: start[0]) - 1][1]

    def next_offset_at(self, index: int) -> int:
        """Returns the offset after the last record up to the entry at ``index``."""
        place = bisect_right(self.batches_in_order, index, key=attrgetter("index"))
        if place:
            return self.batches_in_order[place - 1].last_offset + 1
        began, first_offset = self.restore_began
        return first_offset if self.restored and began <= index else 0

    def stable_at(self, index: int, hw_index: int | None = None) -> int:
        """Returns the last stable offset once the entry at ``index`` is applied.

        Arguments:
            hw_index: the entry that determines the high watermark, if the table is newer.
        """
        high_watermark = self.next_offset_at(index if hw_index is None else hw_index)
        return max(self.log_start_at(index), self.transactions.stable_at(index, high_watermark))

    def entries(self) -> Iterator[bytes]:
        """Yields all batches that were ever committed, without markers and aborted ones."""
        if not self.transactions:
            return (batch.entry.data for batch in self.batches_in_order)
        left_out = (BatchFate.MARKER, BatchFate.ABORTED)
        return (
            batch.entry.data
            for batch in self.batches_in_order
            if self.transactions.fate_of(parse_header(batch.entry.data)) not in left_out
        )

    def batch_of(self, offset: int) -> CommittedBatch | None:
        """Returns the batch that contains an offset."""
        place = bisect_right(self.batches_in_order, offset, key=attrgetter("base_offset"))
        batch = self.batches_in_order[place - 1] if place else None
        return batch if batch is not None and offset <= batch.last_offset else None

    def first_reaching(self, timestamp_ms: int, first: int, end: int) -> CommittedBatch | None:
        """Returns the first batch with an offset from ``first`` to before ``end`` that contains a record at or after a
        time.
        """
        return next((batch for batch in self._between(first, end) if batch.max_timestamp_ms >= timestamp_ms), None)

    # -- state of replicas -------------------------------------------------------------------------------------------

    def check_meta(self, node: int, applied: int, high_watermark: int, log_start: int, table_index: int) -> None:
        """Judges the state that a replica is about to store.

        Raises:
            Violation: it differs from the log up to that entry.
        """
        expected = (self.next_offset_at(applied), self.log_start_at(max(applied, table_index)))
        if (high_watermark, log_start) != expected:
            raise Violation(
                f"node {node} keeps high watermark and log start {(high_watermark, log_start)} of group {self.group} as"
                f" of entry {applied} (table {table_index}): the log says {expected}"
            )

    def check_snapshot(self, node: int, anchor: int, applied: int, slices: list[bytes]) -> None:
        """Judges a snapshot that is about to replace the log up to the entry at ``anchor``.

        Arguments:
            applied: the entry up to which the replica's table is applied on its disk; -1 where that does not matter.

        Raises:
            Violation: a record would be lost, or the state is not that of the log.
        """
        state, slices = joined_state(slices)
        where = f"node {node} gives up group {self.group} up to entry {anchor} for a snapshot as of {state.table_index}"
        if state.table_index < anchor:
            raise Violation(f"{where}: its table is older than the log that follows it")
        if 0 <= applied < anchor:
            raise Violation(f"{where}: its table on disk is only applied up to {applied}")
        expected = (self.next_offset_at(anchor), self.log_start_at(state.table_index))
        if (state.next_offset, state.log_start_offset) != expected:
            raise Violation(
                f"{where}, next offset and log start {(state.next_offset, state.log_start_offset)}:"
                f" the log says {expected}"
            )
        progress = next((row.value for row in state.rows if row.key == OWN_PROGRESS_ROW), b"")
        compacted = CompactionState.FromString(progress).compacted_offset
        if state.next_offset > max(state.log_start_offset, compacted):
            raise Violation(f"{where}: records from {state.log_start_offset} to {state.next_offset} are lost by that")
        # Retention may leave nothing of what is compacted.
        if slices or compacted > state.log_start_offset:
            wrong = self.compaction.wrong_in(compacted, state.log_start_offset, slices, self.entries())
            if wrong:
                raise Violation(f"{where}, compacted up to {compacted}: {wrong}")
        self._check_aborted(where, state, max(compacted, state.log_start_offset))
        rows = [
            (row.key, row.value) for row in state.rows if row.key != OWN_PROGRESS_ROW and row.key[:1] != ABORTED_ROWS
        ]
        known = self._tables.setdefault(state.table_index, rows)
        if known != rows:
            raise Violation(f"{where}: its table is another than some node had there")

    def _check_aborted(self, where: str, state: PartitionSnapshot, least: int) -> None:
        """Checks that a snapshot has the aborted transactions that its readers may meet. Which others it has depends on
        the replica's own compaction."""
        found = {int.from_bytes(row.key[1:], "big") for row in state.rows if row.key[:1] == ABORTED_ROWS}
        aborted = self.transactions.aborted_at(state.table_index).keys()
        missing = {marker for marker in aborted if marker >= least} - found
        if missing or found - aborted:
            raise Violation(f"{where}: it lacks aborted transactions {missing}, and has others {found - aborted}")


def joined_state(slices: list[bytes]) -> tuple[PartitionSnapshot, list[bytes]]:
    """Returns the state in a partition's snapshot, and the compacted batches before it."""
    last = PartitionSnapshot.FromString(slices[-1])
    batches = len(slices) - 1 - last.state_slices
    state = PartitionSnapshot()
    for part in slices[batches:]:
        state.MergeFromString(part)
    return state, slices[:batches]
