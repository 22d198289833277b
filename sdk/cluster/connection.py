"""One node as a client sees it: a channel, a Produce and a Fetch stream, opened when needed and again after a loss."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

from quorumlog.sdk.cluster.node_session import Metadata, NodeSession, SessionChannel
from quorumlog.sdk.errors import (
    ClientClosedError,
    NetworkError,
    QuorumlogError,
    SaslSessionExpiredError,
)
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.records.fetch_answer import FetchAnswer, read_fetch_answer
from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.sdk.runtime.scram_client import ScramIdentity
from quorumlog.v1 import (
    admin_pb2_grpc,
    data_plane_pb2,
    data_plane_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
)

#: How long a closing client waits until a node has read what was posted to it, and for a stream to end.
CLOSE_TIMEOUT_S = 1.0

_END_OF_STREAM: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class _Asked(Protocol):
    correlation_id: int


class _Answered(Protocol):
    @property
    def correlation_id(self) -> int: ...


Request = TypeVar("Request", bound=_Asked)
Response = TypeVar("Response", bound=_Answered)
Reply = TypeVar("Reply")


class ClientStream(Generic[Request, Response]):
    """Pipelined requests over one bidirectional stream, each answered once by its correlation id.

    When the stream breaks, every unanswered request fails. That is indefinite for those that were written, which the
    node may have carried out: also where it has refused one of them for good, since it does not say which. The next
    request opens a new stream.

    Arguments:
        open_call: makes the gRPC call.
        address: of the node, for messages.
        on_health: told True at each answer and False at each loss.
        next_correlation_id: the client's, one count for all its streams: a coordinator takes a member's heartbeats in
            the order of their ids, over all streams that the member has had, and drops those that come late.
        session: to which the stream belongs; None: to none.

    Attributes:
        life: counts the streams that have been opened: what was bound to an earlier one is gone.
    """

    def __init__(
        self,
        open_call: Callable[..., grpc.aio.StreamStreamCall[Request, Response]],
        address: str,
        on_health: Callable[[bool], None],
        next_correlation_id: Callable[[], int],
        session: NodeSession | None = None,
    ) -> None:
        self._session = session
        self._next_correlation_id = next_correlation_id
        self._open_call = open_call
        self._address = address
        self._on_health = on_health
        self._outgoing: deque[Request] = deque()
        self._answers: dict[int, asyncio.Future[Response]] = {}
        self._written: dict[int, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._call: grpc.aio.StreamStreamCall[Request, Response] | None = None
        self._has_posted = False
        self.life = 0

    def submit(self, request: Request) -> asyncio.Future[Response]:
        """Sends a request, in the order of the calls; the future gets its answer."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._enqueue(request)
        self._answers[request.correlation_id] = answer
        return answer

    def post(self, request: Request) -> asyncio.Future[None]:
        """Sends a request that is not answered; the future is done once it has been handed to the transport."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(request)
        self._written[request.correlation_id] = written
        self._has_posted = True
        return written

    def open(self) -> int:
        """Opens the stream unless it is open; returns its ``life``."""
        if self._task is None:
            self.life += 1
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self.life

    def _enqueue(self, request: Request) -> None:
        request.correlation_id = self._next_correlation_id()
        self._outgoing.append(request)
        self._wake.set()
        self.open()

    async def _run(self) -> None:
        """Opens the stream, writes and reads until it breaks, then fails what was unanswered."""
        metadata: Metadata = ()
        if self._session is not None:
            try:
                metadata = await self._session.metadata()
            except QuorumlogError as refused:
                # Nothing was sent. Those that come from now on try once more.
                self._task = None
                self._on_health(False)
                self._fail_all(refused)
                return
        call = self._call = self._open_call(metadata=metadata) if metadata else self._open_call()
        writer = asyncio.get_running_loop().create_task(self._write(call))
        error = self._closed_error()
        try:
            while True:
                response: Any = await call.read()
                if response is _END_OF_STREAM:
                    break
                self._on_health(True)
                answer = self._answers.pop(response.correlation_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(response)
            code = await call.code()
            error = NetworkError(f"{self._address} ended the stream: {await call.details() or code.name}")
        except grpc.RpcError as failure:
            error = error_from_rpc(failure, self._address)
            if self._session is not None and isinstance(error, SaslSessionExpiredError):
                self._session.forget(metadata)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
        finally:
            writer.cancel()
            call.cancel()
            self._task = self._call = None
            self._on_health(False)
            self._fail_unanswered(error)

    async def _write(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        try:
            while True:
                while self._outgoing:
                    request = self._outgoing.popleft()
                    await call.write(request)
                    written = self._written.pop(request.correlation_id, None)
                    if written is not None and not written.done():
                        written.set_result(None)
                self._wake.clear()
                await self._wake.wait()
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            # The reading side learns of the same end and says why.
            return

    def _fail_unanswered(self, error: QuorumlogError) -> None:
        unanswered: dict[int, asyncio.Future[Any]] = {**self._answers, **self._written}
        unwritten = {request.correlation_id for request in self._outgoing}
        is_of_one = len(unanswered) - len(unwritten) == 1 and not self._has_posted
        self._outgoing.clear()
        self._answers.clear()
        self._written.clear()
        self._has_posted = False
        of_written = error if is_of_one else error.as_indefinite("this or another request")
        of_unwritten = error if error.retriable else self._not_sent_error(error)
        for correlation_id, future in unanswered.items():
            if not future.done():
                future.set_exception(of_unwritten if correlation_id in unwritten else of_written)

    def _fail_all(self, error: QuorumlogError) -> None:
        unanswered: list[asyncio.Future[Any]] = [*self._answers.values(), *self._written.values()]
        self._outgoing.clear()
        self._answers.clear()
        self._written.clear()
        self._has_posted = False
        for future in unanswered:
            if not future.done():
                future.set_exception(error)

    async def drain(self) -> None:
        """Sees to it that the node reads what was posted, within limits; ends the stream if anything was."""
        task, call = self._task, self._call
        if self._has_posted and task is not None and call is not None and not self._answers and not self._outgoing:
            # Cancelling throws away what the node has not read yet, and nobody would know: it ends the stream instead.
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await call.done_writing()
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)

    def end(self) -> asyncio.Task[None] | None:
        """Ends the stream at once; what is unanswered fails. Returns what runs on until it has ended, if anything."""
        task = self._task
        if task is not None:
            task.cancel()
            self._fail_unanswered(self._closed_error())  # A task that has not begun never does it.
        return task

    def _not_sent_error(self, error: QuorumlogError) -> QuorumlogError:
        """For what a node has never seen of a stream that it ended, once for all, for the sake of another request."""
        return NetworkError(f"{self._address} ended the stream before this was sent: {error.message}", definite=True)

    def _closed_error(self) -> QuorumlogError:
        return NetworkError(f"the connection to {self._address} was closed")


class NodeConnection:
    """The connection to one node.

    Arguments:
        client_id: goes into the user agent that nodes see.
        runtime: makes the channel.
        next_correlation_id: the client's count of the requests on all its streams.
        identity: who signs in by password; None: nobody.

    Attributes:
        address: ``host:port``.
        suspect: something failed here and nothing has succeeded since.
        failed_at_s: when that was, by the runtime's clock.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        runtime: ClientRuntime,
        next_correlation_id: Callable[[], int],
        identity: ScramIdentity | None = None,
    ) -> None:
        self.address = address
        self.suspect = False
        self.failed_at_s = 0.0
        self._clock = runtime.monotonic_s
        self._channel = runtime.open_channel(self, address, client_id)
        self._closed = False
        self._session = None if identity is None else NodeSession(self._channel, identity, runtime, address)
        # Of a channel, stubs use what SessionChannel has.
        channel = self._channel
        if self._session is not None:
            channel = cast("grpc.aio.Channel", SessionChannel(channel, self._session))
        self._data_plane = data_plane_pb2_grpc.DataPlaneStub(channel)
        self._admin = admin_pb2_grpc.AdminStub(channel)
        self._groups = groups_pb2_grpc.GroupsStub(channel)
        self.produce: ClientStream[OutgoingProduce, data_plane_pb2.ProduceResponse] = ClientStream(
            self._channel.stream_stream(
                "/quorumlog.v1.DataPlane/Produce",
                request_serializer=OutgoingProduce.to_bytes,
                response_deserializer=data_plane_pb2.ProduceResponse.FromString,
            ),
            address,
            self._heard,
            next_correlation_id,
            self._session,
        )
        self.fetch: ClientStream[data_plane_pb2.FetchRequest, FetchAnswer] = ClientStream(
            self._channel.stream_stream(
                "/quorumlog.v1.DataPlane/Fetch",
                request_serializer=data_plane_pb2.FetchRequest.SerializeToString,
                response_deserializer=read_fetch_answer,
            ),
            address,
            self._heard,
            next_correlation_id,
            self._session,
        )
        self.heartbeats: ClientStream[groups_pb2.GroupHeartbeatRequest, groups_pb2.GroupHeartbeatResponse] = (
            ClientStream(self._groups.Heartbeat, address, self._heard, next_correlation_id, self._session)
        )

    @property
    def data_plane(self) -> data_plane_pb2_grpc.DataPlaneAsyncStub:
        """Calls of topics and records; raises ClientClosedError when closed, as the others do."""
        self._check_open()
        return self._data_plane

    @property
    def admin(self) -> admin_pb2_grpc.AdminAsyncStub:
        """Calls of administration."""
        self._check_open()
        return self._admin

    @property
    def groups(self) -> groups_pb2_grpc.GroupsAsyncStub:
        """Calls of groups."""
        self._check_open()
        return self._groups

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")

    def _heard(self, healthy: bool) -> None:
        self.suspect = not healthy
        if not healthy:
            self.failed_at_s = self._clock()

    async def call(self, call: Awaitable[Reply]) -> Reply:
        """Awaits a unary call of one of the stubs.

        Raises:
            QuorumlogError: it failed as a whole.
            ClientClosedError: the connection was closed meanwhile.
        """
        try:
            reply = await call
        except grpc.RpcError as error:
            self._heard(False)
            raise error_from_rpc(error, self.address) from None
        except asyncio.CancelledError:
            # A channel that is closed cancels its calls; who waits for them is not cancelled, and must not look so.
            if self._closed and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._check_open()
            raise
        self._heard(True)
        return reply

    async def drain(self) -> None:
        """Sees to it that the node reads what was posted to it, within limits."""
        await self.produce.drain()

    async def close(self) -> list[asyncio.Task[None]]:
        """Closes streams and channel, without suspending. Returns what runs on until the streams have ended."""
        self._closed = True
        ending = [self.produce.end(), self.fetch.end(), self.heartbeats.end()]
        await self._channel.close(grace=None)
        in_session = self._session.close() if self._session is not None else []
        return [*(task for task in ending if task is not None), *in_session]
