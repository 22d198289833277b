"""Metadata queries: any node answers them from its own image, or by a linearizable read on request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from quorumlog.raft.types import NO_NODE
from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.metadata.records import BrokerRecord
from quorumlog.server.metadata.topic_config import describe_topic_config
from quorumlog.server.metadata.topic_table import no_such_topic, refuse_spelling
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.metadata_staleness import UNKNOWN_AGE_MS, ImageAge
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALTER,
    ACL_OPERATION_ALTER_CONFIGS,
    ACL_OPERATION_CREATE,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_DESCRIBE_CONFIGS,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_PRODUCER_NAMES

#: Operation that a client needs on topics whose configuration is described.
_CONFIGS = operation_of(admin_pb2.DescribeConfigsRequest)
#: Configuration keys without which clients cannot use a topic: a client that may describe the topic receives them.
CLIENTS_CONFIGS = frozenset(("cleanup.policy", "max.message.bytes"))
#: The operations that exist on a topic.
_OPERATIONS = (
    ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_OPERATION_CREATE, ACL_OPERATION_DELETE, ACL_OPERATION_ALTER,
    ACL_OPERATION_DESCRIBE, ACL_OPERATION_DESCRIBE_CONFIGS, ACL_OPERATION_ALTER_CONFIGS,
)  # fmt: skip


#: Maximum time that an answer waits for changes that may be on the way, and maximum number of answers that wait:
#: further ones are sent immediately.
MOST_SETTLE_MS = 100
MOST_SETTLING = 1_000
#: Time for which Kafka's clients still receive a fenced node (µs).
LATELY_US = 5_000_000


class FencedLately:
    """Remembers which nodes were fenced recently.

    A client that receives a stopped node's removal and the new leaders in the same answer may remove the node before it
    has moved its partitions to their next leaders. librdkafka then leaves them without a leader for a second. Kafka's
    clients therefore receive such a node a little longer, just as they receive a node that was killed until its session
    ends.
    """

    def __init__(self) -> None:
        self._since: dict[int, int] = {}

    def nodes(self, now: int, brokers: Iterable[BrokerRecord]) -> set[int]:
        """Returns the nodes that were fenced recently: counted from the first query that saw them fenced.

        Arguments:
            now: microseconds on the node's clock.
            brokers: all brokers of the cluster.
        """
        self._since = {each.node_id: self._since.get(each.node_id, now) for each in brokers if each.fenced}
        return {node for node, since in self._since.items() if now < since + LATELY_US}


class _Settling(NamedTuple):
    """A request whose answer waits for changes that may be on the way."""

    request_id: int
    deadline: int
    asked: ClientRequest
    request: data_plane_pb2.MetadataRequest


class MetadataQueries:
    """Serves metadata, configurations of topics, reassignments in progress and producer names."""

    def __init__(
        self,
        cluster_id: str,
        metadata: MetadataReplica,
        age: ImageAge,
        partitions: Replicas,
        reads: MetadataReads,
        replies: Replies,
        refusals: Refusals,
    ) -> None:
        self._refusals = refusals
        self._authorizer = refusals.authorizer
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._age = age
        self._partitions = partitions
        self._reads = reads
        self._replies = replies
        self._fenced_lately = FencedLately()
        self._settling: PendingCalls[_Settling] = PendingCalls(MOST_SETTLING)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(data_plane_pb2.MetadataRequest, self.describe_cluster)
        hooks.serve(admin_pb2.DescribeConfigsRequest, self.describe_configs)
        hooks.serve(admin_pb2.ListReassignmentsRequest, self.list_reassignments)
        hooks.serve(admin_pb2.ListProducersRequest, self.list_producers)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.calls(self._settling)

    # -- brokers and topics -----------------------------------------------------------------------------------

    def describe_cluster(self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.MetadataRequest) -> None:
        """Describes brokers and topics from this node's image."""
        if not request.linearizable:
            if request.settle_ms and not self._settling.full:
                due = time.now + min(request.settle_ms, MOST_SETTLE_MS) * 1_000
                self._settling.add(_Settling(asked.request_id, due, asked, request))
            else:
                self._describe_cluster(time.now, asked, request)
            return

        def answer(problem: errors_pb2.Error | None) -> None:
            if problem is None:
                self._describe_cluster(time.now, asked, request)
            else:
                self._replies.reply(asked.request_id, failed_description(request, problem))

        self._reads.read(time.now, request.timeout_ms, answer)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the requests whose settle time has passed."""
        for each in self._settling.take_expired(now):
            self._describe_cluster(now, each.asked, each.request)

    def client_gone(self, request_id: int) -> None:
        self._settling.take(request_id)

    def _describe_cluster(self, now: int, asked: ClientRequest, request: data_plane_pb2.MetadataRequest) -> None:
        response = self.cluster_description(now, asked.client)
        if request.all_topics:
            sees = self._authorizer.sees_topic
            names = [name for name in self._metadata.image.topics if sees(asked.principal, name)]
        else:
            names = list(request.topics)
        for name in names:
            described = response.topics.add(name=name)
            self.describe_topic(asked.client, name, described)
            self._tell_lost_leaders(now, name, described)
            if request.allowed_operations and not described.HasField("error"):
                may = self._authorizer.may
                described.allowed_operations = sum(
                    1 << each for each in _OPERATIONS if may(asked.principal, each, ACL_RESOURCE_TOPIC, name)
                )
        self._replies.reply(asked.request_id, response)

    def cluster_description(self, now: int, client: RequestContext) -> data_plane_pb2.MetadataResponse:
        """Returns the cluster and its brokers according to this node's image, without topics.

        Arguments:
            now: microseconds on the node's clock.
            client: the client that receives the answer; its listener decides on the endpoints.
        """
        image = self._metadata.image
        response = data_plane_pb2.MetadataResponse(
            cluster_id=self._cluster_id,
            controller_id=self._metadata.raft.leader_id,
            image_age_ms=self._age.bound_ms(now),
            applied_index=image.applied_index,
            feature_level=image.feature_level,
        )
        missing = image.lost_disks.missing()
        lately = self._fenced_lately.nodes(now, image.brokers.values())
        for broker in image.brokers.values():
            host, port = broker.endpoint(client.listener)
            response.brokers.add(
                node_id=broker.node_id,
                host=host,
                port=port,
                rack=broker.rack,
                machine=broker.registration.machine,
                fenced=broker.fenced,
                broker_epoch=broker.epoch,
                version=broker.registration.version,
                leaving=broker.leaving,
                feature_level=broker.registration.feature_level,
                lost=broker.is_lost,
                directory_id=broker.registration.directory_id,
                returning=missing[broker.node_id],
                witness_only=broker.witness_only,
                fenced_lately=broker.node_id in lately,
            )
        return response

    def describe_topic(self, client: RequestContext, name: str, described: data_plane_pb2.TopicMetadata) -> None:
        """Describes a topic according to this node's image, or fills in the error."""
        image = self._metadata.image
        operation = operation_of(data_plane_pb2.MetadataRequest)
        problem = self._refusals.topic(client, operation, name, lambda: _not_there(name))
        topic = image.topics.get(name)
        if problem is not None or topic is None:
            described.error.CopyFrom(problem or _not_there(name))
            return
        described.topic_id = topic.topic_id
        described.internal = topic.is_internal
        sees_all = self._authorizer.may(client.principal, _CONFIGS, ACL_RESOURCE_TOPIC, name)
        described.configs.update(
            {key: value for key, value in topic.configs.items() if sees_all or key in CLIENTS_CONFIGS}
        )
        for record in topic.partitions:
            leader, epoch = self._partitions.known_leader(record)
            described.partitions.add(
                partition=record.number,
                leader=leader,
                leader_epoch=epoch,
                replicas=record.replicas,
                isr=record.isr,
                partition_epoch=record.partition_epoch,
                group_id=record.group,
                witness=record.witness if record.witness != NO_NODE else None,
            )

    def _tell_lost_leaders(self, now: int, name: str, described: data_plane_pb2.TopicMetadata) -> None:
        """Marks partitions whose leader is known to have lost the leadership.

        A client that watches the cluster is notified of the next leader instead, so watches do not need the mark.
        """
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            return
        for partition in described.partitions:
            if self._partitions.has_lost_leader(now, topic.partitions[partition.partition]):
                partition.leader_lost = True

    def describe_configs(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DescribeConfigsRequest) -> None:
        """Describes every configuration key of the requested topics according to this node's image."""
        response = admin_pb2.DescribeConfigsResponse()
        for name in request.names:
            result = response.results.add(name=name)
            problem = self._refusals.topic(asked.client, _CONFIGS, name, lambda name=name: no_such_topic(name))  # type: ignore[misc]
            topic = self._metadata.image.topics.get(name)
            if problem is not None or topic is None:
                result.error.CopyFrom(problem or no_such_topic(name))
                continue
            for key in describe_topic_config(topic.configs):
                result.entries.add(
                    name=key.name,
                    value=key.value,
                    default_value=key.default,
                    is_default=not key.is_set,
                    documentation=key.doc,
                )
        self._replies.reply(asked.request_id, response)

    # -- moves ------------------------------------------------------------------------------------------------

    def list_reassignments(
        self, time: StepTime, asked: ClientRequest, request: admin_pb2.ListReassignmentsRequest
    ) -> None:
        """Lists the partitions that are being reassigned."""

        def answer(problem: errors_pb2.Error | None) -> None:
            if problem is None:
                self._list_reassignments(asked.request_id)
            else:
                self._replies.reply(asked.request_id, admin_pb2.ListReassignmentsResponse(error=problem))

        # A stale answer would report a reassignment that has just started as finished.
        self._reads.read(time.now, request.timeout_ms, answer)

    def _list_reassignments(self, request_id: int) -> None:
        image, response = self._metadata.image, admin_pb2.ListReassignmentsResponse()
        for record in map(image.partitions.__getitem__, image.moves.groups()):
            response.reassignments.add(
                topic=record.topic.name,
                partition=record.number,
                replicas=record.hosts,
                bytes_per_second=record.throttle,
                adding=[node for node in record.wanted_voters if node not in record.voters],
                removing=[node for node in record.hosts if node not in record.wanted_voters],
                witnesses=sorted(record.witness_hosts),
            )
        self._replies.reply(request_id, response)

    # -- producer names ---------------------------------------------------------------------------------------

    def list_producers(self, time: StepTime, asked: ClientRequest, request: admin_pb2.ListProducersRequest) -> None:
        """Lists one page of the producer names."""

        def may_list(name: str) -> bool:
            return self._authorizer.may(asked.principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_PRODUCER_NAME, name)

        def answer(problem: errors_pb2.Error | None) -> None:
            response = admin_pb2.ListProducersResponse(error=problem)
            if problem is None:
                names = self._metadata.image.named_producers
                listed = (
                    [each for each in names.listed(request.names) if may_list(each.name)]
                    if request.names
                    else names.page(request.prefix, request.after, MAX_PRODUCER_NAMES + 1, may_list)
                )
                if self._authorizer.may(asked.principal, ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER):
                    response.next_named_producer_id = names.next_id
                    response.next_producer_id = self._metadata.image.next_producer_id
                response.more = len(listed) > MAX_PRODUCER_NAMES
                for each in listed[:MAX_PRODUCER_NAMES]:
                    response.producers.add(
                        name=each.name,
                        producer_id=each.producer_id,
                        producer_epoch=each.epoch,
                        claimed_ms=each.claimed_ms,
                        note=each.note if request.notes else b"",
                    )
            self._replies.reply(asked.request_id, response)

        if len(request.names) > MAX_PRODUCER_NAMES:
            problem = f"{len(request.names)} producer names in one request: name at most {MAX_PRODUCER_NAMES}"
            answer(error(ErrorCode.INVALID_REQUEST, problem))
        else:
            self._reads.read(time.now, request.timeout_ms, answer)


