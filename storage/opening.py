"""What is checked before a node serves, on the bare file, before the engine maps it.

Both meta pages, the file's size, the format, every group's small rows, and the tail of every log, bounded in entries
and bytes. The tail matters most: what was written last is what a failing disk is likeliest to have lost, and a
replica that votes with a shortened log can elect a leader without acknowledged entries. The rest is checked whenever
it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quorumlog.raft.types import EntryId, EntryKind
from quorumlog.storage import rows
from quorumlog.storage.garbage import Garbage, find_garbage
from quorumlog.storage.interface import StorageEngineError
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.raft_group_log import RaftGroupLog
from quorumlog.storage.reading import LogReading
from quorumlog.v1.entry import parse_header

#: Checked of each Raft group at most; the last entry always.
TAIL_ENTRIES = 64
#: Checked of all groups together, roughly: a fraction of a second for one core, and for a slow disk.
ALL_TAILS_ENTRIES = 8_000
ALL_TAILS_BYTES = 64 << 20
#: Of all Raft groups' snapshots together.
ALL_SNAPSHOTS_BYTES = 1 << 20

#: Checked row by row, all of them: a flipped bit in a key makes a row vanish from its group, and of a row that a
#: group may do without (a snapshot, a row of its table) nothing else would tell.
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
    """What a data file holds: every Raft group's log, and what is left to sweep."""

    logs: dict[int, RaftGroupLog]
    garbage: Garbage


def examine(data_file: Path) -> DataFileContent | None:
    """Checks a data file that nobody writes to.

    Returns:
        None when there is nothing in it yet.

    Raises:
        DamageError: something of it is missing or not what was written.
        StorageError: it is of a newer version.
    """
    # The engine makes the file and its meta pages in one write, the databases in one transaction: a crash between
    # leaves nothing, no meta page, or meta pages of an empty environment.
    if not data_file.exists() or data_file.stat().st_size == 0:
        return None
    with PageFile(data_file) as pages:
        pages.check_size()
        if not pages.databases:
            return None
        check_format(pages)
        reading = LogReading(pages, data_file.parent)
        for database in SMALL_DATABASES:
            if reading.check_rows(database) != pages.databases[database].entries:
                raise pages.damage(f"rows of database {database.decode()} are missing")
        groups = reading.groups()
        _check_snapshots(reading, groups)
        logs = {group: load_log(reading, group, len(groups)) for group in groups}
        return DataFileContent(logs, find_garbage(reading, logs))


def _check_snapshots(reading: LogReading, groups: list[int]) -> None:
    """Checks small snapshots whole, for as long as that costs little; of the others that both ends are there. A
    compacted log is a snapshot too, and may have many gigabytes; each slice is checked whenever it is read."""
    left = ALL_SNAPSHOTS_BYTES
    for group in groups:
        snapshot = reading.snapshot(group)
        if snapshot is not None and snapshot.data.size_bytes <= left:
            left -= snapshot.data.size_bytes
            reading.check_snapshot(group)
        elif snapshot is not None:
            reading.check_snapshot_ends(group, snapshot)


def check_format(pages: PageFile) -> None:
    """Raises:
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


def load_log(reading: LogReading, group: int, groups: int) -> RaftGroupLog:
    """The ends of a Raft group's log, its tail having been verified.

    Arguments:
        groups: how many share what may be checked.

    Raises:
        DamageError: something of it is missing or not what was written.
    """
    reading.configuration(group)
    anchor, state = reading.anchor(group), reading.hard_state(group)
    last_index = max(reading.last_index(group) or 0, anchor.index)
    if state.commit > last_index:
        raise reading.damage(group, last_index + 1, f"it is missing, and entries up to {state.commit} were committed")
    last = anchor
    if last_index > anchor.index:
        last = _verify_tail(reading, group, anchor, last_index, groups)
    return RaftGroupLog(anchor, last, state, reading.last_batch(group, anchor.index))


def _verify_tail(reading: LogReading, group: int, anchor: EntryId, last_index: int, groups: int) -> EntryId:
    """Walks back from the last entry along the hash chain; returns the last entry."""
    last: EntryId | None = None
    expected_hash: int | None = None
    batch_seen = False
    size = 0
    first = max(anchor.index + 1, last_index + 1 - max(1, min(TAIL_ENTRIES, ALL_TAILS_ENTRIES // groups)))
    for entry, previous_hash in reading.entries_backwards(group, last_index, first):
        if expected_hash is not None and entry.hash != expected_hash:
            raise reading.damage(group, entry.index, "the entry after it follows another one (hash chain)")
        if entry.kind is EntryKind.BATCH and not batch_seen:
            batch_seen = True
            _verify_last_batch(reading, group, entry.index, parse_header(entry.data).last_offset)
        last = last or EntryId(entry.index, entry.term, entry.hash)
        expected_hash = previous_hash
        size += len(entry.data)
        if entry.index == anchor.index + 1 and previous_hash != anchor.hash:
            raise reading.damage(group, entry.index, "it does not follow the anchor of its log (hash chain)")
        if size >= ALL_TAILS_BYTES // groups:
            break
    assert last is not None
    return last


def _verify_last_batch(reading: LogReading, group: int, index: int, last_offset: int) -> None:
    row = reading.last_batch(group, 0)
    if row is None or (row.index, row.last_offset) != (index, last_offset):
        raise reading.row_damage(group, "offset index", f"its end is {row}, not offset {last_offset} at index {index}")
