"""Durable state of a node: every Raft group's log, hard state, snapshot and table in one LMDB environment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, TypeVar

import lmdb

from quorumlog.raft.types import Entry
from quorumlog.storage import environment as env
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.entry_rows import KEY_BYTES
from quorumlog.storage.environment import EngineTransaction, Environment
from quorumlog.storage.garbage import MANY_PER_GROUP, Garbage
from quorumlog.storage.interface import (
    DamageError,
    DiskFullError,
    FatalStorageError,
    OpeningDamage,
    ScrubPosition,
    ScrubSlice,
    StorageEngineError,
)
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.quarantine import moved_aside
from quorumlog.storage.raft_group_write import RaftGroupWriter
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.storage.recheck_list import suspect
from quorumlog.storage.reserve import RESERVE_BYTES
from quorumlog.storage.scrubbing import scrub_slice
from quorumlog.storage.space import Room
from quorumlog.storage.sweep import Sweeper
from quorumlog.storage.transaction import RaftGroupState, Space, StorageTransaction
from quorumlog.storage.upgrade import repair_index

#: Rows of garbage deleted per transaction: a few milliseconds of work.
MAX_DELETES = 512
#: A transaction deletes this many more for each row that it puts: garbage must be deleted faster than it is created, or
#: the file would grow for as long as a log is appended to and trimmed.
SWEEP_AHEAD = 2
_Result = TypeVar("_Result")
_Written: TypeAlias = tuple[dict[int, RaftGroupLog], Garbage]


class Storage:
    """Implements ``StorageReader`` for the node's thread, and ``commit`` for the storage thread.

    One thread commits, any may read. Reads are checked (checksums, positions, hash chain) and see whole transactions
    only.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        map_size: int = env.MAP_SIZE_BYTES,
        max_deletes: int = MAX_DELETES,
        reserve_bytes: int = RESERVE_BYTES,
        may_set_aside: Callable[[int], bool] = lambda group: False,
        may_mend: bool = False,
    ) -> None:
        """Opens a data directory, creates it if it is new, and checks its content (see ``opening``).

        Arguments:
            map_size: maximum size of the environment, fixed for the life of the process.
            max_deletes: rows of garbage deleted per transaction, beside those for what it puts.
            reserve_bytes: held back on the disk for the moment when it is full; 0 for none.
            may_set_aside: returns whether the rest is opened if the replica of a Raft group is damaged.
            may_mend: open a log that has a damaged entry that can be repaired.

        Raises:
            DataDirectoryLockedError: another process has it open.
            DamageError: its content is not what was written.
            StorageError: it cannot be used.
        """
        self._environment = Environment(
            Path(data_dir), map_size=map_size, may_set_aside=may_set_aside, may_mend=may_mend
        )
        self._room = Room(self._environment, reserve_bytes)
        self._max_deletes = max_deletes
        # Held during commits. Readers acquire it only to recheck what seemed damaged: a commit in progress may have
        # removed rows that the published ends of a log still include.
        self._commit_lock = threading.Lock()
        self._failure: FatalStorageError | None = None
        self._payload_bytes = 0
        found = self._environment.found
        self._logs: dict[int, RaftGroupLog] = found.logs if found else {}
        self._garbage = found.garbage if found else Garbage()
        self._opening_damage = found.damage if found else OpeningDamage((), {})
        self._repair_index()

    def _repair_index(self) -> None:
        try:
            repair_index(self._environment, self._logs)
        except (lmdb.Error, OSError) as error:
            self._environment.close()
            raise StorageEngineError(
                f"cannot repair the index of {self._environment.data_file}: {error};"
                " free space on the disk, then restart"
            ) from error
        except BaseException:
            self._environment.close()
            raise

    def __enter__(self) -> Storage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def data_dir(self) -> Path:
        """Path of the data directory."""
        return self._environment.data_dir

    def close(self) -> None:
        """Closes the environment and releases the directory. No commit and no read may be in progress."""
        self._environment.close()

    # -- reads -----------------------------------------------------------------------------------------------------

    def opening_damage(self) -> OpeningDamage:
        """Returns the damage that was found at opening."""
        return self._opening_damage

    def moved_aside(self) -> frozenset[str]:
        """Returns the ids of the damaged data directories that this one replaced."""
        return moved_aside(self.data_dir)

    def suspect(self, group: int | None) -> None:
        """Makes the next opening check all of a replica, or all pages with None."""
        suspect(self.data_dir, group)

    def pass_replica(self, group: int) -> None:
        """Checks that a replica's pages can be freed, whatever they contain.

        The engine frees as many pages of a large value as the value's header states, even if they belong to others.

        Raises:
            DamageError: they cannot.
        """
        prefix = rows.group_key(group)
        reader, pages, _ = self._open_pages()
        with reader, pages:
            for database in MANY_PER_GROUP:
                with pages.cursor(database) as cursor:
                    more = cursor.set_range(prefix)
                    while more and cursor.key().startswith(prefix):
                        cursor.pass_item()
                        more = cursor.next()

    def groups(self) -> dict[int, RaftGroupState]:
        """Returns every Raft group with a replica here, without those that were set aside."""
        return self._read(lambda reading: {group: self._group_state(reading, group) for group in self._logs})

    def node_state(self) -> dict[bytes, bytes]:
        """Returns the node's own rows."""
        return self._read(LogReading.node_state)

    def term_at(self, group: int, index: int) -> int:
        """Returns the term of a durable entry, including the anchor's.

        Raises:
            LookupError: the log does not include the index, or no longer does.
        """

        def read(reading: LogReading) -> int:
            log = self._log(group)
            for known in (log.last, log.anchor):
                if index == known.index:
                    return known.term
            _require_within(log, group, index, index)
            return reading.entry(group, index).term

        return self._read(read)

    def hash_at(self, group: int, index: int) -> int:
        """Returns the hash of a durable entry; of a damaged one, as the entry after it has it.

        Raises:
            LookupError: the log does not include the index, or no longer does.
        """

        def read(reading: LogReading) -> int:
            log = self._log(group)
            if index == log.last.index:
                return log.last.hash
            _require_within(log, group, index, index + 1)
            return reading.hash_before(group, index + 1)

        return self._read(read)

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries first..last inclusive, cut at ``max_bytes`` or before a damaged one; at least one.

        Raises:
            LookupError: the log does not include the index, or no longer does.
        """

        def read(reading: LogReading) -> list[Entry]:
            log = self._log(group)
            _require_within(log, group, first, last)
            previous = log.anchor if first == log.anchor.index + 1 else None
            return reading.entries(group, first, last, max_bytes, previous)

        return self._read(read)

    def find_offset(self, group: int, offset: int) -> int | None:
        """Returns the index of the first batch whose last offset is at or after ``offset``; None if none is."""

        def read(reading: LogReading) -> int | None:
            log = self._log(group)
            if log.last_batch is None or offset > log.last_batch.last_offset:
                return None
            row = reading.find_offset(group, max(offset, 0))
            if row is None:
                raise reading.row_damage(group, "offset index", f"offset {offset} is missing")
            if row.index > log.anchor.index and row.base_offset <= offset:
                return row.index
            # Either the offset is before the log's start, or rows are lost; and rows below the anchor may not have been
            # swept yet.
            first = reading.first_batch(group, log.anchor.index + 1, log.last.index)
            if row.index > log.anchor.index and row.index != first:
                raise reading.row_damage(group, "offset index", f"offset {offset} is missing")
            return first

        return self._read(read)

    def last_batch(self, group: int) -> BatchRow | None:
        """Returns the last durable batch above the anchor, or None. Kept in memory: costs nothing."""
        return self._log(group).last_batch

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """Returns the first batch that ends at or after ``first_offset`` and satisfies ``reached``, or None."""

        def read(reading: LogReading) -> BatchRow | None:
            log = self._log(group)
            last = log.last_batch
            if last is None or first_offset > last.last_offset or not reached(last):
                return None
            return reading.find_batch(group, log.anchor.index, max(first_offset, 0), last, reached)

        return self._read(read)

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        """Returns one slice of a snapshot's data."""
        return self._read(lambda reading: reading.snapshot_slice(group, stage, number))

    def space(self) -> Space:
        """Returns the current use of the storage. Cheap enough for once a second."""
        return self._room.space()

    def scrub(self, position: ScrubPosition, max_bytes: int) -> ScrubSlice:
        """Reads from ``position`` and checks what it reads; see ``scrubbing``."""
        try:
            reader, pages, logs = self._open_pages()
        except DamageError as damage:
            return ScrubSlice(None, 0, (damage,))
        with reader, pages:
            done = scrub_slice(pages, self.data_dir, position, max_bytes, partial(_matters, logs), logs)
        for found in done.found:
            self._suspect(found)
        return done

    def _open_pages(self) -> tuple[EngineTransaction, PageFile, Mapping[int, RaftGroupLog]]:
        """Opens the data file at its newest commit, and returns a reader, the file, and the ends of the logs in it.

        The commit does not change until the reader is closed.
        """
        # Read the meta pages while they are not being written.
        with self._commit_lock:
            reader = self._environment.lmdb.begin()
            try:
                return reader, PageFile(self._environment.data_file), self._logs
            except DamageError:
                reader.abort()
                raise

    def _suspect(self, damage: DamageError) -> None:
        """Records damage that is not in an entry, so that the next opening checks all of that replica, or all pages.

        Otherwise it would open what it does not check itself, and the process would crash again at the same damage.
        """
        if damage.index is None:
            suspect(self.data_dir, damage.group)

    # -- writes ----------------------------------------------------------------------------------------------------

    def commit(self, transaction: StorageTransaction) -> None:
        """Makes a transaction durable, completely or not at all: when it returns, it has been synced.

        Raises:
            DiskFullError: no space is left; nothing was written and it can be retried.
            FatalStorageError: the process must stop, because of this failure or an earlier one.
            DamageError: what the write has to read is damaged; nothing was written.
        """
        self._commit(lambda txn: self._write(txn, transaction))

    def sweep(self) -> bool:
        """Deletes one slice of garbage in a separate transaction.

        Returns:
            True while more is left.

        Raises:
            As ``commit``.
        """
        if self._garbage:
            self._commit(lambda txn: (self._logs, self._sweep(txn, self._garbage.copy(), self._max_deletes)))
        return bool(self._garbage)

    def _write(self, txn: EngineTransaction, transaction: StorageTransaction) -> _Written:
        writer = RaftGroupWriter(self._environment, txn)
        changed: dict[int, RaftGroupLog | None] = {}
        garbage = self._garbage.copy()
        for write in transaction.writes:
            group = write.group
            if group in changed:
                raise FatalStorageError(f"refused to write group {group} twice in one transaction")
            old = self._logs.get(group)
            if old is None and group in self._opening_damage.replicas and write.destroy and write.create is None:
                writer.end_damaged(group)
                changed[group] = garbage.logs[group] = None
                continue
            new = changed[group] = writer.write(old, write)
            if new is None:
                garbage.logs[group] = None
            elif old is None:
                garbage.logs.pop(group, None)
            elif new.anchor.index > old.anchor.index:
                garbage.logs[group] = new.anchor.index
        garbage.stages.update(dict.fromkeys(writer.left_stages))
        for key, value in transaction.node_state.items():
            writer.set_node_row(key, value)
        self._payload_bytes = writer.payload_bytes
        if writer.payload_bytes:
            self._room.require(writer.payload_bytes)
        writer.finish()
        logs = dict(self._logs)
        for group, log in changed.items():
            if log is not None:
                logs[group] = log
            else:
                logs.pop(group, None)
        return logs, self._sweep(txn, garbage, self._max_deletes + SWEEP_AHEAD * writer.rows_put)

    def _sweep(self, txn: EngineTransaction, garbage: Garbage, max_deletes: int) -> Garbage:
        """Deletes one slice; returns what is left."""
        if garbage:
            Sweeper(self._environment, txn, max_deletes).sweep_all(garbage)
        return garbage

    def _commit(self, write: Callable[[EngineTransaction], _Written]) -> None:
        with self._commit_lock:
            if self._failure is not None:
                raise FatalStorageError(f"storage has failed earlier: {self._failure}")
            try:
                try:
                    written = self._try_commit(write)
                except DiskFullError:
                    if not self._room.make(self._payload_bytes):
                        raise
                    written = self._try_commit(write)
            except FatalStorageError as error:
                self._failure = error
                raise
            except DamageError as damage:
                self._suspect(damage)
                raise
            self._logs, self._garbage = written
            self._room.restore_reserve()

    def _try_commit(self, write: Callable[[EngineTransaction], _Result]) -> _Result:
        try:
            with self._environment.writing() as txn:
                return write(txn)
        except lmdb.Error as error:
            raise self._room.failed_commit(error, self._payload_bytes) from error
        except SystemError as error:
            # A deletion whose cursor finds damage behind what it deleted: the binding raises SystemError with the
            # engine's exception as its cause.
            if not isinstance(error.__cause__, lmdb.Error):
                raise
            raise self._room.failed_commit(error.__cause__, self._payload_bytes) from error

    # -- the reader's side -----------------------------------------------------------------------------------------

    def _read(self, read: Callable[[LogReading], _Result]) -> _Result:
        try:
            with self._environment.reading() as reading:
                return read(reading)
        except DamageError:
            try:
                with self._commit_lock, self._environment.reading() as reading:
                    return read(reading)
            except DamageError as damage:
                self._suspect(damage)
                raise

    def _log(self, group: int) -> RaftGroupLog:
        log = self._logs.get(group)
        if log is None:
            raise LookupError(f"there is no replica of group {group} in {self.data_dir}")
        return log

    def _group_state(self, reading: LogReading, group: int) -> RaftGroupState:
        log = self._log(group)
        return RaftGroupState(
            group=group,
            configuration=reading.configuration(group),
            hard_state=log.hard_state,
            anchor=log.anchor,
            last=log.last,
            snapshot=reading.snapshot(group),
            table=reading.table(group),
        )


def _matters(logs: Mapping[int, RaftGroupLog], database: bytes, key: bytes) -> bool:
    """True for rows with a meaning: of the node, or of an existing replica, and of its log above the anchor."""
    if database in rows.OF_THE_NODE:
        # The second copy of a vote is rewritten with the next vote.
        return not key.startswith(rows.BALLOT_PREFIX)
    log = logs.get(rows.group_of(key))
    if log is None or database != rows.ENTRIES:
        return log is not None
    return int.from_bytes(key[4:KEY_BYTES], "big") > log.anchor.index


def _require_within(log: RaftGroupLog, group: int, first: int, last: int) -> None:
    if not log.anchor.index < first <= last <= log.last.index:
        raise LookupError(
            f"entries {first} to {last} of group {group} are not within {log.anchor.index + 1} to {log.last.index}"
        )
