"""The controller's decisions on requests to move partitions: each becomes a command or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.feature_levels import refuse_throttle
from quorumlog.server.controller.machines import two_on_one_machine
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.controller.topic_plans import refuse_even_below_second
from quorumlog.server.controller.witness_placement import witness_for
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.moves import check_wish, refuse_without_witness
from quorumlog.server.metadata.records import ApplyResult, PartitionRecord
from quorumlog.server.metadata.topic_config import (
    InvalidTopicConfigError,
    check_consistency,
    parse_topic_config,
)
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS

_Plan = metadata_log_pb2.MetadataCommand | errors_pb2.Error


class ReassignmentDecisions:
    """Decides on requests that move partitions.

    Arguments:
        image: the controller's image, read only here.
    """

    def __init__(self, image: MetadataImage, limits: TopicLimits) -> None:
        self._image = image
        self._limits = limits

    def decide(self, wall_ms: int, number: int, request: admin_pb2.ReassignPartitionsRequest) -> ControllerDecision:
        """Decides on one request; a request with `validate_only` changes nothing."""
        if len(request.reassignments) > MAX_CHANGE_TARGETS:
            problem = (
                f"{len(request.reassignments)} partitions in one request: at most {MAX_CHANGE_TARGETS} are allowed"
            )
            return refusal(number, error(ErrorCode.INVALID_REQUEST, problem))
        refused = refuse_throttle(self._image, request.bytes_per_second)
        if refused is not None:
            return refusal(number, refused)
        times = Counter((each.topic, each.partition) for each in request.reassignments)
        coming: Counter[int] = Counter()
        plans = [
            self._plan(
                wall_ms, each, times[each.topic, each.partition], coming, keeps_factor=request.keep_replication_factor
            )
            for each in request.reassignments
        ]
        commands = tuple(each for each in plans if isinstance(each, metadata_log_pb2.MetadataCommand))
        for command in commands:
            if command.reassign_replicas.replicas:
                command.reassign_replicas.bytes_per_second = request.bytes_per_second
        if request.validate_only or not commands:
            return answer_now(number, _response(request, plans, ()))
        return ControllerDecision(number, commands=commands, merge=lambda results: _response(request, plans, results))

    def _plan(
        self, wall_ms: int, wish: admin_pb2.Reassignment, times: int, coming: Counter[int], *, keeps_factor: bool
    ) -> _Plan:
        topic = self._image.topic_table.named(wish.topic, wish.topic_id)
        if topic is None:
            problem = f"topic {wish.topic[:80]!a} does not exist: check its name"
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        if not 0 <= wish.partition < len(topic.partitions):
            problem = f"topic {topic.name} has {len(topic.partitions)} partitions, and no partition {wish.partition}"
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        partition, wanted = topic.partitions[wish.partition], tuple(wish.replicas)
        if times > 1:
            return error(ErrorCode.INVALID_REQUEST, f"{partition.name} is {times} times in the request: name it once")
        witness = witness_for(self._image, partition, wanted) if wanted else NO_NODE
        refused = self._check(partition, wanted, coming) if wanted else None
        if wanted and keeps_factor:
            refused = refused or _refuse_other_factor(partition, wanted)
        if wanted and len(wanted) % 2 == 0 and witness == NO_NODE:
            # Without one in the command the present one would stay, which may be on the machine of a replica.
            refused = refused or refuse_without_witness(partition, wanted)
        refused = refused or check_wish(partition, wanted, witness)
        if refused is not None:
            return refused
        body = metadata_log_pb2.ReassignReplicas(group=partition.group, replicas=wanted)
        if wanted and keeps_factor:
            # Another request that is decided concurrently may want another number of replicas.
            body.wishes = partition.wishes
        if witness != NO_NODE:
            body.witness = witness
        return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body)

    def _check(
        self, partition: PartitionRecord, wanted: tuple[int, ...], coming: Counter[int]
    ) -> errors_pb2.Error | None:
        """Returns the error if the nodes cannot accept the replicas; None if they can. Nodes that have one already may
        be down."""
        brokers = self._image.brokers
        unknown = [node for node in wanted if node not in brokers]
        new = [node for node in wanted if node not in partition.hosts]
        down = [node for node in new if self._image.is_fenced(node)]
        bare = [node for node in new if node in brokers and brokers[node].witness_only]
        leaving = [node for node in new if node in brokers and brokers[node].leaving]
        together = two_on_one_machine(self._image, wanted)
        problem = ""
        if len(set(wanted)) != len(wanted):
            problem = "a node cannot hold two replicas of the same partition"
        elif together:
            problem = together
        elif unknown:
            nodes = ", ".join(map(str, sorted(brokers)))
            problem = f"node {unknown[0]} is not registered; the nodes are {nodes}"
        elif down:
            problem = f"node {down[0]} is down and could not copy the partition; start it first"
        elif bare:
            problem = f"node {bare[0]} was started with --witness-only and accepts no replicas"
        elif leaving:
            problem = f"node {leaving[0]} is being drained; choose another, or undrain it first"
        if problem:
            shown = ",".join(map(str, wanted))
            return error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition.name} on nodes {shown}: {problem}")
        if len(wanted) % 2 == 0:
            too_early = refuse_even_below_second(self._image)
            if too_early is not None:
                return too_early
        try:
            check_consistency(parse_topic_config(partition.topic.configs), len(wanted))
        except InvalidTopicConfigError as invalid:
            return error(ErrorCode.INVALID_CONFIG, str(invalid))
        return self._check_room(new, coming)

    def _check_room(self, new: list[int], coming: Counter[int]) -> errors_pb2.Error | None:
        if not new:
            return None
        for node in new:
            total = len(self._image.replica_index.on(node)) + coming[node] + 1
            if total > self._limits.node_replicas:
                problem = f"node {node} would hold {total} replicas, at most {self._limits.node_replicas} are allowed"
                return error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{problem}: choose another node")
        coming.update(new)
        return None


def _refuse_other_factor(partition: PartitionRecord, wanted: tuple[int, ...]) -> errors_pb2.Error | None:
    """Returns the error if a request does not keep the number of replicas; None if it does. For a partition that is
    being moved, the number after the move counts (KIP-860)."""
    if len(wanted) == len(partition.wanted):
        return None
    problem = f"{partition.name} has {len(partition.wanted)} replicas, and would have {len(wanted)}"
    return error(ErrorCode.INVALID_REPLICATION_FACTOR, f"{problem}: name as many nodes, or allow another number")


def _response(
    request: admin_pb2.ReassignPartitionsRequest, plans: Sequence[_Plan], results: Sequence[ApplyResult]
) -> peer_pb2.ControllerResponse:
    """Returns one outcome per partition in the request's order; planned ones take theirs from ``results`` if there are
    any."""
    applied = iter(results)
    response = admin_pb2.ReassignPartitionsResponse()
    for reassignment, plan in zip(request.reassignments, plans, strict=True):
        outcome = response.results.add(topic=reassignment.topic, partition=reassignment.partition)
        if isinstance(plan, errors_pb2.Error):
            outcome.error.CopyFrom(plan)
        elif results:
            result = next(applied).response.reassign_partitions.results[0]
            if result.HasField("error"):
                outcome.error.CopyFrom(result.error)
    return peer_pb2.ControllerResponse(reassign_partitions=response)
