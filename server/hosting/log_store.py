"""The durable log of one group, as its Raft replica reads it."""

from __future__ import annotations

from quorumlog.raft.types import Entry, EntryId
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.entry import CorruptEntryError, parse_envelope


class DurableLog:
    """One group's view of the storage: implements `quorumlog.raft.types.LogStore`."""

    __slots__ = ("_group", "_reader")

    def __init__(self, group: int, reader: StorageReader) -> None:
        self._group = group
        self._reader = reader

    def term_at(self, index: int) -> int:
        """Term of a durable entry."""
        return self._reader.term_at(self._group, index)

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Durable entries first..last inclusive, cut after ``max_bytes``; at least one."""
        return self._reader.entries(self._group, first, last, max_bytes)


def check_chain(previous: EntryId, entry: Entry) -> None:
    """Checks that an entry names the one before it.

    Raises:
        CorruptEntryError: two logs agree in index and term but not in content: one of them is damaged.
    """
    envelope = parse_envelope(entry.data)
    if (envelope.index, envelope.term) != (entry.index, entry.term):
        raise CorruptEntryError(
            f"entry {entry.index} of term {entry.term} is sealed as {envelope.index}/{envelope.term}"
        )
    if envelope.previous_hash != previous.hash:
        raise CorruptEntryError(
            f"entry {entry.index} of group {envelope.group} follows hash {envelope.previous_hash:#018x}, but entry"
            f" {previous.index} here has {previous.hash:#018x}"
        )
