"""Interface of storage to the node. LMDB implements it for the shipped node, the simulator's disk for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from quorumlog.raft.types import Entry
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.transaction import RaftGroupState, Space


class ScrubPosition(NamedTuple):
    """Progress of a scrub: ``database`` is a position in the order of reading, ``key`` is the next row's."""

    database: int = 0
    key: bytes = b""


class ScrubSlice(NamedTuple):
    """Result of one slice of a scrub.

    Arguments:
        position: where the next slice starts; None: everything has been read.
        read_bytes: of rows.
        found: damage, each reported once per slice; nothing behind damaged pages, which belong to no Raft group, was
            read.
    """

    position: ScrubPosition | None
    read_bytes: int
    found: tuple[DamageError, ...]


class SetAside(NamedTuple):
    """A replica that was found damaged at opening, beyond entries that can be repaired. It is still on disk.

    Arguments:
        term: the newest in which it can have voted; None: unknown.
        last_index: of its log: it has acknowledged nothing beyond.
        reason: one line.
    """

    term: int | None
    last_index: int
    reason: str


class OpeningDamage(NamedTuple):
    """Damage that was found at opening, and did not prevent opening the rest.

    Arguments:
        entries: of logs that are open.
        replicas: by Raft group.
    """

    entries: tuple[DamageError, ...]
    replicas: Mapping[int, SetAside]


class StorageReader(Protocol):
    """Synchronous reads of durable state, from the node's own thread. Results have been verified.

    Reads see every transaction whose completion has been delivered, and may already see the current one.

    Raises (all methods):
        DamageError: bytes on disk are not what was written; has the group and index.
    """

    def groups(self) -> dict[int, RaftGroupState]:
        """Returns every Raft group with a replica here, as found at opening (read once, at start)."""

    def opening_damage(self) -> OpeningDamage:
        """Returns the damage that was found at opening."""

    def moved_aside(self) -> frozenset[str]:
        """Returns the ids of the damaged data directories that this one replaced."""

    def suspect(self, group: int | None) -> None:
        """Records damage that cannot be repaired: the next opening checks all of the replica, and sets it aside.

        With None, the damage is not a replica's, and the next opening checks all pages.
        """

    def pass_replica(self, group: int) -> None:
        """Checks that a replica's pages can be freed, whatever they contain. May be called on another thread."""

    def node_state(self) -> dict[bytes, bytes]:
        """Returns the node's own rows."""

    def term_at(self, group: int, index: int) -> int:
        """Returns the term of a durable entry."""

    def hash_at(self, group: int, index: int) -> int:
        """Returns the hash of a durable entry; of a damaged one, as the entry after it has it."""

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns entries first..last inclusive, cut at ``max_bytes`` or before a damaged one; at least one."""

    def find_offset(self, group: int, offset: int) -> int | None:
        """Returns the index of the first batch whose last offset is at or after ``offset``; None if none is."""

    def last_batch(self, group: int) -> BatchRow | None:
        """Returns the last durable batch above the anchor, or None. Kept in memory: costs nothing."""

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """Returns the first batch that ends at or after ``first_offset`` and satisfies ``reached``, or None.

        A binary search over offsets, of at most 64 steps.

        Arguments:
            reached: must be monotonic: true of all batches after the first for which it is true, as are comparisons of
                ``end_position`` and ``max_timestamp_ms``.
        """

    def snapshot_slice(self, group: int, stage: int, number: int) -> bytes:
        """Returns one slice of a snapshot's data."""

    def space(self) -> Space:
        """Returns the current use of the storage."""

    def scrub(self, position: ScrubPosition, max_bytes: int) -> ScrubSlice:
        """Reads from ``position`` and checks what it reads, until ``max_bytes`` are reached; at least one row.

        May be called on another thread. Damage is returned, not raised.
        """


class StorageEngineError(Exception):
    """Base of storage's errors. The message is one line that says what to do."""


class DamageError(StorageEngineError):
    """Raised if bytes on disk are not what was written.

    Arguments:
        what: one line: where, what, and what to do.
        group: the Raft group that they belong to; None: none, or several (pages, the node's own rows).
        index: of the damaged entry; None: it is not an entry, or it is unknown which.
    """

    def __init__(self, what: str, group: int | None = None, index: int | None = None) -> None:
        super().__init__(what)
        self.group = group
        self.index = index


class DataDirectoryLockedError(StorageEngineError):
    """Raised if another process has the data directory open."""


class DiskFullError(StorageEngineError):
    """Raised if there is no space for a transaction. Nothing was written; it can be retried once there is space."""


class FatalStorageError(StorageEngineError):
    """Raised for an I/O error on commit: the process must stop (LMDB would continue over lost pages)."""
