"""Verified reads of the databases, through the engine or without it.

The node's thread reads for the node, the storage thread what its writes need; the checks before opening and the
inspection read the same way from the bare file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import google_crc32c

from quorumlog.raft.types import Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.entry_rows import KEY_BYTES, missing_bytes
from quorumlog.storage.interface import DamageError
from quorumlog.storage.meta_pages import WHAT_TO_DO
from quorumlog.wire.entry import CorruptEntryError, Envelope, entry_hash, parse_envelope, verify

_Value = TypeVar("_Value")
_KINDS = {int(kind): kind for kind in EntryKind}


@dataclass(slots=True, frozen=True)
class RaftGroupLog:
    """The ends of one Raft group's durable log: every write of the group is checked against them.

    It is replaced as a whole once a transaction is durable, so that the node's thread reads a consistent one while the
    storage thread writes.

    Arguments:
        anchor: the entry before the first kept one. Rows at or below it are garbage that is not swept yet.
        last: the last entry; equal to ``anchor`` when none is kept.
        hard_state: as stored.
        last_batch: the last batch kept; None when no batch is.
    """

    anchor: EntryId
    last: EntryId
    hard_state: HardState
    last_batch: BatchRow | None

    def __post_init__(self) -> None:
        assert self.anchor.index <= self.last.index, f"log ends before it starts: {self}"


class Cursor(Protocol):
    """A position in a database, as in LMDB's binding. Movements return False at the end."""

    def first(self) -> bool: ...
    def last(self) -> bool: ...
    def next(self) -> bool: ...
    def prev(self) -> bool: ...
    def set_range(self, key: bytes, /) -> bool: ...
    def key(self) -> bytes: ...
    def item(self) -> tuple[bytes, bytes]: ...
    def __iter__(self) -> Iterator[tuple[bytes, bytes]]: ...


class Source(Protocol):
    """One consistent state of the databases: a transaction of the engine, or a data file read without it."""

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""

    def cursor(self, database: bytes) -> AbstractContextManager[Cursor]:
        """Returns a cursor without a position."""


