"""Transactions: what the node makes durable at once, for all Raft groups of a round, with one fsync."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.raft.types import Configuration, Entry, EntryId, HardState, Snapshot


class SnapshotSlice(NamedTuple):
    """A piece of a snapshot's data.

    ``stage`` is random, one for each attempt to write or receive a snapshot, so that no part of an abandoned attempt is
    mistaken for a part of another; ``number`` counts from 0.
    """

    stage: int
    number: int
    data: bytes


@dataclass(slots=True)
class RaftGroupWrite:
    """Changes of one Raft group, applied in the order of the fields.

    Arguments:
        group: the Raft group.
        create: the initial configuration of a replica that did not exist; nothing else of the group may come first.
        destroy: removes everything of the group.
        stage: slices of snapshots that are being received or written; unused until one is switched to.
        snapshot: replaces log and table (``table`` then holds the new table in full); hard state in the same write.
            All its slices are staged: only the pointer to them changes. A witness's has none, and is no more than the
            new anchor.
        truncate_from: entries at and above this index are removed, with their index rows.
        entries: appended, consecutive, after what is left.
        hard_state: replaces the old one.
        configuration: the configuration at the applied index, when it changed.
        table: rows of the group's table to put, or with None to delete.
        checkpoint: a snapshot of our own, staged whole, kept beside the log; entries after it stay.
        compact_to: entries up to and including this one are removed; it becomes the log's anchor.
        unstage: stages that will not be switched to; their slices are garbage, as are those of a superseded snapshot.
        mend: committed entries, to be written again where they were damaged. An entry whose hash does not match that in
            the entry after it, or cannot be compared, is skipped.
    """

    group: int
    create: Configuration | None = None
    destroy: bool = False
    stage: list[SnapshotSlice] = field(default_factory=list)
    snapshot: Snapshot | None = None
    truncate_from: int | None = None
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState | None = None
    configuration: Configuration | None = None
    table: dict[bytes, bytes | None] = field(default_factory=dict)
    checkpoint: Snapshot | None = None
    compact_to: EntryId | None = None
    unstage: list[int] = field(default_factory=list)
    mend: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class StorageTransaction:
    """One atomic, synced write. ``number`` is returned with its completion; ``node_state`` is the node's own rows."""

    number: int
    writes: list[RaftGroupWrite] = field(default_factory=list)
    node_state: dict[bytes, bytes | None] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class RaftGroupState:
    """Durable state of one Raft group, as found at opening.

    ``anchor`` is the entry before the first one kept (ORIGIN, or the end of what a snapshot or compaction replaced);
    ``last`` the last entry, equal to ``anchor`` when none is kept; ``snapshot`` the newest snapshot or None.
    """

    group: int
    configuration: Configuration
    hard_state: HardState
    anchor: EntryId
    last: EntryId
    snapshot: Snapshot | None
    table: dict[bytes, bytes]


@dataclass(slots=True, frozen=True)
class Space:
    """Bytes in use (live pages) and bytes that may still be written: free pages in the file plus space on the disk."""

    used_bytes: int
    free_bytes: int
