"""Damage of what leads to a row: its place in a page, the branches above, the page's kind. No checksum covers these."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from storage_samples import LogBuilder, create, identity, transaction
from test_damage import probe

from quorumlog.raft.types import HardState
from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError
from quorumlog.storage.meta_pages import PAGE_HEADER
from quorumlog.storage.page_file import PageFile, TreePage
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite
from quorumlog.storage.verification import verify

PAGE_BYTES = 4096
NODE_BYTES = 8
FLAGS_AT = 10
#: In place of a child's number.
NO_SUCH_PAGE, NO_TREE_PAGE = struct.pack("=H", 60_000), struct.pack("=H", 0)
#: So many that the rows of group 1 start with a page of their own.
ROWS_OF_0 = 17 * 17
ROWS_OF_1 = 300


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two groups, whose rows are in several leaves of one branch."""
    with Storage(tmp_path / "data") as storage:
        for group, count in ((0, ROWS_OF_0), (1, ROWS_OF_1)):
            entries = LogBuilder(group).batches(count, records=10)
            storage.commit(transaction(create(group, entries, hard_state=HardState(1, 1, count))))
    return tmp_path / "data"


def root_of(data_dir: Path, database: bytes) -> TreePage:
    with PageFile(data_dir / "data.mdb") as pages:
        return pages.tree_page(pages.databases[database].root)


def leaves_of(data_dir: Path, database: bytes) -> list[TreePage]:
    root = root_of(data_dir, database)
    with PageFile(data_dir / "data.mdb") as pages:
        return [pages.tree_page(root.child(position)) for position in range(len(root.nodes))]


def overwrite(data_dir: Path, page: TreePage, place: int, data: bytes) -> None:
    """Changes bytes of a page. An engine that has the file mapped sees it too."""
    with (data_dir / "data.mdb").open("r+b", buffering=0) as file:
        file.seek(page.number * PAGE_BYTES + place)
        file.write(data)


def move_separator(data_dir: Path, database: bytes, position: int, key: bytes) -> None:
    """Changes the key that leads to a branch's child."""
    root = root_of(data_dir, database)
    assert len(root.keys[position]) == len(key)
    overwrite(data_dir, root, root.nodes[position] + NODE_BYTES, key)


def test_a_flipped_bit_in_the_place_of_a_groups_first_row_does_not_lead_in_a_circle(
    data_dir: Path, tmp_path: Path
) -> None:
    """The row's key is read from its middle and comes out empty: a key of group 0, behind all of group 0. A search for
    the group after group 0 returned it, without end."""
    first = rows.position_key(1, 1)
    leaf = next(leaf for leaf in leaves_of(data_dir, rows.ENTRIES) if first in leaf.keys)
    assert leaf.keys[0] == first
    position = leaf.number * PAGE_BYTES + PAGE_HEADER.size
    faults: list[list[object]] = [["flip", position, bit] for bit in range(8)]
    for fault, (outcome, problems) in zip(faults, probe(data_dir, tmp_path / "scratch", faults), strict=True):
        assert outcome in ("refused", "found"), fault
        assert problems


def test_keys_that_are_out_of_order_in_their_page_are_noticed_at_opening(data_dir: Path) -> None:
    page = root_of(data_dir, rows.HARD_STATES)
    assert not page.is_branch
    overwrite(data_dir, page, PAGE_HEADER.size, struct.pack("=2H", page.nodes[1], page.nodes[0]))
    with pytest.raises(DamageError, match=f"page {page.number} has keys that are out of order"):
        Storage(data_dir)


@pytest.mark.parametrize("moved", [rows.position_key(0, ROWS_OF_0 - 3), rows.position_key(1, 3)], ids=["down", "up"])
def test_a_branch_that_leads_to_the_wrong_page_is_noticed_at_opening(data_dir: Path, moved: bytes) -> None:
    """Group 1 starts at a page of its own: its key in the branch is moved down or up."""
    keys = root_of(data_dir, rows.ENTRIES).keys
    place = keys.index(rows.position_key(1, 1))
    assert keys[place - 1] < moved < keys[place + 1]
    move_separator(data_dir, rows.ENTRIES, place, moved)
    with pytest.raises(DamageError, match=r"page \d+ has keys that belong elsewhere"):
        Storage(data_dir)
    assert not verify(data_dir).sound


