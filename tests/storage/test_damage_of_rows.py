"""Damage that no checksum of an entry shows: rows and pages that are missing, moved, or sound but wrong."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, staged, transaction

from quorumlog.raft.types import EntryId, HardState
from quorumlog.storage import opening, rows
from quorumlog.storage.interface import DamageError, StorageEngineError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify

PAGE_BYTES = 4096


def test_a_cut_below_what_the_tail_touches_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest entries lie in pages that were free, far from the file's end; the engine would die of SIGBUS."""
    log = LogBuilder(1)
    entries = log.batches(300, 7900)
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, entries)))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(entries[149]))))
        while storage.sweep():
            pass
        for term in (2, 3):  # until the pages that were freed may be used again
            storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(term, 1, 299))))
        for _ in range(5):
            newest = log.batches(4, 7900, term=3)
            storage.commit(transaction(RaftGroupWrite(1, entries=newest, hard_state=HardState(3, 1, newest[-1].index))))
    monkeypatch.setattr(opening, "TAIL_ENTRIES", 4)
    data_file = tmp_path / "data.mdb"
    place = data_file.read_bytes().index(entries[299].data)
    os.truncate(data_file, place // PAGE_BYTES * PAGE_BYTES)
    with pytest.raises(DamageError, match=r"its meta pages require .* it was truncated"):
        Storage(tmp_path)


def test_a_file_that_was_cut_is_told_in_one_way_wherever_it_was_cut(tmp_path: Path) -> None:
    """Also where the list of free pages, which is asked whether the missing ones matter, is among those."""
    log = LogBuilder(1)
    entries = log.batches(40, 7900)
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, entries)))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(entries[19]))))
        while storage.sweep():
            pass
    data_file = tmp_path / "data.mdb"
    whole = data_file.read_bytes()
    reported = set()
    for pages in range(2, len(whole) // PAGE_BYTES):
        data_file.write_bytes(whole[: pages * PAGE_BYTES])
        try:
            Storage(tmp_path).close()
        except DamageError as damage:
            reported.add(re.sub(r"\d+", "N", str(damage).partition("is damaged: ")[2].partition(";")[0]))
    assert reported == {"it has N bytes where its meta pages require N: it was truncated"}


def test_meta_pages_that_cannot_be_neighbours_are_refused(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1)))
    data_file = tmp_path / "data.mdb"
    page = bytearray(data_file.read_bytes())
    place = 16 + 24 + 2 * 48 + 8
    (number,) = struct.unpack_from("=Q", page, place)
    struct.pack_into("=Q", page, place, number ^ 8)
    data_file.write_bytes(page)
    with pytest.raises(DamageError, match="not neighbours"):
        Storage(tmp_path)


def test_a_row_that_answers_for_another_group_is_refused(tmp_path: Path) -> None:
    """As a flipped bit in a key makes it: the group loses its snapshot, and nothing else would show it."""
    with Storage(tmp_path) as storage:
        entries = LogBuilder(1).batches(3)
        storage.commit(transaction(create(1, entries), create(3)))
        checkpoint, slices = staged(identity(entries[1]), b"image")
        storage.commit(transaction(RaftGroupWrite(1, stage=slices, checkpoint=checkpoint)))
        with storage._environment.writing() as txn:
            snapshots = storage._environment.databases[rows.SNAPSHOTS]
            row = txn.pop(rows.group_key(1), db=snapshots)
            assert row is not None
            txn.put(rows.group_key(3), row, db=snapshots)
    with pytest.raises(DamageError, match=r"snapshots of group 3 .* is damaged: checksum"):
        Storage(tmp_path)
    assert not verify(tmp_path).sound


def test_an_anchor_that_is_not_the_entry_before_the_first_is_noticed_at_opening(tmp_path: Path) -> None:
    """A sound row of another history: a follower would be sent entries that do not follow what it has."""
    with Storage(tmp_path) as storage:
        entries = LogBuilder(1).batches(6)
        anchor = identity(entries[2])
        storage.commit(transaction(create(1, entries)))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=anchor)))
    Storage(tmp_path).close()
    with Storage(tmp_path) as storage, storage._environment.writing() as txn:
        key = rows.group_key(1)
        other = rows.pack_entry_id(EntryId(anchor.index, anchor.term, anchor.hash ^ 1))
        txn.put(key, rows.seal_row(rows.ANCHORS, key, other), db=storage._environment.databases[rows.ANCHORS])
    with pytest.raises(DamageError, match=r"entry 4 of group 1 .*does not follow the anchor of its log"):
        Storage(tmp_path)
    assert not verify(tmp_path).sound


@pytest.mark.parametrize(
    "database",
    [rows.CONFIGURATIONS, rows.ANCHORS, rows.HARD_STATES, rows.SNAPSHOTS, rows.TABLES, rows.NODE_STATE],
    ids=bytes.decode,
)
def test_a_flipped_bit_in_any_small_row_is_noticed_at_opening(tmp_path: Path, database: bytes) -> None:
    with Storage(tmp_path) as storage:
        entries = LogBuilder(1).batches(6)
        checkpoint, slices = staged(identity(entries[1]), b"image")
        group = create(1, entries, stage=slices, checkpoint=checkpoint, table={b"k": b"v"})
        storage.commit(transaction(group, node_state={b"directory": b"d1"}))
        databases = storage._environment.databases
        with storage._environment.writing() as txn, txn.cursor(db=databases[database]) as cursor:
            assert cursor.last()
            key, row = cursor.item()
            txn.put(key, row[:-1] + bytes((row[-1] ^ 1,)), db=databases[database])
    with pytest.raises(DamageError, match="checksum"):
        Storage(tmp_path)


