"""Requests about topics, as any node serves them: changes go to the controller, configurations are read here.

Producer names are deleted in the same way.

An answer to a change comes once this node's own image shows it, so that who asks the same node next sees what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.topic_config import describe_topic_config
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

TopicChange: TypeAlias = (
    admin_pb2.CreateTopicsRequest
    | admin_pb2.DeleteTopicsRequest
    | admin_pb2.CreatePartitionsRequest
    | admin_pb2.AlterConfigsRequest
    | admin_pb2.ReassignPartitionsRequest
    | admin_pb2.DeleteProducersRequest
)

_RESPONSES: dict[type[ProtoMessage], tuple[str, type[ProtoMessage]]] = {
    admin_pb2.CreateTopicsRequest: ("create_topics", admin_pb2.CreateTopicsResponse),
    admin_pb2.DeleteTopicsRequest: ("delete_topics", admin_pb2.DeleteTopicsResponse),
    admin_pb2.CreatePartitionsRequest: ("create_partitions", admin_pb2.CreatePartitionsResponse),
    admin_pb2.AlterConfigsRequest: ("alter_configs", admin_pb2.AlterConfigsResponse),
    admin_pb2.ReassignPartitionsRequest: ("reassign_partitions", admin_pb2.ReassignPartitionsResponse),
    admin_pb2.DeleteProducersRequest: ("delete_producers", admin_pb2.DeleteProducersResponse),
}


class TopicRequests:
    """Serves creation, deletion and change of topics, and their configurations.

    Arguments:
        image: gives this node's current metadata image.
        limit: changes that may wait for an image that shows them.
        reply: answers a request.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        client: ControllerClient,
        limit: int,
        reply: Callable[[int, ProtoMessage], None],
    ) -> None:
        self._image = image
        self._client = client
        self._limit = limit
        self._reply = reply
        #: Request, deadline, the metadata index that this node's image must have applied, and the answer.
        self._awaiting: list[tuple[int, int, int, ProtoMessage]] = []

    def change(self, now: int, request_id: int, request: TopicChange) -> None:
        """Passes the request on, and answers once this node's own image shows what the answer says."""
        deadline = now + wait_us(request.timeout_ms)
        kind = _RESPONSES[type(request)][0]

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is None or not response.HasField(kind):  # type: ignore[arg-type]  # a name of the oneof
                self._reply(request_id, failed_change(request, failure_of(response)))
                return
            self._awaiting.append((request_id, deadline, response.applied_index, getattr(response, kind)))
            self.on_applied()

        if len(self._awaiting) >= self._limit:
            busy = error(ErrorCode.SERVER_BUSY, "too many changes at once; try again after a pause")
            self._reply(request_id, failed_change(request, busy))
            return
        asked = peer_pb2.ControllerRequest()
        getattr(asked, kind).CopyFrom(request)
        self._client.ask(deadline, asked, answered)

    def on_applied(self) -> None:
        """The image moved on: changes that it shows by now are answered."""
        if not self._awaiting:
            return
        applied = self._image().applied_index
        shown = [each for each in self._awaiting if each[2] <= applied]
        self._awaiting = [each for each in self._awaiting if each[2] > applied]
        for request_id, _, _, response in shown:
            self._reply(request_id, response)

    def on_time(self, now: int) -> None:
        """Answers changes that are done although this node's image does not show them in time."""
        for request_id, deadline, _, response in self._awaiting:
            if deadline <= now:
                self._reply(request_id, response)
        self._awaiting = [each for each in self._awaiting if each[1] > now]

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return min((deadline for _, deadline, _, _ in self._awaiting), default=None)

    def list_reassignments(self, request_id: int) -> None:
        """The partitions that are being moved, as this node's image has them."""
        image, response = self._image(), admin_pb2.ListReassignmentsResponse()
        for record in map(image.partitions.__getitem__, image.moves.groups()):
            response.reassignments.add(
                topic=record.topic.name,
                partition=record.number,
                replicas=record.hosts,
                adding=[node for node in record.wanted if node not in record.replicas],
                removing=[node for node in record.hosts if node not in record.wanted],
            )
        self._reply(request_id, response)

    def describe_configs(self, request_id: int, request: admin_pb2.DescribeConfigsRequest) -> None:
        """Every configuration key of some topics, as this node's image has them."""
        response = admin_pb2.DescribeConfigsResponse()
        for name in request.names:
            result = response.results.add(name=name)
            topic = self._image().topics.get(name)
            if topic is None:
                problem = f"topic {name} does not exist: check its name"
                result.error.CopyFrom(error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem))
                continue
            for key in describe_topic_config(topic.configs):
                result.entries.add(
                    name=key.name,
                    value=key.value,
                    default_value=key.default,
                    is_default=not key.is_set,
                    documentation=key.doc,
                )
        self._reply(request_id, response)


def failed_change(request: TopicChange, problem: errors_pb2.Error) -> ProtoMessage:
    """The answer to a change that failed as a whole: the same error for every topic or name."""
    if isinstance(request, admin_pb2.ReassignPartitionsRequest):
        wishes = [(each.topic, each.partition) for each in request.reassignments]
        return admin_pb2.ReassignPartitionsResponse(
            results=[admin_pb2.ReassignmentResult(topic=t, partition=p, error=problem) for t, p in wishes]
        )
    response = _RESPONSES[type(request)][1]()
    by_name = admin_pb2.DeleteTopicsRequest | admin_pb2.DeleteProducersRequest
    names = request.names if isinstance(request, by_name) else [t.name for t in request.topics]
    for name in names:
        response.results.add(name=name, error=problem)  # type: ignore[attr-defined]  # all of them have it
    return response