def test_a_branch_that_leads_back_to_itself_is_noticed_at_opening(data_dir: Path) -> None:
    page = root_of(data_dir, rows.ENTRIES)
    overwrite(data_dir, page, page.nodes[-1], struct.pack("=HHH", page.number, 0, 0))
    with pytest.raises(DamageError, match=f"page {page.number} is a branch at level 2 of a tree of 2"):
        Storage(data_dir)
    assert not verify(data_dir).sound


def test_a_page_that_calls_itself_dirty_is_noticed_at_opening(data_dir: Path) -> None:
    page = root_of(data_dir, rows.ANCHORS)
    overwrite(data_dir, page, FLAGS_AT, struct.pack("=H", 0x12))
    with pytest.raises(DamageError, match=f"page {page.number} is not a tree's page"):
        Storage(data_dir)


@pytest.mark.parametrize("tree", ["free list", "names", "database"])
def test_a_tree_of_another_kind_is_noticed_at_opening(data_dir: Path, tree: str) -> None:
    """The engine would compare its keys in another way, or take its rows for something else."""
    record = {"free list": 16 + 24, "names": 16 + 24 + 48}.get(tree)
    whole = bytearray((data_dir / "data.mdb").read_bytes())
    if record is None:
        with PageFile(data_dir / "data.mdb") as pages:
            names = pages.tree_page(pages.meta.main.root)
        place = names.keys.index(rows.ENTRIES)
        record = names.number * PAGE_BYTES + names.nodes[place] + NODE_BYTES + len(rows.ENTRIES)
    whole[record + 4] ^= 4
    (data_dir / "data.mdb").write_bytes(whole)
    with pytest.raises(DamageError, match="flags"):
        Storage(data_dir)


def test_a_search_that_damage_after_opening_leads_astray_is_noticed(data_dir: Path) -> None:
    """The engine trusts its branches. The search ends at a sound row before the requested one, and that row is not
    served."""
    with Storage(data_dir) as storage:
        keys = root_of(data_dir, rows.OFFSETS).keys
        group, last_offset = rows.position_of(keys[1])
        sought = last_offset + 15
        assert storage.find_offset(group, sought) == sought // 10 + 1
        move_separator(data_dir, rows.OFFSETS, 1, rows.position_key(group, last_offset + 100))
        with pytest.raises(DamageError, match=r"the order of rows in .* is damaged"):
            storage.find_offset(group, sought)


@pytest.fixture
def _unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that appears after the check before a deletion, or before it in a page that is not checked."""
    for place in ("sweep", "raft_group_write"):
        monkeypatch.setattr(f"quorumlog.storage.{place}.look_before_freeing", lambda *_, **__: None)


@pytest.mark.usefixtures("_unseen")
def test_a_sweep_that_comes_upon_a_damaged_page_says_so(data_dir: Path) -> None:
    with Storage(data_dir, max_deletes=10) as storage:
        storage.commit(transaction(RaftGroupWrite(0, compact_to=identity(storage.entries(0, 100, 100, 1)[0]))))
        root = root_of(data_dir, rows.ENTRIES)
        overwrite(data_dir, root, root.nodes[1], NO_SUCH_PAGE)
        with pytest.raises(DamageError, match="LMDB says"):
            sweep_all(storage)


@pytest.mark.usefixtures("_unseen")
def test_a_deletion_that_moves_on_to_a_damaged_page_says_so(data_dir: Path) -> None:
    """The row is deleted and the cursor cannot move on: the binding answers with an error of the interpreter's own."""
    with Storage(data_dir) as storage:
        storage.commit(transaction(create(2, LogBuilder(2).batches(100), hard_state=HardState(1, 1, 0))))
        root = root_of(data_dir, rows.ENTRIES)
        group, first_of_next = rows.position_of(root.keys[-2])
        assert group == 2
        overwrite(data_dir, root, root.nodes[-2], NO_TREE_PAGE)
        with pytest.raises(DamageError, match="LMDB says"):
            storage.commit(transaction(RaftGroupWrite(2, truncate_from=first_of_next - 1)))


def sweep_all(storage: Storage) -> None:
    while storage.sweep():
        pass
