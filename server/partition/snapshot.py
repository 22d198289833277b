"""What a partition's snapshot says of its state: its last slice. The slices before it are the compacted log."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.raft.types import Snapshot
from quorumlog.storage.interface import StorageReader
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot, TableRow


def table_rows(rows: Iterable[tuple[bytes, bytes]]) -> list[TableRow]:
    """Rows of a table as a snapshot carries them, in the order of their keys."""
    return [TableRow(key=key, value=value) for key, value in sorted(rows)]


def read_state(reader: StorageReader, group: int, snapshot: Snapshot) -> PartitionSnapshot:
    """The state in a snapshot whose slices are durable here.

    Raises:
        DamageError: it is not what was written.
    """
    data = snapshot.data
    return PartitionSnapshot.FromString(reader.snapshot_slice(group, data.stage, data.slices - 1))
