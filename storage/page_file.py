"""data.mdb read page by page, without LMDB and without mapping.

The engine follows page numbers and offsets as it finds them; on a damaged file that is a SIGSEGV or SIGBUS, and a
node that dies so at every start tells nobody why. This reader checks each page that it touches, so damage ends in
a ``DamageError`` here, and an offline inspection gets past it. It serves the checks before opening and the
inspection; the engine serves the node.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
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
_TYPE_MASK = _P_BRANCH | _P_LEAF | _P_OVERFLOW | 0x08 | 0x20 | 0x40
_F_BIGDATA = 0x01
_F_SUBDATA = 0x02
_NODE = struct.Struct("=HHHH")
_U64 = struct.Struct("=Q")
_U32 = struct.Struct("=I")
_MAX_DEPTH = 32
_MAX_KEY_BYTES = 511


class PageFile:
    """The newest commit in a data file. One that nobody writes to: take the directory's lock first."""

    def __init__(self, data_file: Path) -> None:
        """Reads and checks the meta pages.

        Raises:
            DamageError: they are not those of an LMDB file as it is written.
        """
        self.data_file = data_file
        self.meta = read_meta(data_file)
        self._pages = file_pages(data_file, self.meta.page_size)
        self._descriptor = os.open(data_file, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> PageFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def check_size(self) -> None:
        """Checks that the file has every page that may be read.

        LMDB does not write a page that one transaction both takes from the file's end and gives back, so a sound
        file may lack pages at its end, if all of them are free.

        Raises:
            DamageError: the file was cut.
        """
        if self._pages > self.meta.last_page:
            return
        missing = set(range(self._pages, self.meta.last_page + 1)) if self._plausible() else None
        if missing is None or missing - self._free_pages():
            have, need = self._pages * self.meta.page_size, (self.meta.last_page + 1) * self.meta.page_size
            raise self.damage(f"it has {have} bytes where its meta pages speak of {need}: it was cut")

    def _plausible(self) -> bool:
        """Whether few enough pages are missing for them to be a transaction's leavings."""
        return self.meta.last_page - self._pages < max(self._pages, 1 << 18)

    def _free_pages(self) -> set[int]:
        free: set[int] = set()
        for _, value in self.rows(self.meta.free):
            numbers = array("Q", value[: len(value) // 8 * 8])
            if numbers:
                free.update(numbers[1 : 1 + numbers[0]])
        return free

    def databases(self) -> dict[bytes, TreeRecord]:
        """The named databases."""
        found = {}
        for name, value in self.rows(self.meta.main):
            if len(value) != TREE_RECORD_BYTES:
                raise self.damage(f"the record of database {name!r} has {len(value)} bytes")
            found[name] = read_tree_record(value)
        return found

    def rows(self, tree: TreeRecord, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows of a tree in the order of their keys, from the first key at or after ``first``.

        Raises:
            DamageError: a page on the way is damaged.
        """
        if tree.root == NO_PAGE:
            return
        yield from self._walk(tree.root, first, 0)

    def _walk(self, number: int, first: bytes, depth: int) -> Iterator[tuple[bytes, bytes]]:
        if depth >= _MAX_DEPTH:
            raise self.damage(f"page {number} lies {depth} deep")
        page = self._tree_page(number)
        nodes = self._nodes(number, page)
        if PAGE_HEADER.unpack_from(page)[2] & _P_BRANCH:
            for position, node in enumerate(nodes):
                if position + 1 < len(nodes) and first and self._key(number, page, nodes[position + 1]) <= first:
                    continue
                low, high, flags, _ = _NODE.unpack_from(page, node)
                yield from self._walk(low | high << 16 | flags << 32, first, depth + 1)
            return
        for node in nodes:
            key = self._key(number, page, node)
            if key >= first:
                yield key, self._value(number, page, node)

    def _tree_page(self, number: int) -> bytes:
        page = self._read(number, 1)
        stored, _, flags, lower, upper = PAGE_HEADER.unpack_from(page)
        kind = flags & _TYPE_MASK
        if stored != number or kind not in (_P_BRANCH, _P_LEAF):
            raise self.damage(f"page {number} is not a tree's page (it says page {stored}, flags {flags:#x})")
        if not PAGE_HEADER.size <= lower <= upper <= len(page) or (lower - PAGE_HEADER.size) % 2:
            raise self.damage(f"page {number} has impossible bounds {lower}, {upper}")
        return page

    def _nodes(self, number: int, page: bytes) -> tuple[int, ...]:
        count = (PAGE_HEADER.unpack_from(page)[3] - PAGE_HEADER.size) // 2
        upper = PAGE_HEADER.unpack_from(page)[4]
        nodes = struct.unpack_from(f"={count}H", page, PAGE_HEADER.size)
        if not count or min(nodes) < upper or max(nodes) + _NODE.size > len(page):
            raise self.damage(f"page {number} has {count} nodes, or nodes outside of it")
        return nodes

    def _key(self, number: int, page: bytes, node: int) -> bytes:
        start = node + _NODE.size
        length = _NODE.unpack_from(page, node)[3]
        if length > _MAX_KEY_BYTES or start + length > len(page):
            raise self.damage(f"page {number} has a key of {length} bytes that leaves it")
        return page[start : start + length]

    def _value(self, number: int, page: bytes, node: int) -> bytes:
        low, high, flags, key_length = _NODE.unpack_from(page, node)
        length = low | high << 16
        start = node + _NODE.size + key_length
        if flags & ~(_F_BIGDATA | _F_SUBDATA):
            raise self.damage(f"page {number} has a node with flags {flags:#x}")
        if not flags & _F_BIGDATA:
            if start + length > len(page):
                raise self.damage(f"page {number} has a value of {length} bytes that leaves it")
            return page[start : start + length]
        if start + _U64.size > len(page):
            raise self.damage(f"page {number} has a node that leaves it")
        return self._overflow(_U64.unpack_from(page, start)[0], length)

    def _overflow(self, number: int, length: int) -> bytes:
        count = (PAGE_HEADER.size - 1 + length) // self.meta.page_size + 1
        pages = self._read(number, count)
        stored, _, flags, _, _ = PAGE_HEADER.unpack_from(pages)
        extent = _U32.unpack_from(pages, PAGE_HEADER.size - _U32.size)[0]
        if stored != number or flags & _TYPE_MASK != _P_OVERFLOW or extent != count:
            raise self.damage(f"page {number} does not begin a value of {count} pages")
        return pages[PAGE_HEADER.size : PAGE_HEADER.size + length]

    def _read(self, number: int, count: int) -> bytes:
        if number < META_PAGES or number + count - 1 > self.meta.last_page:
            raise self.damage(f"something refers to pages {number} to {number + count - 1}, which cannot be in use")
        size = count * self.meta.page_size
        pages = os.pread(self._descriptor, size, number * self.meta.page_size)
        if len(pages) != size:
            raise self.damage(f"it ends within pages {number} to {number + count - 1}: it was cut")
        return pages

    def damage(self, what: str) -> DamageError:
        """The report of damage found in this file."""
        return DamageError(f"{self.data_file} is damaged: {what}; {WHAT_TO_DO}")
