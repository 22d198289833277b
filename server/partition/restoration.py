"""The restore that a partition comes from, or is in: while it lasts, the log takes what the backup holds, nothing else.

It is part of the replicated state: a row of the table, changed by commands alone. So every replica, whoever leads,
knows from the same entry on that batches come at the backup's offsets and leave the producer table alone, and from
which entry on they do not.
"""

from __future__ import annotations

from quorumlog.v1.partition_log_pb2 import PartitionRestore

ROW = b"r"
#: Bytes of a restore's id.
RESTORE_ID_BYTES = 16


class Restoration:
    """One restore of a partition.

    Attributes:
        restore_id: names it.
        compacted_offset: below it offsets may be missing: the log that was backed up had been compacted that far.
        finished: the partition is like any other by now.
    """

    __slots__ = ("_row_due", "compacted_offset", "finished", "restore_id")

    def __init__(self, restore_id: bytes, compacted_offset: int, *, finished: bool = False) -> None:
        self.restore_id = restore_id
        self.compacted_offset = compacted_offset
        self.finished = finished
        self._row_due = True

    def finish(self) -> None:
        """From now on the partition is like any other."""
        self.finished = self._row_due = True

    def take_rows(self) -> dict[bytes, bytes]:
        """The row, if it has changed since the last call."""
        due, self._row_due = self._row_due, False
        return self.rows() if due else {}

    @classmethod
    def of_table(cls, table: dict[bytes, bytes]) -> Restoration | None:
        """The one in a partition's table, if there is one."""
        if ROW not in table:
            return None
        row = PartitionRestore.FromString(table[ROW])
        return cls(row.restore_id, row.compacted_offset, finished=row.finished)

    def rows(self) -> dict[bytes, bytes]:
        """The table's row."""
        row = PartitionRestore(
            restore_id=self.restore_id, finished=self.finished, compacted_offset=self.compacted_offset
        )
        return {ROW: row.SerializeToString(deterministic=True)}


def gaps_before(compacted_offset: int, restoration: Restoration | None) -> int:
    """The offset below which readers of a partition may find offsets missing.

    Arguments:
        compacted_offset: up to where the partition itself is compacted.
    """
    return compacted_offset if restoration is None else max(compacted_offset, restoration.compacted_offset)
