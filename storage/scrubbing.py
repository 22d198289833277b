"""A scrub: everything in the data file is read from time to time, in slices, so that damage is found while others still
have what was lost.

It reads the bare file, page by page, as the checks at opening do: the engine would follow a damaged page to wherever it
leads. What it reads is one commit, which stays as it is while a reader of the engine has it open.

It also follows the hash chain through the logs. An entry may be whole, with its right checksum, and yet not be the one
that was written last: a disk that has lost a write returns what was there before. Only the next entry shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError, ScrubPosition, ScrubSlice
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.wire.entry import Envelope

#: Behind the databases comes the free list, whole.
FREE_LIST = len(rows.DATABASES)
#: Of the entries that are missing in one place, so many are named; the next scrub finds others.
MAX_MISSING = 100


class ChainCheck:
    """Follows entries in the order of their keys, from any of them on.

    Arguments:
        logs: their ends, at the commit that is read.

    Attributes:
        found: what is wrong between entries; what is wrong within one is for others to say.
    """

    def __init__(self, reading: LogReading, logs: Mapping[int, RaftGroupLog]) -> None:
        self._reading = reading
        self._logs = logs
        self.found: list[DamageError] = []
        #: Of the entry before: group, index, and hash, None of one that is damaged. None: the slice begins here.
        self._before: tuple[int, int, int | None] | None = None

    def follow(self, group: int, index: int, envelope: Envelope | None, entry_hash: int) -> None:
        """The next entry.

        Arguments:
            envelope: None if it is damaged.
        """
        log = self._logs.get(group)
        if log is None or not log.anchor.index < index <= log.last.index:
            # To be swept.
            self._before = (group, index, None)
            return
        known, known_hash = self._entry_before(log, group, index)
        for missing in range(known + 1, min(index, known + 1 + MAX_MISSING)):
            self.found.append(self._reading.damage(group, missing, "it is missing"))
        if envelope is not None and known + 1 == index and known_hash not in (None, envelope.previous_hash):
            if known == log.anchor.index:
                said = self._reading.damage(group, index, "it does not follow the anchor of its log (hash chain)")
                self.found.append(DamageError(str(said), group))
            else:
                self.found.append(self._reading.chain_damage(group, index, entry_hash))
        self._before = (group, index, None if envelope is None else entry_hash)

    def _entry_before(self, log: RaftGroupLog, group: int, index: int) -> tuple[int, int | None]:
        """Index and hash of the last entry that there is before one, or of the anchor."""
        if self._before is None and index - 1 > log.anchor.index:
            # The slice before this one has read it; that it is missing it cannot have seen.
            try:
                return index - 1, self._reading.entry_id(group, index - 1).hash
            except DamageError:
                return (index - 1 if self._reading.has_entry(group, index - 1) else index - 2), None
        if self._before is not None and self._before[0] == group and self._before[1] > log.anchor.index:
            return self._before[1], self._before[2]
        return log.anchor.index, log.anchor.hash


def scrub_slice(
    pages: PageFile,
    data_dir: Path,
    position: ScrubPosition,
    max_bytes: int,
    matters: Callable[[bytes, bytes], bool],
    logs: Mapping[int, RaftGroupLog],
) -> ScrubSlice:
    """Reads on from ``position``; see ``StorageReader.scrub``.

    Arguments:
        pages: the file, at one commit.
        matters: whether a row of a database (its name, its key) means anything; the others are garbage to be swept.
        logs: their ends at that commit.
    """
    reading = LogReading(pages, data_dir)
    chain = ChainCheck(reading, logs)
    number, key = position
    found: list[DamageError] = []
    size = 0
    try:
        if pages.has_short_free_list:
            pages.check_free_list()
        while number < FREE_LIST:
            database = rows.DATABASES[number]
            for row_key, row_bytes, damage in reading.checked_rows(database, key, chain.follow):
                if size >= max_bytes:
                    return ScrubSlice(ScrubPosition(number, row_key), size, (*found, *chain.found))
                size += row_bytes
                if damage is not None and matters(database, row_key):
                    found.append(damage)
            number, key = number + 1, b""
        pages.check_free_list()
    except DamageError as damage:
        return ScrubSlice(None, size, (*found, *chain.found, damage))
    return ScrubSlice(None, size, (*found, *chain.found))
