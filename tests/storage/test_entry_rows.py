"""Entries of every size are read as they were written, however they were cut into rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_samples import LogBuilder, create, identity

from quorumlog.raft.types import HardState
from quorumlog.storage import rows
from quorumlog.storage.entry_rows import MAX_WASTE, PAGE_BYTES, PIECE_BYTES, SMALL_BYTES, cut, missing_bytes
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.storage.verification import verify

SIZES = [1, 900, 1900, 2000, 2500, 3500, 3900, 4000, 4100, 5000, 7000, 7900, 8100, 9000, 12_400, 40_000, 65_536]


@given(st.integers(40, 100_000))
def test_the_rows_of_an_entry_are_its_bytes_in_the_order_of_their_keys_and_fill_their_pages(size: int) -> None:
    data = (4).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size - 8)
    cut_rows = cut(b"k" * 12, data)
    keys = [key for key, _ in cut_rows]
    assert keys == sorted(keys) and len(set(keys)) == len(keys) and keys[0] == b"k" * 12
    assert b"".join(part for _, part in cut_rows) == data
    assert missing_bytes(cut_rows[0][1]) == size - len(cut_rows[0][1])
    assert all(0 < len(part) <= PIECE_BYTES for _, part in cut_rows[1:])
    first = len(cut_rows[0][1])
    if first > SMALL_BYTES:
        pages = -(-(first + 16) // PAGE_BYTES)
        assert pages * PAGE_BYTES - first <= size * MAX_WASTE + 16


@pytest.mark.parametrize("last", SIZES[::4])
def test_entries_that_were_cut_are_read_truncated_swept_and_verified(tmp_path: Path, last: int) -> None:
    log = LogBuilder(3)
    entries = [log.batch(size) for size in [*SIZES, last]]
    with Storage(tmp_path, max_deletes=5) as storage:
        storage.commit(StorageTransaction(1, [create(3, entries), create(4, LogBuilder(4).batches(2))]))
        assert storage.entries(3, 1, len(entries), 1 << 30) == entries
        for entry in entries:
            assert storage.entries(3, entry.index, entry.index, 1) == [entry]
            assert storage.term_at(3, entry.index) == 1
    assert verify(tmp_path).sound
    with Storage(tmp_path, max_deletes=5) as storage:
        assert storage.groups()[3].last == identity(entries[-1])
        cut_off = LogBuilder(3, previous=identity(entries[-2]), next_offset=len(entries) - 1)
        other = cut_off.batch(3000, term=2)
        storage.commit(StorageTransaction(2, [RaftGroupWrite(3, truncate_from=other.index, entries=[other])]))
        kept = [*entries[:-1], other]
        assert storage.entries(3, 1, len(kept), 1 << 30) == kept
        anchor = identity(entries[8])
        storage.commit(StorageTransaction(3, [RaftGroupWrite(3, hard_state=HardState(2, 1, 17), compact_to=anchor)]))
    with Storage(tmp_path, max_deletes=5) as storage:
        while storage.sweep():
            pass
        with storage._environment.reading() as reading:
            assert reading.first_index(3) == 10
        assert storage.entries(3, 10, len(kept), 1 << 30) == kept[9:]
    assert verify(tmp_path).sound


def test_a_lost_piece_of_an_entry_is_damage(tmp_path: Path) -> None:
    entries = LogBuilder(3).batches(5, 5000)
    key = rows.position_key(3, 2) + b"\1"
    with Storage(tmp_path) as storage:
        storage.commit(StorageTransaction(1, [create(3, entries)]))
        with storage._environment.writing() as txn:
            assert txn.delete(key, db=storage._environment.databases[rows.ENTRIES])
        assert storage.entries(3, 1, 5, 1 << 30) == entries[:1]
        with pytest.raises(DamageError, match="entry 2 of group 3"):
            storage.entries(3, 2, 5, 1 << 30)
        assert storage.entries(3, 3, 5, 1 << 30) == entries[2:]
    assert [problem.index for problem in verify(tmp_path).problems] == [2]
