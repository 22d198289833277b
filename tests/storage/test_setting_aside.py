"""One damaged replica does not keep the others from being opened: it is set aside, and kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, staged, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError
from quorumlog.storage.recheck_list import suspects
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

pytestmark = pytest.mark.scenario("20b")

DAMAGED, SOUND = 1000, 1001


def make(data_dir: Path, count: int = 100) -> None:
    with Storage(data_dir) as storage:
        for group in (DAMAGED, SOUND):
            entries = LogBuilder(group).batches(count, 300)
            checkpoint, slices = staged(identity(entries[1]), bytes(9_000))
            table = {b"k": b"v"}
            storage.commit(transaction(create(group, entries, stage=slices, checkpoint=checkpoint, table=table)))
        storage.commit(transaction(RaftGroupWrite(DAMAGED, hard_state=HardState(7, 3, count - 1))))


def change(data_dir: Path, database: bytes, key: bytes, change: Callable[[bytes], bytes | None]) -> None:
    """Damages a row: of a kind that no page shows."""
    with Storage(data_dir) as storage, storage._environment.writing() as txn:
        handle = storage._environment.databases[database]
        row = txn.get(key, db=handle)
        assert row is not None
        changed = change(row)
        if changed is None:
            txn.delete(key, db=handle)
        else:
            txn.put(key, changed, db=handle)


def flipped(row: bytes) -> bytes:
    return row[:-1] + bytes([row[-1] ^ 1])


def lost(row: bytes) -> None:
    return None


def tolerant(data_dir: Path) -> Storage:
    return Storage(data_dir, may_set_aside=lambda group: group != 0)


SMALL_ROWS = {
    "hard state": (rows.HARD_STATES, rows.group_key(DAMAGED)),
    "configuration": (rows.CONFIGURATIONS, rows.group_key(DAMAGED)),
    "anchor": (rows.ANCHORS, rows.group_key(DAMAGED)),
    "snapshot": (rows.SNAPSHOTS, rows.group_key(DAMAGED)),
    "table": (rows.TABLES, rows.group_key(DAMAGED) + b"k"),
    "last entry": (rows.ENTRIES, rows.position_key(DAMAGED, 100)),
    "last offset row": (rows.OFFSETS, rows.position_key(DAMAGED, 99)),
}


@pytest.mark.parametrize("what", SMALL_ROWS)
def test_a_replica_with_a_damaged_row_is_set_aside_and_the_other_is_open(tmp_path: Path, what: str) -> None:
    make(tmp_path)
    change(tmp_path, *SMALL_ROWS[what], flipped)
    with pytest.raises(DamageError):
        Storage(tmp_path)
    with tolerant(tmp_path) as storage:
        assert list(storage.groups()) == [SOUND]
        aside = storage.opening_damage().replicas[DAMAGED]
        assert (aside.term, aside.last_index) == (7, 100)
        assert "group 1000" in aside.reason
        while storage.sweep():
            pass
        assert len(storage.entries(SOUND, 1, 100, 1 << 30)) == 100
    # It still exists, and so does its damage.
    with tolerant(tmp_path) as storage:
        aside = storage.opening_damage().replicas
        assert [(group, each.last_index) for group, each in aside.items()] == [(DAMAGED, 100)]


def test_a_replica_that_was_set_aside_can_be_given_up_and_begin_anew(tmp_path: Path) -> None:
    make(tmp_path)
    change(tmp_path, *SMALL_ROWS["hard state"], flipped)
    with tolerant(tmp_path) as storage:
        storage.pass_replica(DAMAGED)
        storage.commit(transaction(RaftGroupWrite(DAMAGED, destroy=True)))
        while storage.sweep():
            pass
        entries = LogBuilder(DAMAGED, seed=5).batches(3)
        storage.commit(transaction(create(DAMAGED, entries)))
        assert storage.entries(DAMAGED, 1, 3, 1 << 30) == entries
    with Storage(tmp_path) as storage:
        assert list(storage.groups()) == [DAMAGED, SOUND]


def test_where_both_copies_of_a_vote_are_damaged_nobody_guesses_its_term(tmp_path: Path) -> None:
    make(tmp_path)
    change(tmp_path, *SMALL_ROWS["hard state"], flipped)
    change_aside = rows.NODE_STATE, rows.ballot_key(DAMAGED)
    with tolerant(tmp_path) as storage, storage._environment.writing() as txn:
        handle = storage._environment.databases[change_aside[0]]
        row = txn.get(change_aside[1], db=handle)
        assert row is not None
        txn.put(change_aside[1], flipped(row), db=handle)
    with tolerant(tmp_path) as storage:
        assert storage.opening_damage().replicas[DAMAGED].term is None


def test_a_table_row_that_has_strayed_to_another_replica_spoils_both(tmp_path: Path) -> None:
    """A flipped bit in the key does this; the replica that has lost the row must not continue without it."""
    make(tmp_path)
    key = rows.group_key(DAMAGED) + b"k"
    with Storage(tmp_path) as storage, storage._environment.writing() as txn:
        handle = storage._environment.databases[rows.TABLES]
        row = txn.get(key, db=handle)
        assert row is not None
        txn.delete(key, db=handle)
        txn.put(rows.group_key(SOUND) + b"k", row, db=handle)
    with tolerant(tmp_path) as storage:
        assert sorted(storage.opening_damage().replicas) == [DAMAGED, SOUND]


def test_a_damaged_metadata_group_is_not_set_aside(tmp_path: Path) -> None:
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(0, LogBuilder(0).batches(5))))
    change(tmp_path, rows.CONFIGURATIONS, rows.group_key(0), flipped)
    with pytest.raises(DamageError, match="configurations of group 0"):
        tolerant(tmp_path)


@pytest.mark.parametrize("how", [flipped, lost])
def test_a_damaged_entry_of_the_tail_is_told_and_its_log_is_open(
    tmp_path: Path, how: Callable[[bytes], bytes | None]
) -> None:
    make(tmp_path)
    for index in (60, 97, 98):
        change(tmp_path, rows.ENTRIES, rows.position_key(DAMAGED, index), how) if index == 60 else None
    with tolerant(tmp_path) as storage, storage._environment.writing() as txn:
        for index in (97, 98):
            key, handle = rows.position_key(DAMAGED, index), storage._environment.databases[rows.ENTRIES]
            txn.put(key, flipped(txn.get(key, db=handle) or b""), db=handle)
    with tolerant(tmp_path) as storage:
        assert list(storage.groups()) == [DAMAGED, SOUND]
        assert [each.index for each in storage.opening_damage().entries] == [98, 97, 60]
        builder = LogBuilder(DAMAGED)
        entries = builder.batches(100, 300)
        for index in (98, 97, 60):
            storage.commit(transaction(RaftGroupWrite(DAMAGED, mend=[entries[index - 1]])))
        assert storage.entries(DAMAGED, 1, 100, 1 << 30) == entries


def test_a_damaged_slice_that_a_reader_has_found_is_found_again_at_the_next_opening(tmp_path: Path) -> None:
    """Opening does not look at every slice: of this replica it does."""
    with Storage(tmp_path) as storage:
        entries = LogBuilder(DAMAGED).batches(5)
        checkpoint, slices = staged(identity(entries[1]), bytes(5 << 20))
        storage.commit(transaction(create(DAMAGED, entries, stage=slices, checkpoint=checkpoint)))
    stage = checkpoint.data.stage
    change(tmp_path, rows.SLICES, rows.slice_key(DAMAGED, stage, 7), flipped)
    with tolerant(tmp_path) as storage:
        assert list(storage.groups()) == [DAMAGED]
        with pytest.raises(DamageError):
            storage.snapshot_slice(DAMAGED, stage, 7)
    assert suspects(tmp_path) == {DAMAGED}
    with tolerant(tmp_path) as storage:
        assert list(storage.opening_damage().replicas) == [DAMAGED]
        storage.commit(transaction(RaftGroupWrite(DAMAGED, destroy=True)))
    with tolerant(tmp_path) as storage:
        assert not storage.opening_damage().replicas
    assert suspects(tmp_path) == set()
