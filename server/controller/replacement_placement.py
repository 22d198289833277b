"""Choice of the node that takes over a replica: on a machine without another replica of the partition, the node with
the fewest, if possible in a rack without another replica.

A plan makes that choice for every replica of a node. Comparing all nodes each time took a controller half a second at a
hundred nodes, within one step; here a choice costs as much as the partition has racks, and a logarithm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from sortedcontainers import SortedList

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.machines import machine_of, machines_of
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
        brokers = self._brokers
        staying = [node for node in set(wanted) if node != leaving]
        full = machines_of(brokers, staying)
        may_take = self._carried.get(successor, self._most) < self._most and successor != leaving
        if may_take and successor not in barred and machine_of(brokers, successor) not in full:
            return self._give(successor)
        used = Counter(rack_of(brokers[node]) for node in staying if node in brokers)

        def is_free(node: int) -> bool:
            return node != leaving and node not in barred and machine_of(brokers, node) not in full

        best: tuple[int, int] | None = None
        for replicas, node, rack in self._firsts:
            if replicas >= self._most or (best is not None and best < (replicas, node)):
                break
            if not used[rack]:
                # None of its nodes has a replica of the partition.
                first = next((each for each in self._racks[rack] if is_free(each[1])), None)
                if first is not None and first[0] < self._most:
                    best = min(best or first, first)
        return self._from_used(used, is_free) if best is None else self._give(best[1])

    def _from_used(self, used: Counter[str], is_free: Callable[[int], bool]) -> int:
        """Returns the best node in the racks that have a replica of the partition already."""
        best: tuple[int, int, int] | None = None
        for rack, count in used.items():
            for replicas, node in self._racks.get(rack, ()):
                if not is_free(node):
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
    """Returns the broker's rack; the machine of a node without one counts as a rack."""
    return broker.rack or broker.machine
