"""The two meta pages of data.mdb, read without mapping the file.

LMDB maps the whole file and trusts it: a file that is shorter than its meta pages state kills the process with SIGBUS
at the first read beyond the end, and a zeroed meta page cannot be opened at all. So both are checked with plain reads
before LMDB opens the file. Layout: LMDB 0.9's ``MDB_meta``, 64 bits, in this machine's byte order.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from quorumlog.storage.interface import DamageError

DATA_FILE = "data.mdb"
PAGE_HEADER = struct.Struct("=QHHHH")
NO_PAGE = (1 << 64) - 1
META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_P_META = 0x08
#: Flag of the free list: its keys are numbers in this machine's byte order. No other tree has it.
_INTEGER_KEYS = 0x08
_META_HEAD = struct.Struct("=IIQQ")
_TREE = struct.Struct("=IHHQQQQQ")
_META_TAIL = struct.Struct("=QQ")
TREE_RECORD_BYTES = _TREE.size
_META_BYTES = PAGE_HEADER.size + _META_HEAD.size + 2 * _TREE.size + _META_TAIL.size


@dataclass(slots=True, frozen=True)
class TreeRecord:
    """Root and statistics of a B+tree (``MDB_db``). ``root`` is NO_PAGE for an empty tree."""

    page_size: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


@dataclass(slots=True, frozen=True)
class MetaPage:
    """State after a commit: the roots of the free list and of the named databases, and the last page in use.

    ``root_before`` is the root of the named databases in the commit before it; NO_PAGE if it had none.
    """

    page_size: int
    free: TreeRecord
    main: TreeRecord
    last_page: int
    transaction: int
    root_before: int = NO_PAGE


def read_tree_record(data: bytes, offset: int = 0) -> TreeRecord:
    """Decodes a tree's record, as in meta pages and in the values of named databases."""
    return TreeRecord(*_TREE.unpack_from(data, offset))


def read_meta(data_file: Path) -> MetaPage:
    """Returns the meta page of the newest commit, after checking both.

    Raises:
        DamageError: a meta page is invalid, or the two cannot be those of consecutive commits.
    """
    with data_file.open("rb") as file:
        first = _parse(data_file, 0, file.read(_META_BYTES))
        file.seek(first.page_size)
        second = _parse(data_file, 1, file.read(_META_BYTES))
    if first.page_size != second.page_size:
        raise _damage(data_file, f"its meta pages disagree on the page size ({first.page_size}, {second.page_size})")
    # Commit n writes meta page n % 2: the older one must be the commit just before. A new file has 0 and 0.
    newest, older = (first, second) if first.transaction >= second.transaction else (second, first)
    fresh = first.transaction == second.transaction == 0
    parity = first.transaction % 2 == 0 and (second.transaction % 2 == 1 or second.transaction == 0)
    if not fresh and (newest.transaction - older.transaction != 1 or not parity):
        raise _damage(
            data_file, f"its meta pages are of commits {first.transaction} and {second.transaction}, not neighbours"
        )
    return replace(newest, root_before=older.main.root)


def file_pages(data_file: Path, page_size: int) -> int:
    """Returns the number of whole pages that the file really has."""
    return os.stat(data_file).st_size // page_size


def _parse(data_file: Path, number: int, page: bytes) -> MetaPage:
    if len(page) < _META_BYTES:
        raise _damage(data_file, f"it ends within meta page {number}")
    page_number, _, flags, _, _ = PAGE_HEADER.unpack_from(page)
    magic, version, _, _ = _META_HEAD.unpack_from(page, PAGE_HEADER.size)
    if magic != _MAGIC or flags != _P_META or page_number != number:
        raise _damage(data_file, f"meta page {number} is not a meta page (magic {magic:#x})")
    if version != _DATA_VERSION:
        raise _damage(data_file, f"meta page {number} has LMDB data version {version}, not {_DATA_VERSION}")
    trees = PAGE_HEADER.size + _META_HEAD.size
    free = read_tree_record(page, trees)
    main = read_tree_record(page, trees + _TREE.size)
    last_page, transaction = _META_TAIL.unpack_from(page, trees + 2 * _TREE.size)
    size = free.page_size
    if not 512 <= size <= 32768 or size & (size - 1):
        raise _damage(data_file, f"meta page {number} gives an impossible page size of {size} bytes")
    if (free.flags, main.flags) != (_INTEGER_KEYS, 0):
        raise _damage(data_file, f"meta page {number} gives its trees flags {free.flags:#x} and {main.flags:#x}")
    if last_page < META_PAGES - 1:
        raise _damage(data_file, f"meta page {number} gives an impossible last page {last_page}")
    return MetaPage(size, free, main, last_page, transaction)


def _damage(data_file: Path, what: str) -> DamageError:
    return DamageError(f"{data_file} is damaged: {what}; {WHAT_TO_DO}")


#: The advice at the end of every report of damage.
WHAT_TO_DO = (
    "check it with `quorumlog log verify`; if the node does not start, set QUORUMLOG_DAMAGED_STORAGE=move-aside to move"
    " the damaged data to a folder beside it and start empty"
)
