"""Part of a transaction for one Raft group, in the order of the fields of ``RaftGroupWrite``.

Each step asserts the log's invariants before it writes: a bug above storage must stop the process with the old state
intact on disk, not be made durable. What storage cannot find out (whether an entry was committed) it takes from the
stored hard state, whose commit index may lag but never lead.
"""

from __future__ import annotations

import struct
import sys

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow, next_row
from quorumlog.storage.batch_times import is_largest_timestamp_missing, largest_timestamp_by_records
from quorumlog.storage.entry_rows import cut
from quorumlog.storage.environment import EngineSource, EngineTransaction, Environment
from quorumlog.storage.interface import DamageError, FatalStorageError
from quorumlog.storage.overflow_page_check import look_before_freeing
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.storage.sweep import Sweeper
from quorumlog.storage.transaction import RaftGroupWrite, SnapshotSlice
from quorumlog.wire.entry import ENVELOPE_BYTES, CorruptEntryError, entry_hash, parse_envelope, parse_header, verify
from quorumlog.wire.kafka.entry import is_kafka

#: Fields of a batch's header: base offset, record count, largest timestamp, offset delta.
_INDEXED = struct.Struct("<qI12xq20xI")


class RaftGroupWriter:
    """Writes Raft groups within one LMDB transaction.

    It collects the entries and offset rows of all groups, and puts each database's rows in one call at the end
    (``finish``).
    """

    def __init__(self, environment: Environment, txn: EngineTransaction) -> None:
        self._txn = txn
        self._environment = environment
        self._databases = environment.databases
        self._reading = LogReading(EngineSource(environment, txn), environment.data_dir)
        self.payload_bytes = 0
        self.rows_put = 0
        self.left_stages: list[tuple[int, int]] = []
        self._entries: list[tuple[bytes, bytes]] = []
        self._offsets: list[tuple[bytes, bytes]] = []

    def write(self, log: RaftGroupLog | None, write: RaftGroupWrite) -> RaftGroupLog | None:
        """Applies one write.

        Arguments:
            log: the Raft group's current log, None if the replica does not exist.

        Returns:
            The log after the write.

        Raises:
            FatalStorageError: the write contradicts what is stored.
        """
        group = write.group
        if write.create is not None:
            log = self._create(group, log, write.create)
        if write.destroy:
            if log is None:
                raise _refusal(group, "destroy of a replica that does not exist")
            self._drop_rows(group)
            log = None
        if log is None:
            nothing_else = RaftGroupWrite(group, create=write.create, destroy=True)
            if write != nothing_else:
                raise _refusal(group, "write to a replica that does not exist")
            return None
        if write.stage:
            self._stage(group, write.stage)
        if write.snapshot is not None:
            if write.hard_state is None:
                raise _refusal(group, "snapshot without its hard state")
            log = self._install(group, log, write.snapshot)
        if write.truncate_from is not None:
            log = self._truncate(group, log, write.truncate_from)
        if write.entries:
            log = self._append(group, log, write.entries)
        if write.hard_state is not None:
            log = self._set_hard_state(group, log, write.hard_state)
        if write.configuration is not None:
            self._put_row(rows.CONFIGURATIONS, rows.group_key(group), rows.pack_configuration(write.configuration))
        for key, value in write.table.items():
            self._set_table_row(group, key, value)
        if write.checkpoint is not None:
            self._keep_checkpoint(group, log, write.checkpoint)
        if write.compact_to is not None:
            log = self._compact(group, log, write.compact_to)
        if write.unstage:
            self._unstage(group, write.unstage)
        for entry in write.mend:
            self._mend(group, log, entry)
        return log

    def finish(self) -> None:
        """Puts the collected rows."""
        self._put_new(rows.ENTRIES, self._entries)
        self._put_new(rows.OFFSETS, self._offsets)

    def set_node_row(self, key: bytes, value: bytes | None) -> None:
        """Puts one of the node's own rows, or deletes it with None."""
        if not 0 < len(key) <= rows.MAX_KEY_BYTES or key.startswith(rows.BALLOT_PREFIX):
            raise _refusal(0, f"node state key of {len(key)} bytes")
        if value is None:
            self._txn.delete(key, db=self._databases[rows.NODE_STATE])
        else:
            self._put_row(rows.NODE_STATE, key, value)

    # -- the steps -------------------------------------------------------------------------------------------------

    def _create(self, group: int, log: RaftGroupLog | None, configuration: Configuration) -> RaftGroupLog:
        if log is not None:
            raise _refusal(group, "create of a replica that exists")
        # An earlier replica of this group may not have been swept yet: its rows must not reappear.
        Sweeper(self._environment, self._txn, max_deletes=sys.maxsize).sweep(group, None)
        key = rows.group_key(group)
        state = HardState()
        self._put_row(rows.CONFIGURATIONS, key, rows.pack_configuration(configuration))
        self._put_row(rows.ANCHORS, key, rows.pack_entry_id(ORIGIN))
        self._put_row(rows.HARD_STATES, key, rows.pack_hard_state(state))
        return RaftGroupLog(ORIGIN, ORIGIN, state, None)

    def _drop_rows(self, group: int) -> None:
        """Removes a replica: without these rows it does not exist, and its other rows are garbage to sweep."""
        key = rows.group_key(group)
        for name in (rows.CONFIGURATIONS, rows.ANCHORS, rows.HARD_STATES, rows.SNAPSHOTS):
            self._txn.delete(key, db=self._databases[name])
        self._txn.delete(rows.ballot_key(group), db=self._databases[rows.NODE_STATE])

    def end_damaged(self, group: int) -> None:
        """Removes a replica that was set aside."""
        self._drop_rows(group)

    def _install(self, group: int, log: RaftGroupLog, snapshot: Snapshot) -> RaftGroupLog:
        # Keeping entries above the snapshot would keep entries that conflict with it; entries below are garbage by the
        # new anchor.
        last = snapshot.last
        if last.index < max(log.hard_state.commit, log.anchor.index):
            raise _refusal(group, f"snapshot at {last.index} is older than what is committed ({log.hard_state.commit})")
        key = rows.group_key(group)
        if snapshot.data.slices:
            self._switch(group, snapshot)
        else:
            self._leave_snapshot(group)
        self._delete_entries_from(group, last.index + 1)
        # Uncommitted batches may have taken offsets that the new history assigns to other batches.
        self._delete_offsets_from(group, log.hard_state.commit + 1)
        self._delete_table(group)
        self._put_row(rows.ANCHORS, key, rows.pack_entry_id(last))
        self._put_row(rows.CONFIGURATIONS, key, rows.pack_configuration(snapshot.configuration))
        return RaftGroupLog(last, last, log.hard_state, None)

    def _stage(self, group: int, slices: list[SnapshotSlice]) -> None:
        current = self._reading.snapshot(group)
        for piece in slices:
            key = rows.slice_key(group, piece.stage, piece.number)
            row = rows.seal_row(rows.SLICES, key, piece.data)
            in_use = current is not None and current.data.stage == piece.stage
            if in_use or not self._txn.put(key, row, overwrite=False, db=self._databases[rows.SLICES]):
                raise _refusal(group, f"slice {piece.number} of stage {piece.stage:#x}, which exists already")
            self.payload_bytes += len(piece.data)

    def _switch(self, group: int, snapshot: Snapshot) -> None:
        """Switches to another snapshot's slices.

        Their content was checked on arrival; here, none may be missing, or a crash after this would leave a replica
        without its state.
        """
        stage, slices = snapshot.data.stage, snapshot.data.slices
        staged = self._reading.count_slices(group, stage)
        if staged != slices or not slices:
            raise _refusal(group, f"snapshot of {slices} slices, of which {staged} are staged")
        before = self._reading.snapshot(group)
        if before is not None and before.data.stage != stage:
            self.left_stages.append((group, before.data.stage))
        self._put_row(rows.SNAPSHOTS, rows.group_key(group), rows.pack_snapshot(snapshot))

    def _leave_snapshot(self, group: int) -> None:
        """Removes the snapshot of a witness: its log restarts after a position, without a state."""
        before = self._reading.snapshot(group)
        if before is not None:
            self.left_stages.append((group, before.data.stage))
            self._txn.delete(rows.group_key(group), db=self._databases[rows.SNAPSHOTS])

    def _unstage(self, group: int, stages: list[int]) -> None:
        current = self._reading.snapshot(group)
        for stage in stages:
            if current is not None and current.data.stage == stage:
                raise _refusal(group, f"unstage of {stage:#x}, the data of its snapshot")
            self.left_stages.append((group, stage))

    def _truncate(self, group: int, log: RaftGroupLog, index: int) -> RaftGroupLog:
        if index <= max(log.anchor.index, log.hard_state.commit):
            kept = f"anchor {log.anchor.index} and commit index {log.hard_state.commit}"
            raise _refusal(group, f"truncation from {index}, with {kept}")
        if index > log.last.index:
            return log
        self._delete_entries_from(group, index)
        self._delete_offsets_from(group, index)
        last = log.anchor if index - 1 == log.anchor.index else self._reading.entry_id(group, index - 1)
        return RaftGroupLog(log.anchor, last, log.hard_state, self._reading.last_batch(group, log.anchor.index))

    def _append(self, group: int, log: RaftGroupLog, entries: list[Entry]) -> RaftGroupLog:
        index, term, previous_hash = log.last
        last_batch = log.last_batch
        for entry in entries:
            data = entry.data
            try:
                envelope = parse_envelope(data)
            except CorruptEntryError as error:
                raise _refusal(group, str(error)) from error
            index += 1
            consistent = (
                entry.index == index == envelope.index
                and term <= entry.term == envelope.term
                and envelope.group == group
                and envelope.previous_hash == previous_hash
                and envelope.kind == int(entry.kind)
                and entry.hash == entry_hash(data)
            )
            if not consistent:
                raise _refusal(group, f"entry {entry[:4]}, {envelope} after {(index - 1, term, previous_hash)}")
            term, previous_hash = entry.term, entry.hash
            self._entries += cut(rows.position_key(group, index), data)
            self.payload_bytes += len(data)
            if entry.kind is EntryKind.BATCH:
                last_batch = self._index_batch(group, index, last_batch, data)
        return RaftGroupLog(log.anchor, EntryId(index, term, previous_hash), log.hard_state, last_batch)

    def _mend(self, group: int, log: RaftGroupLog, entry: Entry) -> None:
        """Writes an entry again, if it is the one that was here.

        Its hash must equal that in the entry after it, or that of the log's end. A damaged successor proves nothing: it
        has to be repaired first.
        """
        self._flush()
        if not log.anchor.index < entry.index <= log.last.index:
            return
        # The engine frees the pages of the old rows as their headers state. A damaged header would make it free those
        # of other rows, so they are visited without it first.
        with PageFile(self._environment.data_file) as pages:
            LogReading(pages, self._environment.data_dir).pass_entry(group, entry.index)
        try:
            is_last = entry.index == log.last.index
            known_hash = log.last.hash if is_last else self._reading.hash_before(group, entry.index + 1)
            verify(entry.data)
        except (DamageError, CorruptEntryError):
            return
        if entry_hash(entry.data) == known_hash:
            for key, row in cut(rows.position_key(group, entry.index), entry.data):
                self._txn.put(key, row, db=self._databases[rows.ENTRIES])
            self.payload_bytes += len(entry.data)

    def _index_batch(self, group: int, index: int, before: BatchRow | None, data: bytes) -> BatchRow:
        base, count, max_timestamp_ms, delta = _INDEXED.unpack_from(data, ENVELOPE_BYTES)
        if is_kafka(data) and is_largest_timestamp_missing(data):
            max_timestamp_ms = largest_timestamp_by_records(data, parse_header(data))
        # A compacted batch that was restored covers more offsets than it has records.
        row = next_row(before, index, base, delta + 1 if delta else count, max_timestamp_ms, len(data))
        if row is None:
            raise _refusal(group, f"batch {index} at offset {base} of {count} after {before}")
        key = rows.position_key(group, row.last_offset)
        self._offsets.append((key, rows.seal_row(rows.OFFSETS, key, rows.pack_batch_row(row))))
        return row

    def _set_hard_state(self, group: int, log: RaftGroupLog, state: HardState) -> RaftGroupLog:
        old = log.hard_state
        kept_vote = state.term > old.term or state.vote == old.vote or old.vote < 0
        if state.term < old.term or not kept_vote or not old.commit <= state.commit <= log.last.index:
            raise _refusal(group, f"hard state {state} after {old}, log ends at {log.last.index}")
        self._put_row(rows.HARD_STATES, rows.group_key(group), rows.pack_hard_state(state))
        if (state.term, state.vote) != (old.term, old.vote):
            self._put_row(rows.NODE_STATE, rows.ballot_key(group), rows.pack_hard_state(state))
        return RaftGroupLog(log.anchor, log.last, state, log.last_batch)

    def _set_table_row(self, group: int, key: bytes, value: bytes | None) -> None:
        full_key = rows.group_key(group) + key
        if len(full_key) > rows.MAX_KEY_BYTES:
            raise _refusal(group, f"table key of {len(key)} bytes")
        if value is None:
            self._txn.delete(full_key, db=self._databases[rows.TABLES])
        else:
            self._put_row(rows.TABLES, full_key, value)

    def _keep_checkpoint(self, group: int, log: RaftGroupLog, snapshot: Snapshot) -> None:
        self._require_entry(group, log, snapshot.last, "checkpoint at")
        self._switch(group, snapshot)

    def _compact(self, group: int, log: RaftGroupLog, anchor: EntryId) -> RaftGroupLog:
        if anchor.index == log.anchor.index:
            return log
        self._require_entry(group, log, anchor, "compaction to")
        self._put_row(rows.ANCHORS, rows.group_key(group), rows.pack_entry_id(anchor))
        kept = log.last_batch if log.last_batch is not None and log.last_batch.index > anchor.index else None
        return RaftGroupLog(anchor, log.last, log.hard_state, kept)

    def _require_entry(self, group: int, log: RaftGroupLog, wanted: EntryId, what: str) -> None:
        """Checks that the log has exactly that entry: a snapshot of another history must not replace ours."""
        if not log.anchor.index <= wanted.index <= log.last.index:
            raise _refusal(group, f"{what} {wanted}, log is {log}")
        self._flush()
        if wanted.index == log.anchor.index:
            known = log.anchor
        else:
            try:
                known = self._reading.entry_id(group, wanted.index)
            except DamageError:
                # Its bytes are lost, but its identity is known.
                is_last = wanted.index == log.last.index
                known_hash = log.last.hash if is_last else self._reading.hash_before(group, wanted.index + 1)
                known = wanted._replace(hash=known_hash)
        if known != wanted:
            raise _refusal(group, f"{what} {wanted}, the log has {known}")

    # -- rows -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self.finish()
        self._entries, self._offsets = [], []

    def _put_row(self, database: bytes, key: bytes, body: bytes) -> None:
        self._txn.put(key, rows.seal_row(database, key, body), db=self._databases[database])

    def _put_new(self, database: bytes, items: list[tuple[bytes, bytes]]) -> None:
        if not items:
            return
        self.rows_put += len(items)
        with self._txn.cursor(self._databases[database]) as cursor:
            _, added = cursor.putmulti(items, dupdata=False, overwrite=False)
        if added != len(items):
            raise FatalStorageError(
                f"{len(items) - added} rows of {database.decode()} exist that are missing from the log"
            )

    def _delete_entries_from(self, group: int, index: int) -> None:
        """Removes entries at and above ``index``."""
        prefix, first = rows.group_key(group), rows.position_key(group, index)
        look_before_freeing(
            self._environment, rows.ENTRIES, first, lambda key: key.startswith(prefix), most=sys.maxsize
        )
        with self._txn.cursor(self._databases[rows.ENTRIES]) as cursor:
            self._reading.seek(cursor, first)
            while cursor.key().startswith(prefix):
                cursor.delete()

    def _delete_offsets_from(self, group: int, index: int) -> None:
        """Removes the offset rows of entries at and above ``index``."""
        with self._txn.cursor(self._databases[rows.OFFSETS]) as cursor:
            while self._reading.seek_last(cursor, group) and self._reading.batch_row(cursor).index >= index:
                cursor.delete()

    def _delete_table(self, group: int) -> None:
        prefix = rows.group_key(group)
        with self._txn.cursor(self._databases[rows.TABLES]) as cursor:
            cursor.set_range(prefix)
            while cursor.key().startswith(prefix):
                cursor.delete()


def _refusal(group: int, what: str) -> FatalStorageError:
    return FatalStorageError(f"refused to write group {group}: {what}")
