"""Slices of the state of a partition in its snapshot: cutting and joining them.

A partition may have thousands of producers with thousands of digests each: hundreds of megabytes, more than a message
between nodes may have. In slices, the state is sent like any other snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quorumlog.raft.types import SnapshotData
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot

#: Maximum size of a row without its key and its value, and maximum size of a number (bytes).
_ROW_BYTES = 16
_NUMBER_BYTES = 10
#: Fields with one number for each compacted batch.
_INDEX: Final = ("batch_end_offsets", "batch_max_timestamps_ms", "batch_end_positions", "batch_kept_since_ms")


def cut_state(state: PartitionSnapshot, slice_bytes: int) -> list[bytes]:
    """Returns the slices of a state: one, unless it has more than ``slice_bytes``. A row is never divided.

    Arguments:
        state: is emptied if it is cut.
    """
    if state.ByteSize() <= slice_bytes:
        return [state.SerializeToString(deterministic=True)]
    slices = [part.SerializeToString(deterministic=True) for part in _parts(state, slice_bytes)]
    state.ClearField("rows")
    for column in _INDEX:
        state.ClearField(column)
    state.state_slices = len(slices)
    return [*slices, state.SerializeToString(deterministic=True)]


def _parts(state: PartitionSnapshot, slice_bytes: int) -> Iterator[PartitionSnapshot]:
    part, size = PartitionSnapshot(), 0
    for row in state.rows:
        row_size = len(row.key) + len(row.value) + _ROW_BYTES
        if size and size + row_size > slice_bytes:
            yield part
            part, size = PartitionSnapshot(), 0
        part.rows.append(row)
        size += row_size
    if size:
        yield part
    numbers = max(1, slice_bytes // (len(_INDEX) * _NUMBER_BYTES))
    for first in range(0, len(state.batch_end_offsets), numbers):
        columns = {name: getattr(state, name)[first : first + numbers] for name in _INDEX}
        yield PartitionSnapshot(**columns)


def snapshot_state(reader: StorageReader, group: int, data: SnapshotData) -> PartitionSnapshot:
    """Returns the state in a partition's snapshot whose slices are durable here: it follows the compacted batches.

    Raises:
        DamageError: a slice differs from what was written.
    """
    last = PartitionSnapshot.FromString(reader.snapshot_slice(group, data.stage, data.slices - 1))
    if not last.state_slices:
        return last
    state = PartitionSnapshot()
    for number in range(data.slices - 1 - last.state_slices, data.slices - 1):
        state.MergeFromString(reader.snapshot_slice(group, data.stage, number))
    state.MergeFrom(last)
    return state
