"""Placement of the replicas of topics: on distinct machines, over as many racks as possible, with even leaders."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quorumlog.server.metadata.records import machine_of_its_own


@dataclass(slots=True, frozen=True)
class Candidate:
    """A node that may accept replicas.

    Arguments:
        node_id: the node.
        rack: its rack; "" if it has none: then its machine counts as a rack.
        replicas: replicas that it has already.
        leaders: number of them for which it is the preferred leader.
        witness_only: True if it accepts no replicas, and is the first choice for witnesses.
        tier: 0 for a node that is up and stays. Nodes of a higher tier are used only if those of lower tiers are too
            few, and lead only if no replica is on a lower one.
        machine: the machine that it fails with; "" if it shares it with no other node.
    """

    node_id: int
    rack: str = ""
    replicas: int = 0
    leaders: int = 0
    witness_only: bool = False
    tier: int = 0
    machine: str = ""

    @property
    def failure_domain(self) -> str:
        """Its machine, whether it has a name or not."""
        return self.machine or machine_of_its_own(self.node_id)


def count_machines(candidates: Iterable[Candidate]) -> int:
    """Returns the number of machines of some nodes: so many replicas of a partition they can have."""
    return len({candidate.failure_domain for candidate in candidates})


def place(partitions: int, replication_factor: int, candidates: Sequence[Candidate]) -> list[tuple[int, ...]]:
    """Returns the replicas of each partition of a new topic, in the order of preference: the first should lead.

    Machines of a partition are distinct, and so are their racks as long as there are enough. Over the topic, replicas
    per node and preferred leaders per node differ by at most one (with racks or machines: if all are of one size and
    not fewer than the replication factor). A remainder goes to the nodes that have the fewest already. Nodes of a
    higher tier come last in every partition (as in KRaft's StripedReplicaPlacer).

    Arguments:
        partitions: number of partitions, at least 1.
        replication_factor: number of replicas of each, at most the number of the candidates' machines.

    Raises:
        ValueError: there are fewer machines than replicas.
    """
    if not 1 <= replication_factor <= count_machines(candidates):
        machines = f"{len(candidates)} nodes of {count_machines(candidates)} machines"
        raise ValueError(f"{replication_factor} replicas do not fit on {machines}")
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
class _Domain:
    """The candidates of one rack or machine while a topic is being placed."""

    size: int = 0
    replicas: int = 0
    leaders: int = 0
    first: int = 1 << 31
    taken: int = 0
    in_partition: int = 0

    def add(self, candidate: Candidate) -> None:
        """Adds a candidate."""
        self.size += 1
        self.replicas += candidate.replicas
        self.leaders += candidate.leaders
        self.first = min(self.first, candidate.node_id)

    @property
    def load(self) -> tuple[float, int, int]:
        """Replicas per node before the topic, leaders, and the lowest node id.

        Nodes of one machine are taken in a fixed order, whatever they lead, so that the same ones meet again in every
        topic. With four machines of eight nodes, 40 topics then have 32 replica sets instead of some 200.
        """
        return (self.replicas / self.size, self.leaders if self.size == 1 else 0, self.first)


@dataclass(slots=True)
class _Slot:
    """A candidate while a topic is being placed."""

    node_id: int
    rack: _Domain
    machine: _Domain
    tier: int
    preference: tuple[tuple[float, int, int], tuple[int, int]]
    taken: int = 0

    def rank(self) -> tuple[object, ...]:
        """Returns a key by which the best candidate for the next replica comes first."""
        rack, machine = self.rack, self.machine
        of_machine, of_node = self.preference
        return (
            self.tier,
            rack.in_partition,
            rack.taken / rack.size,
            machine.taken / machine.size,
            of_machine,
            self.taken,
            of_node,
        )


def _choose_replicas(
    partitions: int, replication_factor: int, candidates: Sequence[Candidate]
) -> list[tuple[int, ...]]:
    """Returns, for each partition, the nodes that have the fewest replicas of the topic so far, comparing racks before
    machines, and machines before nodes; each on a machine of its own.

    Choosing the emptiest racks, then the emptiest machine, then the emptiest node in each, keeps all counts within one:
    a greedy choice by nodes alone fills a rack's last free node early and then has to double up elsewhere. It also
    repeats the same replica sets (copysets): each node then replicates with few others.
    """
    slots = _slots(candidates)
    chosen: list[tuple[int, ...]] = []
    for _ in range(partitions):
        free = slots
        replicas: list[_Slot] = []
        for _ in range(replication_factor):
            best = min(free, key=_Slot.rank)
            free = [slot for slot in free if slot.machine is not best.machine]
            replicas.append(best)
            best.taken += 1
            best.machine.taken += 1
            best.rack.taken += 1
            best.rack.in_partition += 1
        for slot in replicas:
            slot.rack.in_partition = 0
        chosen.append(tuple(slot.node_id for slot in replicas))
    return chosen


def _slots(candidates: Sequence[Candidate]) -> list[_Slot]:
    racks: dict[str, _Domain] = {}
    machines: dict[str, _Domain] = {}
    for each in candidates:
        racks.setdefault(each.rack or each.failure_domain, _Domain()).add(each)
        machines.setdefault(each.failure_domain, _Domain()).add(each)
    slots = []
    for each in candidates:
        machine = machines[each.failure_domain]
        preference = (machine.load, (each.replicas, each.node_id))
        rack = racks[each.rack or each.failure_domain]
        slots.append(_Slot(each.node_id, rack, machine, each.tier, preference))
    return slots


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
