"""Index of the partitions on each node, updated as partitions change.

Without it, every look-up by node would iterate over all partitions of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

from quorumlog.server.metadata.records import PartitionRecord

_NONE: AbstractSet[int] = frozenset()


class ReplicaIndex:
    """Partitions by node.

    Attributes:
        wanted: number of replicas and witnesses that each node should have; moving ones count at their targets.
        leaders: number of these for which the node is the preferred leader.
    """

    def __init__(self) -> None:
        self.wanted: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self._hosted: dict[int, set[int]] = {}

    def on(self, node_id: int) -> AbstractSet[int]:
        """Returns the groups of which a node has a replica, may have one, or should have one."""
        return self._hosted.get(node_id, _NONE)

    def enter(self, partition: PartitionRecord) -> None:
        """Adds a partition, after it was created or changed."""
        for node in _named(partition):
            self._hosted.setdefault(node, set()).add(partition.group)
        wanted = partition.intended_voters
        self.wanted.update(wanted)
        self.leaders[wanted[0]] += 1

    def leave(self, partition: PartitionRecord) -> None:
        """Removes a partition, before it is deleted or changed."""
        for node in _named(partition):
            self._hosted[node].discard(partition.group)
        wanted = partition.intended_voters
        self.wanted.subtract(wanted)
        self.leaders[wanted[0]] -= 1


def _named(partition: PartitionRecord) -> set[int]:
    """Returns the nodes that a partition names, including those that lost their replica with a disk and will get it
    back."""
    return {*partition.hosts, *partition.returning}
