"""Choice of the node that takes over a replica: the one with the fewest, if possible in a rack without another replica
of the partition.

A plan makes that choice for every replica of a node. Comparing all nodes each time took a controller half a second at a
hundred nodes, within one step; here a choice costs as much as the partition has racks, and a logarithm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from sortedcontainers import SortedList

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.records import BrokerRecord


class ReplacementPlacement:
    """The nodes that may take over replicas, sorted within each rack by their number of replicas.

    Arguments:
        able: those nodes; none that must be replaced.
        brokers: all that are registered, whose racks count if they keep a replica.
        carried: replicas that each node has; replicas assigned here are counted here only.
        most: maximum number of replicas of a node.
    """

    def __init__(
        self,
        able: Iterable[BrokerRecord],
        brokers: Mapping[int, BrokerRecord],
        carried: Mapping[int, int],
        most: int,
    ) -> None:
        self._brokers = brokers
        self._most = most
        self._carried = {broker.node_id: carried.get(broker.node_id, 0) for broker in able}
        self._racks: dict[str, SortedList] = {}
        for node, replicas in self._carried.items():
            self._racks.setdefault(rack_of(brokers[node]), SortedList()).add((replicas, node))
        #: The first node of each rack, with the rack.
        self._firsts = SortedList((*nodes[0], rack) for rack, nodes in self._racks.items())

    def take(
        self,
        wanted: Iterable[int],
        leaving: int,
        successor: int = NO_NODE,
        barred: AbstractSet[int] = frozenset(),
    ) -> int:
        """Returns the node that takes over a replica, which counts as its own from now on; NO_NODE if no node can.

        Arguments:
            wanted: the future nodes of the partition, ``leaving`` included.
            successor: takes it over if it can.
            barred: nodes that cannot.
        """
        taken = set(wanted)
        if successor not in taken | barred and self._carried.get(successor, self._most) < self._most:
            return self._give(successor)
        used = Counter(rack_of(self._brokers[node]) for node in taken if node != leaving and node in self._brokers)
        best: tuple[int, int] | None = None
        for replicas, node, rack in self._firsts:
            if replicas >= self._most or (best is not None and best < (replicas, node)):
                break
            if not used[rack]:
                # None of its nodes has a replica of the partition.
                first = next((each for each in self._racks[rack] if each[1] not in barred), None)
                if first is not None and first[0] < self._most:
                    best = min(best or first, first)
        return self._from_used(used, taken | barred) if best is None else self._give(best[1])

    def _from_used(self, used: Counter[str], taken: set[int]) -> int:
        """Returns the best node in the racks that have a replica of the partition already."""
        best: tuple[int, int, int] | None = None
        for rack, count in used.items():
            for replicas, node in self._racks.get(rack, ()):
                if node in taken:
                    continue
                if replicas < self._most:
                    best = min(best or (count, replicas, node), (count, replicas, node))
                break
        return NO_NODE if best is None else self._give(best[2])

    def _give(self, node: int) -> int:
        replicas, rack = self._carried[node], rack_of(self._brokers[node])
        nodes = self._racks[rack]
        self._firsts.remove((*nodes[0], rack))
        nodes.remove((replicas, node))
        nodes.add((replicas + 1, node))
        self._firsts.add((*nodes[0], rack))
        self._carried[node] = replicas + 1
        return node


def rack_of(broker: BrokerRecord) -> str:
    """Returns the broker's rack; a node without one counts as a rack of its own."""
    return broker.rack or f"\0node {broker.node_id}"
