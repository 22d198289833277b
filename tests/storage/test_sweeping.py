"""Rows that a sweep deletes and a verification notices, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage import recheck_list as suspects
from quorumlog.storage import rows
from quorumlog.storage.inspection import Inspection
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify

COUNT = 10


def rows_left(data_dir: Path) -> tuple[int, int]:
    """Rows of entries, and of the offset index."""
    with Inspection(data_dir) as inspection:
        return inspection.entries_in_all, inspection.offset_rows_in_all


@pytest.mark.parametrize("anchor", [1, 5, COUNT - 1, COUNT])
@pytest.mark.parametrize("max_deletes", [1, 3, 1000])
def test_a_sweep_deletes_up_to_the_anchor(tmp_path: Path, anchor: int, max_deletes: int) -> None:
    """The entry at the anchor goes, and so does its row of the index; in however many steps."""
    log = LogBuilder(1)
    other = LogBuilder(2)
    with Storage(tmp_path, max_deletes=max_deletes) as storage:
        entries = log.batches(COUNT, 100)
        storage.commit(transaction(create(1, entries), create(2, other.batches(COUNT, 100))))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(entries[anchor - 1]))))
        for _ in range(10 * COUNT):
            if not storage.sweep():
                break
        assert not storage.sweep()
        if anchor < COUNT:
            assert storage.entries(1, anchor + 1, COUNT, 1 << 20) == entries[anchor:]
    assert rows_left(tmp_path) == (2 * COUNT - anchor, 2 * COUNT - anchor)


def test_suspicions_are_kept_and_forgotten_apart(tmp_path: Path) -> None:
    """Sound pages are no longer suspect, also where the suspected groups stay the same."""
    for group in (7, None, 7, 9):
        suspects.suspect(tmp_path, group)
    assert (suspects.suspects(tmp_path), suspects.are_pages_suspect(tmp_path)) == ({7, 9}, True)
    suspects.keep_suspects(tmp_path, {7, 9})
    assert (suspects.suspects(tmp_path), suspects.are_pages_suspect(tmp_path)) == ({7, 9}, False)
    suspects.keep_suspects(tmp_path, {9})
    assert suspects.suspects(tmp_path) == {9}
    suspects.keep_suspects(tmp_path, set())
    assert not (tmp_path / suspects.FILE_NAME).exists()


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ((rows.ENTRIES,), "offset index names entry 10, beyond the log's end"),
        ((rows.ENTRIES, rows.OFFSETS), "the log ends at entry 9, but entries up to 10 were committed"),
        ((rows.OFFSETS,), "the offset index does not have this batch"),
    ],
    ids=["entry", "both", "index row"],
)
def test_a_verification_notices_one_lost_row(tmp_path: Path, lost: tuple[bytes, ...], words: str) -> None:
    """At the very end of a log, where no later entry would show it."""
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(1, LogBuilder(1).batches(COUNT, 100))))
        storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(5, 2, COUNT))))
    assert verify(tmp_path).sound
    with Storage(tmp_path) as storage, storage._environment.writing() as txn:
        for name in lost:
            with txn.cursor(storage._environment.databases[name]) as cursor:
                assert cursor.last()
                cursor.delete()
    assert any(words in problem.what for problem in verify(tmp_path).problems), verify(tmp_path).problems
