"""Nodes that may accept replicas: their load, their limits, and explicit assignments in requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from quorumlog.server.controller.machines import two_on_one_machine
from quorumlog.server.controller.placement import Candidate, count_machines
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_CHANGED_TOPICS

#: Node ids of the replicas of each of some partitions, the preferred leader first.
Placement: TypeAlias = list[tuple[int, ...]]


class Tier(IntEnum):
    """Order in which nodes are considered for new replicas."""

    UP = 0
    LEAVING = 1
    DOWN = 2
    #: Down, and its disk is being replaced. A partition without a witness gets its replica there afterwards; one with a
    #: witness would delay the replacement (``disk_replacement``).
    LOST = 3
    #: Down, and being drained.
    GONE = 4

    @classmethod
    def of(cls, broker: BrokerRecord) -> Tier:
        """Returns the tier of a registered node."""
        if broker.leaving:
            return cls.GONE if broker.fenced else cls.LEAVING
        if broker.is_lost:
            return cls.LOST
        return cls.DOWN if broker.fenced else cls.UP


@dataclass(slots=True, frozen=True)
class TopicLimits:
    """Limits of one cluster and one request.

    Arguments:
        request_topics: topics in one request.
        topic_partitions: partitions of one topic. All of them are created in one step of a node, which must not take as
            long as an election timeout.
        node_replicas: replicas on one node. Each is a Raft group with its memory, its share of every failover, and its
            own heartbeat: at this limit those take more than half a core.
    """

    request_topics: int = MAX_CHANGED_TOPICS
    topic_partitions: int = 2_000
    node_replicas: int = 3_000


def check_assignments(
    image: MetadataImage, placement: Placement, factor: int | None = None, first_number: int = 0
) -> errors_pb2.Error | None:
    """Returns the error if partitions cannot be placed as a request assigns them; None if they can.

    Arguments:
        factor: number of replicas that each must have; None for as many as the first.
        first_number: number of the first of the partitions, for messages.
    """
    wanted = len(placement[0]) if factor is None else factor
    for number, replicas in enumerate(placement, first_number):
        problem = _problem_with(image, replicas, wanted)
        if problem:
            shown = ",".join(map(str, replicas))
            return error(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} on nodes {shown or 'none'}: {problem}"
            )
    return None


def _problem_with(image: MetadataImage, replicas: tuple[int, ...], wanted: int) -> str:
    unknown = [node for node in replicas if node not in image.brokers]
    down = [node for node in replicas if image.is_fenced(node)]
    bare = [node for node in replicas if node in image.brokers and image.brokers[node].witness_only]
    lost = [node for node in replicas if node in image.brokers and image.brokers[node].is_lost]
    if not replicas:
        return "every partition needs at least one replica"
    if len(set(replicas)) != len(replicas):
        return "a node cannot hold two replicas of the same partition"
    together = two_on_one_machine(image, replicas)
    if together:
        return together
    if len(replicas) != wanted:
        return f"every partition of a topic has as many replicas as the others, here {wanted}"
    if unknown:
        return f"node {unknown[0]} is not registered; the nodes are {', '.join(map(str, sorted(image.brokers)))}"
    if bare:
        return f"node {bare[0]} was started with --witness-only and accepts no replicas"
    if lost and len(replicas) % 2 == 0:
        return f"the disk of node {lost[0]} is being replaced: name another node, or wait until it is up again"
    # An even number of replicas gets an additional witness.
    voters = len(replicas) + (len(replicas) + 1) % 2
    if 2 * len(down) > voters:
        return f"node {down[0]} is down, and without a majority of its nodes the partition could elect no leader"
    return ""


def load(image: MetadataImage, under_way: Sequence[Placement]) -> tuple[Counter[int], Counter[int]]:
    """Returns replicas and preferred leaders per node, including proposed ones."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sets = [partition.voters for partition in image.partitions.values()]
    sets.extend(members for placement in under_way for members in placement)
    for members in sets:
        replicas.update(members)
        leaders[members[0]] += 1
    return replicas, leaders


