"""Committed data can be read, by this process and by the next."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from storage_samples import CONFIGURATION, LogBuilder, create, identity, staged, transaction

from quorumlog.raft.types import NO_DATA, ORIGIN, Configuration, EntryId, HardState, Snapshot
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.storage import rows
from quorumlog.storage.environment import MAP_SIZE_BYTES, Environment
from quorumlog.storage.interface import DamageError, DataDirectoryLockedError, FatalStorageError, StorageEngineError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.storage.verification import verify
from quorumlog.wire.entry import CorruptEntryError, trace_of
from quorumlog.wire.entry import verify as verify_entry

ALL_BYTES = 1 << 40


@pytest.fixture
def storage(tmp_path: Path):
    with Storage(tmp_path / "data") as opened:
        yield opened


def reopened(storage: Storage) -> Storage:
    storage.close()
    return Storage(storage.data_dir)


def test_entries_come_back_as_they_were_written(storage: Storage) -> None:
    log = LogBuilder(7)
    entries = [log.noop(), *log.batches(3), log.batch(5_000_000), log.noop()]
    storage.commit(transaction(create(7, entries)))
    assert storage.entries(7, 1, 6, ALL_BYTES) == entries
    assert storage.entries(7, 2, 3, ALL_BYTES) == entries[1:3]
    assert storage.term_at(7, 4) == 1
    assert storage.term_at(7, 0) == 0


def test_entries_are_cut_at_max_bytes_but_never_to_none(storage: Storage) -> None:
    entries = LogBuilder(7).batches(10, 1000)
    storage.commit(transaction(create(7, entries)))
    assert storage.entries(7, 3, 10, 1) == entries[2:3]
    assert storage.entries(7, 1, 10, 2 * len(entries[0].data) + 1) == entries[:3]


def test_nobody_but_their_owner_reads_the_files(tmp_path: Path) -> None:
    """The files contain the records and the keys by which passwords are checked."""
    place = tmp_path / "above" / "data"
    with Storage(place):
        modes = {each.name: each.stat().st_mode & 0o777 for each in (place, place / "data.mdb", place / "lock.mdb")}
    assert modes == {"data": 0o700, "data.mdb": 0o600, "lock.mdb": 0o600}


def test_lmdb_is_opened_to_sync_every_commit(tmp_path: Path) -> None:
    # What a process that is killed leaves behind looks the same without: only power loss would show the difference.
    with closing(Environment(tmp_path, map_size=MAP_SIZE_BYTES)) as environment:
        flags = environment.lmdb.flags()
    assert flags["sync"]
    assert flags["metasync"]
    assert not flags["writemap"]


def test_everything_survives_reopening(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    assert storage.groups() == {}
    entries = LogBuilder(1000).batches(5, records=3)
    write = create(1000, entries, table={b"start": b"0", b"gone": None})
    storage.commit(transaction(create(0), write, node_state={b"directory": b"d1", b"gone": None}))
    storage.commit(transaction(RaftGroupWrite(1000, configuration=Configuration((1, 2), (4,)), table={b"start": b"1"})))
    storage.commit(transaction(RaftGroupWrite(1000, hard_state=HardState(9, 3, 5)), node_state={b"boots": b"2"}))
    with reopened(storage) as again:
        groups = again.groups()
        assert set(groups) == {0, 1000}
        assert groups[0].configuration == CONFIGURATION
        assert (groups[0].anchor, groups[0].last) == (ORIGIN, ORIGIN)
        found = groups[1000]
        assert found.configuration == Configuration((1, 2), (4,))
        assert found.hard_state == HardState(9, 3, 5)
        assert found.last == identity(entries[-1])
        assert found.table == {b"start": b"1"}
        assert found.snapshot is None
        assert again.node_state() == {b"directory": b"d1", b"boots": b"2"}
        assert again.entries(1000, 1, 5, ALL_BYTES) == entries


def test_a_transaction_refused_by_one_group_changes_no_group(storage: Storage) -> None:
    first, second = LogBuilder(1), LogBuilder(2)
    storage.commit(transaction(create(1, first.batches(2)), create(2, second.batches(2))))
    second.batch()
    gap = RaftGroupWrite(2, entries=[second.batch()], table={b"r": b"2"})
    whole = RaftGroupWrite(1, entries=first.batches(2), table={b"r": b"1"})
    with pytest.raises(FatalStorageError, match="group 2"):
        storage.commit(transaction(whole, gap, node_state={b"k": b"v"}))
    with pytest.raises(FatalStorageError, match="failed earlier"):
        storage.commit(StorageTransaction(2))
    with reopened(storage) as again:
        assert {group: state.last.index for group, state in again.groups().items()} == {1: 2, 2: 2}
        assert all(state.table == {} for state in again.groups().values())
        assert again.node_state() == {}


def test_offsets_find_their_batch(storage: Storage) -> None:
    log = LogBuilder(5)
    entries = [log.noop(), log.batch(records=10), log.noop(), log.batch(records=1), log.batch(records=5)]
    storage.commit(transaction(create(5, entries), create(6, LogBuilder(6).batches(3))))
    found = {offset: storage.find_offset(5, offset) for offset in (0, 9, 10, 11, 15, 16, 99)}
    assert found == {0: 2, 9: 2, 10: 4, 11: 5, 15: 5, 16: None, 99: None}


def test_truncation_takes_index_rows_along(storage: Storage) -> None:
    log = LogBuilder(5)
    kept = log.batches(3, records=4)
    fork = LogBuilder(5, previous=log.previous, next_offset=log.next_offset, seed=1)
    storage.commit(transaction(create(5, kept + log.batches(4, records=4), hard_state=HardState(1, 1, 3))))
    storage.commit(transaction(RaftGroupWrite(5, truncate_from=4)))
    assert storage.find_offset(5, 12) is None
    assert storage.find_offset(5, 11) == 3
    rewritten = fork.batches(2, records=50, term=2)
    storage.commit(transaction(RaftGroupWrite(5, truncate_from=4, entries=rewritten)))
    assert [storage.find_offset(5, offset) for offset in (11, 12, 61, 62, 111, 112)] == [3, 4, 4, 5, 5, None]
    with reopened(storage) as again:
        assert again.entries(5, 1, 5, ALL_BYTES) == kept + rewritten
        assert again.groups()[5].last == identity(rewritten[-1])


def test_compaction_moves_the_anchor_and_frees_what_lies_below(tmp_path: Path) -> None:
    storage = Storage(tmp_path, max_deletes=10)
    entries = LogBuilder(5).batches(100, 3000, records=2)
    storage.commit(transaction(create(5, entries)))
    used = storage.space().used_bytes
    storage.commit(transaction(RaftGroupWrite(5, compact_to=identity(entries[89]))))
    with pytest.raises(LookupError):
        storage.entries(5, 90, 91, ALL_BYTES)
    assert storage.entries(5, 91, 100, ALL_BYTES) == entries[90:]
    assert storage.find_offset(5, 0) == 91
    assert storage.term_at(5, 90) == 1
    storage = reopened(storage)
    slices = 1
    while storage.sweep():
        slices += 1
    assert slices > 0
    assert storage.space().used_bytes < used / 4
    assert storage.find_offset(5, 3) == 91
    assert storage.find_offset(5, 199) == 100
    with reopened(storage) as again:
        assert again.groups()[5].anchor == identity(entries[89])
        assert again.entries(5, 91, 100, ALL_BYTES) == entries[90:]
        assert not again.sweep()


@pytest.mark.scenario("6b")
def test_an_installed_snapshot_replaces_log_and_table(storage: Storage) -> None:
    storage.commit(transaction(create(5, LogBuilder(5).batches(20), table={b"old": b"1"})))
    snapshot, slices = staged(EntryId(50, 3, 12345), b"image" * 10_000, Configuration((1, 2, 3, 4)))
    for piece in slices:
        storage.commit(transaction(RaftGroupWrite(5, stage=[piece])))
        assert storage.groups()[5].snapshot is None
    install = RaftGroupWrite(5, snapshot=snapshot, hard_state=HardState(3, 2, 50), table={b"new": b"2"})
    storage.commit(transaction(install))
    after = LogBuilder(5, previous=snapshot.last, next_offset=70)
    entries = after.batches(3, term=3)
    storage.commit(transaction(RaftGroupWrite(5, entries=entries)))
    with reopened(storage) as again:
        state = again.groups()[5]
        assert (state.anchor, state.last, state.snapshot) == (snapshot.last, identity(entries[-1]), snapshot)
        assert state.table == {b"new": b"2"}
        assert state.configuration == snapshot.configuration
        pieces = [again.snapshot_slice(5, snapshot.data.stage, number) for number in range(snapshot.data.slices)]
        assert b"".join(pieces) == b"image" * 10_000
        assert again.find_offset(5, 0) == 51
        assert again.find_offset(5, 72) == 53
        assert again.find_offset(5, 73) is None


@pytest.mark.scenario("6c")
def test_a_snapshot_below_the_log_end_leaves_nothing_that_conflicts(storage: Storage) -> None:
    storage.commit(transaction(create(5, LogBuilder(5).batches(20), hard_state=HardState(1, 1, 4))))
    snapshot, slices = staged(EntryId(10, 2, 777), b"")
    storage.commit(transaction(RaftGroupWrite(5, stage=slices, snapshot=snapshot, hard_state=HardState(2, 1, 10))))
    with reopened(storage) as again:
        assert again.groups()[5].last == snapshot.last
        assert again.find_offset(5, 0) is None


def test_offsets_of_what_a_snapshot_replaced_are_free_again(tmp_path: Path) -> None:
    """Entries 5 to 20 were never committed; in the history that won, nothing in their place took an offset."""
    storage = Storage(tmp_path, max_deletes=1)
    storage.commit(transaction(create(5, LogBuilder(5).batches(20, records=3), hard_state=HardState(1, 1, 4))))
    snapshot, slices = staged(EntryId(25, 2, 777), b"")
    storage.commit(transaction(RaftGroupWrite(5, stage=slices, snapshot=snapshot, hard_state=HardState(2, 1, 25))))
    entries = LogBuilder(5, previous=snapshot.last, next_offset=12).batches(20, term=2)
    storage.commit(transaction(RaftGroupWrite(5, entries=entries)))
    assert [storage.find_offset(5, offset) for offset in (0, 11, 12, 31, 32)] == [26, 26, 26, 45, None]
    storage.close()


def test_a_checkpoint_keeps_the_log_and_replaces_the_one_before(storage: Storage) -> None:
    entries = LogBuilder(0).batches(10)
    storage.commit(transaction(create(0, entries, table={b"k": b"v"})))
    for index in (4, 6):
        checkpoint, slices = staged(identity(entries[index - 1]), b"image at %d" % index)
        compaction = RaftGroupWrite(0, stage=slices, checkpoint=checkpoint, compact_to=identity(entries[index - 3]))
        storage.commit(transaction(compaction))
    with reopened(storage) as again:
        state = again.groups()[0]
        assert state.snapshot == checkpoint
        assert state.anchor == identity(entries[3])
        assert state.table == {b"k": b"v"}
        assert again.entries(0, 5, 10, ALL_BYTES) == entries[4:]


def slices_in(storage: Storage) -> int:
    """Rows of snapshots' slices that storage holds, garbage included."""
    environment = storage._environment
    with environment.lmdb.begin() as txn:
        return int(txn.stat(environment.databases[rows.SLICES])["entries"])


