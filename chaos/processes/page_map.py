"""The meaning of each byte of a data file, so that the effect of a flipped bit is known.

Some bytes of a page have no meaning: the free space between its rows and their directory, padding, and counters of the
engine for its statistics. They are never read, so a flipped bit there is no damage, and cannot be detected. A branch's
key is only compared: a changed one that still separates the same rows is equivalent. A free list that names fewer pages
than before only leaks some.
"""

from __future__ import annotations

import bisect
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quorumlog.storage.meta_pages import NO_PAGE, PAGE_HEADER, TREE_RECORD_BYTES, TreeRecord
from quorumlog.storage.page_file import PageFile, TreePage

FREE = "free"
META = "meta page"
FREE_LIST = "free list"
NAMES = "names of databases"

#: The share of flips at meaningful bytes, if there are any.
MEANT = 0.8
_NODE_BYTES = 8
_BIG = 0x01
_U64 = struct.Struct("=Q")
#: Meaningful parts of a tree's record: flags, depth and root; the rest are counters.
_MEANT_OF_RECORD = ((4, 8), (40, 48))
_META_HEAD_BYTES = 24


class Separator(NamedTuple):
    """A key of a branch, between the rows that it separates."""

    offset: int
    stored: bytes
    last_before: bytes
    first_after: bytes

    def allows(self, flipped: bytes) -> bool:
        """True if the changed key separates the same rows."""
        return self.last_before < flipped <= self.first_after


class FreeCount(NamedTuple):
    """The number of pages that a row of the free list names."""

    offset: int
    stored: bytes

    def allows(self, flipped: bytes) -> bool:
        """True if the changed count is lower."""
        return _U64.unpack(flipped) < _U64.unpack(self.stored)


def _offset(place: Separator | FreeCount) -> int:
    return place.offset


