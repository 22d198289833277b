"""Asks another node that a disk of this one be given up, before this node belongs to the cluster again."""

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

#: How long the other node may take; the call itself a little more.
TIMEOUT_MS = 5_000
_CALL_TIMEOUT_S = 6.0


async def report_loss(dialer: PeerDialer, address: str, asked: int | None, node_id: int, directory_id: str) -> str:
    """What ``quorumlog nodes replace N --with N`` asks, of a directory that this node has moved aside itself.

    Arguments:
        dialer: opens the connection.
        address: host:port of any node of the cluster, where it serves its peers.
        asked: the id of that node, where it is known.
        node_id: of this node.
        directory_id: of the directory that is lost.

    Returns:
        Why it is not given up, in one line; empty if it is.
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
    """What is served of ``Admin`` to nodes, by certificate: that their own disk be given up, and nothing else."""

    def refused(request: ProtoMessage, context: Context) -> str | None:
        assert isinstance(request, admin_pb2.AlterNodeRequest)
        is_own = request.node_id == node_id_of(context.auth_context())
        if is_own and request.action == admin_pb2.NODE_ACTION_REPLACE_DISK:
            return None
        return "a node may have its own disk given up here, and nothing else"

    handler = unary_handler(admin_pb2.AlterNodeRequest, requests, meters, refused=refused, origin=origin_of_node)
    return grpc.method_handlers_generic_handler("quorumlog.v1.Admin", {"AlterNode": handler})