def test_what_a_snapshot_supersedes_and_what_never_became_one_is_swept_in_slices(tmp_path: Path) -> None:
    storage = Storage(tmp_path, max_deletes=3)
    entries = LogBuilder(0).batches(10)
    storage.commit(transaction(create(0, entries)))
    first, first_slices = staged(identity(entries[3]), bytes(40_000))
    second, second_slices = staged(identity(entries[5]), bytes(30_000))
    abandoned, abandoned_slices = staged(identity(entries[6]), bytes(20_000))
    storage.commit(transaction(RaftGroupWrite(0, stage=first_slices, checkpoint=first)))
    storage.commit(transaction(RaftGroupWrite(0, stage=[*second_slices, *abandoned_slices], checkpoint=second)))
    storage.commit(transaction(RaftGroupWrite(0, unstage=[abandoned.data.stage])))
    assert slices_in(storage) > second.data.slices
    while storage.sweep():
        pass
    assert slices_in(storage) == second.data.slices
    assert storage.groups()[0].snapshot == second
    assert storage.snapshot_slice(0, second.data.stage, 7) == bytes(30_000 - 7 * 4096)
    with pytest.raises(DamageError, match=r"slice 0 of snapshot stage .* is missing"):
        storage.snapshot_slice(0, first.data.stage, 0)
    storage.close()


