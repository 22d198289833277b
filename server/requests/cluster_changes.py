"""Changes of the cluster itself, which the controller decides on: which nodes leave it, who votes on the metadata,
balance, the feature level, producer names from a backup."""

from __future__ import annotations

from typing import TypeAlias, get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.events import ClientRequest
from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.metadata.producer_names import check_restored_names
from quorumlog.server.node_service import ServiceHooks, StepTime
from quorumlog.server.replies import Replies
from quorumlog.server.request_timeouts import wait_us
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ClusterChange: TypeAlias = (
    admin_pb2.AlterQuorumRequest
    | admin_pb2.AlterNodeRequest
    | admin_pb2.UpgradeFeaturesRequest
    | admin_pb2.RestoreProducerNamesRequest
    | admin_pb2.RebalancePartitionsRequest
)

#: Nodes that one change of the metadata quorum may name: no quorum has so many. More would not fit between nodes.
MAX_NAMED = 100

#: Of each kind: the field that carries it to the controller, and its answer back.
_FIELDS: dict[type[ProtoMessage], str] = {
    admin_pb2.AlterQuorumRequest: "alter_quorum",
    admin_pb2.AlterNodeRequest: "alter_node",
    admin_pb2.UpgradeFeaturesRequest: "upgrade_features",
    admin_pb2.RestoreProducerNamesRequest: "restore_producer_names",
    admin_pb2.RebalancePartitionsRequest: "rebalance_partitions",
}


class ClusterChanges:
    """Passes on what clients wish for the cluster."""

    def __init__(self, controller: ControllerClient, replies: Replies) -> None:
        self._controller = controller
        self._replies = replies

    def register(self, hooks: ServiceHooks) -> None:
        for kind in get_args(ClusterChange):
            hooks.serve(kind, self.change)

    def change(self, time: StepTime, asked: ClientRequest, request: ClusterChange) -> None:
        """Passes a wish on to the controller."""
        refused = _check_size(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_cluster_change(request, refused))
            return
        field = _FIELDS[type(request)]

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            if response is not None and response.HasField(field):  # type: ignore[arg-type]  # a name of the oneof
                self._replies.reply(asked.request_id, getattr(response, field))
            else:
                self._replies.reply(asked.request_id, failed_cluster_change(request, failure_of(response)))

        forwarded = peer_pb2.ControllerRequest(principal=asked.principal)
        getattr(forwarded, field).CopyFrom(request)
        self._controller.ask(time.now + wait_us(request.timeout_ms), forwarded, answered)


def _check_size(request: ClusterChange) -> errors_pb2.Error | None:
    """Why a wish is not passed on to the controller: it would not fit between nodes. None if it does."""
    problem = None
    if isinstance(request, admin_pb2.AlterQuorumRequest) and len(request.add) + len(request.remove) > MAX_NAMED:
        problem = f"{len(request.add) + len(request.remove)} nodes in one request: at most {MAX_NAMED} are allowed"
    if isinstance(request, admin_pb2.RestoreProducerNamesRequest):
        return check_restored_names(request)
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)


def failed_cluster_change(request: ClusterChange, problem: errors_pb2.Error) -> ProtoMessage:
    """The answer to a wish that failed."""
    if isinstance(request, admin_pb2.AlterQuorumRequest):
        return admin_pb2.AlterQuorumResponse(error=problem)
    if isinstance(request, admin_pb2.UpgradeFeaturesRequest):
        return admin_pb2.UpgradeFeaturesResponse(error=problem)
    if isinstance(request, admin_pb2.RestoreProducerNamesRequest):
        return admin_pb2.RestoreProducerNamesResponse(error=problem)
    if isinstance(request, admin_pb2.RebalancePartitionsRequest):
        return admin_pb2.RebalancePartitionsResponse(error=problem)
    return admin_pb2.AlterNodeResponse(error=problem)
