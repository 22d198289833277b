"""Who calls, and from where, as far as a call shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import unquote

import grpc.aio

from quorumlog.server.step.request_context import Listener, RequestContext, node_principal
from quorumlog.server.transport.principals import listener_of, node_id_of, principal_of, serial_of

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

#: Characters kept of what a client calls itself.
MAX_CLIENT_ID_LENGTH = 255
#: A call belongs to a session by its metadata "authorization: Session TOKEN".
SESSION_SCHEME = "Session"
MAX_TOKEN_LENGTH = 128


def origin_of(context: Context) -> RequestContext:
    """The principal of a client, what it calls itself, which stands first in its user agent, and the machine that it
    speaks from."""
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
    """The address that a call comes from, without its port."""
    # gRPC writes a peer as ipv4:127.0.0.1:40000, ipv6:%5B::1%5D:40000 or unix:...
    return unquote(context.peer()).partition(":")[2].rpartition(":")[0].strip("[]")


def session_token(metadata: Mapping[str, str | bytes]) -> str:
    """The token of a session in the metadata of a call; empty where there is none."""
    authorization = metadata.get("authorization", "")
    scheme, _, token = authorization.partition(" ") if isinstance(authorization, str) else ("", "", "")
    return token if scheme == SESSION_SCHEME and len(token) <= MAX_TOKEN_LENGTH else ""


def origin_of_node(context: Context) -> RequestContext:
    """The same of a node that calls at the listener of nodes, where authorities sign for nothing else."""
    node_id = node_id_of(context.auth_context())
    assert node_id is not None, "calls without a node's certificate are refused before"
    return replace(origin_of(context), principal=node_principal(node_id), listener=Listener.PEER)
