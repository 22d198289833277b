"""Scrub: a periodic read of the whole data file, in slices, to find damage while other nodes still have the lost data.

It reads the bare file, page by page, as the checks at opening do: the engine would follow a damaged page anywhere. It
reads one commit, which does not change while a reader of the engine has it open.

It also follows the hash chain through the logs. An entry may be complete, with a correct checksum, and yet not be the
one that was written last: a disk that has lost a write returns the previous content. Only the next entry reveals that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from quorumlog.storage import rows
from quorumlog.storage.interface import DamageError, ScrubPosition, ScrubSlice
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading, RaftGroupLog
from quorumlog.wire.entry import Envelope

#: The position after the databases: the whole free list.
FREE_LIST = len(rows.DATABASES)
#: Maximum number of consecutive missing entries that are reported; the next scrub finds others.
MAX_MISSING = 100


class ChainCheck:
    """Checks the links between entries, in the order of their keys, from any of them on.

    Arguments:
        logs: their ends, at the commit that is read.

    Attributes:
        found: damage between entries; damage within one is reported elsewhere.
    """

    def __init__(self, reading: LogReading, logs: Mapping[int, RaftGroupLog]) -> None:
        self._reading = reading
        self._logs = logs
        self.found: list[DamageError] = []
        #: The previous entry: group, index, and hash (None if it is damaged). None: the slice starts here.
        self._before: tuple[int, int, int | None] | None = None

    def follow(self, group: int, index: int, envelope: Envelope | None, entry_hash: int) -> None:
        """Processes the next entry.

        Arguments:
            envelope: None if it is damaged.
        """
        log = self._logs.get(group)
        if log is None or not log.anchor.index < index <= log.last.index:
            # Garbage that must be swept.
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
        """Returns index and hash of the last existing entry before one, or of the anchor."""
        if self._before is None and index - 1 > log.anchor.index:
            # The previous slice has read that entry; if it is missing, that slice could not notice.
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
    """Reads from ``position``; see ``StorageReader.scrub``.

    Arguments:
        pages: the file, at one commit.
        matters: returns whether a row of a database (its name, its key) has a meaning; the others are garbage to be
            swept.
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
