"""The ends of one Raft group's durable log, as kept in memory beside the rows."""

from __future__ import annotations

from dataclasses import dataclass

from quorumlog.raft.types import EntryId, HardState
from quorumlog.storage.batch_row import BatchRow


@dataclass(slots=True, frozen=True)
class RaftGroupLog:
    """What every write of a Raft group is checked against.

    It is replaced as a whole once a transaction is durable, so that the node's thread reads a consistent one while the
    storage thread writes.

    Arguments:
        anchor: the entry before the first kept one. Rows at or below it are garbage, not yet swept away.
        last: the last entry; equal to ``anchor`` when none is kept.
        hard_state: as stored.
        last_batch: the last batch kept; None when no batch is.
    """

    anchor: EntryId
    last: EntryId
    hard_state: HardState
    last_batch: BatchRow | None

    def __post_init__(self) -> None:
        assert self.anchor.index <= self.last.index, f"log ends before it begins: {self}"
