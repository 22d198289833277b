"""The required result of compaction of one partition's log: a plain model, from the committed batches and points
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quorumlog.simulator.models.records import TOMBSTONE, Record, is_compacted, records_of, timestamps_ms_of
from quorumlog.v1.partition_log_pb2 import CompactLog
from quorumlog.wire.entry import parse_header

#: An append time further ahead of a point than this is from a wrong clock.
MOST_AHEAD_MS = 3_600_000


@dataclass(slots=True)
class CompactedContent:
    """The points of one partition, and the content that they leave.

    Arguments:
        points: points that all replicas read from the log.
        staged: batches that were staged on some disk; each of them is judged when a replica switches to it.
    """

    points: list[CompactLog] = field(default_factory=list)
    staged: set[bytes] = field(default_factory=set)
    _left: dict[int, dict[int, Record]] = field(default_factory=dict)

    def apply(self, command: CompactLog, next_offset: int) -> None:
        """Applies a committed point."""
        last = self.points[-1].end_offset if self.points else 0
        if last < command.end_offset < next_offset:
            point = CompactLog.FromString(command.SerializeToString())
            if self.points and not point.append_time_step_ms:
                # A leader that had not learned the feature level: append times are kept nevertheless.
                point.append_time_step_ms = self.points[-1].append_time_step_ms
            self.points.append(point)

    def left(self, end: int, batches: Iterable[bytes]) -> dict[int, Record]:
        """Returns the content below a point, by offset: the last record of each key, without expired tombstones and
        records that are too old.

        Arguments:
            batches: all that were ever committed, at least up to ``end``.
        """
        known = self._left.get(end)
        if known is None:
            last: dict[str | int, tuple[Record, int]] = {}
            for batch in batches:
                header = parse_header(batch)
                for record, timestamp_ms in zip(records_of(batch), timestamps_ms_of(batch, header), strict=True):
                    if record.offset < end:
                        # A record without a key is kept; so is an unreadable batch.
                        since_ms = self._kept_since_ms(record.offset, timestamp_ms, header.append_time_ms)
                        last[record.offset if record.key is None else record.key] = record, since_ms
            kept = (
                record
                for record, since_ms in last.values()
                if not (record.value == TOMBSTONE and self._expired(record, end))
                and not self._is_too_old(record.offset, since_ms, end)
            )
            known = self._left[end] = {record.offset: record for record in sorted(kept)}
        return known

    def _expired(self, tombstone: Record, end: int) -> bool:
        """True if a later point than the first that covers it has reached its delete horizon."""
        first, *later = [point for point in self.points if tombstone.offset < point.end_offset <= end]
        horizon = first.timestamp_ms + first.delete_retention_ms
        return any(point.timestamp_ms >= horizon for point in later)

    def _kept_since_ms(self, offset: int, timestamp_ms: int, append_time_ms: int) -> int:
        """Returns the time from which a record's age counts: its timestamp or its append time, whichever is later. The
        first point that covers it rounds the append time up. A point without a step keeps none: the record counts as
        appended when the first point with one was proposed.
        """
        covering = [point for point in self.points if offset < point.end_offset]
        if not covering:
            return max(timestamp_ms, append_time_ms)
        step_ms = covering[0].append_time_step_ms
        if not step_ms:
            appended_ms = next((point.timestamp_ms for point in covering if point.append_time_step_ms), append_time_ms)
            return max(timestamp_ms, appended_ms)
        wrong = append_time_ms > covering[0].timestamp_ms + MOST_AHEAD_MS or max(timestamp_ms, append_time_ms) < 0
        appended_ms = covering[0].timestamp_ms if wrong else max(append_time_ms, 0)
        return max(timestamp_ms, (appended_ms + step_ms - 1) // step_ms * step_ms)

    def _is_too_old(self, offset: int, since_ms: int, end: int) -> bool:
        """True if the record's age exceeded the retention of a point that covers it, when that point was proposed."""
        return any(
            point.HasField("retention_ms") and point.timestamp_ms - since_ms > point.retention_ms
            for point in self.points
            if offset < point.end_offset <= end
        )

    def wrong_in(self, end: int, log_start: int, slices: Iterable[bytes], batches: Iterable[bytes]) -> str:
        """Returns the error in the compacted batches of a replica that has reached ``end``; empty if none exist."""
        if end not in [point.end_offset for point in self.points]:
            return f"there is no point at {end}"
        found = [record for batch in slices for record in records_of(batch)]
        return _difference(self.left(end, batches), found, log_start, end)

    def wrong_in_answer(
        self,
        compacted_offset: int,
        log_start: int,
        fetch_offset: int,
        entries: Sequence[bytes],
        batches: Iterable[bytes],
    ) -> str:
        """Returns the error in the answer to a fetch below a point; empty if none exist."""
        if any(is_compacted(entry) and entry not in self.staged for entry in entries):
            return "a compacted batch is on no disk"
        if not compacted_offset or not entries or fetch_offset >= compacted_offset:
            return ""
        if compacted_offset not in [point.end_offset for point in self.points]:
            return f"there is no point at {compacted_offset}"
        found = [record for entry in entries for record in records_of(entry)]
        below = [record for record in found if record.offset < compacted_offset]
        end = compacted_offset if len(below) < len(found) else below[-1].offset + 1
        left = self.left(compacted_offset, batches)
        return _difference(left, below, max(log_start, fetch_offset), end)


def _difference(left: dict[int, Record], found: list[Record], first: int, end: int) -> str:
    offsets = [record.offset for record in found]
    if offsets != sorted(set(offsets)):
        return f"offsets do not rise: {offsets}"
    strangers = [record for record in found if left.get(record.offset) != record]
    missing = [record for offset, record in left.items() if first <= offset < end and offset not in set(offsets)]
    if strangers:
        return f"{strangers[0]} is superseded, expired or was never written (and {len(strangers) - 1} more are)"
    return f"{missing[0]} is missing (and {len(missing) - 1} more are)" if missing else ""
