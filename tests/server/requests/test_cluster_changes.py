"""A cluster change that no controller could accept is sent to none."""

from __future__ import annotations

from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.requests.cluster_changes import MAX_NAMED, ClusterChanges
from quorumlog.server.step.events import ClientRequest, Reply
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import admin_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class Asked:
    """Records the requests to the controller."""

    def __init__(self) -> None:
        self.requests: list[peer_pb2.ControllerRequest] = []

    def controller_id(self) -> int:
        return 1

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        self.requests.append(request)
        return True


def change(names: int) -> tuple[list[peer_pb2.ControllerRequest], list[Reply]]:
    requests, replies = Asked(), Replies()
    changes = ClusterChanges(ControllerClient(requests, 10, first_id=0), replies)
    request = admin_pb2.AlterQuorumRequest(add=range(names), timeout_ms=1_000)
    changes.change(StepTime(0, 0), ClientRequest(7, request), request)
    return requests.requests, replies.take_gathered()


def test_a_quorum_of_a_hundred_names_is_passed_on() -> None:
    requests, replies = change(MAX_NAMED)
    assert len(requests) == 1
    assert replies == []


def test_more_names_than_a_quorum_ever_has_are_refused_here() -> None:
    requests, replies = change(MAX_NAMED + 1)
    assert requests == []
    [reply] = replies
    assert isinstance(reply.message, admin_pb2.AlterQuorumResponse)
    assert reply.message.error.code == ErrorCode.INVALID_REQUEST
    assert "at most 100 are allowed" in reply.message.error.message