def test_stages_found_at_opening_are_swept(tmp_path: Path) -> None:
    """A crash ended the transfer that was receiving them, so they are never referenced again."""
    entries = LogBuilder(0).batches(10)
    kept, kept_slices = staged(identity(entries[3]), bytes(20_000))
    with Storage(tmp_path) as storage:
        storage.commit(transaction(create(0, entries), create(5)))
        storage.commit(transaction(RaftGroupWrite(0, stage=kept_slices, checkpoint=kept)))
        for group in (0, 5):
            _, half = staged(EntryId(50, 1, 1), bytes(90_000))
            storage.commit(transaction(RaftGroupWrite(group, stage=half[:-1])))
    with Storage(tmp_path, max_deletes=4) as storage:
        while storage.sweep():
            pass
        assert slices_in(storage) == kept.data.slices
        assert storage.groups()[0].snapshot == kept
    assert verify(tmp_path).sound


def test_a_destroyed_replica_is_gone_and_may_be_made_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path, max_deletes=5)
    neighbours = {group: LogBuilder(group).batches(30) for group in (4, 6)}
    storage.commit(transaction(create(5, LogBuilder(5).batches(30), table={b"k": b"v"})))
    storage.commit(transaction(*(create(group, entries) for group, entries in neighbours.items())))
    storage.commit(transaction(RaftGroupWrite(5, destroy=True)))
    with pytest.raises(LookupError):
        storage.entries(5, 1, 1, ALL_BYTES)
    storage = reopened(storage)
    assert set(storage.groups()) == {4, 6}
    fresh = LogBuilder(5, seed=9).batches(3)
    storage.commit(transaction(create(5, fresh)))
    with reopened(storage) as again:
        assert again.entries(5, 1, 3, ALL_BYTES) == fresh
        assert again.groups()[5].table == {}
        assert not again.sweep()
        for group, entries in neighbours.items():
            assert again.entries(group, 1, 30, ALL_BYTES) == entries


