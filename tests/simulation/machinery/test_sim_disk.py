"""The simulated disk keeps what was synced, and answers as the shipped storage does."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_samples import CONFIGURATION, GROUP, Script, assert_same, entry_after, make_disk

from quorumlog.raft.types import ORIGIN
from quorumlog.server.step.events import StorageDone, StorageFailed
from quorumlog.storage.interface import DamageError, DiskFullError, FatalStorageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction


def first_write(number: int = 1) -> StorageTransaction:
    entry = entry_after(ORIGIN, 1, 0, b"payload.")
    return StorageTransaction(
        number, [RaftGroupWrite(GROUP, create=CONFIGURATION, entries=[entry])], {b"row": b"value"}
    )


def test_a_completion_comes_after_the_sync_and_not_before() -> None:
    scheduler, disk = make_disk()
    done: list[StorageDone | StorageFailed] = []
    disk.submit(first_write(), done.append)
    assert disk.groups() == {}
    scheduler.run(1_000_000)
    assert done == [StorageDone(1)]
    assert disk.groups()[GROUP].last.index == 1
    assert disk.node_state() == {b"row": b"value"}


def test_a_crash_keeps_the_transaction_under_way_whole_or_not_at_all_and_tells_nobody() -> None:
    kept = set()
    for seed in range(20):
        scheduler, disk = make_disk(seed)
        done: list[StorageDone | StorageFailed] = []
        disk.submit(first_write(), done.append)
        disk.crash()
        scheduler.run(1_000_000)
        assert done == []
        whole = GROUP in disk.groups()
        assert whole == (disk.node_state() == {b"row": b"value"})
        kept.add(whole)
    assert kept == {True, False}


def test_what_is_synced_survives_every_crash() -> None:
    scheduler, disk = make_disk()
    done: list[StorageDone | StorageFailed] = []
    disk.submit(first_write(), done.append)
    scheduler.run(1_000_000)
    disk.crash()
    assert disk.groups()[GROUP].last.index == 1


def test_a_full_disk_refuses_and_keeps_nothing() -> None:
    scheduler, disk = make_disk()
    done: list[StorageDone | StorageFailed] = []
    disk.full = True
    disk.submit(first_write(), done.append)
    scheduler.run(1_000_000)
    assert isinstance(done[0], StorageFailed)
    assert isinstance(done[0].error, DiskFullError)
    assert disk.groups() == {}
    assert disk.space().free_bytes == 0


def test_after_an_io_error_nobody_knows_what_is_there_and_nothing_more_may_be_written() -> None:
    kept = set()
    for seed in range(20):
        scheduler, disk = make_disk(seed)
        done: list[StorageDone | StorageFailed] = []
        disk.next_sync_fails = True
        disk.submit(first_write(), done.append)
        scheduler.run(1_000_000)
        assert isinstance(done[0], StorageFailed)
        assert isinstance(done[0].error, FatalStorageError)
        kept.add(GROUP in disk.groups())
        with pytest.raises(AssertionError, match="writes on after an I/O error"):
            disk.submit(first_write(2), done.append)
    assert kept == {True, False}


def test_a_read_fails_once_and_only_for_the_node() -> None:
    scheduler, disk = make_disk()
    disk.submit(first_write(), lambda done: None)
    scheduler.run(1_000_000)
    disk.next_read_fails = True
    assert disk.term_at(GROUP, 1) == 1, "an observer's read succeeds"
    disk.read_by_node = True
    with pytest.raises(DamageError):
        disk.entries(GROUP, 1, 1, 1)
    assert disk.has_failed
    disk.crash()
    assert not disk.has_failed
    assert disk.term_at(GROUP, 1) == 1


def test_the_end_of_a_sync_is_told_before_the_node_hears_of_it() -> None:
    scheduler, disk = make_disk()
    seen: list[object] = []
    disk.after_sync = lambda: seen.append(GROUP in disk.groups())
    disk.submit(first_write(), seen.append)
    scheduler.run(1_000_000)
    assert seen == [True, StorageDone(1)]


def test_a_lying_disk_loses_what_it_said_was_done() -> None:
    scheduler, disk = make_disk(lies=True)
    done: list[StorageDone | StorageFailed] = []
    disk.submit(first_write(), done.append)
    scheduler.run(100)
    assert done == [StorageDone(1)]
    disk.crash()
    assert disk.groups() == {}


@pytest.mark.parametrize("seed", range(12))
def test_the_same_transactions_get_the_same_answers_as_from_the_shipped_storage(seed: int, tmp_path: Path) -> None:
    scheduler, disk = make_disk(seed)
    script = Script(seed)
    with Storage(tmp_path) as storage:
        for _ in range(25):
            transaction = script.next()
            storage.commit(transaction)
            disk.submit(transaction, lambda done: None)
            scheduler.run(scheduler.now + 1_000_000)
            assert_same(storage, disk)
            state = disk.groups()[GROUP]
            for index in range(state.anchor.index, state.last.index + 1):
                assert disk.term_at(GROUP, index) == storage.term_at(GROUP, index)
            if state.last.index > state.anchor.index:
                span = (GROUP, state.anchor.index + 1, state.last.index)
                for limit in (1, 300, 1 << 20):
                    assert disk.entries(*span, limit) == storage.entries(*span, limit)
            for offset in range(0, 200, 3):
                assert disk.find_offset(GROUP, offset) == storage.find_offset(GROUP, offset)
