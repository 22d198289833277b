"""The places of backups: a directory, and what fsspec reaches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quorumlog.sdk import IllegalArgumentError
from quorumlog.sdk.backup.store import BackupStore, BackupStoreError, DirectoryStore, open_store


@pytest.fixture(params=["directory", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    if request.param == "directory":
        return open_store(str(tmp_path / "place"))
    pytest.importorskip("fsspec")
    return open_store(f"memory://{tmp_path.name}")


def test_what_is_written_is_read(store: BackupStore) -> None:
    assert store.read("a/b") is None
    store.write("a/b", b"1")
    store.write("a/b", b"2")
    store.write("a/c", b"3")
    assert store.read("a/b") == b"2"
    assert store.names("a") == ["a/b", "a/c"]


def test_a_backup_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It holds what records hold."""
    store = open_store(str(tmp_path / "far" / "place"))
    store.write("topics/orders/0", b"1")
    made = [tmp_path / "far", *(tmp_path / "far").rglob("*")]
    assert {path.name: path.stat().st_mode & 0o777 for path in made} == {
        "far": 0o700,
        "place": 0o700,
        "topics": 0o700,
        "orders": 0o700,
        "0": 0o600,
    }


def test_what_is_deleted_is_gone(store: BackupStore) -> None:
    store.write("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    assert store.read("a/b") is None
    assert store.names("nowhere") == []


def test_a_file_that_could_not_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    store.write("manifest.json", b"whole")

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(BackupStoreError, match=r"cannot write .*manifest.json: No space left"):
            store.write("manifest.json", b"half")
    assert store.read("manifest.json") == b"whole"
    assert store.names(".") == ["./manifest.json"]


@pytest.mark.parametrize("location", ["", "nowhere://bucket"])
def test_a_place_that_is_none_is_refused(location: str) -> None:
    with pytest.raises(IllegalArgumentError):
        open_store(location)