def test_replicas_that_come_and_go_use_the_same_pages_again(tmp_path: Path) -> None:
    sizes = []
    with Storage(tmp_path, max_deletes=16, reserve_bytes=0) as storage:
        for group in range(1000, 1006):
            storage.commit(transaction(create(group, LogBuilder(group).batches(30, 20_000))))
            storage.commit(transaction(RaftGroupWrite(group, destroy=True)))
            slices = 0
            while storage.sweep():
                slices += 1
            assert slices >= 1, "not all at once"
            sizes.append((tmp_path / "data.mdb").stat().st_size)
            assert storage.groups() == {}
    assert sizes[-1] <= 1.1 * sizes[1], sizes


def test_the_neighbour_with_the_highest_offset_is_not_mistaken(storage: Storage) -> None:
    storage.commit(transaction(create(0xFFFFFFFF, LogBuilder(0xFFFFFFFF).batches(2)), create(1), create(0)))
    assert storage.find_offset(1, 0) is None
    assert storage.find_offset(0xFFFFFFFF, 1) == 2
    with reopened(storage) as again:
        assert again.groups()[0xFFFFFFFF].last.index == 2


REFUSED = {
    "unknown replica": lambda log: [RaftGroupWrite(6, entries=log.batches(1))],
    "created twice": lambda log: [RaftGroupWrite(5, create=CONFIGURATION)],
    "gap": lambda log: [RaftGroupWrite(5, entries=log.batches(2)[1:])],
    "older term": lambda log: [RaftGroupWrite(5, entries=[log.batch(term=0)])],
    "other group's entry": lambda log: [RaftGroupWrite(5, entries=[LogBuilder(6, previous=log.previous).batch()])],
    "offset gap": lambda log: [
        RaftGroupWrite(5, entries=[LogBuilder(5, previous=log.previous, next_offset=log.next_offset + 1).batch()])
    ],
    "broken chain": lambda log: [
        RaftGroupWrite(5, entries=[LogBuilder(5, previous=log.previous._replace(hash=1), next_offset=10).batch()])
    ],
    "truncation of what is committed": lambda log: [RaftGroupWrite(5, truncate_from=9)],
    "older term in hard state": lambda log: [RaftGroupWrite(5, hard_state=HardState(0, 1, 9))],
    "second vote in a term": lambda log: [RaftGroupWrite(5, hard_state=HardState(1, 2, 9))],
    "commit goes back": lambda log: [RaftGroupWrite(5, hard_state=HardState(1, 1, 8))],
    "commit beyond the log": lambda log: [RaftGroupWrite(5, hard_state=HardState(1, 1, 11))],
    "compaction to another entry": lambda log: [RaftGroupWrite(5, compact_to=EntryId(3, 1, 99))],
    "compaction beyond the log": lambda log: [RaftGroupWrite(5, compact_to=EntryId(11, 1, 99))],
    "snapshot without hard state": lambda log: [
        RaftGroupWrite(5, stage=staged(EntryId(50, 1, 1), b"")[1], snapshot=staged(EntryId(50, 1, 1), b"")[0])
    ],
    "old snapshot": lambda log: [
        RaftGroupWrite(
            5,
            stage=staged(EntryId(3, 1, 1), b"")[1],
            snapshot=staged(EntryId(3, 1, 1), b"")[0],
            hard_state=HardState(1, 1, 9),
        )
    ],
    "snapshot that lacks a slice": lambda log: [
        RaftGroupWrite(
            5,
            stage=staged(EntryId(50, 1, 1), bytes(9000))[1][1:],
            snapshot=staged(EntryId(50, 1, 1), bytes(9000))[0],
            hard_state=HardState(1, 1, 50),
        )
    ],
    "checkpoint that was never staged": lambda log: [RaftGroupWrite(5, checkpoint=staged(log.previous, b"image")[0])],
    "slice staged twice": lambda log: [RaftGroupWrite(5, stage=staged(log.previous, b"image")[1] * 2)],
    "unstage of the snapshot": lambda log: [
        RaftGroupWrite(
            5,
            stage=staged(log.previous, b"")[1],
            checkpoint=staged(log.previous, b"")[0],
            unstage=[staged(log.previous, b"")[0].data.stage],
        )
    ],
    "same group twice": lambda log: [RaftGroupWrite(5), RaftGroupWrite(5)],
    "huge table key": lambda log: [RaftGroupWrite(5, table={b"k" * 600: b""})],
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_write_that_contradicts_the_log_is_refused(storage: Storage, case: str) -> None:
    log = LogBuilder(5)
    storage.commit(transaction(create(5, log.batches(10))))
    with pytest.raises(FatalStorageError, match=r"^refused to write group"):
        storage.commit(transaction(*REFUSED[case](log)))
    with reopened(storage) as again:
        assert again.groups()[5].last.index == 10


def test_a_directory_belongs_to_one_process(storage: Storage) -> None:
    with pytest.raises(DataDirectoryLockedError, match=str(storage.data_dir)):
        Storage(storage.data_dir)
    storage.close()
    Storage(storage.data_dir).close()


def test_a_directory_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageEngineError, match="cannot use data directory"):
        Storage(tmp_path / "file")


