"""Changes of the cluster itself, which the controller decides: removal of nodes, metadata voters, balance, the feature
level, and producer names from a backup."""

from __future__ import annotations

from typing import TypeAlias, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.metadata.producer_names import check_restored_names
from quorumlog.server.requests.forwarding import FORWARDINGS
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ClusterChange: TypeAlias = (
    admin_pb2.AlterQuorumRequest
    | admin_pb2.AlterNodeRequest
    | admin_pb2.UpgradeFeaturesRequest
    | admin_pb2.RestoreProducerNamesRequest
    | admin_pb2.RebalancePartitionsRequest
)

#: Maximum number of nodes in one change of the metadata quorum. No quorum is that large, and a longer request might not
#: fit into a message between nodes.
MAX_NAMED = 100


class ClusterChanges:
    """Forwards changes of the cluster to the controller."""

    def __init__(self, controller: ControllerClient, replies: Replies) -> None:
        self._controller = controller
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        for kind in get_args(ClusterChange):
            hooks.serve(kind, self.change)

    def change(self, time: StepTime, asked: ClientRequest, request: ClusterChange) -> None:
        """Validates the size of a request and forwards it to the controller."""
        refused = _check_size(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_cluster_change(request, refused))
            return
        forwarding = FORWARDINGS[type(request)]

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            answer = None if response is None else forwarding.unpack(response)
            if answer is None:
                answer = failed_cluster_change(request, failure_of(response))
            self._replies.reply(asked.request_id, answer)

        deadline = time.now + wait_us(request.timeout_ms)
        self._controller.ask(deadline, forwarding.pack(asked.principal, request), answered)


def _check_size(request: ClusterChange) -> errors_pb2.Error | None:
    """Returns the error for a request that would not fit into a message between nodes; None if it fits."""
    problem = None
    if isinstance(request, admin_pb2.AlterQuorumRequest) and len(request.add) + len(request.remove) > MAX_NAMED:
        problem = f"{len(request.add) + len(request.remove)} nodes in one request: at most {MAX_NAMED} are allowed"
    if isinstance(request, admin_pb2.RestoreProducerNamesRequest):
        return check_restored_names(request)
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def failed_cluster_change(request: ClusterChange, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    if isinstance(request, admin_pb2.AlterQuorumRequest):
        return admin_pb2.AlterQuorumResponse(error=problem)
    if isinstance(request, admin_pb2.UpgradeFeaturesRequest):
        return admin_pb2.UpgradeFeaturesResponse(error=problem)
    if isinstance(request, admin_pb2.RestoreProducerNamesRequest):
        return admin_pb2.RestoreProducerNamesResponse(error=problem)
    if isinstance(request, admin_pb2.RebalancePartitionsRequest):
        return admin_pb2.RebalancePartitionsResponse(error=problem)
    return admin_pb2.AlterNodeResponse(error=problem)
