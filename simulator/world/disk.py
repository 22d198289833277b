"""A disk in virtual time, which distinguishes written from synced data.

It implements ``StorageReader`` and accepts transactions like the storage thread. LMDB commits are atomic: of the
transaction under way, a crash keeps all or nothing. Everything synced survives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.raft.types import Entry
from quorumlog.server.node.directory_identity import DIRECTORY_ROW
from quorumlog.server.step.events import StorageDone, StorageFailed
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup, apply_write
from quorumlog.simulator.world.scheduler import Scheduler, Timer
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.interface import (
    DamageError,
    DiskFullError,
    FatalStorageError,
    OpeningDamage,
    ScrubPosition,
    ScrubSlice,
    SetAside,
)
from quorumlog.storage.rows import position_key
from quorumlog.storage.transaction import RaftGroupState, RaftGroupWrite, Space, StorageTransaction

#: Called when a transaction is about to become durable, with the disk's state before it.
Witness = Callable[["SimDisk", StorageTransaction], None]


@dataclass(slots=True)
class DiskOptions:
    """Behaviour of a disk. Times in µs; probabilities per transaction."""

    sync_us: tuple[int, int] = (200, 3_000)
    slow_probability: float = 0.02
    slow_us: tuple[int, int] = (20_000, 200_000)
    capacity_bytes: int = 1 << 30


class SimDisk:
    """The disk of one node; it outlives the node's processes.

    Arguments:
        node_id: the disk's node.
        witness: receives each transaction just before it becomes durable.
        lies: a planted fault: completions are reported before the sync. The simulator must detect it.

    Faults are set from outside: ``full``, ``stalled_until`` (µs), ``next_sync_fails``, ``next_read_fails``;
    ``after_sync`` is called once, when the next sync has ended and before the node is notified. ``read_by_node``
    distinguishes the node's reads, which may fail, from those of observers.
    """

    def __init__(
        self,
        node_id: int,
        scheduler: Scheduler,
        rng: random.Random,
        options: DiskOptions,
        witness: Witness,
        lies: bool = False,
    ) -> None:
        self.node_id = node_id
        self.synced: dict[int, DurableRaftGroup] = {}
        #: Contents of the disks before this one when they were lost.
        self.lost: list[dict[int, DurableRaftGroup]] = []
        self.rows: dict[bytes, bytes] = {}
        self.full = False
        self.stalled_until = 0
        self.next_sync_fails = False
        self.next_read_fails = False
        self.after_sync: Callable[[], None] | None = None
        self.read_by_node = False
        self.read_by_job = False
        self.commit_failed = False
        self.found_damage = False
        #: Replicas with damage outside of entries, which the next process will detect.
        self.broken: set[int] = set()
        #: Ids of data directories that were damaged as a whole, and moved aside.
        self.aside: set[str] = set()
        #: Entries with damaged bytes, by Raft group: until they are rewritten or removed.
        self.damaged: dict[int, set[int]] = {}
        self._scheduler = scheduler
        self._rng = rng
        self._options = options
        self._witness = witness
        self._lies = lies
        self._under_way: deque[StorageTransaction] = deque()
        self._timers: list[Timer] = []
        self._last_sync = 0
        self._used_bytes = 0

    @property
    def has_failed(self) -> bool:
        """True if it has given the process that runs on it a reason to exit."""
        return self.commit_failed or self.found_damage

    def recover(self) -> None:
        """Ends all its faults."""
        self.full = self.next_sync_fails = self.next_read_fails = False
        self.stalled_until = 0
        self.after_sync = None

    # -- writing ------------------------------------------------------------------------------------------------

    def submit(self, transaction: StorageTransaction, done: Callable[[StorageDone | StorageFailed], None]) -> None:
        """Writes and syncs in virtual time, then calls ``done``. One at a time, as the node promises."""
        assert not self.commit_failed, f"node {self.node_id} writes on after an I/O error"
        assert self._lies or not self._under_way, f"node {self.node_id} gave a transaction while another was under way"
        if self.full:
            error = DiskFullError(f"no room on the disk of node {self.node_id}: free some space")
            failed = StorageFailed(transaction.number, error)
            self._timers = [self._scheduler.after(500, lambda: done(failed))]
            return
        if self.next_sync_fails:
            self._fail(transaction, done)
            return
        self._under_way.append(transaction)
        delay = self._rng.randint(*self._options.sync_us)
        if self._rng.random() < self._options.slow_probability:
            delay = self._rng.randint(*self._options.slow_us)
        when = self._last_sync = max(self._scheduler.now + delay, self.stalled_until, self._last_sync)
        number = transaction.number
        # The sync ends shortly before the node is notified: a crash in between keeps unacknowledged data.
        reported = self._scheduler.now + 50 if self._lies else when + self._rng.randint(10, 200)
        self._timers = [timer for timer in self._timers if timer.action is not None]
        self._timers.append(self._scheduler.at(when, self._sync))
        self._timers.append(self._scheduler.at(reported, lambda: done(StorageDone(number))))

    def _fail(self, transaction: StorageTransaction, done: Callable[[StorageDone | StorageFailed], None]) -> None:
        """Fails a commit with an I/O error: it may be on the disk or not, and the process must exit, as pages may be
        lost.
        """
        if self._rng.random() < 0.5:
            self._under_way.append(transaction)
            self._sync()
        self.next_sync_fails = False
        self.commit_failed = True
        failed = StorageFailed(transaction.number, FatalStorageError("the disk failed on commit (EIO)"))
        self._timers = [self._scheduler.after(2_000, lambda: done(failed))]

    def crash(self) -> None:
        """Crashes the process or the machine: the transaction under way is kept whole or lost, by the seed."""
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._under_way and not self._lies and self._rng.random() < 0.5:
            self._sync()
        self._under_way.clear()
        for group in self.synced.values():
            self._used_bytes -= group.size_bytes
            group.drop_unfinished()
            self._used_bytes += group.size_bytes
        self._last_sync = 0
        self.commit_failed = self.found_damage = False

    def wipe(self) -> None:
        """Replaces the disk by an empty one; no process may be running on it."""
        assert not self._under_way
        self.lost.append(self.synced)
        self.synced = {}
        self.rows = {}
        self.damaged = {}
        self.broken = set()
        self._used_bytes = 0

    def make_way(self) -> None:
        """Moves the storage aside, which is damaged as a whole, on the operator's request, and starts empty."""
        self.aside.add(self.rows[DIRECTORY_ROW].decode())
        self.wipe()

    def copies_made(self, group: int) -> list[DurableRaftGroup]:
        """Returns a group as it is synced here, and as it was on each disk before this one."""
        return [disk[group] for disk in (self.synced, *self.lost) if group in disk]

    def _sync(self) -> None:
        transaction = self._under_way.popleft()
        self._witness(self, transaction)
        for write in transaction.writes:
            self._apply(write)
        for key, value in transaction.node_state.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        if self.after_sync is not None:
            call, self.after_sync = self.after_sync, None
            call()

    def _apply(self, write: RaftGroupWrite) -> None:
        group = self.synced.pop(write.group, None)
        if group is not None:
            self._used_bytes -= group.size_bytes
        after = apply_write(group, write)
        if write.destroy and write.group in self.broken:
            self.broken.discard(write.group)
            assert group is not None
            self.lost.append({write.group: group})
        if write.group in self.damaged:
            self._mend(write, after)
        if after is not None:
            self.synced[write.group] = after
            self._used_bytes += after.size_bytes

    def _mend(self, write: RaftGroupWrite, after: DurableRaftGroup | None) -> None:
        """Repairs like the shipped storage: an entry is written back if its sound successor has its hash."""
        damaged = self.damaged[write.group]
        if after is None or write.snapshot is not None:
            damaged.clear()
        else:
            first = min((entry.index for entry in write.entries), default=after.last.index + 1)
            floor = first if write.truncate_from is None else min(first, write.truncate_from)
            damaged.difference_update([index for index in damaged if not after.anchor.index < index < floor])
            for entry in write.mend:
                vouched = entry.index == after.last.index or entry.index + 1 not in damaged
                if vouched and entry == after.entry(entry.index):
                    damaged.discard(entry.index)
        if not damaged:
            del self.damaged[write.group]

    def _sound(self, group: int, index: int) -> None:
        if index in self.damaged.get(group, ()) and self.read_by_node:
            raise DamageError(f"entry {index} of group {group} on node {self.node_id} is damaged", group, index)

    # -- reading: StorageReader ---------------------------------------------------------------------------------

    def _check_read(self, group: int, index: int) -> None:
        if self.next_read_fails and self.read_by_node:
            self.next_read_fails = False
            self.found_damage = True
            raise DamageError(f"entry {index} of group {group} on node {self.node_id} is damaged")

    def groups(self) -> dict[int, RaftGroupState]:
        """Returns every group with a replica here."""
        return {
            number: RaftGroupState(number, g.configuration, g.hard_state, g.anchor, g.last, g.snapshot, dict(g.table))
            for number, g in sorted(self.synced.items())
            if number not in self.broken
        }

    def opening_damage(self) -> OpeningDamage:
        """Returns the broken replicas."""
        return OpeningDamage(
            (),
            {
                number: SetAside(self.synced[number].hard_state.term, self.synced[number].last.index, "it is broken")
                for number in sorted(self.broken)
                if number in self.synced
            },
        )

    def moved_aside(self) -> frozenset[str]:
        """Returns the directories that were damaged and moved aside."""
        return frozenset(self.aside)

    def suspect(self, group: int | None) -> None:
        """Marks the replica as broken for the next process; there are no pages here."""
        if group is not None:
            self.broken.add(group)
        self.found_damage = True

    def pass_replica(self, group: int) -> None:
        """Does nothing: there are no pages to release."""

    def node_state(self) -> dict[bytes, bytes]:
        """Returns the node's own rows."""
        return dict(self.rows)

    def term_at(self, group: int, index: int) -> int:
        """Returns the term of a durable entry, or of the anchor."""
        self._check_read(group, index)
        durable = self.synced[group]
        if index == durable.anchor.index:
            return durable.anchor.term
        if index != durable.last.index:
            self._sound(group, index)
        entry = durable.entry(index)
        assert entry is not None, f"node {self.node_id} asks the term of entry {index}, which group {group} lacks"
        return entry.term

    def hash_at(self, group: int, index: int) -> int:
        """Returns the hash of a durable entry, as stored in its successor."""
        durable = self.synced[group]
        if index < durable.last.index:
            self._sound(group, index + 1)
        entry = durable.entry(index)
        assert entry is not None
        return entry.hash

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries first..last, cut once ``max_bytes`` is reached; at least one."""
        self._check_read(group, first)
        durable = self.synced[group]
        start = first - durable.anchor.index - 1
        stop = last - durable.anchor.index
        if not 0 <= start < stop <= len(durable.entries):
            what = f"node {self.node_id} reads {first}..{last} of group {group}, which has"
            what += f" {durable.anchor.index + 1}..{durable.last.index}"
            # The log may have changed since a job was submitted. A step uses the current state.
            assert self.read_by_job, what
            raise LookupError(what)
        taken: list[Entry] = []
        size = 0
        for entry in durable.entries[start:stop]:
            try:
                self._sound(group, entry.index)
            except DamageError:
                if not taken:
                    raise
                break
            taken.append(entry)
            size += len(entry.data)
            if size >= max_bytes:
                break
        return taken

    def find_offset(self, group: int, offset: int) -> int | None:
        """Returns the index of the first batch whose last offset is at or after ``offset``."""
        return self.synced[group].find_offset(offset)

    def last_batch(self, group: int) -> BatchRow | None:
        """Returns the last durable batch above the anchor."""
        batches = self.synced[group].batches
        return batches[-1] if batches else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """Returns the first batch that contains ``first_offset`` or a later one and for which ``reached`` holds."""
        return self.synced[group].find_batch(first_offset, reached)

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        """Returns one slice of a snapshot's data."""
        slices = self.synced[group].slices.get(stage, {})
        assert number in slices, f"node {self.node_id} reads slice {number} of group {group}'s stage {stage:#x}: gone"
        return slices[number]

    def scrub(self, position: ScrubPosition, max_bytes: int) -> ScrubSlice:
        """Checks the entries after ``position``."""
        size = 0
        found: list[DamageError] = []
        for number, durable in sorted(self.synced.items()):
            for entry in durable.entries:
                key = position_key(number, entry.index)
                if key < position.key:
                    continue
                if size >= max_bytes:
                    return ScrubSlice(ScrubPosition(0, key), size, tuple(found))
                size += len(entry.data)
                try:
                    self._sound(number, entry.index)
                except DamageError as damage:
                    found.append(damage)
        return ScrubSlice(None, size, tuple(found))

    def space(self) -> Space:
        """Returns the current use of the disk."""
        free = 0 if self.full else self._options.capacity_bytes - self._used_bytes
        return Space(self._used_bytes, free)
