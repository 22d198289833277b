"""Reads the batches of a partition out of its Raft log."""

from __future__ import annotations

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import EntryKind


def batches_between(raft: RaftGroup, index: int, last: int, max_bytes: int) -> list[bytes]:
    """Returns the batches from one entry to another, as stored; at least one if there is one.

    Arguments:
        index, last: indexes of the first and the last entry, both in the log.
        max_bytes: maximum total size, unless the first is larger.

    Raises:
        UnreadableEntryError: the first of them is damaged. A later damaged one only ends the result.
    """
    batches: list[bytes] = []
    size = 0
    while index <= last and (size < max_bytes or not batches):
        try:
            entries = raft.entries_between(index, last, max(1, max_bytes - size))
        except UnreadableEntryError:
            if not batches:
                raise
            break
        for entry in entries:
            if entry.kind is EntryKind.BATCH:
                batches.append(entry.data)
                size += len(entry.data)
        index = entries[-1].index + 1
    if len(batches) > 1 and size > max_bytes:
        batches.pop()
    return batches
