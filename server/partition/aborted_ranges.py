"""The aborted transactions of a partition, as ranges of offsets: from the first offset that a transaction may have
written to the marker that ended it.

They are part of the replicated state, with a row each. A range is kept as long as readers may find a batch of it:
until the log start or the replica's own compaction has passed the marker. In memory each takes 32 bytes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

ROW_PREFIX = b"a"
_ROW_KEY = struct.Struct(">cQ")
_ROW = struct.Struct("<qqq")


class AbortedRange(NamedTuple):
    """One aborted transaction.

    Arguments:
        first_offset: its batches have this offset or a later one.
        marker_offset: of the marker that ended it; its batches have earlier ones.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class AbortedRanges:
    """The ranges of one partition, in the order of their markers."""

    __slots__ = ("_due", "_firsts", "_markers", "_producers", "_stable")

    def __init__(self) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._markers = array("q")
        #: The last stable offset after each marker: those of later markers start there or behind it.
        self._stable = array("q")
        #: Rows that are not written yet, and None for those to be deleted.
        self._due: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._markers)

    def add(self, aborted: AbortedRange, stable_offset: int) -> None:
        """Adds a range, whose marker is behind all others.

        Arguments:
            stable_offset: the last stable offset after the marker.
        """
        self._add(aborted, stable_offset)
        self._due[_ROW_KEY.pack(ROW_PREFIX, aborted.marker_offset)] = self._row(len(self) - 1)

    def _add(self, aborted: AbortedRange, stable_offset: int) -> None:
        self._producers.append(aborted.producer_id)
        self._firsts.append(aborted.first_offset)
        self._markers.append(aborted.marker_offset)
        self._stable.append(stable_offset)

    def between(self, first: int, end: int) -> Iterator[AbortedRange]:
        """Yields the ranges that may have batches with offsets from ``first`` to before ``end``, by their markers."""
        for number in range(bisect_left(self._markers, first), len(self)):
            if self._firsts[number] < end:
                yield AbortedRange(self._producers[number], self._firsts[number], self._markers[number])
            if self._stable[number] >= end:
                return

    def forget_before(self, offset: int) -> None:
        """Removes the ranges whose markers are before an offset."""
        gone = bisect_left(self._markers, offset)
        for marker in self._markers[:gone]:
            self._due[_ROW_KEY.pack(ROW_PREFIX, marker)] = None
        for column in (self._producers, self._firsts, self._markers, self._stable):
            del column[:gone]

    # -- rows -----------------------------------------------------------------------------------------------------

    def _row(self, number: int) -> bytes:
        return _ROW.pack(self._producers[number], self._firsts[number], self._stable[number])

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the rows that changed since the last call."""
        due, self._due = self._due, {}
        return due

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields every row."""
        for number, marker in enumerate(self._markers):
            yield _ROW_KEY.pack(ROW_PREFIX, marker), self._row(number)

    def load(self, rows: dict[bytes, bytes]) -> None:
        """Adds the ranges in the rows of a partition's table."""
        for key in sorted(key for key in rows if key[:1] == ROW_PREFIX):
            producer, first, stable = _ROW.unpack(rows[key])
            self._add(AbortedRange(producer, first, _ROW_KEY.unpack(key)[1]), stable)


class AbortedBatches:
    """Decides whether batches belong to aborted transactions, from a fixed set of ranges: nothing changes it, so a
    thread may use it while the partition changes."""

    __slots__ = ("_by_producer",)

    def __init__(self, ranges: Iterator[AbortedRange]) -> None:
        self._by_producer: dict[int, list[AbortedRange]] = {}
        for each in ranges:
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def holds(self, producer_id: int, base_offset: int) -> bool:
        """True if a transactional batch of a producer at an offset was aborted."""
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        place = bisect_left(ranges, base_offset, key=_marker_offset)
        return place < len(ranges) and ranges[place].first_offset <= base_offset


def _marker_offset(aborted: AbortedRange) -> int:
    return aborted.marker_offset
