"""Checks before a node serves, on the bare file, before the engine maps it.

They cover both meta pages, the file's size, the format, every group's small rows, and the tail of every log, bounded in
entries and bytes. The tail matters most: the latest writes are what a failing disk is likeliest to have lost, and a
replica that votes with a shortened log can elect a leader without acknowledged entries. The rest is checked whenever it
is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from quorumlog.raft.types import EntryId, EntryKind
from quorumlog.storage import rows
from quorumlog.storage.garbage import Garbage, find_garbage
from quorumlog.storage.interface import DamageError, OpeningDamage, SetAside, StorageEngineError
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.wire.entry import parse_header

#: Maximum number of entries checked for each Raft group; the last entry always is.
TAIL_ENTRIES = 64
#: Approximate limits shared by all groups: a fraction of a second for one core, and for a slow disk.
ALL_TAILS_ENTRIES = 8_000
ALL_TAILS_BYTES = 64 << 20
#: Limit shared by the snapshots of all Raft groups.
ALL_SNAPSHOTS_BYTES = 1 << 20

#: Databases of which every row is checked: a flipped bit in a key makes a row vanish from its group, and for a row that
#: a group can do without (a snapshot, a row of its table) no other check would notice.
SMALL_DATABASES = (
    rows.CONFIGURATIONS,
    rows.ANCHORS,
    rows.HARD_STATES,
    rows.SNAPSHOTS,
    rows.TABLES,
    rows.NODE_STATE,
)


@dataclass(slots=True, frozen=True)
class DataFileContent:
    """Content of a data file: every Raft group's log, what is left to sweep, and what else is damaged."""

    logs: dict[int, RaftGroupLog]
    garbage: Garbage
    damage: OpeningDamage


def examine(
    data_file: Path,
    may_set_aside: Callable[[int], bool] = lambda group: False,
    suspects: Container[int] = (),
    *,
    may_mend: bool = False,
) -> DataFileContent | None:
    """Checks a data file that has no writer.

    Arguments:
        may_set_aside: returns whether the rest is opened if a Raft group's replica is damaged.
        suspects: Raft groups with earlier damage; more of them is checked.
        may_mend: open any log that has a damaged entry that can be repaired; otherwise only that of a replica that may
            be set aside.

    Returns:
        None if the file is still empty.

    Raises:
        DamageError: something in it is missing or not what was written.
        StorageError: it is of a newer version.
    """
    # The engine creates the file and its meta pages in one write, the databases in one transaction: a crash in between
    # leaves nothing, no meta page, or meta pages of an empty environment.
    if not data_file.exists() or data_file.stat().st_size == 0:
        return None
    with PageFile(data_file) as pages:
        pages.check_size()
        if not pages.databases:
            return None
        check_format(pages)
        return _Examination(pages, may_set_aside, suspects, may_mend=may_mend).carry_out()


