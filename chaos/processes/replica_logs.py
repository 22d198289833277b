"""Checks of replicas' disks: their logs once the nodes have stopped, their terms while nodes run.

I9: the replicas of each log agree byte for byte. Below the compaction point, those that have compacted as far contain
the same records.

A voter that is isolated requests pre-votes, gets none, and must keep its term (thesis §9.6). If it campaigned, its term
would grow with each election timeout, and depose every leader as soon as a node received it. The disk is read, because
an isolated node cannot be queried.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lmdb

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.chaos.processes.nemesis import ChaosError
from quorumlog.raft.types import EntryId
from quorumlog.server.partition.compacted_log import CompactedLog
from quorumlog.server.partition.compaction_state import ROW, CompactionState
from quorumlog.storage import rows
from quorumlog.storage.environment import LMDB_ENGINE, MAX_DATABASES
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.wire.entry import parse_header, verify_batch
from quorumlog.wire.payload import KEY, OFFSET_DELTA, VALUE, read_payload

#: Offset, key and value of a record.
Kept = tuple[int, bytes | None, bytes | None]


def replicas_agree(data_dirs: Mapping[int, Path]) -> list[Anomaly]:
    """Compares the logs in data directories that no process has open.

    Entries are chained by hash, so equal identities at one index are equal bytes at all indexes up to it: each group is
    compared at the highest index that all its replicas have.

    Arguments:
        data_dirs: by node id.
    """
    found: list[Anomaly] = []
    ends: dict[int, list[int]] = {}
    for node, data_dir in data_dirs.items():
        try:
            with Storage(data_dir) as storage:
                for group, state in storage.groups().items():
                    ends.setdefault(group, []).append(state.last.index)
        except DamageError as damage:
            found.append(Anomaly("I9", f"node {node}: {damage}"))
    if found:
        return found
    known: dict[int, dict[int, EntryId]] = {}
    for node, data_dir in data_dirs.items():
        try:
            with Storage(data_dir) as storage:
                for group, state in storage.groups().items():
                    identity = _read(storage, group, state.anchor, state.last, min(ends[group]))
                    if identity is not None:
                        known.setdefault(group, {})[node] = identity
        except DamageError as damage:
            found.append(Anomaly("I9", f"node {node}: {damage}"))
    for group, by_node in sorted(known.items()):
        if len(set(by_node.values())) > 1:
            found.append(Anomaly("I9", f"replicas of group {group} differ at index {min(ends[group])}: {by_node}"))
    return found


def _read(storage: Storage, group: int, anchor: EntryId, last: EntryId, wanted: int) -> EntryId | None:
    """Reads every entry, which verifies checksums and the chain; returns the identity of the one at ``wanted``."""
    found = anchor if anchor.index == wanted else None
    index = anchor.index + 1
    while index <= last.index:
        for entry in storage.entries(group, index, last.index, 1 << 22):
            if entry.index == wanted:
                found = EntryId(entry.index, entry.term, entry.hash)
            index = entry.index + 1
    return found


def compacted_replicas_agree(data_dirs: Mapping[int, Path]) -> tuple[int, list[Anomaly]]:
    """Compares the compacted logs in data directories that no process has open.

    Arguments:
        data_dirs: by node id.

    Returns:
        the number of replicas with a compacted log, and the anomalies.
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
                    records = _compacted(storage, group, state)
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


def _compacted(storage: Storage, group: int, state: RaftGroupState) -> list[Kept]:
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


def durable_terms(data_dir: Path) -> dict[int, int]:
    """Returns the term of each group in the newest transaction of a node, without delaying the node.

    Raises:
        RowError: a row is damaged.
    """
    found = {}
    with lmdb.open(str(data_dir), readonly=True, max_dbs=MAX_DATABASES, lib_version=LMDB_ENGINE) as engine:
        database = engine.open_db(rows.HARD_STATES, create=False)
        with engine.begin(db=database) as transaction, transaction.cursor() as states:
            for key, row in states:
                found[rows.group_of(key)] = rows.unpack_hard_state(rows.open_row(rows.HARD_STATES, key, row)).term
    return found


def require_no_campaign(node: int, before: Mapping[int, int], now: Mapping[int, int]) -> None:
    """Checks that a node kept its terms while it was isolated.

    Raises:
        ChaosError: it has raised one.
    """
    raised = [f"of group {group} from {term} to {now[group]}" for group, term in before.items() if now[group] > term]
    if raised:
        raise ChaosError(
            f"node {node}, while isolated, raised its term without a majority's pre-votes: {', '.join(raised)}"
        )
