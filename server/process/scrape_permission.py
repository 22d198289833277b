"""Who may see the metrics of a node that asks for certificates: whoever may see how the node is."""

from __future__ import annotations

from quorumlog.server.client_origin import ClientOrigin
from quorumlog.server.transport.client_requests import ClientRequests, NodeStoppingError
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

_TIMEOUT_S = 2.0
#: What a client is told that is not let in, or that has no permission.
_REFUSED = frozenset((ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


async def refuse_scrape(requests: ClientRequests, client: ClientOrigin) -> str:
    """Why a client may not see the metrics, in one line; empty if it may.

    The node decides by its rules and revocations, as for any other request. It stands in the audit log, too.
    """
    try:
        reply = await requests.ask(admin_pb2.DescribeNodeRequest(), 0, _TIMEOUT_S, client)
    except (TimeoutError, NodeStoppingError):
        return "the node does not answer"
    refused = reply if isinstance(reply, errors_pb2.Error) else None
    if isinstance(reply, admin_pb2.DescribeNodeResponse) and reply.HasField("error"):
        refused = reply.error
    return refused.message if refused is not None and refused.code in _REFUSED else ""
