"""Release and reclamation of the reserve."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_samples import create, transaction

from quorumlog.raft.types import HardState
from quorumlog.storage.reserve import RESERVE_FILE, Reserve
from quorumlog.storage.space import Room
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

MIB = 1 << 20


def released(tmp_path: Path) -> Reserve:
    reserve = Reserve(tmp_path, MIB)
    assert reserve.release()
    assert (reserve.missing_bytes, (tmp_path / RESERVE_FILE).exists()) == (MIB, False)
    return reserve


@pytest.mark.parametrize("free_bytes", [0, MIB - 1, MIB, 2 * MIB - 1])
def test_reserve_waits_for_twice_its_size(tmp_path: Path, free_bytes: int) -> None:
    reserve = released(tmp_path)
    reserve.restore(free_bytes)
    assert (reserve.missing_bytes, (tmp_path / RESERVE_FILE).exists()) == (MIB, False)
    assert not reserve.release(), "there is nothing to give"


def test_twice_its_size_restores_the_reserve(tmp_path: Path) -> None:
    reserve = released(tmp_path)
    reserve.restore(2 * MIB)
    assert (reserve.missing_bytes, (tmp_path / RESERVE_FILE).stat().st_size) == (0, MIB)
    assert reserve.release()


def test_a_reserve_is_taken_once(tmp_path: Path) -> None:
    """A restart finds it, at its size; 0 gives it back."""
    Reserve(tmp_path, MIB)
    assert Reserve(tmp_path, 4 * MIB).missing_bytes == 0
    assert (tmp_path / RESERVE_FILE).stat().st_size == MIB
    again = Reserve(tmp_path, 4 * MIB)
    assert again.release()
    assert again.missing_bytes == MIB
    Reserve(tmp_path, 2 * MIB)
    Reserve(tmp_path, 0)
    assert not (tmp_path / RESERVE_FILE).exists()


def test_small_disks_give_a_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_bavail, f_frsize = 1000, 1024

    monkeypatch.setattr("quorumlog.storage.reserve.os.statvfs", lambda path: Disk)
    Reserve(tmp_path, MIB)
    assert (tmp_path / RESERVE_FILE).stat().st_size == 1000 * 1024 // 4


def test_writes_restore_the_reserve_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write that finds twice its size reclaims it, and the next write does not release it again."""
    with Storage(tmp_path, reserve_bytes=MIB) as storage:
        storage.commit(transaction(create(1)))
        room = storage._room
        room._reserve.release()
        free = MIB

        def growth(_: Room) -> int:
            return free - (MIB if (tmp_path / RESERVE_FILE).exists() else 0)

        monkeypatch.setattr(Room, "_growth_bytes", growth)

        def write(term: int) -> bool:
            storage.commit(transaction(RaftGroupWrite(1, hard_state=HardState(term, 2, 0))))
            return (tmp_path / RESERVE_FILE).exists()

        assert not write(2)
        assert room.space().free_bytes < MIB, "what will be reclaimed is not free"
        free = 2 * MIB
        assert write(3)
        assert write(4)
