"""Which nodes may take replicas: what they carry already, what they may carry, and what a request assigns by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from quorumlog.server.controller.placement import Candidate
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.request_limits import MAX_CHANGED_TOPICS

#: Node ids of the replicas of each of some partitions, the preferred leader first.
Placement: TypeAlias = list[tuple[int, ...]]


@dataclass(slots=True, frozen=True)
class TopicLimits:
    """Bounds on what one cluster and one request may ask for.

    Arguments:
        request_topics: topics in one request.
        topic_partitions: partitions of one topic. All of them are created in one step of a node, which must not take as
            long as an election timeout.
        node_replicas: replicas on one node. Each is a Raft group with its memory, its share of every failover, and its
            own heartbeat: at this bound those take more than half a core.
    """

    request_topics: int = MAX_CHANGED_TOPICS
    topic_partitions: int = 2_000
    node_replicas: int = 3_000


def check_assignments(
    image: MetadataImage, placement: Placement, factor: int | None = None, first_number: int = 0
) -> errors_pb2.Error | None:
    """Why partitions cannot be placed as a request says, or None.

    Arguments:
        factor: replicas that each must have; None: as many as the first.
        first_number: of the first of the partitions, for messages.
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
    if not replicas:
        return "every partition needs at least one replica"
    if len(set(replicas)) != len(replicas):
        return "a node cannot hold two replicas of the same partition"
    if len(replicas) != wanted:
        return f"every partition of a topic has as many replicas as the others, here {wanted}"
    if unknown:
        return f"node {unknown[0]} is not registered; the nodes are {', '.join(map(str, sorted(image.brokers)))}"
    if bare:
        return f"node {bare[0]} was started with --witness-only and takes no replicas"
    if 2 * len(down) >= len(replicas):
        return f"node {down[0]} is down, and without a majority of its nodes the partition could elect no leader"
    return ""


def load(image: MetadataImage, under_way: Sequence[Placement]) -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaders per node, those under way included."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sets = [partition.voters for partition in image.partitions.values()]
    sets.extend(members for placement in under_way for members in placement)
    for members in sets:
        replicas.update(members)
        leaders[members[0]] += 1
    return replicas, leaders


def candidates(image: MetadataImage, under_way: Sequence[Placement]) -> list[Candidate]:
    """The nodes that new replicas may be placed on: those that are there, and are to stay."""
    return [each for each in witness_candidates(image, under_way) if not each.witness_only]


def witness_candidates(image: MetadataImage, under_way: Sequence[Placement]) -> list[Candidate]:
    """The nodes that new witnesses may be placed on: beside the candidates those that take nothing else."""
    replicas, leaders = load(image, under_way)
    return [
        Candidate(node_id, broker.rack, replicas[node_id], leaders[node_id], broker.witness_only)
        for node_id, broker in sorted(image.brokers.items())
        if not broker.fenced and not broker.leaving
    ]


def check_room(
    image: MetadataImage, under_way: Sequence[Placement], placement: Placement, limits: TopicLimits
) -> errors_pb2.Error | None:
    """Why nodes cannot take so many more replicas, or None."""
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
