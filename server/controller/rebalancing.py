"""Spreads replicas, their bytes and leaderships evenly over nodes and racks, with few moves.

A plan has five aims, the most important first, and each keeps what those before it have reached: replicas of a
partition, and its witness, are on different machines, whatever placed them; replicas are in different racks; nodes have
equally many replicas; and equally many bytes; and are the preferred leader of equally many partitions, for which
nothing is copied. Each step moves from the node with the most to the one with the least. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.machines import are_apart, machine_of, machines_of
from quorumlog.server.controller.replacement_placement import rack_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord, PartitionRecord

#: Maximum number of partitions that one plan changes: it is computed in one step of the node.
MOST_CHANGES = 1_000
#: Maximum number of partitions of a node that are considered for one move.
_LOOKS = 50
#: Nodes are even in bytes if they differ by less than this share of the mean, or by less than these bytes.
_BYTES_SLACK, _BYTES_FLOOR = 0.1, 16 << 20


@dataclass(slots=True, frozen=True)
class CarriedLoad:
    """The load of a node: replicas, preferred leaders, bytes."""

    replicas: int
    leaders: int
    size_bytes: int


class Rebalancing:
    """One plan.

    Arguments:
        sizes: sizes of the logs of partitions in bytes, by group, as far as they are known.
        most: maximum number of partitions that may change.

    Attributes:
        before, after: the load of each node that is up and stays.
    """

    def __init__(self, image: MetadataImage, sizes: Mapping[int, int], most: int = MOST_CHANGES) -> None:
        self._image = image
        self._sizes = sizes
        self._most = most
        self._racks = {node: rack_of(broker) for node, broker in image.brokers.items()}
        self._able = sorted(node for node, each in image.brokers.items() if _takes_replicas(each))
        self._wanted: dict[int, list[int]] = {}
        self._listed: dict[int, list[int]] = {}
        index = image.replica_index
        # A witness does not count as a replica here: it has no bytes, and is never moved for balance.
        known = image.partitions
        copies = {node: [group for group in index.on(node) if node in known[group].intended] for node in self._able}
        self._replicas = Counter({node: len(groups) for node, groups in copies.items()})
        self._leaders = Counter({node: index.leaders[node] for node in self._able})
        self._bytes = Counter({node: sum(sizes.get(group, 0) for group in copies[node]) for node in self._able})
        self.before = self._loads()
        if len(self._able) > 1:
            self._part_machines()
            self._spread_over_racks()
            self._even_replicas()
            self._even_bytes()
            self._even_leaders()
        self.after = self._loads()

    def moves(self) -> Iterator[tuple[PartitionRecord, tuple[int, ...]]]:
        """Yields the partitions that change, each with its future nodes: the most useful change first."""
        for group, wanted in self._wanted.items():
            partition = self._image.partitions[group]
            if tuple(wanted) != partition.wanted:
                yield partition, tuple(wanted)

    def copied_bytes(self) -> int:
        """Returns the bytes that the moves copy, as far as sizes are known."""
        return sum(
            self._sizes.get(partition.group, 0) * len(set(wanted).difference(partition.wanted))
            for partition, wanted in self.moves()
        )

    def _loads(self) -> dict[int, CarriedLoad]:
        return {node: CarriedLoad(self._replicas[node], self._leaders[node], self._bytes[node]) for node in self._able}

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _nodes(self, group: int) -> list[int]:
        known = self._wanted.get(group)
        return known if known is not None else list(self._image.partitions[group].wanted)

    def _may_change(self, group: int) -> bool:
        """True if a partition may be moved. Only one with a leader can be copied. One that has changed may change
        again, at no further cost. One that lacks a replica since a disk was lost gets that back first."""
        partition = self._image.partitions[group]
        if self._image.available_leader(partition) == NO_NODE or partition.is_moving or partition.returning:
            return False
        return group in self._wanted or len(self._wanted) < self._most

    def _racks_with(self, nodes: list[int], leaving: int, coming: int) -> int:
        """Returns the number of racks that a partition would be in."""
        return len({self._racks.get(coming if node == leaving else node) for node in nodes})

    def _is_apart(self, group: int, leaving: int, coming: int) -> bool:
        """True if no other replica of a partition, nor its witness, is on the node that a replica would move to, or on
        its machine: a witness does not become a replica."""
        staying = [
            node for node in (*self._nodes(group), self._image.partitions[group].wanted_witness) if node != leaving
        ]
        brokers = self._image.brokers
        return machine_of(brokers, coming) not in machines_of(brokers, staying)

    def _fits(self, group: int, leaving: int, coming: int) -> bool:
        nodes = self._nodes(group)
        if coming in nodes or leaving not in nodes or not self._may_change(group):
            return False
        if not self._is_apart(group, leaving, coming):
            return False
        return self._racks_with(nodes, leaving, coming) >= len({self._racks.get(node) for node in nodes})

    def _move(self, group: int, leaving: int, coming: int) -> None:
        nodes = self._wanted.setdefault(group, self._nodes(group))
        place, size = nodes.index(leaving), self._sizes.get(group, 0)
        nodes[place] = coming
        for node, sign in ((leaving, -1), (coming, 1)):
            self._replicas[node] += sign
            self._bytes[node] += sign * size
            self._leaders[node] += sign * (place == 0)
        if leaving in self._listed:
            self._listed[leaving].remove(group)
        if coming in self._listed:
            self._listed[coming].append(group)

    def _on(self, node: int) -> list[int]:
        """Returns the partitions of a node, the largest first."""
        if node not in self._listed:
            groups = self._image.replica_index.on(node) | {
                group for group, nodes in self._wanted.items() if node in nodes
            }
            mine = [group for group in groups if node in self._nodes(group)]
            self._listed[node] = sorted(mine, key=lambda group: (-self._sizes.get(group, 0), group))
        return self._listed[node]

    # -- aims ---------------------------------------------------------------------------------------------------------

    def _part_machines(self) -> None:
        """Moves replicas until no two of a partition, nor one and its witness, are on the same machine.

        They can be where an older controller has placed them, or nodes have changed their machine.
        """
        brokers = self._image.brokers
        if len(machines_of(brokers, brokers)) == len(brokers):
            return  # Every node has a machine of its own.
        for group, partition in self._image.partitions.items():
            if are_apart(brokers, partition.wanted_voters) or not self._may_change(group):
                continue
            for node in partition.wanted[::-1]:
                if node not in self._replicas or self._is_apart(group, node, node):
                    continue
                free = [each for each in self._able if self._is_apart(group, node, each)]
                used = {self._racks.get(each) for each in self._nodes(group) if each != node}
                if free:
                    best = min(free, key=lambda each: (self._racks[each] in used, self._replicas[each], each))
                    self._move(group, node, best)

    def _spread_over_racks(self) -> None:
        """Moves replicas until no two of a partition are in the same rack while another rack has none."""
        racks = {self._racks[node] for node in self._able}
        if len(racks) == len(self._able):
            return  # Every node has a rack of its own.
        for group, partition in self._image.partitions.items():
            nodes = partition.wanted
            if len({self._racks.get(node) for node in nodes}) >= min(len(nodes), len(racks)):
                continue
            if not self._may_change(group):
                continue
            for node in nodes[::-1]:
                used = Counter(self._racks.get(each) for each in self._nodes(group))
                if used[self._racks.get(node)] > 1 and node in self._replicas:
                    free = [
                        each for each in self._able if not used[self._racks[each]] and self._is_apart(group, node, each)
                    ]
                    if free:
                        self._move(group, node, min(free, key=lambda each: (self._replicas[each], each)))

    def _even_replicas(self) -> None:
        """Moves replicas until no node has two more than another."""
        self._level(self._replicas, lambda: 2, self._best_to_count)

    def _even_bytes(self) -> None:
        """Moves replicas until no node has many more bytes than another; replica counts stay within one."""
        mean = sum(self._bytes.values()) / len(self._able)
        enough = int(max(_BYTES_SLACK * mean, _BYTES_FLOOR))
        self._level(self._bytes, lambda: enough, self._swap_bytes)

    def _level(self, load: Counter[int], enough: Callable[[], int], shift: Callable[[int, int], bool]) -> None:
        """Shifts from the node with the most of a load to one with less, until none can or need be shifted."""
        stuck: set[int] = set()
        for _ in range(2 * self._most):
            givers = [node for node in self._able if node not in stuck]
            if not givers:
                return
            most = max(givers, key=lambda node: (load[node], -node))
            takers = sorted(self._able, key=lambda node: (load[node], node))[:_LOOKS]
            if not any(load[most] - load[node] >= enough() and shift(most, node) for node in takers):
                stuck.add(most)

    def _best_to_count(self, most: int, least: int) -> bool:
        """Moves one replica; of those that fit, one that also reduces the difference in bytes."""
        gap = self._bytes[most] - self._bytes[least]
        fitting = [group for group in self._some(most) if self._fits(group, most, least)]
        if not fitting:
            return False
        chosen = min(fitting, key=lambda group: (abs(gap - 2 * self._sizes.get(group, 0)), group))
        self._move(chosen, most, least)
        return True

    def _swap_bytes(self, most: int, least: int) -> bool:
        """Moves a large replica one way and, to keep the counts even, a small one the other way."""
        gap = self._bytes[most] - self._bytes[least]
        alone = self._replicas[most] > self._replicas[least]
        returned = None if alone else self._smallest(least, most)
        if not alone and returned is None:
            return False
        back = self._sizes.get(returned, 0) if returned is not None else 0
        fitting = [group for group in self._some(most) if self._fits(group, most, least)]
        useful = [group for group in fitting if 0 < self._sizes.get(group, 0) - back < gap]
        if not useful:
            return False
        chosen = min(useful, key=lambda group: (abs(gap - 2 * (self._sizes.get(group, 0) - back)), group))
        self._move(chosen, most, least)
        if returned is not None and self._fits(returned, least, most):
            self._move(returned, least, most)
        return True

    def _smallest(self, node: int, other: int) -> int | None:
        """Returns the smallest partition of a node that fits on another node; None if no partition fits."""
        return next((group for group in self._on(node)[: -_LOOKS - 1 : -1] if self._fits(group, node, other)), None)

    def _some(self, node: int) -> list[int]:
        """Returns a sample of a node's partitions, of all sizes, about as many as one step considers."""
        groups = self._on(node)
        return groups[:: max(1, len(groups) // _LOOKS)]

    def _even_leaders(self) -> None:
        """Changes preferred leaders until no node leads two partitions more than another that has a replica of one of
        them."""
        for _ in range(3):
            changed = False
            for node in sorted(self._able, key=lambda each: -self._leaders[each]):
                for group in list(self._on(node)):
                    nodes = self._nodes(group)
                    if nodes[0] != node:
                        continue
                    others = [each for each in nodes[1:] if each in self._replicas]
                    heir = min(others, key=lambda each: (self._leaders[each], each), default=node)
                    if self._leaders[heir] + 2 > self._leaders[node] or not self._may_change(group):
                        continue
                    nodes = self._wanted.setdefault(group, nodes)
                    place = nodes.index(heir)
                    nodes[0], nodes[place] = heir, node
                    self._leaders[node] -= 1
                    self._leaders[heir] += 1
                    changed = True
            if not changed:
                return


def _takes_replicas(broker: BrokerRecord) -> bool:
    return not (broker.fenced or broker.leaving or broker.witness_only)
