"""Storage that was damaged as a whole is found to be so at the next opening, makes way, and is known ever after."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, transaction

from quorumlog.storage import rows
from quorumlog.storage.crash_marker import check_all_pages
from quorumlog.storage.interface import DamageError, ScrubPosition, StorageEngineError
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.quarantine import ID_FILE, MAX_MOVED_ASIDE, keep_directory_id, move_aside, moved_aside
from quorumlog.storage.recheck_list import are_pages_suspect, suspect
from quorumlog.storage.storage import Storage

GROUP = 1000
COUNT = 4_000


def make(data_dir: Path) -> None:
    with Storage(data_dir) as storage:
        storage.commit(transaction(create(GROUP, LogBuilder(GROUP).batches(COUNT, 300))))


def break_a_page_that_no_opening_reads(data_dir: Path) -> None:
    """The leaf of an entry in the middle of a log."""
    with PageFile(data_dir / "data.mdb") as pages, pages.cursor(rows.ENTRIES) as cursor:
        assert cursor.set_range(rows.position_key(GROUP, COUNT // 2))
        page, _ = cursor._path[-1]
        place = page.number * pages.meta.page_size
    with (data_dir / "data.mdb").open("r+b") as file:
        file.seek(place + 10)
        file.write(b"\xff")


def test_damaged_pages_that_a_scrub_has_found_are_looked_for_at_the_next_opening(tmp_path: Path) -> None:
    """Otherwise the node would open pages that the opening does not read, and crash of the same damage every time."""
    make(tmp_path)
    break_a_page_that_no_opening_reads(tmp_path)
    with Storage(tmp_path) as storage:
        assert not are_pages_suspect(tmp_path)
        (found,) = storage.scrub(ScrubPosition(), 1 << 30).found
        assert found.index is None
    assert are_pages_suspect(tmp_path)
    with pytest.raises(DamageError):
        check_all_pages(tmp_path)


def test_pages_that_are_sound_after_all_are_suspected_no_more(tmp_path: Path) -> None:
    make(tmp_path)
    with Storage(tmp_path) as storage:
        storage.suspect(None)
        storage.suspect(None)
    assert (tmp_path / "SUSPECTS").read_bytes() == b"pages\n"
    check_all_pages(tmp_path)
    Storage(tmp_path).close()
    assert not are_pages_suspect(tmp_path)


def test_whose_data_made_way_is_known_ever_after(tmp_path: Path) -> None:
    make(tmp_path)
    assert moved_aside(tmp_path) == frozenset()
    keep_directory_id(tmp_path, "first")
    assert move_aside(tmp_path) == tmp_path / "damaged-1"
    make(tmp_path)
    keep_directory_id(tmp_path, "second")
    with Storage(tmp_path) as storage:
        assert storage.moved_aside() == {"first"}
    move_aside(tmp_path)
    assert moved_aside(tmp_path) == {"first", "second"}


def test_a_disk_that_breaks_its_data_again_and_again_is_not_filled_with_them(tmp_path: Path) -> None:
    for _ in range(MAX_MOVED_ASIDE):
        make(tmp_path)
        move_aside(tmp_path)
    make(tmp_path)
    with pytest.raises(StorageEngineError, match="8 folders damaged-N exist already; replace the disk"):
        move_aside(tmp_path)
    assert (tmp_path / "data.mdb").exists()


def test_what_cannot_be_kept_beside_the_data_does_not_end_the_node(tmp_path: Path) -> None:
    """Its disk may be full. At worst an operator has to state it by hand."""
    make(tmp_path)
    for name in (f"{ID_FILE}.new", "SUSPECTS"):
        (tmp_path / name).mkdir()
    assert not keep_directory_id(tmp_path, "first")
    suspect(tmp_path, None)
    for name in (f"{ID_FILE}.new", "SUSPECTS"):
        (tmp_path / name).rmdir()
    assert keep_directory_id(tmp_path, "first")


def test_a_crash_before_the_data_have_made_way_says_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "damaged-1").mkdir()
    (tmp_path / "damaged-1" / ID_FILE).write_text("first\n")
    assert moved_aside(tmp_path) == frozenset()


def test_data_of_which_nobody_knows_whose_they_are_are_nobodys(tmp_path: Path) -> None:
    make(tmp_path)
    move_aside(tmp_path)
    assert moved_aside(tmp_path) == frozenset()
