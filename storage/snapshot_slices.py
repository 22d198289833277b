"""How a snapshot's bytes are cut into the slices that storage keeps and that travel between nodes."""

from __future__ import annotations

import google_crc32c

from quorumlog.raft.types import SnapshotData
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.transaction import SnapshotSlice


def describe(stage: int, data: bytes, slice_bytes: int) -> SnapshotData:
    """Names ``data``, cut into slices of ``slice_bytes`` under ``stage``. There is at least one; it may be empty."""
    slices = max(1, -(-len(data) // slice_bytes))
    return SnapshotData(stage, slices, len(data), int(google_crc32c.value(data)))


def cut(stage: int, data: bytes, slice_bytes: int, number: int) -> SnapshotSlice:
    """One slice, the only copy made of its bytes."""
    return SnapshotSlice(stage, number, data[number * slice_bytes : (number + 1) * slice_bytes])


def read_whole(reader: StorageReader, group: int, data: SnapshotData) -> bytes:
    """All of a snapshot's data, for a state machine that keeps its state in memory anyway.

    Raises:
        DamageError: a slice is not what was written.
    """
    return b"".join(reader.snapshot_slice(group, data.stage, number) for number in range(data.slices))
