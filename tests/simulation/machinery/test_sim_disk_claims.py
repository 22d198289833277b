"""The simulated disk fails in the same way as LMDB: refusals, kills in a commit, torn writes, a full disk."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from disk_samples import CONFIGURATION, GROUP, Script, advance, assert_same, entry_after, make_disk, staged

from quorumlog.raft.types import Entry, EntryId, HardState
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.durable_raft_group import apply_write
from quorumlog.storage.interface import DiskFullError, FatalStorageError
from quorumlog.storage.meta_pages import read_meta
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupState, RaftGroupWrite, StorageTransaction

SUPPORT = Path(__file__).resolve().parents[2] / "support"
KILLS = 60
PAGE = 4096
SECTOR = 512

# -- the same refusals ------------------------------------------------------------------------------------------------


def next_offset(disk: SimDisk) -> int:
    batches = disk.synced[GROUP].batches
    return batches[-1].last_offset + 1 if batches else 0


def next_entry(disk: SimDisk, previous: EntryId | None = None, term: int = 0, skip: int = 0) -> Entry:
    last = disk.groups()[GROUP].last
    return entry_after(previous or last, max(term, last.term, 1), next_offset(disk) + skip, b"payload.")


Spoil = Callable[[SimDisk, RaftGroupState], RaftGroupWrite]

SPOILED: dict[str, Spoil] = {
    "a replica that exists": lambda disk, state: RaftGroupWrite(GROUP, create=CONFIGURATION),
    "no such replica": lambda disk, state: RaftGroupWrite(GROUP + 1, hard_state=HardState(1, 1, 0)),
    "the end of no replica": lambda disk, state: RaftGroupWrite(GROUP + 1, destroy=True),
    "a gap": lambda disk, state: RaftGroupWrite(
        GROUP, entries=[next_entry(disk, EntryId(state.last.index + 1, state.last.term, 7))]
    ),
    "an entry on another history": lambda disk, state: RaftGroupWrite(
        GROUP, entries=[next_entry(disk, EntryId(state.last.index, state.last.term, state.last.hash ^ 1))]
    ),
    "an entry twice": lambda disk, state: RaftGroupWrite(GROUP, entries=[entry := next_entry(disk), entry]),
    "an offset left out": lambda disk, state: RaftGroupWrite(
        GROUP, entries=[one := next_entry(disk), entry_after(last_of(one), one.term, 1 << 40, b"payload.")]
    ),
    "a term that goes back": lambda disk, state: RaftGroupWrite(
        GROUP, hard_state=HardState(state.hard_state.term - 1, 1, state.hard_state.commit)
    ),
    "another vote in one term": lambda disk, state: RaftGroupWrite(
        GROUP, hard_state=HardState(state.hard_state.term, state.hard_state.vote + 1, state.hard_state.commit)
    ),
    "a commit index that goes back": lambda disk, state: RaftGroupWrite(
        GROUP, hard_state=HardState(state.hard_state.term, state.hard_state.vote, state.hard_state.commit - 1)
    ),
    "a commit index past the end": lambda disk, state: RaftGroupWrite(
        GROUP, hard_state=HardState(state.hard_state.term, state.hard_state.vote, state.last.index + 1)
    ),
    "truncation of what is committed": lambda disk, state: RaftGroupWrite(GROUP, truncate_from=state.hard_state.commit),
    "truncation of what is compacted": lambda disk, state: RaftGroupWrite(GROUP, truncate_from=state.anchor.index),
    "a snapshot of the past": lambda disk, state: RaftGroupWrite(
        GROUP,
        stage=staged(EntryId(state.hard_state.commit - 1, 1, 1))[1],
        snapshot=staged(EntryId(state.hard_state.commit - 1, 1, 1))[0],
        hard_state=state.hard_state,
    ),
    "a snapshot that lacks a slice": lambda disk, state: RaftGroupWrite(
        GROUP,
        stage=staged(state.last, bytes(20))[1][1:],
        snapshot=staged(EntryId(state.last.index + 5, state.last.term, 1), bytes(20))[0],
        hard_state=state.hard_state,
    ),
    "a checkpoint that was never staged": lambda disk, state: RaftGroupWrite(GROUP, checkpoint=staged(state.last)[0]),
    "a slice staged twice": lambda disk, state: RaftGroupWrite(GROUP, stage=staged(state.last)[1] * 2),
    "unstage of the snapshot": lambda disk, state: RaftGroupWrite(
        GROUP, stage=staged(state.last)[1], checkpoint=staged(state.last)[0], unstage=[1]
    ),
    "a snapshot without its hard state": lambda disk, state: RaftGroupWrite(
        GROUP,
        stage=staged(state.last)[1],
        snapshot=staged(EntryId(state.last.index + 5, state.last.term, 1))[0],
    ),
    "a checkpoint of another history": lambda disk, state: RaftGroupWrite(
        GROUP, stage=staged(state.last)[1], checkpoint=staged(state.last._replace(hash=state.last.hash ^ 1))[0]
    ),
    "a checkpoint past the end": lambda disk, state: RaftGroupWrite(
        GROUP, stage=staged(state.last)[1], checkpoint=staged(state.last._replace(index=state.last.index + 1))[0]
    ),
    "compaction past the end": lambda disk, state: RaftGroupWrite(
        GROUP, compact_to=state.last._replace(index=state.last.index + 1)
    ),
    "compaction to another history": lambda disk, state: RaftGroupWrite(
        GROUP, compact_to=state.last._replace(hash=state.last.hash ^ 1)
    ),
}


def last_of(entry: Entry) -> EntryId:
    return EntryId(entry.index, entry.term, entry.hash)


def refused(write: Callable[..., object], *arguments: object) -> bool:
    try:
        write(*arguments)
    except FatalStorageError:
        return True
    return False


@pytest.mark.parametrize("seed", range(3))
def test_what_the_shipped_storage_refuses_the_simulated_disk_refuses_and_nothing_is_changed(
    seed: int, tmp_path: Path
) -> None:
    scheduler, disk = make_disk(seed)
    script = Script(seed)
    transactions = [script.next() for _ in range(12)]
    with Storage(tmp_path) as storage:
        for transaction in transactions:
            storage.commit(transaction)
            advance(disk, scheduler, transaction)
    state = disk.groups()[GROUP]
    end = RaftGroupWrite(GROUP, entries=[next_entry(disk)])
    end.hard_state = HardState(state.hard_state.term + 1, 2, max(state.hard_state.commit, 2))
    with Storage(tmp_path) as storage:
        storage.commit(StorageTransaction(13, [end]))
    advance(disk, scheduler, StorageTransaction(13, [end]))
    state = disk.groups()[GROUP]
    for name, spoil in SPOILED.items():
        write = spoil(disk, state)
        with Storage(tmp_path) as storage:
            taken_by = [] if refused(storage.commit, StorageTransaction(14, [write])) else ["the shipped storage"]
        if not refused(apply_write, copy.deepcopy(disk.synced.get(write.group)), write):
            taken_by.append("the simulated disk")
        assert not taken_by, f"{name} was taken by {taken_by}"
        with Storage(tmp_path) as storage:
            assert_same(storage, disk)


# -- a kill in a commit -----------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_a_kill_in_a_commit_leaves_whole_transactions_and_all_that_were_acknowledged(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    command = [sys.executable, str(SUPPORT / "crash_rounds.py"), str(tmp_path), str(seed), str(KILLS)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"


# -- torn writes ------------------------------------------------------------------------------------------------------


def torn(before: bytes, after: bytes, rng: random.Random, unit: int) -> bytes:
    """The file as a loss of power may leave it before the new meta page is written: of each data page that the commit
    wrote, or each sector of it, the old or the new content."""
    image = bytearray(before.ljust(len(after), b"\0"))
    for start in range(2 * PAGE, len(after), unit):
        if rng.random() < 0.5:
            image[start : start + unit] = after[start : start + unit]
    return bytes(image)


@pytest.mark.parametrize("seed", range(3))
def test_torn_writes_of_a_commit_without_its_meta_page_leave_the_state_before_it(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    scheduler, disk = make_disk(seed)
    script = Script(seed)
    live, scratch = tmp_path / "live", tmp_path / "scratch"
    scratch.mkdir()
    images = 0
    with Storage(live) as storage:
        storage.commit(first := script.next())
        advance(disk, scheduler, first)
        for _ in range(25):
            before = (live / "data.mdb").read_bytes()
            transaction = script.next()
            storage.commit(transaction)
            after = (live / "data.mdb").read_bytes()
            assert read_meta(live / "data.mdb").page_size == PAGE
            assert before[: 2 * PAGE] != after[: 2 * PAGE], "the commit has written a meta page"
            for unit in (PAGE, PAGE, SECTOR):
                (scratch / "data.mdb").write_bytes(torn(before, after, rng, unit))
                with Storage(scratch) as survivor:
                    assert_same(survivor, disk)
                images += 1
            advance(disk, scheduler, transaction)
            assert_same(storage, disk)
    assert images == 75


# -- a full disk ------------------------------------------------------------------------------------------------------


def test_a_transaction_that_a_full_disk_refused_changes_nothing_and_can_be_given_again(tmp_path: Path) -> None:
    scheduler, disk = make_disk()
    with Storage(tmp_path, map_size=4 << 20, reserve_bytes=0) as storage:
        advance(disk, scheduler, creation := StorageTransaction(1, [RaftGroupWrite(GROUP, create=CONFIGURATION)]))
        storage.commit(creation)
        number = 1
        while True:
            number += 1
            last = disk.groups()[GROUP].last
            entry = entry_after(last, 1, next_offset(disk), bytes(200_000))
            transaction = StorageTransaction(number, [RaftGroupWrite(GROUP, entries=[entry])], {b"row": b"%d" % number})
            try:
                storage.commit(transaction)
            except DiskFullError:
                break
            advance(disk, scheduler, transaction)
            assert number < 100, "it is never full"
        disk.full = True
        refused: list[object] = []
        disk.submit(transaction, refused.append)
        scheduler.run(scheduler.now + 1_000_000)
        assert isinstance(refused[0].error, DiskFullError)  # type: ignore[attr-defined]
        assert_same(storage, disk)

        disk.full = False
        room = StorageTransaction(number + 1, [RaftGroupWrite(GROUP, compact_to=disk.groups()[GROUP].last)])
        advance(disk, scheduler, room)
        storage.commit(room)
        while storage.sweep():
            pass
        advance(disk, scheduler, transaction)
        storage.commit(transaction)
        assert_same(storage, disk)
