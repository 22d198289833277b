"""The restore that created a partition, or that is in progress, during which the log accepts only the backup's content.

It is part of the replicated state: a row of the table, changed by commands alone. So every replica, whichever leads,
has learned by the same entry that batches have the backup's offsets and do not change the producer table, and from
which entry on they do.
"""

from __future__ import annotations

from quorumlog.v1.partition_log_pb2 import PartitionRestore

ROW = b"r"
#: Length of a restore's id in bytes.
RESTORE_ID_BYTES = 16


class Restoration:
    """One restore of a partition.

    Attributes:
        restore_id: identifies it.
        compacted_offset: offsets below it may be missing: the log that was backed up had been compacted that far.
        finished: True if the partition is a normal one again.
    """

    __slots__ = ("_row_due", "compacted_offset", "finished", "restore_id")

    def __init__(self, restore_id: bytes, compacted_offset: int, *, finished: bool = False) -> None:
        self.restore_id = restore_id
        self.compacted_offset = compacted_offset
        self.finished = finished
        self._row_due = True

    def finish(self) -> None:
        """Ends the restore: from now on the partition is a normal one."""
        self.finished = self._row_due = True

    def take_rows(self) -> dict[bytes, bytes]:
        """Returns the row, if it has changed since the last call."""
        due, self._row_due = self._row_due, False
        return self.rows() if due else {}

    @classmethod
    def of_table(cls, table: dict[bytes, bytes]) -> Restoration | None:
        """Returns the restore in a partition's table; None without one."""
        if ROW not in table:
            return None
        row = PartitionRestore.FromString(table[ROW])
        return cls(row.restore_id, row.compacted_offset, finished=row.finished)

    def rows(self) -> dict[bytes, bytes]:
        """Returns the table's row."""
        row = PartitionRestore(
            restore_id=self.restore_id, finished=self.finished, compacted_offset=self.compacted_offset
        )
        return {ROW: row.SerializeToString(deterministic=True)}


def gaps_before(compacted_offset: int, restoration: Restoration | None) -> int:
    """Returns the offset below which readers of a partition may find offsets missing.

    Arguments:
        compacted_offset: offset up to which the partition itself is compacted.
    """
    return compacted_offset if restoration is None else max(compacted_offset, restoration.compacted_offset)
