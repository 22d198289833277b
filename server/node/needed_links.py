"""The nodes with which a node keeps links: voters of the metadata quorum, and nodes that share a Raft group with it.

Links between all nodes would grow with the square of their number, and so would the leases that pass on them. All other
requests between nodes go to the active controller, or to the leader of a partition by way of the controller. A voter
may become the controller at any moment, so voters have links to every node.

Both sides of a pair come to the same answer from the same metadata. While one of them is behind, only the other keeps
its streams open: requests pass on them, and answers return on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from quorumlog.raft.types import Configuration
from quorumlog.server.metadata.records import PartitionRecord

_NONE: frozenset[int] = frozenset()


class NeededLinks:
    """Follows which nodes share Raft groups with this one.

    Arguments:
        node_id: of this node.
        linger_us: time for which a link is kept that is no longer needed. A topic that is deleted and created again
            would otherwise wait for new links.
    """

    def __init__(self, node_id: int, linger_us: int) -> None:
        self._node_id = node_id
        self._linger = linger_us
        #: The other members of each Raft group with a replica here, and the number of these groups by node.
        self._members: dict[int, frozenset[int]] = {}
        self._shared: Counter[int] = Counter()
        self._configurations: dict[int, Configuration] = {}
        self._kept: set[int] = set()
        self._until: dict[int, int] = {}

    @property
    def next_deadline(self) -> int | None:
        """The time at which a link that is no longer needed must be closed; None if every link is needed."""
        return min(self._until.values(), default=None)

    def is_current(self, group: int, configuration: Configuration) -> bool:
        """True if a Raft group had this configuration when it was last followed."""
        return self._configurations.get(group) is configuration

    def groups(self) -> list[int]:
        """Returns the Raft groups that this node shares with others."""
        return list(self._members)

    def follow(self, group: int, record: PartitionRecord | None, configuration: Configuration | None) -> bool:
        """Records the members of a partition's Raft group. Returns True if the node shares groups with others than
        before.

        The metadata and the group's own configuration both count, because either may be behind the other. A node that
        joins needs the link before it is a member, and the members of a joint configuration need one another even if
        the metadata cannot be read.

        Arguments:
            record: the partition in the metadata; None if it does not exist.
            configuration: of the replica here; None without one.
        """
        if configuration is None:
            self._configurations.pop(group, None)
        else:
            self._configurations[group] = configuration
        nodes = set() if configuration is None else set(configuration.members)
        if record is not None and self._node_id in record.hosts:
            nodes.update(record.hosts)
        nodes.discard(self._node_id)
        before = self._members.get(group, _NONE)
        if nodes == before:
            return False
        self._members[group] = frozenset(nodes)
        if not nodes:
            del self._members[group]
        return self._count(nodes - before, 1) | self._count(before - nodes, -1)

    def _count(self, nodes: Iterable[int], change: int) -> bool:
        changed = False
        for node in nodes:
            self._shared[node] += change
            changed |= self._shared[node] == (1 if change > 0 else 0)
            if not self._shared[node]:
                del self._shared[node]
        return changed

    def select(self, now: int, voters: Collection[int], nodes: Collection[int]) -> set[int]:
        """Returns the nodes to keep links to from now on.

        Arguments:
            voters: nodes that vote on metadata, or are about to.
            nodes: every node that could have a link.
        """
        if self._node_id in voters:
            needed = set(nodes)
        else:
            needed = {node for node in nodes if node in voters or node in self._shared}
        ended = self._kept.intersection(nodes) - needed
        self._until = {node: self._until.get(node, now + self._linger) for node in ended}
        self._until = {node: until for node, until in self._until.items() if until > now}
        self._kept = needed.union(self._until)
        return self._kept
