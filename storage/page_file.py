"""Reader of data.mdb page by page, without LMDB and without mapping.

The engine follows page numbers and offsets without checks; on a damaged file that is a SIGSEGV or SIGBUS, and a node
that crashes so at every start reports nothing. This reader checks each page that it touches, and that its keys belong
to its place in the tree, so damage ends in a ``DamageError`` here, and an offline inspection gets past it. It serves
the checks before opening and the inspection; the engine serves the node.
"""

from __future__ import annotations

import bisect
import operator
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType

from quorumlog.storage.interface import DamageError
from quorumlog.storage.meta_pages import (
    META_PAGES,
    NO_PAGE,
    PAGE_HEADER,
    TREE_RECORD_BYTES,
    WHAT_TO_DO,
    TreeRecord,
    file_pages,
    read_meta,
    read_tree_record,
)

_P_BRANCH = 0x01
_P_LEAF = 0x02
_P_OVERFLOW = 0x04
_F_BIGDATA = 0x01
_F_SUBDATA = 0x02
_NODE = struct.Struct("=HHHH")
_U64 = struct.Struct("=Q")
_U32 = struct.Struct("=I")
_MAX_DEPTH = 32
#: Checked tree pages in the cache: the upper levels are visited again and again.
_CACHED_PAGES = 1024
#: Some 130,000 free pages: a longer list is not checked with each slice of a scrub.
SHORT_FREE_LIST_PAGES = 256


class TreePage:
    """A branch or leaf page whose nodes and keys have been checked to be within it.

    A branch's first key is empty: its child has everything below the second key.
    """

    __slots__ = ("ascending", "data", "is_branch", "keys", "nodes", "number")

    def __init__(self, number: int, data: bytes, nodes: tuple[int, ...], keys: list[bytes], *, is_branch: bool) -> None:
        self.number = number
        self.data = data
        self.nodes = nodes
        self.keys = keys
        self.is_branch = is_branch
        said = self.said_keys()
        self.ascending = all(map(operator.lt, said, said[1:]))

    def said_keys(self) -> list[bytes]:
        """Returns the keys, without a branch's first."""
        return self.keys[1:] if self.is_branch else self.keys

    def child(self, position: int) -> int:
        """Returns the page that a branch's node refers to."""
        low, high, top, _ = _NODE.unpack_from(self.data, self.nodes[position])
        return int(low | high << 16 | top << 32)

    def lower_bound(self, key: bytes) -> int:
        """Returns the position of the first node whose key is at or after ``key``."""
        return bisect.bisect_left(self.keys, key)

    def child_for(self, key: bytes) -> int:
        """Returns the position of the node under which ``key`` belongs."""
        return bisect.bisect_right(self.keys, key, lo=1) - 1