def test_a_data_file_of_another_format_is_refused_and_says_which_version_to_use(tmp_path: Path) -> None:
    for number, right in ((rows.FORMAT + 1, "a newer"), (rows.FORMAT - 1, "an older")):
        directory = tmp_path / right
        with Storage(directory) as storage, storage._environment.writing() as txn:
            row = rows.seal_row(rows.FORMAT_DB, rows.FORMAT_KEY, number.to_bytes(4, "little"))
            txn.put(rows.FORMAT_KEY, row, db=storage._environment.databases[rows.FORMAT_DB])
        with pytest.raises(StorageEngineError, match=f"has storage format {number}, .*: use {right} quorumlog"):
            Storage(directory)


def test_the_end_of_the_offset_index_must_be_that_of_the_last_batch(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(6, records=10))))
        with storage._environment.writing() as txn:
            assert txn.delete(rows.position_key(1, 59), db=storage._environment.databases[rows.OFFSETS])
    with pytest.raises(DamageError, match=r"offset index .*not offset 59 at index 6"):
        Storage(tmp_path)


def test_the_last_entry_of_each_of_many_groups_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little may be checked of all together: what was written last is what a failing disk has lost."""
    monkeypatch.setattr(opening, "ALL_TAILS_ENTRIES", 2)
    monkeypatch.setattr(opening, "ALL_TAILS_BYTES", 2)
    logs = {group: LogBuilder(group).batches(3) for group in (1, 2, 3, 4)}
    with Storage(tmp_path) as storage:
        storage.commit(transaction(*(create(group, entries) for group, entries in logs.items())))
        with storage._environment.writing() as txn:
            entries = storage._environment.databases[rows.ENTRIES]
            txn.put(rows.position_key(4, 3), logs[4][2].data[:-1] + b"?", db=entries)
    with pytest.raises(DamageError, match="entry 3 of group 4"):
        Storage(tmp_path)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_snapshot_that_lost_a_slice_is_refused_at_opening(tmp_path: Path, missing: int) -> None:
    with Storage(tmp_path) as storage:
        entries = LogBuilder(1).batches(3)
        checkpoint, slices = staged(identity(entries[1]), bytes(9000))
        storage.commit(transaction(create(1, entries, stage=slices, checkpoint=checkpoint)))
        with storage._environment.writing() as txn:
            key = rows.slice_key(1, checkpoint.data.stage, missing)
            assert txn.delete(key, db=storage._environment.databases[rows.SLICES])
    with pytest.raises(DamageError, match=f"slice {missing} of snapshot stage .* of group 1 .* is missing"):
        Storage(tmp_path)
    assert not verify(tmp_path).sound


def test_a_hole_in_the_offset_index_is_found(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(100, records=10))))
        with storage._environment.writing() as txn:
            assert txn.delete(rows.position_key(1, 109), db=storage._environment.databases[rows.OFFSETS])
        assert storage.find_offset(1, 99) == 10
        assert storage.find_offset(1, 110) == 12
        with pytest.raises(DamageError, match="offset 105 is missing"):
            storage.find_offset(1, 105)
    assert [problem.index for problem in verify(tmp_path).problems] == [11]


def test_an_offset_row_that_tells_another_story_is_found_by_verify(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(100, records=10))))
        key = rows.position_key(1, 109)
        right = storage.find_batch(1, 109, lambda row: True)
        assert right is not None
        with storage._environment.writing() as txn:
            row = rows.seal_row(rows.OFFSETS, key, rows.pack_batch_row(right._replace(base_offset=101)))
            txn.put(key, row, db=storage._environment.databases[rows.OFFSETS])
    report = verify(tmp_path)
    assert [problem.index for problem in report.problems] == [11]
    assert "101 to 109" in str(report.problems[0])


def test_a_position_that_does_not_go_on_from_the_batch_before_is_found_by_verify(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(100, records=10))))
        last = storage.last_batch(1)
        assert last is not None
        key = rows.position_key(1, last.last_offset)
        with storage._environment.writing() as txn:
            row = rows.seal_row(rows.OFFSETS, key, rows.pack_batch_row(last._replace(end_position=7)))
            txn.put(key, row, db=storage._environment.databases[rows.OFFSETS])
    assert [problem.index for problem in verify(tmp_path).problems] == [100]


def test_a_large_snapshot_is_not_read_at_opening_but_its_ends_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "ALL_SNAPSHOTS_BYTES", 10_000)
    log = LogBuilder(1)
    entries = log.batches(5)
    snapshot, slices = staged(identity(entries[2]), bytes(30_000))
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, entries, stage=slices, checkpoint=snapshot)))
        damaged, last = (rows.slice_key(1, snapshot.data.stage, number) for number in (1, len(slices) - 1))
        with storage._environment.writing() as txn:
            txn.put(damaged, b"not what was written", db=storage._environment.databases[rows.SLICES])
    with Storage(tmp_path) as storage:
        with pytest.raises(DamageError, match=r"slice of|snapshot-slices"):
            storage.snapshot_slice(1, snapshot.data.stage, 1)
        with storage._environment.writing() as txn:
            txn.delete(last, db=storage._environment.databases[rows.SLICES])
    with pytest.raises(DamageError, match="it is missing"):
        Storage(tmp_path)


def test_a_crash_between_the_last_slice_of_entries_and_that_of_the_offset_index_leaves_garbage_to_be_found(
    tmp_path: Path,
) -> None:
    entries = LogBuilder(1).batches(10)
    with Storage(tmp_path, max_deletes=9) as storage:
        storage.commit(transaction(create(1, entries, hard_state=HardState(1, 1, 10))))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(entries[8]))))
    with Storage(tmp_path) as storage:
        while storage.sweep():
            pass
        with storage._environment.reading() as reading:
            assert reading.first_batch_index(1) == reading.first_index(1) == 10
