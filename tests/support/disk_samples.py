"""Disks, entries and courses of transactions for the tests that compare the simulated disk with the shipped storage."""

from __future__ import annotations

import random
from collections.abc import Callable

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.simulator.world.disk import DiskOptions, SimDisk
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.rows import cut_slice, describe_snapshot, read_snapshot
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, SnapshotSlice, StorageTransaction
from quorumlog.wire.entry import Codec, EnvelopeKind, build_batch, entry_hash, seal, seal_batch

GROUP = 1000
CONFIGURATION = Configuration(voters=(1, 2, 3))


def entry_after(previous: EntryId, term: int, base_offset: int | None, payload: bytes, records: int = 1) -> Entry:
    """A batch, or without an offset a no-op, that follows ``previous``."""
    index = previous.index + 1
    if base_offset is None:
        data = seal(GROUP, term, index, previous.hash, EnvelopeKind.NOOP, b"")
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


def staged(last: EntryId, data: bytes = b"", stage: int = 1) -> tuple[Snapshot, list[SnapshotSlice]]:
    """A snapshot, and its slices of seven bytes."""
    described = describe_snapshot(stage, data, 7)
    return Snapshot(last, CONFIGURATION, described), [cut_slice(stage, data, 7, at) for at in range(described.slices)]


class Script:
    """Draws valid transactions for one group, knowing what has been written."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._slices = random.Random(f"{seed}/slices")
        self._ids: list[tuple[EntryId, int]] = [(ORIGIN, 0)]
        self._term, self._commit, self._number, self._exists = 1, 0, 0, False

    def next(self) -> StorageTransaction:
        self._number += 1
        write = RaftGroupWrite(GROUP)
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
        return StorageTransaction(self._number, [write], row)

    def _stage(self, write: RaftGroupWrite, last: EntryId) -> Snapshot:
        """A snapshot that is staged whole in the write that switches to it, beside one that is given up."""
        stage, given_up = self._slices.getrandbits(64), self._slices.getrandbits(64)
        snapshot, slices = staged(last, self._slices.randbytes(self._slices.choice((0, 7, 20))), stage)
        write.stage += [*slices, SnapshotSlice(given_up, 0, b"half")]
        write.unstage.append(given_up)
        return snapshot

    def _draw_change(self, write: RaftGroupWrite) -> None:
        first, last = self._ids[0][0].index, self._ids[-1][0].index
        if self._rng.random() < 0.1:
            end = EntryId(last + self._rng.randint(1, 5), self._term, self._rng.getrandbits(64))
            self._ids = [(end, self._ids[-1][1] + self._rng.randint(0, 9))]
            write.snapshot = self._stage(write, end)
        elif last > max(first, self._commit) and self._rng.random() < 0.3:
            self._term += 1
            write.truncate_from = self._rng.randint(max(first, self._commit) + 1, last)
            del self._ids[write.truncate_from - first :]

    def _append(self, write: RaftGroupWrite) -> None:
        for _ in range(self._rng.randint(0, 4)):
            previous, offset = self._ids[-1]
            records = self._rng.randint(1, 4)
            is_batch = self._rng.random() < 0.8
            payload = self._rng.randbytes(8 * self._rng.randint(1, 20))
            entry = entry_after(previous, self._term, offset if is_batch else None, payload, records)
            write.entries.append(entry)
            self._ids.append((EntryId(entry.index, entry.term, entry.hash), offset + (records if is_batch else 0)))

    def _compact(self, write: RaftGroupWrite) -> None:
        first = self._ids[0][0].index
        if self._commit > first:
            write.compact_to = self._ids[self._commit - first][0]
            if self._slices.random() < 0.5:
                write.checkpoint = self._stage(write, write.compact_to)
            del self._ids[: self._commit - first]


def advance(disk: SimDisk, scheduler: Scheduler, transaction: StorageTransaction) -> None:
    """Makes one transaction durable on the simulated disk."""
    disk.submit(transaction, lambda done: None)
    scheduler.run(scheduler.now + 1_000_000)


def reaches(place: int) -> Callable[[BatchRow], bool]:
    """Returns a predicate: true if a batch ends at or beyond a position."""
    return lambda row: row.end_position >= place


def assert_same(storage: Storage, disk: SimDisk) -> None:
    """Both hold the same, in every read that the node makes."""
    assert storage.groups() == disk.groups()
    assert storage.node_state() == disk.node_state()
    for group, state in disk.groups().items():
        first, last = state.anchor.index + 1, state.last.index
        end = disk.last_batch(group)
        assert storage.last_batch(group) == end
        for place in () if end is None else (1, end.end_position // 2, end.end_position, end.end_position + 1):
            found, other = (reader.find_batch(group, 0, reaches(place)) for reader in (storage, disk))
            assert found == other
        if last >= first:
            assert storage.entries(group, first, last, 1 << 40) == disk.entries(group, first, last, 1 << 40)
        if state.snapshot is not None:
            data = state.snapshot.data
            assert read_snapshot(storage, group, data) == read_snapshot(disk, group, data)