def _not_there(name: str) -> errors_pb2.Error:
    """Returns the error for a name that no topic has or could have, and for a topic whose existence is hidden from the
    client."""
    missing = f"topic {name} does not exist; create it first (topics are not created by mentioning them)"
    return refuse_spelling(name) or error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)


def failed_description(
    request: data_plane_pb2.MetadataRequest, problem: errors_pb2.Error
) -> data_plane_pb2.MetadataResponse:
    """Returns the response of a node without metadata. It has an error only for a linearizable request."""
    return data_plane_pb2.MetadataResponse(
        controller_id=NO_NODE, image_age_ms=UNKNOWN_AGE_MS, error=problem if request.linearizable else None
    )


def failed_configs(
    request: admin_pb2.DescribeConfigsRequest, problem: errors_pb2.Error
) -> admin_pb2.DescribeConfigsResponse:
    """Returns the response to a query of configurations that failed as a whole."""
    response = admin_pb2.DescribeConfigsResponse()
    for name in request.names:
        response.results.add(name=name, error=problem)
    return response


def failed_reassignments(
    request: admin_pb2.ListReassignmentsRequest, problem: errors_pb2.Error
) -> admin_pb2.ListReassignmentsResponse:
    """Returns the response to a query of reassignments that failed as a whole."""
    return admin_pb2.ListReassignmentsResponse(error=problem)


def failed_producers(
    request: admin_pb2.ListProducersRequest, problem: errors_pb2.Error
) -> admin_pb2.ListProducersResponse:
    """Returns the response to a query of producer names that failed as a whole."""
    return admin_pb2.ListProducersResponse(error=problem)
