"""I9: the replicas of each log agree byte for byte, as their data directories say once the nodes have ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quorumlog.chaos.checkers.checkers import Anomaly
from quorumlog.raft.types import EntryId
from quorumlog.storage.interface import DamageError
from quorumlog.storage.storage import Storage


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
    """Reads every entry that is kept, which verifies checksums and the chain; the identity of the one at ``wanted``."""
    found = anchor if anchor.index == wanted else None
    index = anchor.index + 1
    while index <= last.index:
        for entry in storage.entries(group, index, last.index, 1 << 22):
            if entry.index == wanted:
                found = EntryId(entry.index, entry.term, entry.hash)
            index = entry.index + 1
    return found
