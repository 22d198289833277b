"""Description of the metadata quorum: by its leader, or by a node that cannot reach one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Maximum time that the quorum's leader may take to describe it (µs), before this node describes its own view.
PATIENCE_US = 1_500_000


class QuorumRequests:
    """Describes the metadata quorum.

    Arguments:
        node_id: id of this node.
        time: time of the current step.
        links: connections of this node to the voters.
    """

    def __init__(
        self,
        node_id: int,
        time: StepTime,
        metadata: MetadataReplica,
        controller: ControllerClient,
        links: PeerQueues,
        replies: Replies,
    ) -> None:
        self._node_id = node_id
        self._time = time
        self._metadata = metadata
        self._controller = controller
        self._links = links
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.DescribeQuorumRequest, self.describe_quorum)

    def describe_quorum(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DescribeQuorumRequest) -> None:
        """Describes the metadata quorum as its leader sees it; without a response from the leader, as this node
        does."""
        request_id = asked.request_id
        if self._metadata.raft.leads_committed:
            self._replies.reply(request_id, self._as_leader())
            return

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is not None and response.HasField("describe_quorum"):
                self._replies.reply(request_id, response.describe_quorum)
            else:
                self._replies.reply(request_id, self._without_leader())

        question = peer_pb2.ControllerRequest(describe_quorum=admin_pb2.DescribeQuorumRequest())
        self._controller.ask(time.now + PATIENCE_US, question, answered)

    def on_describe_quorum(
        self, now: int, request: peer_pb2.ControllerRequest, respond: Callable[[peer_pb2.ControllerResponse], None]
    ) -> None:
        """Answers another node. A leader without a committed entry of its term may not have all voters yet, so it
        refuses."""
        if not self._metadata.raft.leads_committed:
            problem = error(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum, or not yet; retry")
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, error=problem))
            return
        respond(peer_pb2.ControllerResponse(request_id=request.request_id, describe_quorum=self._as_leader()))

    def _as_leader(self) -> admin_pb2.DescribeQuorumResponse:
        now, raft, image = self._time.now, self._metadata.raft, self._metadata.image
        configuration = raft.configuration
        response = admin_pb2.DescribeQuorumResponse(
            leader_id=raft.node_id, leader_epoch=raft.term, high_watermark=raft.commit_index,
            outgoing_voters=configuration.outgoing, described_at_ms=self._time.wall_ms,
        )  # fmt: skip
        if set(image.quorum.voters or configuration.voters) != set(configuration.voters) or configuration.is_joint:
            response.wanted_voters.extend(image.quorum.voters)
        outgoing = [node for node in configuration.electors if node not in configuration.voters]
        for members, described in (
            ((*configuration.voters, *outgoing), response.voters),
            (configuration.learners, response.observers),
        ):
            for node in members:
                if node == raft.node_id:
                    end, contact = raft.last_id.index, 0
                else:
                    progress = raft.progress[node]
                    end = progress.match_index
                    contact = (now - progress.last_contact) // 1000 if progress.last_contact else -1
                described.append(self._replica(node, end, contact))
        return response

    def _without_leader(self) -> admin_pb2.DescribeQuorumResponse:
        """Describes the voters in this node's metadata, and its own contact with them, when no leader has answered."""
        raft = self._metadata.raft
        response = admin_pb2.DescribeQuorumResponse(
            leader_id=NO_NODE, leader_epoch=raft.term, high_watermark=raft.commit_index,
            described_at_ms=self._time.wall_ms,
        )  # fmt: skip
        response.voters.extend(self._heard(raft.configuration.electors))
        response.observers.extend(self._heard(raft.configuration.learners))
        return response

    def _heard(self, nodes: Sequence[int]) -> list[admin_pb2.QuorumReplica]:
        replicas = []
        for node in nodes:
            if node == self._node_id:
                replicas.append(self._replica(node, self._metadata.raft.last_id.index, 0))
            else:
                link = self._links[node]
                replicas.append(self._replica(node, -1, (self._time.now - link.heard) // 1000 if link.up else -1))
        return replicas

    def _replica(self, node: int, end: int, contact_ms: int) -> admin_pb2.QuorumReplica:
        broker = self._metadata.image.brokers.get(node)
        directory = broker.registration.directory_id if broker is not None else ""
        return admin_pb2.QuorumReplica(
            node_id=node, directory_id=directory, log_end_index=end, last_contact_ms=contact_ms
        )


def failed_quorum(
    request: admin_pb2.DescribeQuorumRequest, problem: errors_pb2.Error
) -> admin_pb2.DescribeQuorumResponse:
    """Returns the response to a request that failed."""
    return admin_pb2.DescribeQuorumResponse(error=problem, leader_id=NO_NODE)
