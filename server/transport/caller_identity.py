"""Identity of a caller: principal, client id and address, as far as a call shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import unquote

import grpc.aio

from quorumlog.server.step.request_context import Listener, RequestContext, node_principal
from quorumlog.server.transport.principals import listener_of, node_id_of, principal_of, serial_of

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

#: Characters kept of a client id.
MAX_CLIENT_ID_LENGTH = 255
#: A call belongs to a session by its metadata "authorization: Session TOKEN".
SESSION_SCHEME = "Session"
MAX_TOKEN_LENGTH = 128


def origin_of(context: Context) -> RequestContext:
    """Returns a client's principal, its client id (the first part of its user agent), and its address."""
    metadata = dict(context.invocation_metadata() or ())
    agent = metadata.get("user-agent", "")
    client_id = (agent.decode(errors="replace") if isinstance(agent, bytes) else agent).partition(" grpc-")[0]
    proved = context.auth_context()
    listener = listener_of(proved)
    return RequestContext(
        client_id[:MAX_CLIENT_ID_LENGTH],
        host_of(context),
        principal_of(proved),
        listener,
        serial_of(proved),
        session_token(metadata) if listener is Listener.PASSWORD else "",
    )


def host_of(context: Context) -> str:
    """Returns the address that a call comes from, without its port."""
    # gRPC writes a peer as ipv4:127.0.0.1:40000, ipv6:%5B::1%5D:40000 or unix:...
    return unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")


def session_token(metadata: Mapping[str, str | bytes]) -> str:
    """Returns the session token in the metadata of a call; empty if there is no valid one."""
    authorization = metadata.get("authorization", "")
    scheme, _, token = authorization.partition(" ") if isinstance(authorization, str) else ("", "", "")
    return token if scheme == SESSION_SCHEME and len(token) <= MAX_TOKEN_LENGTH else ""


def origin_of_node(context: Context) -> RequestContext:
    """Returns the identity of a node that calls at the listener for nodes, where authorities sign only for nodes."""
    node_id = node_id_of(context.auth_context())
    assert node_id is not None, "calls without a node's certificate must be refused earlier"
    return replace(origin_of(context), principal=node_principal(node_id), listener=Listener.PEER)
