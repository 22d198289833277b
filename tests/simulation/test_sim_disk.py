"""The simulated disk keeps what was synced, and answers as the shipped storage does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from quorumlog.chaos.scheduler import Scheduler
from quorumlog.chaos.sim_disk import DiskOptions, SimDisk
from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.server.events import StorageDone, StorageFailed
from quorumlog.storage.interface import DiskFullError, FatalStorageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import GroupWrite, Transaction
from quorumlog.v1.entry import Codec, build_batch, entry_hash, seal, seal_batch
from quorumlog.v1.entry import EntryKind as WireKind

GROUP = 1000
CONFIGURATION = Configuration(voters=(1, 2, 3))


def entry_after(previous: EntryId, term: int, base_offset: int | None, payload: bytes, records: int = 1) -> Entry:
    """A batch, or without an offset a no-op, that follows ``previous``."""
    index = previous.index + 1
    if base_offset is None:
        data = seal(GROUP, term, index, previous.hash, WireKind.NOOP, b"")
        return Entry(index, term, EntryKind.NOOP, entry_hash(data), data)
    unsealed = build_batch(payload, record_count=records, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
    data = seal_batch(
        unsealed, group=GROUP, term=term, index=index, previous_hash=previous.hash, base_offset=base_offset
    )
    return Entry(index, term, EntryKind.BATCH, entry_hash(data), data)


def make_disk(seed: int = 1, lies: bool = False) -> tuple[Scheduler, SimDisk]:
    scheduler = Scheduler(seed)
    disk = SimDisk(1, scheduler, scheduler.stream("disk"), DiskOptions(), lambda disk, transaction: None, lies)
    return scheduler, disk


def first_write(number: int = 1) -> Transaction:
    entry = entry_after(ORIGIN, 1, 0, b"payload.")
    return Transaction(number, [GroupWrite(GROUP, create=CONFIGURATION, entries=[entry])], {b"row": b"value"})


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


def test_a_lying_disk_loses_what_it_said_was_done() -> None:
    scheduler, disk = make_disk(lies=True)
    done: list[StorageDone | StorageFailed] = []
    disk.submit(first_write(), done.append)
    scheduler.run(100)
    assert done == [StorageDone(1)]
    disk.crash()
    assert disk.groups() == {}


class Script:
    """Draws valid transactions for one group, knowing what has been written."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._ids: list[tuple[EntryId, int]] = [(ORIGIN, 0)]
        self._term, self._commit, self._number, self._exists = 1, 0, 0, False

    def next(self) -> Transaction:
        self._number += 1
        write = GroupWrite(GROUP)
        if not self._exists:
            write.create, self._exists = CONFIGURATION, True
        else:
            self._draw_change(write)
        self._append(write)
        last = self._ids[-1][0].index
        if self._rng.random() < 0.5 or write.snapshot is not None:
            self._commit = self._rng.randint(max(self._commit, self._ids[0][0].index), last)
            write.hard_state = HardState(self._term, self._term % 3 + 1, self._commit)
        if self._rng.random() < 0.4:
            write.table = {b"k%d" % self._rng.randint(0, 3): self._rng.choice((b"value", None, b""))}
        if write.create is None and self._rng.random() < 0.15:
            self._compact(write)
        row = {b"n%d" % self._rng.randint(0, 2): self._rng.choice((b"row", None))}
        return Transaction(self._number, [write], row)

    def _draw_change(self, write: GroupWrite) -> None:
        first, last = self._ids[0][0].index, self._ids[-1][0].index
        if self._rng.random() < 0.1:
            end = EntryId(last + self._rng.randint(1, 5), self._term, self._rng.getrandbits(64))
            self._ids = [(end, self._ids[-1][1] + self._rng.randint(0, 9))]
            write.snapshot = Snapshot(end, CONFIGURATION, b"state")
        elif last > max(first, self._commit) and self._rng.random() < 0.3:
            self._term += 1
            write.truncate_from = self._rng.randint(max(first, self._commit) + 1, last)
            del self._ids[write.truncate_from - first :]

    def _append(self, write: GroupWrite) -> None:
        for _ in range(self._rng.randint(0, 4)):
            previous, offset = self._ids[-1]
            records = self._rng.randint(1, 4)
            is_batch = self._rng.random() < 0.8
            payload = self._rng.randbytes(8 * self._rng.randint(1, 20))
            entry = entry_after(previous, self._term, offset if is_batch else None, payload, records)
            write.entries.append(entry)
            self._ids.append((EntryId(entry.index, entry.term, entry.hash), offset + (records if is_batch else 0)))

    def _compact(self, write: GroupWrite) -> None:
        first = self._ids[0][0].index
        if self._commit > first:
            write.compact_to = self._ids[self._commit - first][0]
            del self._ids[: self._commit - first]


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
            assert disk.groups() == storage.groups()
            assert disk.node_state() == storage.node_state()
            state = disk.groups()[GROUP]
            for index in range(state.anchor.index, state.last.index + 1):
                assert disk.term_at(GROUP, index) == storage.term_at(GROUP, index)
            if state.last.index > state.anchor.index:
                span = (GROUP, state.anchor.index + 1, state.last.index)
                for limit in (1, 300, 1 << 20):
                    assert disk.entries(*span, limit) == storage.entries(*span, limit)
            for offset in range(0, 200, 3):
                assert disk.find_offset(GROUP, offset) == storage.find_offset(GROUP, offset)
