"""Which partitions each node has to do with: an index over the partitions, kept up to date as they change.

Without it, whoever asks what is on a node goes through all partitions of the cluster, at each look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

from quorumlog.server.metadata.records import PartitionRecord

_NONE: AbstractSet[int] = frozenset()


class ReplicaIndex:
    """Partitions by node.

    Attributes:
        wanted: replicas and witnesses that each node is to have; those that are being moved count where they are to be.
        leaders: how many of them are preferred leaders.
    """

    def __init__(self) -> None:
        self.wanted: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self._hosted: dict[int, set[int]] = {}

    def on(self, node_id: int) -> AbstractSet[int]:
        """The groups of which a node has a replica, may have one, or is to have one."""
        return self._hosted.get(node_id, _NONE)

    def enter(self, partition: PartitionRecord) -> None:
        """A partition is there, or has changed."""
        for node in _named(partition):
            self._hosted.setdefault(node, set()).add(partition.group)
        wanted = partition.intended_voters
        self.wanted.update(wanted)
        self.leaders[wanted[0]] += 1

    def leave(self, partition: PartitionRecord) -> None:
        """A partition is gone, or is about to change."""
        for node in _named(partition):
            self._hosted[node].discard(partition.group)
        wanted = partition.intended_voters
        self.wanted.subtract(wanted)
        self.leaders[wanted[0]] -= 1


def _named(partition: PartitionRecord) -> set[int]:
    """The nodes that a partition names: some may have lost their replica with a disk, and are to get it back."""
    return {*partition.hosts, *partition.returning}
