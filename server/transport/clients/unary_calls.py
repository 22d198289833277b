"""Unary calls of clients: one request, one reply, within a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import Context, origin_of
from quorumlog.server.transport.certificate_ends import refuse_ended
from quorumlog.server.transport.clients.client_requests import STOPPING, ClientRequests, NodeStoppingError
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_ITEMS

TOPIC_ID_BYTES = 16
#: For requests without a timeout.
DEFAULT_TIMEOUT_S = 30.0
MAX_TIMEOUT_S = 600.0
#: The node enforces the request's timeout, and has the more precise error; it gets this much longer.
GRACE_S = 0.5
TRY_LATER = "try again after a pause"
BUSY = f"the node has too many requests pending: {TRY_LATER}"

Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
Handlers: TypeAlias = "grpc.GenericRpcHandler[bytes, bytes]"


def unary_handler(
    kind: type[ProtoMessage],
    requests: ClientRequests,
    meters: Meters,
    count: Callable[[], None] | None = None,
    refused: Callable[[ProtoMessage, Context], str | None] = lambda request, context: None,
    origin: Callable[[Context], RequestContext] = origin_of,
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> Handler:
    """Returns a handler that passes requests of one type to the node.

    A reply that is an error as a whole becomes a gRPC status.

    Arguments:
        count: counts a request; by default as a request for administration.
        refused: returns why a request is refused here, regardless of its caller; None if it is accepted.
        origin: returns the identity of the caller.
        prepare: awaited before the request is submitted to the node.
    """

    async def handle(data: bytes, context: Context) -> bytes:
        await refuse_ended(context)
        if count is None:
            meters.admin_requests += 1
        else:
            count()
        try:
            request = kind.FromString(data)
        except DecodeError:
            await refuse(
                context,
                error(ErrorCode.INVALID_REQUEST, f"{len(data)} bytes that are not a {kind.DESCRIPTOR.name}"),
            )
        if (reason := refused(request, context)) is not None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        for field, value in request.ListFields():
            if field.is_repeated and len(value) > MAX_ITEMS:
                message = f"{field.name} has {len(value)} items, the maximum is {MAX_ITEMS}: split the request"
                await refuse(context, error(ErrorCode.INVALID_REQUEST, message))
        if not requests.has_room_for(len(data)):
            meters.requests_refused += 1
            await refuse(
                context,
                error(ErrorCode.SERVER_BUSY, "the node has too many requests pending: send again after a pause"),
            )
        if prepare is not None:
            await prepare()
        try:
            reply = await requests.ask(request, len(data), _timeout_s(request, context), origin(context))
        except TimeoutError:
            await refuse(
                context,
                error(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "no answer in time, the request may still take effect: check its outcome before sending it again",
                    definite=False,
                ),
            )
        except NodeStoppingError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        if isinstance(reply, errors_pb2.Error):
            await refuse(context, reply)  # Authentication failed.
        if "error" in reply.DESCRIPTOR.fields_by_name and reply.HasField("error"):
            await refuse(context, reply.error)  # type: ignore[attr-defined]  # the line above says that it has one
        return reply.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(handle)


def _timeout_s(request: ProtoMessage, context: Context) -> float:
    """Returns how long to wait: the request's timeout or a default, limited by the call's own deadline."""
    wanted = DEFAULT_TIMEOUT_S
    if "timeout_ms" in request.DESCRIPTOR.fields_by_name:
        timeout_ms: int = request.timeout_ms  # type: ignore[attr-defined]  # the line above says that it has one
        if timeout_ms:
            wanted = min(timeout_ms / 1000, MAX_TIMEOUT_S)
    remaining = context.time_remaining()
    return wanted + GRACE_S if remaining is None else min(wanted + GRACE_S, remaining)
