"""I9: the replicas of each log agree byte for byte, as their data directories say once the nodes have ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from quorumlog.chaos.checkers import Anomaly
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
    logs: dict[int, dict[int, dict[int, EntryId]]] = {}
    ends: dict[int, dict[int, tuple[int, int]]] = {}
    for node, data_dir in data_dirs.items():
        try:
            with Storage(data_dir) as storage:
                for group, state in storage.groups().items():
                    ends.setdefault(group, {})[node] = (state.anchor.index, state.last.index)
                    entries = _identities(storage, group, state.anchor, state.last)
                    logs.setdefault(group, {})[node] = entries
        except DamageError as damage:
            found.append(Anomaly("I9", f"node {node}: {damage}"))
    for group, by_node in sorted(logs.items()):
        index = min(last for _, last in ends[group].values())
        known = {node: entries[index] for node, entries in by_node.items() if index in entries}
        if len(set(known.values())) > 1:
            found.append(Anomaly("I9", f"replicas of group {group} differ at index {index}: {known}"))
    return found


def _identities(storage: Storage, group: int, anchor: EntryId, last: EntryId) -> dict[int, EntryId]:
    """Identity of every entry that is kept, the anchor included. Reading verifies checksums and the chain."""
    known = {anchor.index: anchor}
    index = anchor.index + 1
    while index <= last.index:
        for entry in storage.entries(group, index, last.index, 1 << 22):
            known[entry.index] = EntryId(entry.index, entry.term, entry.hash)
            index = entry.index + 1
    return known
