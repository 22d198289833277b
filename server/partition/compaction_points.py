"""Up to where a partition's log is to be compacted, and is: replicated points, and this replica's progress."""

from __future__ import annotations

from typing import NamedTuple


class CompactionPoint(NamedTuple):
    """One CompactLog command, as applied: of the records below ``end_offset`` the last one of each key is kept.

    Arguments:
        end_offset: the end of a batch; grows from point to point.
        timestamp_ms: when, by the clock of the leader that proposed it: the only clock that compaction knows.
        delete_retention_ms: how long tombstones stay that this point is the first to cover.
        log_start_offset: as of the command; records below it are not kept.
    """

    end_offset: int
    timestamp_ms: int
    delete_retention_ms: int
    log_start_offset: int

    @property
    def delete_horizon_ms(self) -> int:
        """A later point with this timestamp or a greater one drops the tombstones that this one covers first."""
        return self.timestamp_ms + self.delete_retention_ms
