"""Requires a session before a request is read, at the listener for passwords and tokens.

gRPC reads a whole message before it passes it on, and a message may be as large as a big batch. So a client that could
start any number of calls could make a node hold any number of such messages. Here, a call without a session is refused
based on its metadata alone. The services open to every client, authentication and health, are read a few calls at a
time, with a lower limit for each address.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import Context, host_of, session_token
from quorumlog.server.transport.clients.client_requests import STOPPING, ClientRequests, NodeStoppingError
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1.acls_pb2 import ACL_OPERATION_DESCRIBE, ACL_RESOURCE_CLUSTER, CheckAclsRequest, CheckAclsResponse
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.request_limits import MAX_BEARER_TOKEN_LENGTH

#: Services that require no session.
_OPEN = ("/quorumlog.v1.SignIn/", "/grpc.health.v1.Health/")
#: Limits on reading their requests: number at a time, of all callers and of one address; time to read one (s); size.
#: Legitimate clients send the request with the call.
READ_AT_ONCE, READ_AT_ONCE_OF_ADDRESS = 16, 4
READ_WITHIN_S = 5.0
MAX_OPEN_REQUEST_BYTES = MAX_BEARER_TOKEN_LENGTH + (1 << 10)
#: Timeout of the node's check for a session (s); how long (s) and for how many sessions the result is cached. The node
#: checks again at each request: this only decides who may send it one.
_DECISION_S = 5.0
_REMEMBERED_S = 10.0
_MOST_REMEMBERED = 20_000
#: A request that every authenticated client may send about itself: all that matters is if it is answered.
_QUESTION = CheckAclsRequest(
    operation=ACL_OPERATION_DESCRIBE, resource_type=ACL_RESOURCE_CLUSTER, resource_name="kafka-cluster"
)

_Handler = Any  # grpc.RpcMethodHandler of messages whose types are unknown here


@dataclass(slots=True)
class _Address:
    """Calls of one address that are being read or wait for it."""

    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_ONCE_OF_ADDRESS))
    calls: int = 0


class SessionGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # it takes no types when it runs
    """Interceptor before all services of the listener for passwords.

    Arguments:
        requests: submits checks to the node, which has the sessions.
    """

    def __init__(self, requests: ClientRequests) -> None:
        self._requests = requests
        #: Hashes of valid tokens, with the time until which the result is cached, by the loop's clock; the oldest
        #: first.
        self._known: OrderedDict[bytes, float] = OrderedDict()
        self._room = asyncio.Semaphore(READ_AT_ONCE)
        self._addresses: dict[str, _Address] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Called by gRPC for each call, before any of its request is read."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler_call_details.method.startswith(_OPEN):
            return self._read_in_turn(handler)
        token = session_token(dict(handler_call_details.invocation_metadata or ()))
        refused = await self._refusal(token)
        return handler if refused is None else _refuse_all(refused)

    # -- calls that require a session ------------------------------------------------------------------------------

    async def _refusal(self, token: str) -> Error | None:
        """Returns the error for which a call is refused; None if its session is valid."""
        now, key = asyncio.get_running_loop().time(), hashlib.sha256(token.encode()).digest()
        if now < self._known.get(key, 0.0):
            return None
        caller = RequestContext(listener=Listener.PASSWORD, token=token)
        if not self._requests.has_room_for(0):
            return error(ErrorCode.SERVER_BUSY, "the node has too many requests pending: try again after a pause")
        try:
            answer = await self._requests.ask(_QUESTION, _QUESTION.ByteSize(), _DECISION_S, caller)
        except TimeoutError:
            return error(ErrorCode.SERVER_BUSY, "the session was not validated in time: try again")
        except NodeStoppingError:
            return error(ErrorCode.LEADER_NOT_AVAILABLE, STOPPING)
        if isinstance(answer, Error):
            return answer
        assert isinstance(answer, CheckAclsResponse)
        if answer.HasField("error"):
            return answer.error  # The node belongs to no cluster yet: it has no sessions.
        self._known[key] = now + _REMEMBERED_S
        self._known.move_to_end(key)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return None

    # -- calls of every client -------------------------------------------------------------------------------------

    def _read_in_turn(self, handler: _Handler) -> _Handler:
        """Wraps a service so that its request is read here: gRPC would read it before the call is passed on."""
        serve = handler.unary_unary or handler.unary_stream
        if serve is None:
            return handler

        async def take(_unused: object, context: Context) -> None:
            try:
                async with asyncio.timeout(READ_WITHIN_S), self._turn(host_of(context)):
                    data = await context.read()
            except TimeoutError:
                await context.abort(
                    grpc.StatusCode.DEADLINE_EXCEEDED, "the request was not received in time: send it with the call"
                )
            if not isinstance(data, bytes):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended before its request was received")
            if len(data) > MAX_OPEN_REQUEST_BYTES:
                problem = f"request of {len(data)} bytes exceeds the limit of {MAX_OPEN_REQUEST_BYTES}"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
            try:
                request = data if handler.request_deserializer is None else handler.request_deserializer(data)
            except DecodeError:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT, f"{len(data)} bytes that are not a request of this method"
                )
            answer = await serve(request, context)
            if handler.unary_unary is not None:
                await context.write(answer)

        return grpc.stream_stream_rpc_method_handler(take, response_serializer=handler.response_serializer)

    @asynccontextmanager
    async def _turn(self, host: str) -> AsyncIterator[None]:
        address = self._addresses.setdefault(host, _Address())
        address.calls += 1
        try:
            async with address.room, self._room:
                yield
        finally:
            address.calls -= 1
            if not address.calls:
                del self._addresses[host]


def _refuse_all(refused: Error) -> _Handler:
    async def end(_unused: object, context: Context) -> None:
        await refuse(context, refused)

    return grpc.stream_stream_rpc_method_handler(end)
