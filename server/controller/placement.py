"""Placement of a topic's replicas: on distinct nodes, over as many racks as there are, with leaders spread evenly."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Candidate:
    """A node that may accept replicas.

    Arguments:
        node_id: the node.
        rack: its rack; "" if it has none, which counts as a rack of its own.
        replicas: replicas that it has already.
        leaders: number of them for which it is the preferred leader.
        witness_only: True if it accepts no replicas, and is the first choice for witnesses.
        tier: 0 for a node that is up and stays. Nodes of a higher tier are used only if those of lower tiers are too
            few, and lead only if no replica is on a lower one.
    """

    node_id: int
    rack: str = ""
    replicas: int = 0
    leaders: int = 0
    witness_only: bool = False
    tier: int = 0


def place(partitions: int, replication_factor: int, candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition of a new topic, in the order of preference: the first should lead.

    Nodes of a partition are distinct, and so are their racks as long as there are enough. Over the topic, replicas per
    node and preferred leaders per node differ by at most one (with racks: if all racks are of one size and not fewer
    than the replication factor). A remainder goes to the nodes that have the fewest already. Nodes of a higher tier
    come last in every partition (as in KRaft's StripedReplicaPlacer).

    Arguments:
        partitions: number of partitions, at least 1.
        replication_factor: number of replicas of each, at most the number of candidates.

    Raises:
        ValueError: there are fewer candidates than replicas.
    """
    if not 1 <= replication_factor <= len(candidates):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(candidates)} nodes")
    chosen = _choose_replicas(partitions, replication_factor, candidates)
    tiers = {candidate.node_id: candidate.tier for candidate in candidates}
    able = [_of_lowest_tier(replicas, tiers) for replicas in chosen]
    leaders = _choose_leaders(able, {c.node_id: (c.leaders, c.replicas, c.node_id) for c in candidates})
    led = {candidate.node_id: candidate.leaders for candidate in candidates}
    placed = []
    for replicas, leader in zip(chosen, leaders, strict=True):
        followers = [node for node in replicas if node != leader]
        # The second in line leads when the first is down: not the same one for all partitions of a node.
        first = led[leader] % max(1, len(followers))
        led[leader] += 1
        in_turn = (*followers[first:], *followers[:first])
        placed.append((leader, *sorted(in_turn, key=tiers.__getitem__)))
    return placed


def _of_lowest_tier(replicas: tuple[int, ...], tiers: Mapping[int, int]) -> tuple[int, ...]:
    lowest = min(tiers[node] for node in replicas)
    return tuple(node for node in replicas if tiers[node] == lowest)


@dataclass(slots=True)
class _Slot:
    """A candidate while a topic is being placed."""

    node_id: int
    rack: str
    tier: int
    preference: tuple[int, int, int]
    taken: int = 0


def _choose_replicas(
    partitions: int, replication_factor: int, candidates: Sequence[Candidate]
) -> list[tuple[int, ...]]:
    """Returns, for each partition, the nodes that have the fewest replicas of the topic so far, comparing racks before
    nodes.

    Choosing the emptiest racks, then the emptiest node in each, keeps both counts within one: a greedy choice by nodes
    alone fills a rack's last free node early and then has to double up elsewhere.
    """
    slots = [
        _Slot(c.node_id, c.rack or f"\0node {c.node_id}", c.tier, (c.replicas, c.leaders, c.node_id))
        for c in candidates
    ]
    rack_size: dict[str, int] = {}
    for slot in slots:
        rack_size[slot.rack] = rack_size.get(slot.rack, 0) + 1
    rack_taken = dict.fromkeys(rack_size, 0)
    chosen: list[tuple[int, ...]] = []
    for _ in range(partitions):
        in_partition = dict.fromkeys(rack_size, 0)
        free = list(slots)
        replicas: list[int] = []
        for _ in range(replication_factor):
            best = min(
                free,
                key=lambda slot: (
                    slot.tier,
                    in_partition[slot.rack],
                    rack_taken[slot.rack] / rack_size[slot.rack],
                    slot.taken,
                    slot.preference,
                ),
            )
            free.remove(best)
            replicas.append(best.node_id)
            best.taken += 1
            in_partition[best.rack] += 1
            rack_taken[best.rack] += 1
        chosen.append(tuple(replicas))
    return chosen


def _choose_leaders(chosen: Sequence[tuple[int, ...]], preference: Mapping[int, tuple[int, int, int]]) -> list[int]:
    """Returns one leader per partition out of its replicas, per node as even as the replicas allow."""
    count = dict.fromkeys(preference, 0)
    leaders: list[int] = []
    for replicas in chosen:
        leader = min(replicas, key=lambda node: (count[node], preference[node]))
        count[leader] += 1
        leaders.append(leader)
    while _shift_one(chosen, leaders, count):
        pass
    return leaders


def _shift_one(chosen: Sequence[tuple[int, ...]], leaders: list[int], count: dict[int, int]) -> bool:
    """Moves one leadership from a node that leads most to one that leads at least two fewer, if necessary by way of
    others that each pass one on. Returns True if there was such a way.

    The greedy choice before it considers one partition at a time; this makes the result as even as possible.
    """
    most = max(count.values())
    sources = {node for node in count if count[node] == most}
    led: dict[int, list[int]] = {}
    for partition, leader in enumerate(leaders):
        led.setdefault(leader, []).append(partition)
    came_by: dict[int, int] = {}
    queue = deque(sorted(sources))
    while queue:
        node = queue.popleft()
        if count[node] + 1 < most:
            count[node] += 1
            while node not in sources:
                partition = came_by[node]
                leaders[partition], node = node, leaders[partition]
            count[node] -= 1
            return True
        for partition in led.get(node, ()):
            for other in chosen[partition]:
                if other not in sources and other not in came_by:
                    came_by[other] = partition
                    queue.append(other)
    return False
