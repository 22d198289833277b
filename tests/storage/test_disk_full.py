"""A full disk refuses writes and nothing else; once space is free, writing resumes."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage.interface import DiskFullError
from quorumlog.storage.reserve import RESERVE_FILE
from quorumlog.storage.space import Room
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify

MIB = 1 << 20
ROOM_BYTES = 12 * MIB


@pytest.fixture(params=["map size", "file size limit", "disk"])
def small_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """A storage with a few MiB of room, by each of the bounds that there are."""
    if request.param == "map size":
        with Storage(tmp_path / "data", map_size=ROOM_BYTES, reserve_bytes=0) as storage:
            yield storage
    elif request.param == "file size limit":
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            with Storage(tmp_path / "data", reserve_bytes=0) as storage:
                resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, old[1]))
                yield storage
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
    else:
        with small_disk(tmp_path), Storage(tmp_path / "data", reserve_bytes=0) as storage:
            yield storage


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(path)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill(storage: Storage, log: LogBuilder, size: int, per_commit: int) -> list:
    """Appends until there is no room; returns what was acknowledged."""
    written = []
    while True:
        entries = log.batches(per_commit, size)
        try:
            storage.commit(transaction(RaftGroupWrite(log.group, entries=entries)))
        except DiskFullError:
            return written
        written += entries
        assert sum(len(entry.data) for entry in written) < 2 * ROOM_BYTES, "there seems to be no bound"


@pytest.mark.parametrize(("size", "per_commit"), [(1000, 50), (60_000, 10), (700_000, 1), (3_000_000, 1)])
def test_a_full_disk_loses_nothing_and_recovers(
    small_storage: Storage, size: int, per_commit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = small_storage
    storage.commit(transaction(create(1)))
    log = LogBuilder(1)
    written = fill(storage, log, size, per_commit)
    assert written
    assert storage.entries(1, 1, len(written), 1 << 40) == written
    again = LogBuilder(1, previous=identity(written[-1]), next_offset=len(written))
    refused = again.batches(per_commit, size)
    with pytest.raises(DiskFullError):
        storage.commit(transaction(RaftGroupWrite(1, entries=refused)))

    storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(written[-1]))))
    while storage.sweep():
        pass
    storage.commit(transaction(RaftGroupWrite(1, entries=refused)))
    assert storage.entries(1, refused[0].index, refused[-1].index, 1 << 40) == refused
    storage.close()
    assert verify(storage.data_dir).sound


def test_a_write_cut_short_by_a_full_disk_is_no_io_error(
    small_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB reports it as EIO. Without the look ahead, the error itself must be understood."""
    storage = small_storage
    storage.commit(transaction(create(1)))
    monkeypatch.setattr(Room, "require", lambda room, entry_bytes: None)
    written = fill(storage, LogBuilder(1), 3_000_000, 1)
    assert storage.entries(1, 1, len(written), 1 << 40) == written


def test_space_tells_how_much_more_fits(small_storage: Storage) -> None:
    storage = small_storage
    storage.commit(transaction(create(1)))
    before = storage.space()
    assert before.used_bytes + before.free_bytes == pytest.approx(ROOM_BYTES, rel=0.05)
    log = LogBuilder(1)
    storage.commit(transaction(RaftGroupWrite(1, entries=log.batches(4, MIB))))
    assert before.free_bytes - storage.space().free_bytes == pytest.approx(4 * MIB, rel=0.1)
    storage.commit(transaction(RaftGroupWrite(1, compact_to=log.previous)))
    while storage.sweep():
        pass
    assert storage.space().free_bytes == pytest.approx(before.free_bytes, rel=0.05)
    assert os.stat(storage.data_dir / "data.mdb").st_size > 4 * MIB


def test_a_disk_that_others_filled_leaves_room_for_votes_and_deletions(tmp_path: Path) -> None:
    with small_disk(tmp_path), Storage(tmp_path / "data") as storage:
        log = LogBuilder(1)
        entries = log.batches(20, 100_000)
        storage.commit(transaction(create(1, entries)))
        assert (storage.data_dir / RESERVE_FILE).stat().st_blocks * 512 > MIB
        ballast = tmp_path / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert storage.space().free_bytes < MIB

        for term in range(2, 30):
            storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(term, 2, 19), table={b"k": bytes(1000)})))
        assert storage.space().free_bytes < MIB, "what was given up is not free to be used"
        written = fill(storage, log, 100_000, 1)
        storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(31, 2, 20 + len(written)))))
        storage.commit(transaction(RaftGroupWrite(1, compact_to=identity(entries[5]))))

        ballast.unlink()
        storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(32, 2, 20 + len(written)))))
        assert (storage.data_dir / RESERVE_FILE).stat().st_blocks * 512 > MIB
        assert storage.space().free_bytes > 4 * MIB
        storage.close()
        with Storage(storage.data_dir) as again:
            assert again.entries(1, 7, 20 + len(written), 1 << 40) == entries[6:] + written
