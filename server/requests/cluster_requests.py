"""Producer identities and the description of the metadata quorum, as the node serves them."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.raft.types import NO_NODE
from quorumlog.server.broker.broker import Broker
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.events import ClientRequest
from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class ClusterRequests(NodeService):
    """Gives out producer identities and describes the metadata quorum, with what the controller says."""

    def __init__(
        self, metadata: MetadataReplica, broker: Broker, controller: ControllerClient, replies: Replies
    ) -> None:
        self._metadata = metadata
        self._broker = broker
        self._controller = controller
        self._replies = replies

    def declare_requests(self, table: RequestTable) -> None:
        table.declare(data_plane_pb2.InitProducerIdRequest, self.init_producer_id)
        table.declare(admin_pb2.DescribeQuorumRequest, self.describe_quorum)

    # -- producers --------------------------------------------------------------------------------------------

    def init_producer_id(
        self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.InitProducerIdRequest
    ) -> None:
        """Gives a new producer identity, or has a named one claimed."""
        request_id, deadline = asked.request_id, time.now + wait_us(request.timeout_ms)
        if request.name:
            self._claim_producer(deadline, request_id, request)
            return

        def given(producer_id: int | None) -> None:
            response = data_plane_pb2.InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
            if producer_id is None:
                response.error.CopyFrom(failure_of(None))
            else:
                response.producer_id, response.producer_epoch = producer_id, 0
            self._replies.reply(request_id, response)

        self._broker.producer_id(time.now, deadline, given)

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
            self._replies.reply(request_id, answer)

        body = peer_pb2.ClaimProducer(
            name=request.name, epoch=request.epoch, known_epoch=request.known_epoch, note=request.note
        )
        self._controller.ask(deadline, peer_pb2.ControllerRequest(claim_producer=body), claimed)

    # -- descriptions -----------------------------------------------------------------------------------------

    def describe_quorum(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DescribeQuorumRequest) -> None:
        """Describes the metadata quorum, as its leader sees it."""
        now, request_id = time.now, asked.request_id
        if self._metadata.raft.is_leader:
            self._replies.reply(request_id, self._quorum(now))
            return

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is not None and response.HasField("describe_quorum"):
                self._replies.reply(request_id, response.describe_quorum)
            else:
                self._replies.reply(
                    request_id, admin_pb2.DescribeQuorumResponse(leader_id=-1, error=failure_of(response))
                )

        self._controller.ask(
            now + 5_000_000,
            peer_pb2.ControllerRequest(describe_quorum=admin_pb2.DescribeQuorumRequest()),
            answered,
        )

    def on_describe_quorum(
        self, now: int, request: peer_pb2.ControllerRequest, respond: Callable[[peer_pb2.ControllerResponse], None]
    ) -> None:
        """Another node asks this one, which leads the metadata group."""
        respond(peer_pb2.ControllerResponse(request_id=request.request_id, describe_quorum=self._quorum(now)))

    def _quorum(self, now: int) -> admin_pb2.DescribeQuorumResponse:
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


def failed_producer_id(
    request: data_plane_pb2.InitProducerIdRequest, problem: errors_pb2.Error
) -> data_plane_pb2.InitProducerIdResponse:
    """The answer to a producer that gets no identity."""
    return data_plane_pb2.InitProducerIdResponse(error=problem, producer_id=-1, producer_epoch=-1)


def failed_quorum(
    request: admin_pb2.DescribeQuorumRequest, problem: errors_pb2.Error
) -> admin_pb2.DescribeQuorumResponse:
    """The answer where nothing is known of the quorum."""
    return admin_pb2.DescribeQuorumResponse(error=problem, leader_id=NO_NODE)
