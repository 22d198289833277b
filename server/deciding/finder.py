"""FindCoordinators: any node answers from its own image, and has the coordinators created if none exist."""

from __future__ import annotations

from typing import Any

import google_crc32c

from quorumlog.raft.types import NO_NODE
from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.deciding.coordinator_kind import CoordinatorKind
from quorumlog.server.deciding.dependencies import KnownLeaders
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.groups_pb2 import FindCoordinatorsRequest, FindCoordinatorsResponse, GroupCoordinator
from quorumlog.wire.topic_names import GROUPS_TOPIC

#: Errors by refused keys.
_Refused = dict[str, errors_pb2.Error]

#: Maximum duration of a request that creates the coordinators (µs).
CREATION_US = 5_000_000


def coordinator_of(topic: Topic, key: str) -> PartitionRecord:
    """Returns the partition of the internal topic that keeps a key."""
    return topic.partitions[int(google_crc32c.value(key.encode())) % len(topic.partitions)]


class CoordinatorFinder:
    """Serves FindCoordinators for one kind of coordinator.

    Arguments:
        kind: the kind, whose keys are the ids in requests.
        controller: creates the coordinators.
        answers: answers due to clients.
        refusals: error responses for denied requests.
    """

    def __init__(
        self,
        kind: CoordinatorKind[Any, Any],
        metadata: CurrentImage,
        leaders: KnownLeaders,
        controller: ControllerClient,
        answers: PendingAnswers,
        refusals: Refusals,
    ) -> None:
        self._kind = kind
        self._refusals = refusals
        self._metadata = metadata
        self._leaders = leaders
        self._controller = controller
        self._answers = answers
        self._waiting: dict[int, tuple[FindCoordinatorsRequest, _Refused, Listener]] = {}
        self._is_asking = False
        #: Metadata index at which the image contains the coordinators that were created.
        self._shown_at: int | None = None

    def find(self, now: int, asked: ClientRequest, request: FindCoordinatorsRequest) -> None:
        """Answers now if the coordinators exist, otherwise once they are created. Endpoints are those of the listener
        that received the request."""
        request_id, refused = asked.request_id, self._refuse(asked.client, request)
        listener = asked.client.listener
        self._answers.expect(request_id, now + CREATION_US, _failed)
        topic = self._metadata.image.topics.get(self._kind.topic)
        if topic is not None or (refused and len(refused) == len(set(request.group_ids))):
            self._answers.give(request_id, self._found(topic, request, refused, listener))
            return
        self._waiting[request_id] = (request, refused, listener)
        level = self._metadata.image.feature_level
        if level < self._kind.feature_level:
            needs = f"{self._kind.topic} needs feature level {self._kind.feature_level}, the cluster is at {level}"
            self._fail(error(ErrorCode.UNSUPPORTED_VERSION, f"{needs}: upgrade all nodes, then the features"))
        elif not self._is_asking and self._shown_at is None:
            self._is_asking = True
            creation = peer_pb2.ControllerRequest(create_coordinators=_creation(self._kind.topic))
            self._controller.ask(now + CREATION_US, creation, self._answered)

    def _answered(self, response: peer_pb2.ControllerResponse | None) -> None:
        self._is_asking = False
        if response is None or not response.create_topics.results:
            self._fail(_unavailable("the controller did not answer, or is being elected"))
            return
        result = response.create_topics.results[0]
        if result.error.code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._shown_at = response.applied_index
            self.on_applied()
        else:
            self._fail(result.error)

    def _fail(self, problem: errors_pb2.Error) -> None:
        waiting, self._waiting = self._waiting, {}
        for request_id in waiting:
            self._answers.fail(request_id, problem)

    def on_applied(self) -> None:
        """Answers the waiting requests if the image contains the coordinators by now."""
        if not self._waiting:
            return
        image = self._metadata.image
        topic = image.topics.get(self._kind.topic)
        if topic is not None:
            waiting, self._waiting = self._waiting, {}
            for request_id, (request, refused, listener) in waiting.items():
                self._answers.give(request_id, self._found(topic, request, refused, listener))
        if self._shown_at is not None and image.applied_index >= self._shown_at:
            self._shown_at = None

    def client_gone(self, request_id: int) -> None:
        """Forgets a request whose client is gone."""
        self._waiting.pop(request_id, None)

    # -- lookup -----------------------------------------------------------------------------------------------

    def _refuse(self, client: RequestContext, request: FindCoordinatorsRequest) -> _Refused:
        """Returns the errors for the requested keys that will never have a coordinator for this client."""
        operation = operation_of(FindCoordinatorsRequest)
        refused: _Refused = {}
        for key in () if request.all else request.group_ids:
            problem = self._kind.check_key(key) or self._refusals.resource(client, operation, self._kind.resource, key)
            if problem is not None:
                refused[key] = problem
        return refused

    def _found(
        self, topic: Topic | None, request: FindCoordinatorsRequest, refused: _Refused, listener: Listener
    ) -> FindCoordinatorsResponse:
        response = FindCoordinatorsResponse()
        if request.all and topic is not None:
            for record in topic.partitions:
                self._place(record, response.coordinators.add(), listener)
            return response
        for key in request.group_ids:
            coordinator = response.coordinators.add(group_id=key, partition=-1, node_id=NO_NODE)
            if key in refused:
                coordinator.error.CopyFrom(refused[key])
            elif topic is not None:
                self._place(coordinator_of(topic, key), coordinator, listener)
        return response

    def _place(self, record: PartitionRecord, found: GroupCoordinator, listener: Listener) -> None:
        leader, epoch = self._leaders.known_leader(record)
        broker = self._metadata.image.brokers.get(leader)
        found.partition, found.node_id, found.leader_epoch = record.number, NO_NODE, epoch
        if broker is None:
            found.error.CopyFrom(_unavailable(f"{record.name} has no leader at the moment"))
        else:
            found.node_id = leader
            found.host, found.port = broker.endpoint(listener)
            found.broker_epoch = broker.epoch


def _creation(topic: str) -> peer_pb2.CreateCoordinators:
    """Returns the request for coordinators. An older controller creates those of consumer groups only."""
    return peer_pb2.CreateCoordinators(topic="" if topic == GROUPS_TOPIC else topic)


def unknown_type(number: int) -> FindCoordinatorsResponse:
    """Returns the answer for coordinators of a type that does not exist."""
    return _failed(error(ErrorCode.INVALID_REQUEST, f"coordinators of type {number} do not exist: choose 0 or 1"))


def _failed(problem: errors_pb2.Error) -> FindCoordinatorsResponse:
    return FindCoordinatorsResponse(error=problem)


def _unavailable(why: str) -> errors_pb2.Error:
    return error(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{why}: try again shortly")