def test_data_that_cannot_be_read_is_said_so(storage: Storage) -> None:
    storage.close()
    (storage.data_dir / "data.mdb").unlink()
    (storage.data_dir / "data.mdb").mkdir()
    with pytest.raises(StorageEngineError, match="cannot use data directory"):
        Storage(storage.data_dir)


@pytest.mark.parametrize(("known", "right"), [(0, "a newer"), (99, "an older")])
def test_another_format_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch, known: int, right: str) -> None:
    storage.close()
    monkeypatch.setattr("quorumlog.storage.rows.FORMAT", known)
    with pytest.raises(StorageEngineError, match=f"use {right} quorumlog"):
        Storage(storage.data_dir)


def test_space_counts_what_is_live(storage: Storage) -> None:
    before = storage.space()
    storage.commit(transaction(create(1, LogBuilder(1).batches(10, 1 << 20))))
    after = storage.space()
    assert after.used_bytes - before.used_bytes == pytest.approx(10 << 20, rel=0.05)
    assert after.free_bytes > 0


def test_a_thousand_groups_open_within_the_budget(tmp_path: Path) -> None:
    logs = [LogBuilder(group) for group in range(1000)]
    with Storage(tmp_path) as storage:
        storage.commit(transaction(*(create(log.group, table={b"a": b"1"}) for log in logs)))
        for _ in range(3):
            storage.commit(transaction(*(RaftGroupWrite(log.group, entries=log.batches(5)) for log in logs)))
    began = time.thread_time()
    with Storage(tmp_path) as storage:
        assert len(storage.groups()) == 1000
    assert time.thread_time() - began < 2, "seconds of processor time: a restart must serve within two"


