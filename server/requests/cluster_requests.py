"""Metadata, producer identities and descriptions, as the node serves them."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.broker.broker import Broker
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.metadata.topic_table import refuse_spelling
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

Reply = Callable[[int, ProtoMessage], None]


class AdminRequests:
    """Serves administration from the metadata image, and passes changes on to the controller."""

    def __init__(
        self,
        metadata: MetadataReplica,
        partitions: Replicas,
        broker: Broker,
        client: ControllerClient,
        cluster_id: str,
        reply: Reply,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._broker = broker
        self._client = client
        self._cluster_id = cluster_id
        self._reply = reply

    # -- metadata ---------------------------------------------------------------------------------------------

    def metadata(self, request_id: int, request: data_plane_pb2.MetadataRequest, image_age_ms: int) -> None:
        """Describes brokers and topics from this node's image."""
        image = self._metadata.image
        response = data_plane_pb2.MetadataResponse(
            cluster_id=self._cluster_id, controller_id=self._metadata.raft.leader_id, image_age_ms=image_age_ms
        )
        for broker in image.brokers.values():
            response.brokers.add(
                node_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                fenced=broker.fenced,
                broker_epoch=broker.epoch,
                version=broker.registration.version,
            )
        for name in image.topics if request.all_topics else request.topics:
            self._describe_topic(name, response.topics.add(name=name))
        self._reply(request_id, response)

    def _describe_topic(self, name: str, described: data_plane_pb2.TopicMetadata) -> None:
        image = self._metadata.image
        topic = image.topics.get(name)
        if topic is None:
            missing = error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name} does not exist; create it first (topics are not created by mentioning them)",
            )
            described.error.CopyFrom(refuse_spelling(name) or missing)
            return
        described.topic_id = topic.topic_id
        described.internal = topic.is_internal
        described.configs.update(topic.configs)
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
            )

    def missing_partition(self, topic_id: bytes, number: int) -> errors_pb2.Error:
        """The error for a partition without a replica on this node: it is elsewhere, or nowhere."""
        topic = self._metadata.image.topics_by_id.get(topic_id)
        if topic is None or not 0 <= number < len(topic.partitions):
            what = (
                f"topic {topic.name} has no partition {number} as far as this node knows"
                if topic
                else f"the topic was deleted, or this node has yet to hear of it (topic id {topic_id.hex()})"
            )
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        record = topic.partitions[number]
        if topic.is_internal:
            what = f"topic {topic.name} belongs to the cluster itself: it holds no records to write, read or delete"
            return error(ErrorCode.INVALID_TOPIC, what)
        return error(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this node has no replica of {topic.name}-{number}; ask its leader",
            leader=self._metadata.image.available_leader(record),
            leader_epoch=record.leader_epoch,
        )

    # -- producers --------------------------------------------------------------------------------------------

    def init_producer_id(self, now: int, request_id: int, request: data_plane_pb2.InitProducerIdRequest) -> None:
        """Gives a new producer identity, or has a named one claimed."""
        deadline = now + wait_us(request.timeout_ms)
        if request.name:
            self._claim_producer(deadline, request_id, request)
            return

        def given(producer_id: int | None) -> None:
            response = data_plane_pb2.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
            if producer_id is None:
                response.error.CopyFrom(failure_of(None))
            else:
                response.producer_id, response.producer_epoch = producer_id, 0
            self._reply(request_id, response)

        self._broker.producer_id(now, deadline, given)

    def _claim_producer(self, deadline: int, request_id: int, request: data_plane_pb2.InitProducerIdRequest) -> None:
        def claimed(response: peer_pb2.ControllerResponse | None) -> None:
            answer = data_plane_pb2.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
            if response is not None and response.HasField("producer_claimed"):
                answer.producer_id = response.producer_claimed.producer_id
                answer.producer_epoch = response.producer_claimed.producer_epoch
                answer.note = response.producer_claimed.note
            # A claim that is not based on the newest epoch is answered with that, not with an error: it is asked again.
            if response is None or response.error.code not in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION):
                answer.error.CopyFrom(failure_of(response))
            self._reply(request_id, answer)

        body = peer_pb2.ClaimProducer(
            name=request.name, epoch=request.epoch, known_epoch=request.known_epoch, note=request.note
        )
        self._client.ask(deadline, peer_pb2.ControllerRequest(claim_producer=body), claimed)

    # -- descriptions -----------------------------------------------------------------------------------------

    def describe_quorum(self, now: int, request_id: int) -> None:
        """Describes the metadata quorum, as its leader sees it."""
        if self._metadata.raft.is_leader:
            self._reply(request_id, self.quorum(now))
            return

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is not None and response.HasField("describe_quorum"):
                self._reply(request_id, response.describe_quorum)
            else:
                self._reply(request_id, admin_pb2.DescribeQuorumResponse(leader_id=-1, error=failure_of(response)))

        self._client.ask(
            now + 5_000_000,
            peer_pb2.ControllerRequest(describe_quorum=admin_pb2.DescribeQuorumRequest()),
            answered,
        )

    def quorum(self, now: int) -> admin_pb2.DescribeQuorumResponse:
        """The metadata quorum as this node, its leader, sees it."""
        raft = self._metadata.raft
        response = admin_pb2.DescribeQuorumResponse(
            leader_id=raft.leader_id, leader_epoch=raft.term, high_watermark=raft.commit_index
        )
        image = self._metadata.image
        for members, described in (
            (raft.configuration.voters, response.voters),
            (raft.configuration.learners, response.observers),
        ):
            for node in members:
                broker = image.brokers.get(node)
                directory = broker.registration.directory_id if broker is not None else ""
                if node == raft.leader_id:
                    described.add(node_id=node, directory_id=directory, log_end_index=raft.last_id.index)
                    continue
                progress = raft.progress[node]
                contact = (now - progress.last_contact) // 1000 if progress.last_contact else -1
                described.add(
                    node_id=node, directory_id=directory, log_end_index=progress.match_index, last_contact_ms=contact
                )
        return response