class PageFile:
    """The newest commit in a data file without a writer: acquire the directory's lock first."""

    def __init__(self, data_file: Path) -> None:
        """Reads and checks the meta pages.

        Raises:
            DamageError: they are not valid meta pages of LMDB.
        """
        self.data_file = data_file
        self.meta = read_meta(data_file)
        self._pages = file_pages(data_file, self.meta.page_size)
        self._descriptor = os.open(data_file, os.O_RDONLY | os.O_CLOEXEC)
        self._cache: dict[int, TreePage] = {}
        self._free: set[int] = set()

    def __enter__(self) -> PageFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def check_size(self) -> None:
        """Checks that the file has every page that may be read.

        LMDB does not write a page that one transaction both takes from the file's end and frees, so an intact file may
        lack pages at its end, if all of them are free.

        Raises:
            DamageError: the file was truncated.
        """
        if self._pages > self.meta.last_page:
            return
        missing = set(range(self._pages, self.meta.last_page + 1)) if self._plausible() else None
        if missing is None or missing - self._free_pages():
            raise self._cut()

    def _plausible(self) -> bool:
        """True if so few pages are missing that one transaction may have left them unwritten."""
        return self.meta.last_page - self._pages < max(self._pages, 1 << 18)

    def check_free_list(self) -> None:
        """Checks that the free list names pages that can be free, each once: the engine writes to them.

        Pages that are read from then on must not be among them. Also checks that the newest commit freed the root of
        the one before: a meta page with a wrong transaction number makes an older commit the newest.

        Raises:
            DamageError: a check failed.
        """
        free: set[int] = set()
        newest: set[int] = set()
        before = 0
        for key, value in PageCursor(self, self.meta.free, ordered=False):
            numbers = array("Q", value[: len(value) // 8 * 8])
            listed = numbers[1 : 1 + numbers[0]] if numbers else numbers
            said = set(listed)
            # The engine lists them in descending order, by the number of the transaction that freed them.
            whole = bool(numbers) and len(said) == numbers[0] and all(map(operator.gt, listed, listed[1:]))
            if not whole or said & free or min(said, default=META_PAGES) < META_PAGES:
                raise self.damage("its free list names pages that cannot be free")
            if max(said, default=0) > self.meta.last_page:
                raise self.damage(f"its free list names pages beyond the last, {self.meta.last_page}")
            transaction = int.from_bytes(key, sys.byteorder)
            if not before < transaction <= self.meta.transaction:
                raise self.damage(f"its free list is of transaction {transaction} after {before}")
            free |= said
            newest = said
            before = transaction
        root_before = self.meta.root_before
        replaced = before == self.meta.transaction and root_before in newest
        if root_before not in (NO_PAGE, self.meta.main.root) and not replaced:
            raise self.damage(f"commit {self.meta.transaction} did not follow the one that its other meta page is of")
        self._free = free

    @property
    def has_short_free_list(self) -> bool:
        """True if checking the free list is cheap."""
        return self.meta.free.leaf_pages + self.meta.free.overflow_pages <= SHORT_FREE_LIST_PAGES

    def _check_in_use(self, number: int, count: int = 1) -> None:
        """Checks that pages in use are not free: the engine would overwrite them."""
        if not self._free.isdisjoint(range(number, number + count)):
            raise self.damage(f"its free list names pages that are in use, among {number} to {number + count - 1}")

    def _free_pages(self) -> set[int]:
        free: set[int] = set()
        for _, value in PageCursor(self, self.meta.free, ordered=False):
            numbers = array("Q", value[: len(value) // 8 * 8])
            if numbers:
                free.update(numbers[1 : 1 + numbers[0]])
        return free

    @cached_property
    def databases(self) -> dict[bytes, TreeRecord]:
        """The named databases."""
        found = {}
        for name, value in PageCursor(self, self.meta.main, of_records=True):
            if len(value) != TREE_RECORD_BYTES:
                raise self.damage(f"the record of database {name!r} has {len(value)} bytes")
            found[name] = read_tree_record(value)
            if found[name].flags:
                raise self.damage(f"the record of database {name!r} has flags {found[name].flags:#x}")
        return found

    def rows(self, tree: TreeRecord) -> Iterator[tuple[bytes, bytes]]:
        """Yields all rows of a tree in the order of their keys.

        Raises:
            DamageError: a page on the way is damaged.
        """
        return iter(PageCursor(self, tree))

    def cursor(self, database: bytes) -> PageCursor:
        """Returns a cursor in a named database."""
        return PageCursor(self, self.databases[database])

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """Returns the value of a key in a named database, or None."""
        cursor = self.cursor(database)
        return cursor.item()[1] if cursor.set_range(key) and cursor.key() == key else None

    def tree_page(self, number: int) -> TreePage:
        """Returns a branch or leaf page, after checking it.

        Raises:
            DamageError: it is of another kind, or refers to something outside of it.
        """
        known = self._cache.get(number)
        if known is not None:
            return known
        self._check_in_use(number)
        page = self._read(number, 1)
        stored, _, flags, lower, upper = PAGE_HEADER.unpack_from(page)
        # Compared exactly: a page marked dirty makes the engine abort the transaction that reads it.
        if stored != number or flags not in (_P_BRANCH, _P_LEAF):
            raise self.damage(f"page {number} is not a tree's page (it says page {stored}, flags {flags:#x})")
        if not PAGE_HEADER.size < lower <= upper <= len(page) or lower % 2:
            raise self.damage(f"page {number} has impossible bounds {lower}, {upper}")
        nodes = struct.unpack_from(f"={(lower - PAGE_HEADER.size) // 2}H", page, PAGE_HEADER.size)
        if min(nodes) < upper or max(nodes) + _NODE.size > len(page):
            raise self.damage(f"page {number} has a node outside of it")
        keys = []
        used = 0
        for node in nodes:
            start = node + _NODE.size
            low, high, node_flags, key_length = _NODE.unpack_from(page, node)
            end = start + key_length
            if end > len(page):
                raise self.damage(f"page {number} has a key that leaves it")
            keys.append(page[start:end])
            size = _NODE.size + key_length
            if flags == _P_LEAF:
                size += _U64.size if node_flags & _F_BIGDATA else low | high << 16
            used += size + size % 2
        # The engine keeps nodes without gaps: a node that its page has lost leaves one.
        if used != len(page) - upper:
            raise self.damage(f"page {number} has nodes of {used} bytes in {len(page) - upper}")
        found = TreePage(number, page, nodes, keys, is_branch=flags == _P_BRANCH)
        if len(self._cache) >= _CACHED_PAGES:
            self._cache.clear()
        self._cache[number] = found
        return found

    def value(self, page: TreePage, position: int, *, of_records: bool = False) -> bytes:
        """Returns the value of a leaf's node.

        Arguments:
            of_records: for the tree that has the records of the others.

        Raises:
            DamageError: it exceeds its page, or is not where the node states.
        """
        node = page.nodes[position]
        low, high, flags, key_length = _NODE.unpack_from(page.data, node)
        length = low | high << 16
        start = node + _NODE.size + key_length
        if flags != _F_SUBDATA if of_records else flags & ~_F_BIGDATA:
            raise self.damage(f"page {page.number} has a node with flags {flags:#x}")
        stored_here = _U64.size if flags & _F_BIGDATA else length
        if start + stored_here > len(page.data):
            raise self.damage(f"page {page.number} has a value of {length} bytes that leaves it")
        if flags & _F_BIGDATA:
            return self._overflow(_U64.unpack_from(page.data, start)[0], length)
        return page.data[start : start + length]

    def pass_value(self, page: TreePage, position: int) -> None:
        """Checks, without reading all of it, that a leaf's value is where its node states."""
        node = page.nodes[position]
        low, high, flags, key_length = _NODE.unpack_from(page.data, node)
        start = node + _NODE.size + key_length
        if flags == _F_BIGDATA and start + _U64.size <= len(page.data):
            self._overflow(_U64.unpack_from(page.data, start)[0], low | high << 16, all_of_it=False)
        else:
            self.value(page, position)

    def _overflow(self, number: int, length: int, *, all_of_it: bool = True) -> bytes:
        count = (PAGE_HEADER.size - 1 + length) // self.meta.page_size + 1
        if number + count - 1 > self.meta.last_page:
            raise self.damage(f"something refers to pages {number} to {number + count - 1}, which cannot be in use")
        self._check_in_use(number, count)
        pages = self._read(number, count if all_of_it else 1)
        stored, _, flags, _, _ = PAGE_HEADER.unpack_from(pages)
        extent = _U32.unpack_from(pages, PAGE_HEADER.size - _U32.size)[0]
        if stored != number or flags != _P_OVERFLOW or extent != count:
            raise self.damage(f"page {number} does not start a value of {count} pages")
        return pages[PAGE_HEADER.size : PAGE_HEADER.size + length]

    def _read(self, number: int, count: int) -> bytes:
        if number < META_PAGES or number + count - 1 > self.meta.last_page:
            raise self.damage(f"something refers to pages {number} to {number + count - 1}, which cannot be in use")
        size = count * self.meta.page_size
        pages = os.pread(self._descriptor, size, number * self.meta.page_size)
        if len(pages) != size:
            raise self._cut()
        return pages

    def _cut(self) -> DamageError:
        have, need = self.data_file.stat().st_size, (self.meta.last_page + 1) * self.meta.page_size
        return self.damage(f"it has {have} bytes where its meta pages require {need}: it was truncated")

    def damage(self, what: str) -> DamageError:
        """Returns a report of damage in this file."""
        return DamageError(f"{self.data_file} is damaged: {what}; {WHAT_TO_DO}")


class PageCursor:
    """A position in a tree. Behaves like the engine's cursors, as far as ``reading.Cursor`` requires.

    Every page that it visits is at the depth that the tree states, and its keys ascend between those that lead to it.
    So
    every walk ends, the visited keys ascend, and a search finds the requested key or the row after it: otherwise a
    single wrong key could send a search back to where it came from, forever.
    """

    def __init__(self, pages: PageFile, tree: TreeRecord, *, ordered: bool = True, of_records: bool = False) -> None:
        """Creates a cursor without a position.

        Arguments:
            ordered: False for the free list, whose keys are numbers in this machine's byte order.
            of_records: for the tree that has the records of the others.
        """
        self._pages = pages
        self._of_records = of_records
        self._root = tree.root
        self._depth = tree.depth
        self._ordered = ordered
        #: Pages from the root down to a leaf, with the position in each. Empty: no position.
        self._path: list[tuple[TreePage, int]] = []

    def __enter__(self) -> PageCursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path = []

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        more = bool(self._path) or self.first()
        while more:
            yield self.item()
            more = self.next()

    def first(self) -> bool:
        """Moves to the first row."""
        return self._descend_from_root(lambda page: 0)

    def last(self) -> bool:
        """Moves to the last row."""
        return self._descend_from_root(lambda page: len(page.nodes) - 1)

    def set_range(self, key: bytes, /) -> bool:
        """Moves to the first row whose key is at or after ``key``."""
        found = self._descend_from_root(lambda page: page.child_for(key) if page.is_branch else page.lower_bound(key))
        if not found:
            return False
        page, position = self._path[-1]
        if position < len(page.nodes):
            return True
        self._path[-1] = (page, position - 1)
        return self.next()

    def next(self) -> bool:
        """Moves to the next row."""
        return self._step(1, lambda page: 0)

    def prev(self) -> bool:
        """Moves to the previous row."""
        return self._step(-1, lambda page: len(page.nodes) - 1)

    def key(self) -> bytes:
        """Returns the row's key; empty without a position."""
        if not self._path:
            return b""
        page, position = self._path[-1]
        return page.keys[position]

    def item(self) -> tuple[bytes, bytes]:
        """Returns the row's key and value."""
        page, position = self._path[-1]
        return page.keys[position], self._pages.value(page, position, of_records=self._of_records)

    def pass_item(self) -> None:
        """Checks that the row's value is where it should be, without reading all of it."""
        page, position = self._path[-1]
        self._pages.pass_value(page, position)

    def _descend_from_root(self, choose: Callable[[TreePage], int]) -> bool:
        self._path = []
        if self._root == NO_PAGE:
            return False
        self._descend(self._root, choose)
        return True

    def _descend(self, number: int, choose: Callable[[TreePage], int]) -> None:
        while True:
            page = self._pages.tree_page(number)
            self._check_place(page)
            position = choose(page)
            self._path.append((page, position))
            if not page.is_branch:
                return
            number = page.child(position)

    def _check_place(self, page: TreePage) -> None:
        """Checks that a page may be where the path leads."""
        level = len(self._path) + 1
        if level > _MAX_DEPTH or (level >= self._depth if page.is_branch else level != self._depth):
            what = "branch" if page.is_branch else "leaf"
            raise self._pages.damage(f"page {page.number} is a {what} at level {level} of a tree of {self._depth}")
        if not self._ordered:
            return
        if not page.ascending:
            raise self._pages.damage(f"page {page.number} has keys that are out of order")
        low, high = self._bounds()
        keys = page.said_keys()
        if keys and (keys[0] < low or (high is not None and keys[-1] >= high)):
            raise self._pages.damage(f"page {page.number} has keys that belong elsewhere")

    def _bounds(self) -> tuple[bytes, bytes | None]:
        """Returns the bounds of a page's keys by the branches above: from the first up to the second."""
        low, high = b"", None
        for page, position in self._path:
            low = page.keys[position] if position else low
            high = page.keys[position + 1] if position + 1 < len(page.keys) else high
        return low, high

    def _step(self, by: int, choose: Callable[[TreePage], int]) -> bool:
        while self._path:
            page, position = self._path.pop()
            position += by
            if 0 <= position < len(page.nodes):
                self._path.append((page, position))
                if page.is_branch:
                    self._descend(page.child(position), choose)
                return True
        return False
