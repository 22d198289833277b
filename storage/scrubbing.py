"""A scrub: everything in the data file is read from time to time, in slices, so that damage is found while others still
have what was lost.

It reads the bare file, page by page, as the checks at opening do: the engine would follow a damaged page to wherever it
leads. What it reads is one commit, which stays as it is while a reader of the engine has it open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from quorumlog.storage import rows
from quorumlog.storage.chain_check import ChainCheck
from quorumlog.storage.interface import DamageError, ScrubPosition, ScrubSlice
from quorumlog.storage.page_file import PageFile
from quorumlog.storage.reading import LogReading, RaftGroupLog

#: Behind the databases comes the free list, whole.
FREE_LIST = len(rows.DATABASES)


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