class _Examination:
    """The checks of one file, which continue after damage that concerns a single Raft group."""

    def __init__(
        self, pages: PageFile, may_set_aside: Callable[[int], bool], suspects: Container[int], *, may_mend: bool
    ) -> None:
        self._pages = pages
        self._may_mend = may_mend
        self._reading = LogReading(pages, pages.data_file.parent)
        self._may_set_aside = may_set_aside
        self._suspects = suspects
        self._groups = self._reading.groups()
        self._left = ALL_SNAPSHOTS_BYTES
        self._entries: list[DamageError] = []
        self._replicas: dict[int, SetAside] = {}

    def carry_out(self) -> DataFileContent:
        for database in SMALL_DATABASES:
            self._check_small_rows(database)
        logs: dict[int, RaftGroupLog] = {}
        for group in self._groups:
            if group not in self._replicas:
                try:
                    self._check_group(group)
                    logs[group] = load_log(self._reading, group, len(self._groups), self._damaged_entry)
                except DamageError as damage:
                    self._judge(damage, group)
        return DataFileContent(
            logs, self._find_garbage(logs), OpeningDamage(tuple(self._entries), MappingProxyType(self._replicas))
        )

    def _check_small_rows(self, database: bytes) -> None:
        count = 0
        for key, _, damage in self._reading.checked_rows(database, b""):
            count += 1
            if damage is not None and not (database == rows.NODE_STATE and key.startswith(rows.BALLOT_PREFIX)):
                for group in self._whose(database, key):
                    self._judge(damage, group)
        if count != self._pages.databases[database].entries:
            raise self._pages.damage(f"rows of database {database.decode()} are missing")

    def _whose(self, database: bytes, key: bytes) -> list[int | None]:
        """Returns the groups that a damaged row may belong to.

        If a bit of the group's number in its key is flipped, it also belongs to another, which would otherwise continue
        without it.
        """
        if database in rows.OF_THE_NODE:
            return [None]
        found: list[int | None] = [rows.group_of(key)]
        row = self._pages.get(database, key) or b""
        for group in self._groups:
            right = rows.group_key(group) + key[len(rows.group_key(group)) :]
            if right != key:
                with contextlib.suppress(rows.RowError):
                    rows.open_row(database, right, row)
                    found.append(group)
        return found

    def _judge(self, damage: DamageError, group: int | None) -> None:
        """Sets a replica aside, or raises damage that concerns more than a replica."""
        if group is None or damage.group is None or group not in self._groups or not self._may_set_aside(group):
            raise damage
        if group not in self._replicas:
            self._replicas[group] = self._set_aside(group, damage)

    def _set_aside(self, group: int, damage: DamageError) -> SetAside:
        reading = self._reading
        term: int | None
        known = [reading.last_index(group) or 0]
        try:
            state = reading.hard_state(group)
            term = state.term
            known.append(state.commit)
        except DamageError:
            ballot = reading.ballot(group)
            term = None if ballot is None else ballot.term
        with contextlib.suppress(DamageError):
            known.append(reading.anchor(group).index)
        return SetAside(term, max(known), str(damage))

    def _damaged_entry(self, damage: DamageError) -> None:
        """Accepts a damaged entry whose hash is known: its log is opened, since the entry can be repaired."""
        assert damage.group is not None
        if not self._may_mend and not self._may_set_aside(damage.group):
            raise damage
        self._entries.append(damage)

    def _check_group(self, group: int) -> None:
        """Checks a small snapshot completely, within the limit; of others, that both ends exist.

        A compacted log is a snapshot, too, and may have many gigabytes; each slice is checked whenever it is read.
        """
        snapshot = self._reading.snapshot(group)
        if snapshot is not None and snapshot.data.size_bytes <= self._left:
            self._left -= snapshot.data.size_bytes
            self._reading.check_snapshot(group)
        elif snapshot is not None:
            self._reading.check_snapshot_ends(group, snapshot)
        if group in self._suspects:
            anchor = self._reading.anchor(group)
            self._check_all_rows(rows.ENTRIES, group, rows.position_key(group, anchor.index + 1))
            for database in (rows.OFFSETS, rows.SLICES):
                self._check_all_rows(database, group, rows.group_key(group))

    def _check_all_rows(self, database: bytes, group: int, first: bytes) -> None:
        for key, _, damage in self._reading.checked_rows(database, first):
            if rows.group_of(key) != group:
                return
            if damage is not None:
                raise damage

    def _find_garbage(self, logs: dict[int, RaftGroupLog]) -> Garbage:
        while True:
            try:
                garbage = find_garbage(self._reading, logs)
            except DamageError as damage:
                self._judge(damage, damage.group)
                if damage.group is None or logs.pop(damage.group, None) is None:
                    raise
                continue
            # What is set aside is not garbage: nothing is deleted in doubt.
            for group in self._replicas:
                garbage.logs.pop(group, None)
            return garbage


