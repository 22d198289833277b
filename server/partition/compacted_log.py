"""The compacted part of a partition's log on disk: the slices of its snapshot, one batch each.

An index of a few bytes per batch is stored in the snapshot and stays in memory after its first use; so an offset or a
time is found without reading batches, and a read touches only the batches that it returns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.raft.types import SnapshotData
from quorumlog.server.partition.state_slices import snapshot_state
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot
from quorumlog.wire.entry import BatchHeader


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class CompactedIndex:
    """The index of compacted batches: one number per batch in each column. Numbers never fall within a column.

    Arguments:
        has_append_times: True if the headers of the batches have the append times of their records.
        ends: the offset after the last record of each batch.
        times: the largest timestamp of each batch and all before it, in milliseconds.
        positions: the bytes of the batches up to and including each; empty without append times.
        kept_since: the time from which the age of each batch, and all before it, counts, in milliseconds; empty without
            append times.
    """

    has_append_times: bool
    ends: array[int] = field(default_factory=_numbers)
    times: array[int] = field(default_factory=_numbers)
    positions: array[int] = field(default_factory=_numbers)
    kept_since: array[int] = field(default_factory=_numbers)

    @classmethod
    def of_state(cls, state: PartitionSnapshot) -> CompactedIndex:
        """Returns the index in a partition's snapshot."""
        columns = (
            state.batch_end_offsets, state.batch_max_timestamps_ms, state.batch_end_positions, state.batch_kept_since_ms
        )  # fmt: skip
        return cls(bool(state.batch_kept_since_ms), *(array("q", column) for column in columns))

    def describe(self, state: PartitionSnapshot) -> None:
        """Adds the index to the state that follows the batches."""
        state.batch_end_offsets.extend(self.ends)
        state.batch_max_timestamps_ms.extend(self.times)
        state.batch_end_positions.extend(self.positions)
        state.batch_kept_since_ms.extend(self.kept_since)

    def add(self, header: BatchHeader, size_bytes: int) -> None:
        """Adds the next batch."""
        self.ends.append(header.last_offset + 1)
        self.times.append(max(header.max_timestamp_ms, self.times[-1] if self.times else header.max_timestamp_ms))
        if self.has_append_times:
            since_ms = max(header.max_timestamp_ms, header.append_time_ms)
            self.positions.append(size_bytes + (self.positions[-1] if self.positions else 0))
            self.kept_since.append(max(since_ms, self.kept_since[-1] if self.kept_since else since_ms))


class CompactedLog:
    """Compacted batches under one stage."""

    def __init__(self, reader: StorageReader, group: int, stage: int, index: CompactedIndex) -> None:
        assert len(index.ends) == len(index.times)
        assert len(index.positions) == len(index.kept_since) == (len(index.ends) if index.has_append_times else 0)
        self.stage = stage
        self._reader = reader
        self._group = group
        self._index = index
        self._ends = index.ends
        self._times = index.times

    @classmethod
    def of_snapshot(cls, reader: StorageReader, group: int, data: SnapshotData) -> CompactedLog:
        """Returns the compacted log of a partition's snapshot, with the index from the state in its last slices."""
        state = snapshot_state(reader, group, data)
        index = CompactedIndex.of_state(state)
        batches = data.slices - 1 - state.state_slices
        assert len(index.ends) == batches, (
            f"group {group}: {len(index.ends)} batches, {batches} of {data.slices} slices"
        )
        return cls(reader, group, data.stage, index)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def has_append_times(self) -> bool:
        """True if the headers of the batches have the append times of their records."""
        return self._index.has_append_times

    def describe(self, state: PartitionSnapshot) -> None:
        """Adds the index of the batches to the state that follows them."""
        self._index.describe(state)

    def batches(self) -> Iterator[bytes]:
        """Yields all batches, in order; each is read when it is needed."""
        for number in range(len(self._ends)):
            yield self._batch(number)

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        """Returns batches from the first one that reaches ``offset`` on, at least one if there is one.

        Arguments:
            max_bytes: maximum total size, unless the first is larger.
        """
        batches: list[bytes] = []
        size = 0
        for number in range(bisect_right(self._ends, offset), len(self._ends)):
            batch = self._batch(number)
            size += len(batch)
            if batches and size > max_bytes:
                break
            batches.append(batch)
        return batches

    def first_reaching(self, timestamp_ms: int) -> int | None:
        """Returns an offset before which no record is at or after a time, and in whose batch or after it there is one;
        None if no record is that late."""
        number = bisect_left(self._times, timestamp_ms)
        if number == len(self._times):
            return None
        return self._ends[number - 1] if number else 0

    def bytes_from(self, offset: int) -> int:
        """Returns the size of the first batch that reaches ``offset`` and of those after it; 0 if it is not known."""
        number = bisect_right(self._ends, offset)
        positions = self._index.positions
        if number >= len(positions):
            return 0
        return positions[-1] - (positions[number - 1] if number else 0)

    def bytes_after(self, offset: int) -> int:
        """Returns the size of the batches after the first one that reaches ``offset``; 0 if it is not known."""
        number = bisect_right(self._ends, offset)
        positions = self._index.positions
        return positions[-1] - positions[number] if number < len(positions) else 0

    def kept_since_ms(self, offset: int) -> int | None:
        """Returns the time from which the age of the first batch that reaches ``offset`` counts, or that of a batch
        before it where that is later; None if no batch reaches it, or its append time is not known."""
        number = bisect_right(self._ends, offset)
        return self._index.kept_since[number] if number < len(self._index.kept_since) else None

    def first_kept(self, start: int, oldest_ms: int | None, needed_bytes: int | None) -> int:
        """Returns the first offset to keep: ``start``, or the end of a batch.

        Arguments:
            start: the first offset that is kept now.
            oldest_ms: batches before the first one whose age counts from this time, or later, are not kept; None: of
                any age.
            needed_bytes: nor are batches if those after them have so many bytes; None: without a limit.
        """
        index = self._index
        number = bisect_left(index.kept_since, oldest_ms) if oldest_ms is not None else 0
        if needed_bytes is not None:
            number = max(number, bisect_right(index.positions, index.positions[-1] - needed_bytes))
        return max(start, self._ends[number - 1]) if number else start

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self._ends[-1]

    def _batch(self, number: int) -> bytes:
        return self._reader.snapshot_slice(self._group, self.stage, number)
