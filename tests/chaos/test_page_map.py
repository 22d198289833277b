"""Tests of the meaning of each byte of a data file: harmful flips are found, flips of the others do no harm."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, staged, transaction

from quorumlog.chaos.processes.page_map import FREE_LIST, META, NAMES, PageMap, flips
from quorumlog.raft.types import HardState
from quorumlog.storage.crash_marker import check_all_pages
from quorumlog.storage.interface import DamageError, ScrubPosition
from quorumlog.storage.meta_pages import PAGE_HEADER
from quorumlog.storage.opening import examine
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading
from quorumlog.storage.scrubbing import scrub_slice
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite

FLIPS = 400
#: Bytes of a page header with the place of the first node.
START = range(PAGE_HEADER.size - 2, PAGE_HEADER.size)
#: Of the free list, one after the other.
NUMBERS = 15


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with logs of small and of large entries, snapshots, tables, and free pages."""
    made = tmp_path_factory.mktemp("sound")
    with Storage(made) as storage:
        for group, size in ((0, 100), (1, 900), (2, 3_000), (3, 30_000)):
            entries = LogBuilder(group).batches(200, size)
            checkpoint, slices = staged(identity(entries[1]), os.urandom(60_000))
            table = {b"%d" % number: bytes(100) for number in range(40)}
            storage.commit(transaction(create(group, entries, stage=slices, checkpoint=checkpoint, table=table)))
            storage.commit(transaction(RaftGroupWrite(group, compact_to=identity(entries[60]))))
            storage.commit(transaction(RaftGroupWrite(group, hard_state=HardState(7, 3, 199))))
        storage.commit(transaction(node_state={b"name": b"value"}))
        while storage.sweep():
            pass
        storage.commit(transaction(node_state={b"name": b"other value"}))
    return made


def found_in(data_dir: Path) -> str:
    """Returns what a node finds at its start, and then by its scrub; empty if all is sound."""
    data_file = data_dir / "data.mdb"
    try:
        content = examine(data_file)
        check_all_pages(data_dir)
        assert content is not None
        with PageFile(data_file) as pages:
            done = scrub_slice(pages, data_dir, ScrubPosition(), 1 << 40, lambda database, key: True, content.logs)
            LogReading(pages, data_dir).node_state()
    except DamageError as damage:
        return str(damage)
    return "; ".join(map(str, done.found))


def struck_and_not_found(data_dir: Path, page_map: PageMap, kinds: tuple[str, ...]) -> list[str]:
    """Returns those flips, of all that damage pages of some kinds, that nothing finds."""
    missed = []
    sound = (data_dir / "data.mdb").read_bytes()
    with (data_dir / "data.mdb").open("r+b") as file:
        for offset in range(len(sound)):
            if page_map.kind_at(offset) not in kinds:
                continue
            for bit in range(8):
                if page_map.is_damage(offset, bit):
                    os.pwrite(file.fileno(), bytes([sound[offset] ^ 1 << bit]), offset)
                    if not found_in(data_dir):
                        missed.append(f"bit {bit} of byte {offset % 4096} of page {offset // 4096}")
                    os.pwrite(file.fileno(), sound[offset : offset + 1], offset)
    return missed


def test_every_single_flip_that_damages_a_meta_page_is_found(data_dir: Path, tmp_path: Path) -> None:
    # Among them the one that makes the newest commit the one before its neighbour, and a tree's depth of 0.
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    assert struck_and_not_found(tmp_path, PageMap(data_dir / "data.mdb"), (META,)) == []


def test_every_flip_of_where_nodes_begin_is_found(data_dir: Path, tmp_path: Path) -> None:
    """In one page of each kind: random flips seldom change these bytes."""
    page_map = PageMap(data_dir / "data.mdb")
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    sound = (data_dir / "data.mdb").read_bytes()
    pages = {
        page_map.kind_at(at): at for at in reversed(range(0, len(sound), 4096)) if page_map.is_meant(at + START[0])
    }
    assert len(pages) > 5, pages
    missed = []
    with (tmp_path / "data.mdb").open("r+b") as file:
        for kind, page in pages.items():
            for at, bit in ((page + place, bit) for place in START for bit in range(8)):
                if kind != META and page_map.is_damage(at, bit):
                    os.pwrite(file.fileno(), bytes([sound[at] ^ 1 << bit]), at)
                    if not found_in(tmp_path):
                        missed.append(f"bit {bit} of byte {at - page} of page {page // 4096} ({kind})")
                    os.pwrite(file.fileno(), sound[at : at + 1], at)
    assert not missed


def test_every_flip_of_a_byte_that_means_something_is_found_and_no_other_is_taken_for_damage(
    data_dir: Path, tmp_path: Path
) -> None:
    assert not found_in(data_dir)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    page_map = PageMap(data_dir / "data.mdb")
    struck: Counter[tuple[str, bool]] = Counter()
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    sound = (data_dir / "data.mdb").read_bytes()
    for offset, bit in flips(random.Random(seed), page_map, FLIPS):
        kind, intended = page_map.kind_at(offset), page_map.is_damage(offset, bit)
        with (tmp_path / "data.mdb").open("r+b") as file:
            file.seek(offset)
            file.write(bytes([sound[offset] ^ 1 << bit]))
            file.flush()
            found = found_in(tmp_path)
            file.seek(offset)
            file.write(sound[offset : offset + 1])
        where = f"bit {bit} of byte {offset % 4096} of page {offset // 4096} ({kind})"
        if intended:
            assert found, f"{where} was not found"
        elif kind not in (META, FREE_LIST, NAMES):
            # There some of what means nothing on its own is compared with other things.
            assert not found, f"{where} is taken for damage: {found}"
        struck[kind, intended] += 1
    assert len(struck) > 10, struck


def test_a_free_list_that_names_a_page_in_use_is_found(data_dir: Path, tmp_path: Path) -> None:
    """The last bit of each number in it, the first ones that there are: the page beside a free one is mostly in use."""
    page_map = PageMap(data_dir / "data.mdb")
    sound = (data_dir / "data.mdb").read_bytes()
    places = [
        at
        for at in range(0, len(sound), 8)
        if page_map.kind_at(at) == FREE_LIST and page_map.is_damage(at, 0) and any(sound[at : at + 8])
    ]
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    for at in places[-NUMBERS:]:
        with (tmp_path / "data.mdb").open("r+b") as file:
            file.seek(at)
            file.write(bytes([sound[at] ^ 1]))
            file.flush()
            assert found_in(tmp_path), f"byte {at % 4096} of page {at // 4096} was not found"
            file.seek(at)
            file.write(sound[at : at + 1])
    assert len(places) >= NUMBERS


def test_a_flip_of_a_branchs_key_that_still_parts_the_same_rows_is_no_damage(data_dir: Path) -> None:
    page_map = PageMap(data_dir / "data.mdb")
    with PageFile(data_dir / "data.mdb") as pages:
        page = pages.tree_page(pages.databases[b"entries"].root)
    # The last byte of an entry's key is 1, and there are no rows between.
    last_byte = page.number * 4096 + page.nodes[1] + 8 + len(page.keys[1]) - 1
    assert page.is_branch
    assert page_map.is_meant(last_byte)
    assert not page_map.is_damage(last_byte, 0)
    assert page_map.is_damage(last_byte, 1)