def check_format(pages: PageFile) -> None:
    """Checks the format of a data file.

    Raises:
        DamageError: databases or the format row are missing or damaged.
        StorageError: the format is another than this version's.
    """
    row = pages.get(rows.FORMAT_DB, rows.FORMAT_KEY) if rows.FORMAT_DB in pages.databases else None
    try:
        body = rows.open_row(rows.FORMAT_DB, rows.FORMAT_KEY, row or b"")
    except rows.RowError as error:
        raise pages.damage(f"its format row: {error}") from None
    found = int.from_bytes(body, "little")
    if found != rows.FORMAT:
        right = "a newer" if found > rows.FORMAT else "an older"
        raise StorageEngineError(
            f"{pages.data_file} has storage format {found}, this version reads {rows.FORMAT}: use {right} quorumlog"
        )
    missing = [name.decode() for name in rows.DATABASES if name not in pages.databases]
    if missing:
        raise pages.damage(f"database {missing[0]} is missing")


def load_log(reading: LogReading, group: int, groups: int, damaged: Callable[[DamageError], None]) -> RaftGroupLog:
    """Returns the ends of a Raft group's log, after verifying its tail.

    Arguments:
        groups: number of groups that share the limits.
        damaged: called with a damaged entry of the tail that is not its last: the one after it has its hash.

    Raises:
        DamageError: something in it is missing or not what was written.
    """
    reading.configuration(group)
    anchor, state = reading.anchor(group), reading.hard_state(group)
    last_index = max(reading.last_index(group) or 0, anchor.index)
    if state.commit > last_index:
        raise reading.damage(group, last_index + 1, f"it is missing, and entries up to {state.commit} were committed")
    last = anchor
    if last_index > anchor.index:
        last = _verify_tail(reading, group, anchor, last_index, groups, damaged)
    return RaftGroupLog(anchor, last, state, reading.last_batch(group, anchor.index))


def _verify_tail(
    reading: LogReading,
    group: int,
    anchor: EntryId,
    last_index: int,
    groups: int,
    damaged: Callable[[DamageError], None],
) -> EntryId:
    """Walks back from the last entry along the hash chain; returns the last entry."""
    last: EntryId | None = None
    expected_hash: int | None = None
    batch_seen = False
    size = 0
    first = max(anchor.index + 1, last_index + 1 - max(1, min(TAIL_ENTRIES, ALL_TAILS_ENTRIES // groups)))
    above = last_index + 1
    while above > first:
        try:
            for entry, previous_hash in reading.entries_backwards(group, above - 1, first):
                if expected_hash is not None and entry.hash != expected_hash:
                    raise reading.damage(group, entry.index, "the entry after it follows another one (hash chain)")
                above = entry.index
                if entry.kind is EntryKind.BATCH and not batch_seen:
                    batch_seen = True
                    _verify_last_batch(reading, group, entry.index, parse_header(entry.data).last_offset)
                last = last or EntryId(entry.index, entry.term, entry.hash)
                expected_hash = previous_hash
                size += len(entry.data)
                if entry.index == anchor.index + 1 and previous_hash != anchor.hash:
                    said = reading.damage(group, entry.index, "it does not follow the anchor of its log (hash chain)")
                    raise DamageError(str(said), group)
                if size >= ALL_TAILS_BYTES // groups:
                    return last
        except DamageError as damage:
            if damage.index is None or last is None:
                raise
            damaged(damage)
            # Its kind is unknown: the offset index cannot be compared with a batch that may not be the last.
            above, expected_hash, batch_seen = damage.index, None, True
    assert last is not None
    return last


def _verify_last_batch(reading: LogReading, group: int, index: int, last_offset: int) -> None:
    row = reading.last_batch(group, 0)
    if row is None or (row.index, row.last_offset) != (index, last_offset):
        raise reading.row_damage(group, "offset index", f"its end is {row}, not offset {last_offset} at index {index}")
