"""What is to become of nodes: drained, kept, struck off. The controller decides."""

from __future__ import annotations

from quorumlog.server.events import ClientRequest
from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2


class NodeRequests(NodeService):
    """Passes on what clients wish for nodes."""

    def __init__(self, controller: ControllerClient, replies: Replies) -> None:
        self._controller = controller
        self._replies = replies

    def declare_requests(self, table: RequestTable) -> None:
        table.declare(admin_pb2.AlterNodeRequest, self.alter_node)

    def alter_node(self, time: StepTime, asked: ClientRequest, request: admin_pb2.AlterNodeRequest) -> None:
        """Passes a wish on to the controller."""

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is not None and response.HasField("alter_node"):
                self._replies.reply(asked.request_id, response.alter_node)
            else:
                self._replies.reply(asked.request_id, admin_pb2.AlterNodeResponse(error=failure_of(response)))

        deadline = time.now + wait_us(request.timeout_ms)
        self._controller.ask(deadline, peer_pb2.ControllerRequest(alter_node=request), answered)


def failed_node_alteration(
    request: admin_pb2.AlterNodeRequest, problem: errors_pb2.Error
) -> admin_pb2.AlterNodeResponse:
    """The answer to a wish that failed."""
    return admin_pb2.AlterNodeResponse(error=problem)
