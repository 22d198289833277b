"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments. Any node accepts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

from quorumlog.server.kafka.codec.administration.placement_requests import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from quorumlog.server.kafka.codec.administration.placement_responses import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionElectionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.kafka.handlers.topics import within_limits
from quorumlog.v1 import admin_pb2
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS, MAX_ITEMS

_Place = tuple[str, int]
_Item = TypeVar("_Item")
#: Before this version, the only kind of election is that of preferred leaders.
_SAYS_ELECTION = 1


class _Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


# -- elections ----------------------------------------------------------------------------------------------------


def elect_leaders(call: KafkaCall[ElectLeadersRequest]) -> Steps[ElectLeadersResponse]:
    """Answers ElectLeaders: transfers leadership to preferred leaders. Refuses unclean ones: they lose records."""
    request, wanted = call.message, call.message.topic_partitions
    # Partitions that are named twice are answered once.
    places = list(dict.fromkeys((each.topic, number) for each in wanted or () for number in each.partitions))
    if call.version >= _SAYS_ELECTION and request.election_type != _Election.PREFERRED:
        refused = "unclean elections are not supported, they would lose acknowledged records: elect preferred leaders"
        # Reported for each partition, where the response has a message.
        code = KafkaError.NONE if places else KafkaError.INVALID_REQUEST
        return _elected(code, ((place, KafkaError.INVALID_REQUEST, refused) for place in places))
    timeout_ms = within_limits(request.timeout_ms)
    outcomes: list[tuple[_Place, KafkaError, str | None]] = []
    for part in _parts(places, MAX_ITEMS) if wanted is not None else [()]:
        question = admin_pb2.ElectLeadersRequest(
            partitions=[admin_pb2.PartitionName(topic=topic, partition=number) for topic, number in part],
            timeout_ms=timeout_ms,
        )
        reply = yield from ask(question, admin_pb2.ElectLeadersResponse)
        if reply.HasField("error"):
            return _elected(kafka_code(reply.error), ())
        for each in reply.results:
            code, message = kafka_code(each.error), each.error.message or None
            outcomes.append(((each.topic, each.partition), code, message))
    # Denied authorization is reported for every partition and for the request as a whole.
    is_refused = any(code is KafkaError.CLUSTER_AUTHORIZATION_FAILED for _, code, _ in outcomes)
    return _elected(KafkaError.CLUSTER_AUTHORIZATION_FAILED if is_refused else KafkaError.NONE, outcomes)


def _elected(code: KafkaError, outcomes: Iterable[tuple[_Place, KafkaError, str | None]]) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionElectionResult]] = {}
    for (topic, number), error, message in outcomes:
        topics.setdefault(topic, []).append(PartitionElectionResult(number, error, message))
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[ReplicaElectionResult(topic, results) for topic, results in topics.items()],
    )


# -- moves --------------------------------------------------------------------------------------------------------


def alter_reassignments(
    call: KafkaCall[AlterPartitionReassignmentsRequest],
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Answers AlterPartitionReassignments: starts and cancels moves."""
    request = call.message
    named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    responses = []
    waiting: dict[_Place, ReassignablePartitionResponse] = {}
    wishes: list[admin_pb2.Reassignment] = []
    for topic in request.topics:
        outcomes = []
        for each in topic.partitions:
            place = topic.name, each.partition_index
            outcome = ReassignablePartitionResponse(each.partition_index, KafkaError.NONE, None)
            outcomes.append(outcome)
            if named[place] > 1:
                _refuse(outcome, KafkaError.INVALID_REQUEST, "the request names the partition twice")
            elif each.replicas is not None and not each.replicas:
                # The node would interpret an empty list as a cancellation.
                _refuse(
                    outcome,
                    KafkaError.INVALID_REPLICA_ASSIGNMENT,
                    "the list of replicas is empty: name at least one node",
                )
            else:
                waiting[place] = outcome
                wishes.append(admin_pb2.Reassignment(topic=place[0], partition=place[1], replicas=each.replicas or ()))
        responses.append(ReassignableTopicResponse(topic.name, outcomes))
    is_refused = False
    for part in _parts(wishes, MAX_CHANGE_TARGETS):
        question = admin_pb2.ReassignPartitionsRequest(
            reassignments=part,
            timeout_ms=within_limits(request.timeout_ms),
            keep_replication_factor=not request.allow_replication_factor_change,
        )
        reply = yield from ask(question, admin_pb2.ReassignPartitionsResponse)
        for requested, result in zip(part, reply.results, strict=True):
            if result.HasField("error"):
                code = _code_of_wish(kafka_code(result.error), is_cancellation=not requested.replicas)
                _refuse(waiting[requested.topic, requested.partition], code, result.error.message)
                is_refused |= code is KafkaError.CLUSTER_AUTHORIZATION_FAILED
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=KafkaError.CLUSTER_AUTHORIZATION_FAILED if is_refused else KafkaError.NONE,
        error_message=None,
        responses=responses,
    )


def list_reassignments(
    call: KafkaCall[ListPartitionReassignmentsRequest],
) -> Steps[ListPartitionReassignmentsResponse]:
    """Answers ListPartitionReassignments, for all partitions or those named. Witnesses are not reported as replicas."""
    wanted = call.message.topics
    question = admin_pb2.ListReassignmentsRequest(timeout_ms=within_limits(call.message.timeout_ms))
    reply = yield from ask(question, admin_pb2.ListReassignmentsResponse)
    if reply.HasField("error"):
        code = kafka_code(reply.error)
        return ListPartitionReassignmentsResponse(error_code=code, error_message=reply.error.message)
    named = None if wanted is None else {(each.name, number) for each in wanted for number in each.partition_indexes}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for each in reply.reassignments:
        if named is not None and (each.topic, each.partition) not in named:
            continue
        witnesses = set(each.witnesses)
        replicas, adding, removing = (
            [node for node in nodes if node not in witnesses] for nodes in (each.replicas, each.adding, each.removing)
        )
        move = OngoingPartitionReassignment(each.partition, replicas, adding, removing)
        topics.setdefault(each.topic, []).append(move)
    return ListPartitionReassignmentsResponse(
        error_code=KafkaError.NONE,
        error_message=None,
        topics=[OngoingTopicReassignment(topic, moves) for topic, moves in topics.items()],
    )


def _code_of_wish(code: KafkaError, *, is_cancellation: bool) -> KafkaError:
    is_idle = code is KafkaError.REASSIGNMENT_IN_PROGRESS and is_cancellation
    return KafkaError.NO_REASSIGNMENT_IN_PROGRESS if is_idle else code


def _refuse(outcome: ReassignablePartitionResponse, code: KafkaError, message: str) -> None:
    outcome.error_code, outcome.error_message = code, message


def _parts(items: Sequence[_Item], most: int) -> list[Sequence[_Item]]:
    return [items[begin : begin + most] for begin in range(0, len(items), most)]
