"""The compacted part of a partition's log on disk: the slices of its snapshot, one batch each.

An index of a few bytes per batch is stored in the snapshot and stays in memory after its first use; so an offset or a
time is found without reading batches, and a read touches only the batches that it returns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from quorumlog.raft.types import SnapshotData
from quorumlog.server.partition.state_slices import snapshot_state
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot


class CompactedLog:
    """Compacted batches under one stage.

    Arguments:
        ends: the offset after the last record of each batch.
        times: the largest timestamp of each batch and all before it, in milliseconds.
    """

    def __init__(self, reader: StorageReader, group: int, stage: int, ends: array[int], times: array[int]) -> None:
        assert len(ends) == len(times)
        self.stage = stage
        self._reader = reader
        self._group = group
        self._ends = ends
        self._times = times

    @classmethod
    def of_snapshot(cls, reader: StorageReader, group: int, data: SnapshotData) -> CompactedLog:
        """Returns the compacted log of a partition's snapshot, with the index from the state in its last slices."""
        state = snapshot_state(reader, group, data)
        ends, times = array("q", state.batch_end_offsets), array("q", state.batch_max_timestamps_ms)
        batches = data.slices - 1 - state.state_slices
        assert len(ends) == batches, f"group {group}: {len(ends)} batches, {batches} of {data.slices} slices"
        return cls(reader, group, data.stage, ends, times)

    def __len__(self) -> int:
        return len(self._ends)

    def describe(self, state: PartitionSnapshot) -> None:
        """Adds the index of the batches to the state that follows them."""
        state.batch_end_offsets.extend(self._ends)
        state.batch_max_timestamps_ms.extend(self._times)

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

    def _batch(self, number: int) -> bytes:
        return self._reader.snapshot_slice(self._group, self.stage, number)
