"""Asks another node to give up a disk of this one, before this node rejoins the cluster."""

from __future__ import annotations

import grpc
import grpc.aio
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.transport.caller_identity import Context, origin_of_node
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.unary_calls import Handlers, unary_handler
from quorumlog.server.transport.credentials import PeerDialer
from quorumlog.server.transport.principals import node_id_of
from quorumlog.v1 import admin_pb2

#: Timeout of the request; that of the call is a little longer.
TIMEOUT_MS = 5_000
_CALL_TIMEOUT_S = 6.0


async def report_loss(dialer: PeerDialer, address: str, asked: int | None, node_id: int, directory_id: str) -> str:
    """Sends the request of ``quorumlog nodes replace N --with N``, for a directory that this node has moved aside.

    Arguments:
        dialer: opens the connection.
        address: host:port of any node of the cluster, where it serves its peers.
        asked: id of that node, if known.
        node_id: of this node.
        directory_id: of the directory that is lost.

    Returns:
        The reason for which the request failed, in one line; empty on success.
    """
    request = admin_pb2.AlterNodeRequest(
        node_id=node_id,
        action=admin_pb2.NODE_ACTION_REPLACE_DISK,
        directory_id=directory_id,
        timeout_ms=TIMEOUT_MS,
    )
    try:
        async with dialer.channel(address, asked) as channel:
            call = channel.unary_unary("/quorumlog.v1.Admin/AlterNode", bytes, bytes)
            await call(request.SerializeToString(), timeout=_CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return " ".join((error.details() or error.code().name).split())
    return ""


def loss_report_handlers(requests: ClientRequests, meters: Meters) -> Handlers:
    """Returns the part of ``Admin`` that is served to nodes: a node may give up its own disk, by its certificate."""

    def refused(request: ProtoMessage, context: Context) -> str | None:
        assert isinstance(request, admin_pb2.AlterNodeRequest)
        is_own = request.node_id == node_id_of(context.auth_context())
        if is_own and request.action == admin_pb2.NODE_ACTION_REPLACE_DISK:
            return None
        return "a node may only give up its own disk here: send other requests to the client port"

    handler = unary_handler(admin_pb2.AlterNodeRequest, requests, meters, refused=refused, origin=origin_of_node)
    return grpc.method_handlers_generic_handler("quorumlog.v1.Admin", {"AlterNode": handler})
