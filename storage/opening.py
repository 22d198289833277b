"""What is checked of each group's log before a node serves: the ends, and the tail, bounded in entries and bytes.

The tail matters most: what was written last is what a failing disk is likeliest to have lost, and a replica that
votes with a shortened log can elect a leader without acknowledged entries. The rest is checked whenever it is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.raft.types import EntryId, EntryKind
from quorumlog.storage import environment as env
from quorumlog.storage.group_log import GroupLog
from quorumlog.storage.reading import LogReading
from quorumlog.v1.entry import parse_envelope, parse_header

#: Checked of each group at most; the last entry always.
TAIL_ENTRIES = 64
#: Checked of all groups together, roughly: a fraction of a second at a slow disk's speed.
TAIL_BYTES = 64 << 20


def load_log(reading: LogReading, group: int, groups: int) -> GroupLog:
    """The ends of a group's log, its tail having been verified.

    Arguments:
        groups: how many share the budget of bytes.

    Raises:
        DamageError: something of it is missing or not what was written.
    """
    reading.configuration(group)
    reading.snapshot(group)
    anchor, state = reading.anchor(group), reading.hard_state(group)
    last_index = reading.last_index(group)
    if last_index is None or last_index <= anchor.index:
        last = anchor
    else:
        last = _verify_tail(reading, group, anchor, last_index, TAIL_BYTES // max(groups, 1))
    if state.commit > last.index:
        raise reading.damage(group, last.index + 1, f"it is missing, and entries up to {state.commit} were committed")
    return GroupLog(anchor, last, state, reading.last_offset(group, anchor.index))


def _verify_tail(reading: LogReading, group: int, anchor: EntryId, last_index: int, max_bytes: int) -> EntryId:
    """Walks back from the last entry along the hash chain; returns the last entry."""
    last: EntryId | None = None
    expected_hash: int | None = None
    batch_seen = False
    index, size = last_index, 0
    while index > anchor.index and (last is None or (last_index - index < TAIL_ENTRIES and size < max_bytes)):
        entry = reading.entry(group, index)
        if expected_hash is not None and entry.hash != expected_hash:
            raise reading.damage(group, index, "the entry after it follows another one (hash chain)")
        if entry.kind is EntryKind.BATCH and not batch_seen:
            batch_seen = True
            _verify_last_batch(reading, group, index, parse_header(entry.data).last_offset)
        last = last or EntryId(entry.index, entry.term, entry.hash)
        expected_hash = parse_envelope(entry.data).previous_hash
        size += len(entry.data)
        index -= 1
    if index == anchor.index and expected_hash != anchor.hash:
        raise reading.damage(group, index + 1, "it does not follow the anchor of its log (hash chain)")
    assert last is not None
    return last


def _verify_last_batch(reading: LogReading, group: int, index: int, last_offset: int) -> None:
    row = reading.last_batch(group)
    if row is None or (row.index, row.last_offset) != (index, last_offset):
        raise reading.row_damage(group, "offset index", f"its end is {row}, not offset {last_offset} at index {index}")


def find_garbage(reading: LogReading, logs: Mapping[int, GroupLog]) -> dict[int, int | None]:
    """Groups with rows left to sweep: up to which index, or None for all that a destroyed group left."""
    garbage: dict[int, int | None] = {}
    for database in (env.ENTRIES, env.OFFSETS, env.TABLES):
        for group in reading.groups_with_rows(database):
            if group not in logs:
                garbage[group] = None
    for group, log in logs.items():
        first = reading.first_index(group)
        if first is not None and first <= log.anchor.index:
            garbage[group] = log.anchor.index
    return garbage
