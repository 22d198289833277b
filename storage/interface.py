"""Storage as the node sees it. LMDB implements it for the shipped node, the simulator's disk for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from quorumlog.raft.types import Entry
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.transaction import RaftGroupState, Space


class ScrubPosition(NamedTuple):
    """How far a scrub has come: ``database`` counts in the order in which they are read, ``key`` is the next row's."""

    database: int = 0
    key: bytes = b""


class ScrubSlice(NamedTuple):
    """What one slice of a scrub has read.

    Arguments:
        position: where the next slice begins; None: everything has been read.
        read_bytes: of rows.
        found: damage, each thing once in a slice; nothing behind damage of pages, which belongs to no Raft group, was
            looked at.
    """

    position: ScrubPosition | None
    read_bytes: int
    found: tuple[DamageError, ...]


class SetAside(NamedTuple):
    """A replica that was found damaged at opening, otherwise than in entries that can be mended. It is still on disk.

    Arguments:
        term: the newest in which it can have voted; None: nobody knows any more.
        last_index: of its log: it has acknowledged nothing beyond.
        reason: one line.
    """

    term: int | None
    last_index: int
    reason: str


class OpeningDamage(NamedTuple):
    """What was found damaged at opening, and did not keep the rest from being opened.

    Arguments:
        entries: of logs that are open.
        replicas: by Raft group.
    """

    entries: tuple[DamageError, ...]
    replicas: Mapping[int, SetAside]


class StorageReader(Protocol):
    """Synchronous reads of durable state, from the node's own thread. What they return has been verified.

    Reads see every transaction whose completion has been delivered, and may already see the one under way.

    Raises (all methods):
        DamageError: bytes on disk are not what was written; says which group and index.
    """

    def groups(self) -> dict[int, RaftGroupState]:
        """Every Raft group with a replica here, as found at opening (read once, at start)."""

    def opening_damage(self) -> OpeningDamage:
        """What was found damaged at opening."""

    def moved_aside(self) -> frozenset[str]:
        """The ids of the data directories that were damaged and made way for this one."""

    def suspect(self, group: int | None) -> None:
        """A replica cannot be mended where it is: the next opening looks at all of it, and sets it aside. With None it
        is no replica's damage, and the next opening looks at all pages."""

    def pass_replica(self, group: int) -> None:
        """Checks that a replica's pages can be given back, whatever they hold. May be called on another thread."""

    def node_state(self) -> dict[bytes, bytes]:
        """The node's own rows."""

    def term_at(self, group: int, index: int) -> int:
        """Term of a durable entry."""

    def hash_at(self, group: int, index: int) -> int:
        """Hash of a durable entry, even of one that is damaged: as the entry after it has it."""

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries first..last inclusive, cut once ``max_bytes`` is reached, or before one that is damaged; at least
        one."""

    def find_offset(self, group: int, offset: int) -> int | None:
        """Index of the first batch whose last offset is at or after ``offset``; None if there is none."""

    def last_batch(self, group: int) -> BatchRow | None:
        """The last durable batch above the anchor; None if there is none. Kept in memory: costs nothing."""

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """The first batch that holds ``first_offset`` or a later one and for which ``reached`` holds.

        A binary search over offsets, of at most 64 steps.

        Arguments:
            reached: once it holds of a batch, it must hold of all after it, as do comparisons of ``end_position``
                and ``max_timestamp_ms``.
        """

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        """One slice of a snapshot's data."""

    def space(self) -> Space:
        """Use of the storage now."""

    def scrub(self, position: ScrubPosition, max_bytes: int) -> ScrubSlice:
        """Reads on from ``position`` and checks what it reads, until ``max_bytes`` are reached; at least one row. May
        be called on another thread. Raises nothing of damage: it is in the answer."""


class StorageEngineError(Exception):
    """Base of storage's errors. The message is one line that says what to do."""


class DamageError(StorageEngineError):
    """Bytes on disk are not what was written.

    Arguments:
        what: one line: where, what, and what to do.
        group: the Raft group whose they are; None: nobody's, or more than one's (pages, the node's own rows).
        index: of the damaged entry; None: it is no entry, or nobody can tell which.
    """

    def __init__(self, what: str, group: int | None = None, index: int | None = None) -> None:
        super().__init__(what)
        self.group = group
        self.index = index


class DataDirectoryLockedError(StorageEngineError):
    """Another process has the data directory open."""


class DiskFullError(StorageEngineError):
    """No room for a transaction. Nothing of it was written; it may be tried again once there is room."""


class FatalStorageError(StorageEngineError):
    """An I/O error on commit: the process must end (LMDB would go on over lost pages)."""
