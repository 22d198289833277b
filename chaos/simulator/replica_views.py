"""What the invariants see of the replicas on a node: whatever holds a Raft group is judged by it alone."""

from __future__ import annotations

from typing import Protocol

from quorumlog.raft.types import Configuration, Entry, EntryId


class RaftView(Protocol):
    """What the checker sees of one Raft group on one node."""

    @property
    def term(self) -> int:
        """Current term."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads its term."""

    @property
    def commit_index(self) -> int:
        """Highest index it knows to be committed."""

    @property
    def first_index(self) -> int:
        """First index that its log keeps."""

    @property
    def anchor(self) -> EntryId:
        """Id of the entry before the first that its log keeps."""

    @property
    def last_id(self) -> EntryId:
        """Last entry of its log, durable or not."""

    @property
    def configuration(self) -> Configuration:
        """The members it goes by."""

    def entries_between(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries of its log, durable or not."""


class ReplicaView(Protocol):
    """What holds a Raft group on a node."""

    @property
    def raft(self) -> RaftView:
        """The group."""
