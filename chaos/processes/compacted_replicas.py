"""I9 below the compaction point: replicas that have compacted as far hold the same records, as their disks say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.compaction_state import ROW, CompactionState
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1.entry import parse_header, verify_batch
from quorumlog.v1.payload import KEY, OFFSET_DELTA, VALUE, read_payload

#: Offset, key and value of a record.
Kept = tuple[int, bytes | None, bytes | None]


def compacted_replicas_agree(data_dirs: Mapping[int, Path]) -> tuple[int, list[Anomaly]]:
    """Compares the compacted logs in data directories that no process has open.

    Arguments:
        data_dirs: by node id.

    Returns:
        how many replicas had a compacted log, and what is wrong.
    """
    count, found = 0, []
    first: dict[tuple[int, int], tuple[int, list[Kept]]] = {}
    for node, data_dir in data_dirs.items():
        try:
            with Storage(data_dir) as storage:
                for group, state in storage.groups().items():
                    if ROW not in state.table or state.snapshot is None:
                        continue
                    reached = CompactionState(state.table[ROW]).compacted_offset
                    records = _records(storage, group, state)
                    count += 1
                    found += [Anomaly("I9", f"node {node}, group {group}: {line}") for line in _wrong(records, reached)]
                    other, expected = first.setdefault((group, reached), (node, records))
                    if records != expected:
                        found.append(
                            Anomaly(
                                "I9", f"nodes {other} and {node} have compacted group {group} differently: {reached}"
                            )
                        )
        except DamageError as damage:
            found.append(Anomaly("I9", f"node {node}: {damage}"))
    return count, found


def _records(storage: Storage, group: int, state: RaftGroupState) -> list[Kept]:
    assert state.snapshot is not None
    records: list[Kept] = []
    for batch in CompactedLog.of_snapshot(storage, group, state.snapshot.data).batches():
        verify_batch(batch)
        header = parse_header(batch)
        columns = read_payload(batch, header)
        deltas: list[Any] = columns.column(OFFSET_DELTA).to_pylist()
        offsets = [header.base_offset + delta for delta in deltas]
        records += zip(offsets, columns.column(KEY).to_pylist(), columns.column(VALUE).to_pylist(), strict=True)
    return records


def _wrong(records: list[Kept], reached: int) -> list[str]:
    offsets = [offset for offset, _, _ in records]
    keys = [key for _, key, _ in records]
    wrong = []
    if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= reached):
        wrong.append(f"compacted records are not in order below {reached}")
    if len(keys) != len(set(keys)):
        wrong.append("a key has two compacted records")
    return wrong