class LogReading:
    """Reads one source. All results have been verified."""

    def __init__(self, source: Source, data_dir: Path) -> None:
        self._source = source
        self._where = data_dir

    def entries(self, group: int, first: int, last: int, max_bytes: int, previous: EntryId | None) -> list[Entry]:
        """Returns entries first..last inclusive, cut at ``max_bytes`` or before a damaged one; at least one.

        Arguments:
            previous: the entry before ``first`` if it is known, for the check of the chain.

        Raises:
            DamageError: the first one is damaged.
        """
        found: list[Entry] = []
        expected = first
        size = 0
        previous_hash = previous.hash if previous is not None else None
        with self._source.cursor(rows.ENTRIES) as cursor:
            more = self.seek(cursor, rows.position_key(group, first))
            while more:
                key, data = cursor.item()
                if key != rows.position_key(group, expected):
                    break
                try:
                    entry, envelope = self._checked(group, expected, self._joined(cursor, key, data))
                except DamageError:
                    if found:
                        return found
                    raise
                if previous_hash is not None and envelope.previous_hash != previous_hash:
                    # Not cut here: a caller that continues from this entry alone would not notice.
                    raise self.chain_damage(group, entry.index, entry.hash)
                previous_hash = entry.hash
                found.append(entry)
                size += len(entry.data)
                expected += 1
                if expected > last or size >= max_bytes:
                    return found
                more = cursor.next()
        if found:
            return found
        raise self.damage(group, expected, "it is missing")

    def chain_damage(self, group: int, index: int, entry_hash_: int) -> DamageError:
        """Reports two intact entries that do not follow each other.

        The damaged one is the first if the entry after them confirms the second; otherwise the second.
        """
        try:
            if self.hash_before(group, index + 1) == entry_hash_:
                return self.damage(group, index - 1, "the entry after it follows another one (hash chain)")
        except DamageError:
            pass
        return self.damage(group, index, "it does not follow the entry before it (hash chain)")

    def entry(self, group: int, index: int) -> Entry:
        """Returns one entry."""
        key = rows.position_key(group, index)
        data = self._source.get(rows.ENTRIES, key)
        if data is None:
            raise self.damage(group, index, "it is missing")
        if missing_bytes(data):
            with self._source.cursor(rows.ENTRIES) as cursor:
                self.seek(cursor, key)
                data = self._joined(cursor, key, data)
        return self._checked(group, index, data)[0]

    def has_entry(self, group: int, index: int) -> bool:
        """True if an entry's row exists, whatever it contains."""
        return self._source.get(rows.ENTRIES, rows.position_key(group, index)) is not None

    def hash_before(self, group: int, index: int) -> int:
        """Returns the hash of the entry before ``index``, as the entry at ``index`` has it."""
        return parse_envelope(self.entry(group, index).data).previous_hash

    def pass_entry(self, group: int, index: int) -> None:
        """Visits the rows of an entry, whatever they contain, to check their pages."""
        key = rows.position_key(group, index)
        with self._source.cursor(rows.ENTRIES) as cursor:
            more = self.seek(cursor, key)
            while more and cursor.key().startswith(key):
                cursor.item()
                more = cursor.next()

    def checked_rows(
        self, database: bytes, key: bytes, follow: Callable[[int, int, Envelope | None, int], None] | None = None
    ) -> Iterator[tuple[bytes, int, DamageError | None]]:
        """Yields every row of a database from ``key`` on: its key, its size in bytes, and its damage, if any.

        The rows of an entry count as one, with the key of the first.

        Arguments:
            follow: called with each entry's group, index, envelope (None if it is damaged) and hash.

        Raises:
            DamageError: the pages that lead to it are damaged.
        """
        with self._source.cursor(database) as cursor:
            more = self.seek(cursor, key) if key else cursor.first()
            while more:
                found, row = cursor.item()
                damage = None
                try:
                    if database == rows.ENTRIES:
                        group, index = self._position(found)
                        row = self._joined(cursor, found, row)
                        try:
                            entry, envelope = self._checked(group, index, row)
                        except DamageError:
                            if follow is not None:
                                follow(group, index, None, 0)
                            raise
                        if follow is not None:
                            follow(group, index, envelope, entry.hash)
                    else:
                        self.body(database, -1 if database in rows.OF_THE_NODE else rows.group_of(found), found, row)
                except DamageError as error:
                    damage = error
                yield found, len(found) + len(row), damage
                more = cursor.next()
                while more and database == rows.ENTRIES and cursor.key()[:KEY_BYTES] == found[:KEY_BYTES]:
                    more = cursor.next()

    def _joined(self, cursor: Cursor, key: bytes, first: bytes) -> bytes:
        """Returns all bytes of the entry whose first row is at the cursor, and moves the cursor to its last row."""
        missing = missing_bytes(first)
        if not missing:
            return first
        parts, number = [first], 1
        while missing > 0 and cursor.next():
            following, data = cursor.item()
            if following != key + bytes((number,)):
                break
            parts.append(data)
            missing -= len(data)
            number += 1
        return b"".join(parts)

    def entries_backwards(self, group: int, last: int, first: int) -> Iterator[tuple[Entry, int]]:
        """Yields entries last..first in descending order, each with its previous hash. One seek for all of them."""
        with self._source.cursor(rows.ENTRIES) as cursor:
            found = self.seek(cursor, rows.position_key(group, last))
            for index in range(last, first - 1, -1):
                key = rows.position_key(group, index)
                if not found or cursor.key() != key:
                    raise self.damage(group, index, "it is missing")
                data = self._joined(cursor, key, first_row := cursor.item()[1])
                entry, envelope = self._checked(group, index, data)
                yield entry, envelope.previous_hash
                if data is not first_row:
                    self.seek(cursor, key)
                found = cursor.prev()
                while found and len(cursor.key()) > KEY_BYTES:
                    found = cursor.prev()

    def entry_id(self, group: int, index: int) -> EntryId:
        """Returns one entry's identity."""
        entry = self.entry(group, index)
        return EntryId(entry.index, entry.term, entry.hash)

    def _checked(self, group: int, index: int, data: bytes) -> tuple[Entry, Envelope]:
        try:
            envelope = verify(data)
        except CorruptEntryError as error:
            raise self.damage(group, index, str(error)) from None
        if envelope.group != group or envelope.index != index:
            raise self.damage(group, index, f"in its place is entry {envelope.index} of group {envelope.group}")
        return Entry(index, envelope.term, _KINDS[envelope.kind], entry_hash(data), data), envelope

    # -- offset index ----------------------------------------------------------------------------------------------

    def batch_row(self, cursor: Cursor) -> BatchRow:
        """Returns the offset index row at a cursor."""
        key, row = cursor.item()
        group, last_offset = self._position(key)
        try:
            return rows.unpack_batch_row(rows.open_row(rows.OFFSETS, key, row), last_offset)
        except rows.RowError as error:
            raise self.row_damage(group, f"offset index at offset {last_offset}", error) from None

    def last_index(self, group: int) -> int | None:
        """Returns the index of a Raft group's last entry; None if it has none."""
        with self._source.cursor(rows.ENTRIES) as cursor:
            return self._position(cursor.key()[:KEY_BYTES])[1] if self.seek_last(cursor, group) else None

    def last_batch(self, group: int, anchor: int) -> BatchRow | None:
        """Returns the group's last row of the offset index above index ``anchor``, or None."""
        with self._source.cursor(rows.OFFSETS) as cursor:
            row = self.batch_row(cursor) if self.seek_last(cursor, group) else None
        return row if row is not None and row.index > anchor else None

    def seek_last(self, cursor: Cursor, group: int) -> bool:
        """Moves to the group's last row; False if it has none. For databases keyed by (group, position)."""
        beyond = rows.position_key(group, rows.MAX_POSITION)
        found = cursor.prev() if self.seek(cursor, beyond) else cursor.last()
        return found and cursor.key().startswith(rows.group_key(group))

    def find_offset(self, group: int, offset: int) -> BatchRow | None:
        """Returns the first row whose last offset is at or after ``offset``, or None."""
        with self._source.cursor(rows.OFFSETS) as cursor:
            return self._seek_batch(cursor, group, offset)

    def find_batch(
        self, group: int, anchor: int, first_offset: int, last: BatchRow, reached: Callable[[BatchRow], bool]
    ) -> BatchRow:
        """Returns the first row above index ``anchor``, at or after ``first_offset``, that satisfies ``reached``.

        ``last`` must satisfy it.

        Raises:
            DamageError: of the rows visited, two that should be neighbours are not.
        """
        found, low, kept = last, first_offset, False
        with self._source.cursor(rows.OFFSETS) as cursor:
            # Batches that end before ``low`` do not satisfy it, ``found`` does. Rows at or below the anchor may not
            # have been swept yet, and a gap may follow them: a snapshot was installed.
            while low < found.base_offset:
                row = self._seek_batch(cursor, group, (low + found.base_offset - 1) // 2)
                if row is None or row.last_offset >= found.base_offset:
                    # No row has the offsets in between: either they are before the first batch, or rows are lost.
                    if row != found or kept:
                        raise self.row_damage(group, "offset index", f"offset {found.base_offset - 1} is missing")
                    break
                if row.index > anchor and reached(row):
                    found = row
                else:
                    low, kept = row.last_offset + 1, row.index > anchor
        return found

    def _seek_batch(self, cursor: Cursor, group: int, offset: int) -> BatchRow | None:
        if not self.seek(cursor, rows.position_key(group, offset)) or rows.group_of(cursor.key()) != group:
            return None
        return self.batch_row(cursor)

    def first_batch(self, group: int, first: int, last: int) -> int | None:
        """Returns the index of the first entry of kind BATCH in first..last, or None."""
        for index in range(first, last + 1):
            if self.entry(group, index).kind is EntryKind.BATCH:
                return index
        return None

    # -- small rows ------------------------------------------------------------------------------------------------

    def row(self, database: bytes, group: int) -> bytes | None:
        """Returns the body of a Raft group's only row in a database; None if it has none."""
        key = rows.group_key(group)
        row = self._source.get(database, key)
        return None if row is None else self.body(database, group, key, row)

    def body(self, database: bytes, group: int, key: bytes, row: bytes) -> bytes:
        """Returns the body of a row, after checking it."""
        try:
            return rows.open_row(database, key, row)
        except rows.RowError as error:
            raise self.row_damage(group, database.decode(), error) from None

    def hard_state(self, group: int) -> HardState:
        """Returns a Raft group's hard state."""
        return self._decoded(rows.HARD_STATES, group, rows.unpack_hard_state)

    def anchor(self, group: int) -> EntryId:
        """Returns the entry before the first one of a Raft group's log."""
        return self._decoded(rows.ANCHORS, group, rows.unpack_entry_id)

    def configuration(self, group: int) -> Configuration:
        """Returns a Raft group's configuration at its applied index."""
        return self._decoded(rows.CONFIGURATIONS, group, rows.unpack_configuration)

    def snapshot(self, group: int) -> Snapshot | None:
        """Returns a Raft group's newest snapshot, if it has one."""
        if self.row(rows.SNAPSHOTS, group) is None:
            return None
        return self._decoded(rows.SNAPSHOTS, group, rows.unpack_snapshot)

    # -- snapshots' data -------------------------------------------------------------------------------------------

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        """Returns one slice of a snapshot's data."""
        key = rows.slice_key(group, stage, number)
        row = self._source.get(rows.SLICES, key)
        if row is None:
            raise self.row_damage(group, f"slice {number} of snapshot stage {stage:#x}", "it is missing")
        return self.body(rows.SLICES, group, key, row)

    def count_slices(self, group: int, stage: int) -> int:
        """Returns the number of consecutive slices of a stage from number 0. Their bytes are not read."""
        count = 0
        with self._source.cursor(rows.SLICES) as cursor:
            found = self.seek(cursor, rows.stage_key(group, stage))
            while found and cursor.key() == rows.slice_key(group, stage, count):
                count += 1
                found = cursor.next()
        return count

    def stages(self, group: int) -> list[int]:
        """Returns every stage with slices of a Raft group: one seek per stage, however many slices it has."""
        found: list[int] = []
        with self._source.cursor(rows.SLICES) as cursor:
            more = self.seek(cursor, rows.group_key(group))
            while more and rows.group_of(cursor.key()) == group:
                try:
                    found.append(rows.stage_of(cursor.key()))
                except rows.RowError as error:
                    raise self.row_damage(group, "snapshot", error) from None
                more = self.seek(cursor, rows.stage_key(group, found[-1]) + b"\xff" * 5)
        return found

    def check_snapshot(self, group: int) -> Snapshot | None:
        """Returns a Raft group's newest snapshot, after reading and checking all of its data."""
        snapshot = self.snapshot(group)
        if snapshot is None:
            return None
        checksum = size = 0
        for number in range(snapshot.data.slices):
            data = self.snapshot_slice(group, snapshot.data.stage, number)
            checksum = google_crc32c.extend(checksum, data)
            size += len(data)
        if (size, checksum) != (snapshot.data.size_bytes, snapshot.data.checksum):
            raise self.row_damage(group, "snapshot", f"its slices hold {size} bytes with checksum {checksum:#010x}")
        return snapshot

    def check_snapshot_ends(self, group: int, snapshot: Snapshot) -> None:
        """Checks that a snapshot's first and last slice exist, and none beyond. Their bytes are not read."""
        stage, slices = snapshot.data.stage, snapshot.data.slices
        with self._source.cursor(rows.SLICES) as cursor:
            for number in (0, slices - 1):
                key = rows.slice_key(group, stage, number)
                if not self.seek(cursor, key) or cursor.key() != key:
                    raise self.row_damage(group, f"slice {number} of snapshot stage {stage:#x}", "it is missing")
            if cursor.next() and cursor.key().startswith(rows.stage_key(group, stage)):
                raise self.row_damage(group, "snapshot", f"it has more than {slices} slices")

    def _decoded(self, database: bytes, group: int, unpack: Callable[[bytes], _Value]) -> _Value:
        body = self.row(database, group)
        if body is None:
            raise self.row_damage(group, database.decode(), "it is missing")
        try:
            return unpack(body)
        except (rows.RowError, ValueError, AssertionError) as error:
            raise self.row_damage(group, database.decode(), error) from None

    def table(self, group: int) -> dict[bytes, bytes]:
        """Returns all rows of a Raft group's table."""
        prefix = rows.group_key(group)
        found = {}
        with self._source.cursor(rows.TABLES) as cursor:
            self.seek(cursor, prefix)
            for key, row in cursor:
                if not key.startswith(prefix):
                    break
                found[key[len(prefix) :]] = self.body(rows.TABLES, group, key, row)
        return found

    def node_state(self) -> dict[bytes, bytes]:
        """Returns the node's own rows."""
        with self._source.cursor(rows.NODE_STATE) as cursor:
            return {
                key: self.body(rows.NODE_STATE, -1, key, row)
                for key, row in cursor
                if not key.startswith(rows.BALLOT_PREFIX)
            }

    def ballot(self, group: int) -> HardState | None:
        """Returns the second copy of a Raft group's term and vote; None if it is missing or damaged, too."""
        key = rows.ballot_key(group)
        row = self._source.get(rows.NODE_STATE, key)
        try:
            return None if row is None else rows.unpack_hard_state(rows.open_row(rows.NODE_STATE, key, row))
        except rows.RowError:
            return None

    def check_rows(self, database: bytes) -> int:
        """Checks every row of a database of small rows; returns their number."""
        count = 0
        with self._source.cursor(database) as cursor:
            for key, row in cursor:
                self.body(database, -1 if database == rows.NODE_STATE else rows.group_of(key), key, row)
                count += 1
        return count

    def groups(self) -> list[int]:
        """Returns every Raft group with a replica here: those with a configuration, an anchor or a hard state."""
        found: set[int] = set()
        for database in (rows.CONFIGURATIONS, rows.ANCHORS, rows.HARD_STATES):
            with self._source.cursor(database) as cursor:
                found.update(rows.group_of(key) for key, _ in cursor)
        return sorted(found)

    def groups_with_rows(self, database: bytes) -> list[int]:
        """Returns every Raft group that has rows in a database: one seek per group, however many rows it has."""
        found: list[int] = []
        with self._source.cursor(database) as cursor:
            more = cursor.first()
            while more:
                found.append(rows.group_of(cursor.key()))
                more = found[-1] < rows.MAX_GROUP and self.seek(cursor, rows.group_key(found[-1] + 1))
        return found

    def first_index(self, group: int) -> int | None:
        """Returns the index of a Raft group's first row of entries, garbage included; None if it has none."""
        with self._source.cursor(rows.ENTRIES) as cursor:
            if self.seek(cursor, rows.group_key(group)) and rows.group_of(cursor.key()) == group:
                return self._position(cursor.key()[:KEY_BYTES])[1]
            return None

    def first_batch_index(self, group: int) -> int | None:
        """Returns the index in a Raft group's first row of the offset index, garbage included; None if it has none."""
        with self._source.cursor(rows.OFFSETS) as cursor:
            row = self._seek_batch(cursor, group, 0)
            return row.index if row is not None else None

    def _position(self, key: bytes) -> tuple[int, int]:
        try:
            return rows.position_of(key)
        except rows.RowError as error:
            raise self.row_damage(rows.group_of(key), "the log", error) from None

    def seek(self, cursor: Cursor, key: bytes) -> bool:
        """Moves to the first row whose key is at or after ``key``.

        Every search uses this method: the engine trusts the order of its pages, and if a bit of a key or of its
        position is flipped, it ends before ``key``.
        """
        found = cursor.set_range(key)
        if found and cursor.key() < key:
            where = f"a search for key {key.hex()} came to key {cursor.key().hex()}"
            raise DamageError(f"the order of rows in {self._where} is damaged: {where}; {WHAT_TO_DO}")
        return found

    # -- damage ----------------------------------------------------------------------------------------------------

    def damage(self, group: int, index: int, what: str) -> DamageError:
        """Returns a report of a damaged entry."""
        said = f"entry {index} of group {group} in {self._where} is damaged: {what}; {WHAT_TO_DO}"
        return DamageError(said, group, index)

    def row_damage(self, group: int, which: str, what: object) -> DamageError:
        """Returns a report of a damaged row. Group -1 is the node itself."""
        owner = f"group {group}" if group >= 0 else "the node"
        said = f"{which} of {owner} in {self._where} is damaged: {what}; {WHAT_TO_DO}"
        return DamageError(said, group if group >= 0 else None)