def candidates(
    image: MetadataImage, under_way: Sequence[Placement], factor: int, *, drained: bool = False
) -> list[Candidate]:
    """Returns the nodes on which new replicas may be placed: those that are up and stay, and others only if those are
    too few.

    A node that is down creates its replica when it returns (as in KRaft). The partition works without it, because a
    majority of its voters is up (``refuse_minority``).

    Arguments:
        factor: number of replicas of a partition.
        drained: True if nodes that are being drained may be used too, before those that are down.
    """
    placeable = [each for each in _nodes(image, under_way) if not each.witness_only]
    unusable = set() if drained else {Tier.LEAVING, Tier.GONE}
    if factor % 2 == 0:
        unusable.add(Tier.LOST)
    chosen: list[Candidate] = []
    for tier in Tier:
        if count_machines(chosen) < factor and tier not in unusable:
            chosen += (each for each in placeable if each.tier == tier)
    return sorted(chosen, key=lambda each: each.node_id)


def witness_candidates(image: MetadataImage, under_way: Sequence[Placement]) -> list[Candidate]:
    """Returns the nodes on which new witnesses may be placed: those that stay, including those that accept nothing
    else."""
    return [each for each in _nodes(image, under_way) if each.tier in (Tier.UP, Tier.DOWN)]


def _nodes(image: MetadataImage, under_way: Sequence[Placement]) -> list[Candidate]:
    """Returns every registered node with its load and tier."""
    replicas, leaders = load(image, under_way)
    return [
        Candidate(
            node_id,
            broker.rack,
            replicas[node_id],
            leaders[node_id],
            broker.witness_only,
            Tier.of(broker),
            broker.machine,
        )
        for node_id, broker in sorted(image.brokers.items())
    ]


def nodes_apart(number: int, usable: Sequence[Candidate]) -> str:
    """Returns a phrase for messages: a number of nodes, and that their machines must be distinct, where some of the
    usable nodes share one."""
    return f"{number} nodes" if count_machines(usable) == len(usable) else f"{number} nodes on distinct machines"


def registered_nodes(image: MetadataImage, usable: Sequence[Candidate], factor: int) -> str:
    """Returns a phrase for messages: the number of registered nodes, why some of them cannot be used, and the number of
    their machines, where some share one.

    Arguments:
        usable: the nodes that can be used for a topic with this replication factor.
    """
    brokers = image.brokers.values()
    others = {
        "being drained": sum(broker.leaving for broker in brokers),
        "for witnesses only": sum(broker.witness_only for broker in brokers),
        "whose disk is being replaced": sum(broker.is_lost for broker in brokers) * (factor % 2 == 0),
    }
    unusable = "; ".join(f"{count} {why}" for why, count in others.items() if count)
    registered = f"{len(brokers)} are registered"
    if unusable:
        registered = f"{len(usable)} of the {len(brokers)} registered can be used ({unusable})"
    machines = count_machines(usable)
    return registered if machines == len(usable) else f"{registered}, on {machines} machines"


def refuse_minority(image: MetadataImage, placement: Placement) -> errors_pb2.Error | None:
    """Returns the error if a partition could elect no leader; None if a majority of the voters of each is up.

    Arguments:
        placement: the voters of each partition, including its witness.
    """
    for voters in placement:
        up = [node for node in voters if not image.is_fenced(node)]
        if 2 * len(up) <= len(voters):
            needed = len(voters) // 2 + 1
            return error(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"a partition on nodes {', '.join(map(str, sorted(voters)))} needs {needed} of them alive to elect a"
                f" leader, and {len(up)} are: start more nodes or use a smaller factor",
            )
    return None


def check_room(
    image: MetadataImage, under_way: Sequence[Placement], placement: Placement, limits: TopicLimits
) -> errors_pb2.Error | None:
    """Returns the error if a node cannot accept that many more replicas; None if all can."""
    present, _ = load(image, under_way)
    wanted = Counter(node for replicas in placement for node in replicas)
    for node, more in sorted(wanted.items()):
        if present[node] + more > limits.node_replicas:
            return error(
                ErrorCode.INVALID_PARTITIONS,
                f"node {node} would hold {present[node] + more} replicas, at most {limits.node_replicas} are allowed:"
                " use fewer partitions or add nodes",
            )
    return None
