"""The compaction state of a replica: the points to carry out, and the one that it has reached.

The points are in the log and the same everywhere; the progress is the replica's own. Both are one row of the
partition's table, so that after a restart or a snapshot the replica continues where it, or the sender, has been.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.storage.interface import DamageError
from quorumlog.v1.partition_log_pb2 import CompactionState as StateRow
from quorumlog.v1.partition_log_pb2 import CompactLog, PendingCompaction

ROW = b"c"


_FOR_EVER_MS = (1 << 63) - 1


class CompactionPoint(NamedTuple):
    """One CompactLog command, as applied: of the records below ``end_offset`` only the last one of each key is kept.

    Arguments:
        end_offset: the end of a batch; increases from point to point.
        timestamp_ms: time of the proposal, by the leader's clock: the only clock that compaction uses.
        delete_retention_ms: retention of the tombstones that this point is the first to cover.
        log_start_offset: as of the command; records below it are not kept.
        retention_ms: records whose age exceeds this, by ``timestamp_ms``, are not kept either; None: of any age.
        append_time_step_ms: append times of records that this point is the first to cover are rounded up to a multiple
            of this; 0: they are not kept.
    """

    end_offset: int
    timestamp_ms: int
    delete_retention_ms: int
    log_start_offset: int
    retention_ms: int | None = None
    append_time_step_ms: int = 0

    @property
    def delete_horizon_ms(self) -> int:
        """The timestamp from which on a later point drops the tombstones that this one covers first."""
        # A batch has 64 bits for it, and a topic may keep its tombstones for as many milliseconds, that is,
        # permanently.
        return min(self.timestamp_ms + self.delete_retention_ms, _FOR_EVER_MS)


class CompactionState:
    """One replica's points and progress.

    Attributes:
        compacted_offset: the log below it is compacted here.
        content_hash: hash of the records that are left there; empty if unknown.
        log: the compacted batches, after their first use; they belong to the snapshot that is current in memory.
        row_due: True if the row has changed since it was last taken.
    """

    __slots__ = ("_expected", "_last_end", "_step_ms", "compacted_offset", "content_hash", "log", "pending", "row_due")

    def __init__(self, row: bytes | None = None) -> None:
        state = StateRow() if row is None else StateRow.FromString(row)
        self.pending = [_point(each.point, each.log_start_offset) for each in state.pending]
        self.compacted_offset = state.compacted_offset
        self.content_hash = state.content_hash
        self.log: CompactedLog | None = None
        self.row_due = False
        self._last_end = state.last_end_offset
        self._step_ms = state.append_time_step_ms
        self._expected = {each.point.end_offset: each.expected_hash for each in state.pending if each.expected_hash}

    def row(self) -> bytes:
        """Returns the table's row."""
        state = StateRow(
            last_end_offset=self._last_end,
            compacted_offset=self.compacted_offset,
            content_hash=self.content_hash,
            append_time_step_ms=self._step_ms,
        )
        for point in self.pending:
            command = CompactLog(
                end_offset=point.end_offset,
                timestamp_ms=point.timestamp_ms,
                delete_retention_ms=point.delete_retention_ms,
                retention_ms=point.retention_ms,
                append_time_step_ms=point.append_time_step_ms,
            )
            state.pending.append(
                PendingCompaction(
                    point=command,
                    log_start_offset=point.log_start_offset,
                    expected_hash=self._expected.get(point.end_offset, b""),
                )
            )
        return state.SerializeToString(deterministic=True)

    @property
    def last_end_offset(self) -> int:
        """The end of the last point that was applied."""
        return self._last_end

    def apply(self, command: CompactLog, log_start_offset: int, next_offset: int, where: str) -> None:
        """Adds a point from the log.

        Arguments:
            log_start_offset, next_offset: of the partition, as of the command.
            where: names the partition in errors.

        Raises:
            DamageError: at a point that both have reached, the leader has other records than this replica.
        """
        self._compare(command.compacted_offset, command.content_hash, where)
        if not self._last_end < command.end_offset < next_offset:
            # A leader proposes by its own view; of two in a row, the later may have seen less.
            return
        self._last_end = command.end_offset
        # A leader that has not seen the cluster's feature level yet proposes no step: once known, append times stay so.
        self._step_ms = command.append_time_step_ms or self._step_ms
        self.pending.append(_point(command, log_start_offset)._replace(append_time_step_ms=self._step_ms))
        self.row_due = True

    def reached(self, end_offset: int, content_hash: bytes, where: str) -> None:
        """Records that this replica has carried out the points up to an offset.

        Raises:
            DamageError: the leader has reported another hash for this point.
        """
        self.compacted_offset, self.content_hash = end_offset, content_hash
        expected = self._expected.get(end_offset, b"")
        self.pending = [point for point in self.pending if point.end_offset > end_offset]
        self._expected = {end: each for end, each in self._expected.items() if end > end_offset}
        self.row_due = True
        self._compare(end_offset, expected, where)

    def forget_log_of_other_stage(self, stage: int) -> None:
        """Drops the compacted log of any other stage, because only the current snapshot's slices are kept."""
        if self.log is not None and self.log.stage != stage:
            self.log = None

    def _compare(self, end_offset: int, content_hash: bytes, where: str) -> None:
        if not content_hash:
            return
        if end_offset != self.compacted_offset:
            if any(point.end_offset == end_offset for point in self.pending):
                self._expected[end_offset] = content_hash
                self.row_due = True
            return
        if self.content_hash and self.content_hash != content_hash:
            # From the same log both must have made the same: one of them has lost or changed records on its disk.
            raise DamageError(
                f"the compacted log of {where} below offset {end_offset} differs from the leader's (content hash"
                f" {self.content_hash.hex()}, the leader's {content_hash.hex()}): the disk of one of the two nodes has"
                " changed records; find the damaged disk, and replace it with an empty one (quorumlog nodes replace)"
            )


def _point(command: CompactLog, log_start_offset: int) -> CompactionPoint:
    return CompactionPoint(
        command.end_offset,
        command.timestamp_ms,
        command.delete_retention_ms,
        log_start_offset,
        command.retention_ms if command.HasField("retention_ms") else None,
        command.append_time_step_ms,
    )