def test_a_witness_keeps_traces_and_begins_anew_behind_a_point(tmp_path: Path) -> None:
    log = LogBuilder(7)
    entries = [log.noop(), *log.batches(3)]
    traces = [GroupSealer(7).trace(entry, 0) for entry in entries]
    members = Configuration((1, 2, 3), witnesses=(3,))
    row = {b"w": b"\0" * 8}
    with Storage(tmp_path / "data") as storage:
        storage.commit(
            transaction(RaftGroupWrite(7, create=members, entries=traces, hard_state=HardState(1), table=row))
        )
    with Storage(tmp_path / "data") as storage:
        state = storage.groups()[7]
        assert (state.configuration, state.last, state.table) == (members, identity(entries[-1]), row)
        assert storage.entries(7, 1, 4, ALL_BYTES) == traces
        assert storage.last_batch(7) is None
        point = Snapshot(EntryId(9, 2, 99), members, NO_DATA)
        installed = RaftGroupWrite(7, snapshot=point, hard_state=HardState(2, -1, 9), table=row)
        storage.commit(transaction(installed, number=2))
    with Storage(tmp_path / "data") as storage:
        state = storage.groups()[7]
        assert (state.anchor, state.last, state.snapshot) == (point.last, point.last, None)
    assert verify(tmp_path / "data").sound


@pytest.mark.parametrize("damage", [40, 47, 8, 20])
def test_a_trace_with_a_flipped_bit_is_refused(damage: int) -> None:
    trace = bytearray(trace_of(LogBuilder(7).batches(1)[0].data))
    trace[damage] ^= 1
    with pytest.raises(CorruptEntryError):
        verify_entry(bytes(trace))
