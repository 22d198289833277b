"""Asks another node that a disk of this one be given up, before this node belongs to the cluster again."""

from __future__ import annotations

import grpc
import grpc.aio

from quorumlog.server.transport.channel_options import PEER_CHANNEL_OPTIONS
from quorumlog.v1 import admin_pb2

#: How long the other node may take; the call itself a little more.
TIMEOUT_MS = 5_000
_CALL_TIMEOUT_S = 6.0


async def report_loss(address: str, node_id: int, directory_id: str) -> str:
    """What ``quorumlog nodes replace N --with N`` asks, of a directory that this node has moved aside itself.

    Arguments:
        address: host:port of any node of the cluster.
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
        async with grpc.aio.insecure_channel(address, options=PEER_CHANNEL_OPTIONS) as channel:
            call = channel.unary_unary("/quorumlog.v1.Admin/AlterNode", bytes, bytes)
            await call(request.SerializeToString(), timeout=_CALL_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return " ".join((error.details() or error.code().name).split())
    return ""