class PageMap:
    """A sound data file that is not being written.

    Raises:
        DamageError: it is not sound.
    """

    def __init__(self, data_file: Path) -> None:
        with PageFile(data_file) as pages:
            self.size_bytes = data_file.stat().st_size
            self._page_size = pages.meta.page_size
            self._kinds: dict[int, str] = {}
            self._meant: list[tuple[int, int]] = []
            self._lenient: list[Separator | FreeCount] = []
            self._add_meta_pages(pages)
            for kind, tree in ((FREE_LIST, pages.meta.free), (NAMES, pages.meta.main)):
                self._add_tree(pages, kind, tree)
            for name, tree in pages.databases.items():
                self._add_tree(pages, name.decode(), tree)
        self._meant.sort()
        self._firsts = [first for first, _ in self._meant]
        self._lenient.sort(key=_offset)
        self._pages_of: dict[str, list[int]] = {}
        for page, kind in sorted(self._kinds.items()):
            self._pages_of.setdefault(kind, []).append(page)

    def kind_at(self, offset: int) -> str:
        """Returns the kind of page that contains a byte."""
        return self._kinds.get(offset // self._page_size, FREE)

    def is_meant(self, offset: int) -> bool:
        """True if a byte is meaningful."""
        place = bisect.bisect_right(self._firsts, offset) - 1
        return place >= 0 and offset < self._meant[place][1]

    def is_damage(self, offset: int, bit: int) -> bool:
        """True if a flipped bit is damage."""
        place = bisect.bisect_right(self._lenient, offset, key=_offset) - 1
        lenient = self._lenient[place] if place >= 0 else None
        if lenient is None or offset >= lenient.offset + len(lenient.stored):
            return self.is_meant(offset)
        flipped = bytearray(lenient.stored)
        flipped[offset - lenient.offset] ^= 1 << bit
        return not lenient.allows(bytes(flipped))

    def draw(self, rng: random.Random) -> int:
        """Draws the position of a byte: each kind of page is equally likely, however few there are, including free
        ones. Four times out of five it is a meaningful one, if the page has any.
        """
        kind = rng.choice([*sorted(self._pages_of), FREE])
        if kind == FREE:
            return rng.randrange(self.size_bytes)
        at = rng.choice(self._pages_of[kind]) * self._page_size
        offset = at + rng.randrange(self._page_size)
        if rng.random() < MEANT:
            meaningful = [each for each in range(at, at + self._page_size) if self.is_meant(each)]
            offset = rng.choice(meaningful) if meaningful else offset
        return offset

    def _add(self, first: int, last: int) -> None:
        self._meant.append((first, last))

    def _add_meta_pages(self, pages: PageFile) -> None:
        size = self._page_size
        for page in (0, 1):
            self._kinds[page] = META
            at = page * size
            self._add(at, at + 8)
            self._add(at + 10, at + 12)
            head = at + PAGE_HEADER.size
            self._add(head, head + 8)
            tail = head + _META_HEAD_BYTES + 2 * TREE_RECORD_BYTES
            # Only the transaction number of the older one is read, and it is the next to be written.
            if page == pages.meta.transaction % 2:
                for tree in (0, 1):
                    record = head + _META_HEAD_BYTES + tree * TREE_RECORD_BYTES
                    for first, last in _MEANT_OF_RECORD:
                        self._add(record + first, record + last)
                self._add(tail, tail + 8)
            self._add(tail + 8, tail + 16)

    def _add_tree(self, pages: PageFile, kind: str, tree: TreeRecord) -> None:
        if tree.root != NO_PAGE:
            self._walk(pages, kind, tree.root)

    def _walk(self, pages: PageFile, kind: str, number: int) -> tuple[bytes, bytes]:
        """Adds the pages below a page; returns the keys of its first and last row."""
        page = pages.tree_page(number)
        self._kinds[number] = f"{kind}, branch" if page.is_branch else kind
        self._add_tree_page(kind, page)
        if not page.is_branch:
            self._add_large_values(pages, kind, page)
            return page.keys[0], page.keys[-1]
        below = [self._walk(pages, kind, page.child(position)) for position in range(len(page.nodes))]
        # The free list's keys are numbers: their order is not that of their bytes.
        for position in range(1, len(page.nodes) if kind != FREE_LIST else 1):
            offset = number * self._page_size + page.nodes[position] + _NODE_BYTES
            key = page.keys[position]
            self._lenient.append(Separator(offset, key, below[position - 1][1], below[position][0]))
        return below[0][0], below[-1][1]

    def _add_tree_page(self, kind: str, page: TreePage) -> None:
        at = page.number * self._page_size
        lower = PAGE_HEADER.size + 2 * len(page.nodes)
        self._add(at, at + 8)
        self._add(at + 10, at + lower)
        for position, (node, key) in enumerate(zip(page.nodes, page.keys, strict=True)):
            value = node + _NODE_BYTES + len(key)
            if kind == FREE_LIST and not page.is_branch:
                # The order of keys matters, and of values the stated number of pages.
                self._add(at + node + 4, at + node + _NODE_BYTES)
                said = _U64.size if _is_big(page, node) else 8 + 8 * _U64.unpack_from(page.data, value)[0]
                self._add(at + value, at + value + said)
                if not _is_big(page, node):
                    self._lenient.append(FreeCount(at + value, page.data[value : value + _U64.size]))
                continue
            # The first key of a branch is never compared.
            self._add(at + node, at + (node + _NODE_BYTES if page.is_branch and position == 0 else value))
            if page.is_branch:
                continue
            if kind == NAMES:
                for first, last in _MEANT_OF_RECORD:
                    self._add(at + value + first, at + value + last)
            else:
                self._add(at + value, at + value + (_U64.size if _is_big(page, node) else _length(page, node)))

    def _add_large_values(self, pages: PageFile, kind: str, page: TreePage) -> None:
        for position, (node, key) in enumerate(zip(page.nodes, page.keys, strict=True)):
            if not _is_big(page, node):
                continue
            number = _U64.unpack_from(page.data, node + _NODE_BYTES + len(key))[0]
            at, length = number * self._page_size, _length(page, node)
            if kind == FREE_LIST:
                count = pages.value(page, position)[: _U64.size]
                length = 8 + 8 * _U64.unpack(count)[0]
                self._lenient.append(FreeCount(at + PAGE_HEADER.size, count))
            for each in range(number, number + (PAGE_HEADER.size + length - 1) // self._page_size + 1):
                self._kinds[each] = f"{kind}, large value"
            self._add(at, at + 8)
            self._add(at + 10, at + PAGE_HEADER.size + length)


def _length(page: TreePage, node: int) -> int:
    low, high = struct.unpack_from("=HH", page.data, node)
    return int(low | high << 16)


def _is_big(page: TreePage, node: int) -> bool:
    return bool(struct.unpack_from("=H", page.data, node + 4)[0] & _BIG)


def flips(rng: random.Random, page_map: PageMap, count: int) -> Iterator[tuple[int, int]]:
    """Draws flips: the position of a byte, and one of its bits."""
    for _ in range(count):
        yield page_map.draw(rng), rng.randrange(8)
