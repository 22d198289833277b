"""One node from a client's view: a channel, and its streams, opened on first use and again after a loss."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio

from quorumlog.sdk.cluster.call_limiter import LimitedChannel
from quorumlog.sdk.cluster.node_session import Metadata, NodeSession, SessionChannel
from quorumlog.sdk.errors import (
    ClientClosedError,
    NetworkError,
    QuorumlogError,
    SaslAuthenticationFailedError,
    SaslSessionExpiredError,
)
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.records.fetch_answer import FetchAnswer, read_fetch_answer
from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.sdk.runtime.security import Identity
from quorumlog.sdk.runtime.tls_files import TlsFiles
from quorumlog.v1 import (
    admin_pb2_grpc,
    data_plane_pb2,
    data_plane_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
    transactions_pb2_grpc,
)

#: Time limit for a closing client: for a node to read posted requests, and for a stream to end.
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

    When the stream breaks, every unanswered request fails: indefinitely if it was written, because the node may have
    carried it out. That also holds if the node has refused one of them permanently, because it does not report which
    one. The next request opens a new stream.

    A stream belongs to a connection, and the connection to the certificate with which it was made. When the client's
    files have changed, a stream without pending responses is left, and the next request opens one with the new files. A
    stream that is never idle continues until the node ends it because its certificate is no longer valid; that does not
    count as a refusal of the client.

    Arguments:
        open_call: makes the gRPC call.
        address: of the node, for messages.
        on_health: called with True at each response and False at each loss.
        next_correlation_id: the client's count for all its streams: a coordinator handles a member's heartbeats in the
            order of their ids, over all streams of the member, and drops late ones.
        session: of the stream; None without authentication.
        tls_files: files for connections; None without TLS.

    Attributes:
        life: number of streams opened so far; state bound to an earlier one is invalid.
    """

    def __init__(
        self,
        open_call: Callable[..., grpc.aio.StreamStreamCall[Request, Response]],
        address: str,
        on_health: Callable[[bool], None],
        next_correlation_id: Callable[[], int],
        session: NodeSession | None = None,
        tls_files: TlsFiles | None = None,
    ) -> None:
        self._session = session
        self._tls_files = tls_files
        #: The state of the files with which the stream was opened, and the tasks of streams that were left.
        self._made_with = 0
        self._left: set[asyncio.Task[None]] = set()
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
        """Sends a request, in the order of the calls; returns a future for its response."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._enqueue(request)
        self._answers[request.correlation_id] = answer
        return answer

    def post(self, request: Request) -> asyncio.Future[None]:
        """Sends a request without a response; the future is done once the request was passed to the transport."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(request)
        self._written[request.correlation_id] = written
        self._has_posted = True
        return written

    def open(self) -> int:
        """Opens the stream unless it is open; returns its ``life``."""
        if self._task is not None and self._is_outdated() and not (self._answers or self._written or self._outgoing):
            self._leave(self._task)
        if self._task is None:
            self.life += 1
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self.life

    def _enqueue(self, request: Request) -> None:
        self.open()
        request.correlation_id = self._next_correlation_id()
        self._outgoing.append(request)
        self._wake.set()

    def _is_outdated(self) -> bool:
        """True if the stream's connection was made with other files than the present ones."""
        return self._tls_files is not None and self._call is not None and self._tls_files.look() != self._made_with

    def _leave(self, task: asyncio.Task[None]) -> None:
        """Leaves the stream to its writer, which ends it so that the node reads all posted requests."""
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        self._task = self._call = None
        self._has_posted = False
        self._wake.set()

    async def _run(self) -> None:
        """Opens the stream, writes and reads until it breaks, then fails unanswered requests."""
        task = asyncio.current_task()
        metadata: Metadata = ()
        if self._session is not None:
            try:
                metadata = await self._session.metadata()
            except QuorumlogError as refused:
                # Nothing was sent. Later requests try again.
                self._task = None
                self._on_health(False)
                self._fail_all(refused)
                return
        call = self._call = self._open_call(metadata=metadata) if metadata else self._open_call()
        made_with = self._made_with = 0 if self._tls_files is None else self._tls_files.look()
        writer = asyncio.get_running_loop().create_task(self._write(call, task))
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
            error = _of_former_files(error, self._tls_files, made_with)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
        finally:
            writer.cancel()
            call.cancel()
            if self._task is task:
                self._task = self._call = None
                self._on_health(False)
                self._fail_unanswered(error)

    async def _write(self, call: grpc.aio.StreamStreamCall[Request, Response], task: asyncio.Task[None] | None) -> None:
        try:
            while self._task is task:
                while self._outgoing and self._task is task:
                    request = self._outgoing.popleft()
                    await call.write(request)
                    written = self._written.pop(request.correlation_id, None)
                    if written is not None and not written.done():
                        written.set_result(None)
                if self._task is task:
                    self._wake.clear()
                    await self._wake.wait()
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            # The reading side detects the same end, and reports the reason.
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
        """Waits, within limits, until the node has read posted requests; ends the stream if there were any."""
        task, call = self._task, self._call
        if self._has_posted and task is not None and call is not None and not self._answers and not self._outgoing:
            # Cancelling would discard unread requests without notice: the stream is ended instead.
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await call.done_writing()
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        if self._left:
            await asyncio.wait(self._left, timeout=CLOSE_TIMEOUT_S)

    def end(self) -> list[asyncio.Task[None]]:
        """Ends the stream at once; unanswered requests fail. Returns the tasks that run until it has ended."""
        ending = list(self._left)
        if self._task is not None:
            ending.append(self._task)
            self._fail_unanswered(self._closed_error())  # A task that has not started would never do it.
        for task in ending:
            task.cancel()
        return ending

    def _not_sent_error(self, error: QuorumlogError) -> QuorumlogError:
        """Returns the error for requests that a node did not see because it ended the stream, permanently, for another
        request."""
        return NetworkError(f"{self._address} ended the stream before this was sent: {error.message}", definite=True)

    def _closed_error(self) -> QuorumlogError:
        return NetworkError(f"the connection to {self._address} was closed")


class NodeConnection:
    """The connection to one node.

    Arguments:
        client_id: part of the user agent that nodes see.
        runtime: creates the channel.
        next_correlation_id: the client's count of the requests on all its streams.
        identity: for authentication; None without it.
        tls_files: files for the runtime's channels; None without TLS.

    Attributes:
        address: ``host:port``.
        suspect: a call failed here and none has succeeded since.
        failed_at_s: time of that failure, by the runtime's clock.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        runtime: ClientRuntime,
        next_correlation_id: Callable[[], int],
        identity: Identity | None = None,
        tls_files: TlsFiles | None = None,
    ) -> None:
        self._tls_files = tls_files
        self.address = address
        self.suspect = False
        self.failed_at_s = 0.0
        self._clock = runtime.monotonic_s
        self._channel = runtime.open_channel(self, address, client_id)
        self._closed = False
        self._session = None if identity is None else NodeSession(self._channel, identity, runtime, address)
        # Stubs use only these two methods of a channel.
        self._room = LimitedChannel(self._channel, address, runtime.monotonic_s)
        channel = cast("grpc.aio.Channel", self._room)
        if self._session is not None:
            channel = cast("grpc.aio.Channel", SessionChannel(channel, self._session))
        self._data_plane = data_plane_pb2_grpc.DataPlaneStub(channel)
        self._admin = admin_pb2_grpc.AdminStub(channel)
        self._groups = groups_pb2_grpc.GroupsStub(channel)
        self._transactions = transactions_pb2_grpc.TransactionsStub(channel)
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
            tls_files,
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
            tls_files,
        )
        self.heartbeats: ClientStream[groups_pb2.GroupHeartbeatRequest, groups_pb2.GroupHeartbeatResponse] = (
            ClientStream(self._groups.Heartbeat, address, self._heard, next_correlation_id, self._session, tls_files)
        )

    @property
    def data_plane(self) -> data_plane_pb2_grpc.DataPlaneAsyncStub:
        """Stub for topics and records; raises ClientClosedError when closed, as the others do."""
        self._check_open()
        return self._data_plane

    @property
    def admin(self) -> admin_pb2_grpc.AdminAsyncStub:
        """Stub for administration."""
        self._check_open()
        return self._admin

    @property
    def groups(self) -> groups_pb2_grpc.GroupsAsyncStub:
        """Stub for groups."""
        self._check_open()
        return self._groups

    @property
    def transactions(self) -> transactions_pb2_grpc.TransactionsAsyncStub:
        """Stub for transactions."""
        self._check_open()
        return self._transactions

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
            ClientClosedError: the connection was closed during the call.
        """
        made_with = 0 if self._tls_files is None else self._tls_files.look()
        try:
            reply = await call
        except grpc.RpcError as error:
            self._heard(False)
            raise _of_former_files(error_from_rpc(error, self.address), self._tls_files, made_with) from None
        except asyncio.CancelledError:
            # A closed channel cancels its calls; the waiting task is not cancelled, and must not appear to be.
            if self._closed and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._check_open()
            raise
        self._heard(True)
        return reply

    async def drain(self) -> None:
        """Waits, within limits, until the node has read posted requests."""
        await self.produce.drain()

    async def close(self) -> list[asyncio.Task[None]]:
        """Closes streams and channel, without suspending. Returns the tasks that run until the streams have ended."""
        self._closed = True
        self._room.close()
        ending = [*self.produce.end(), *self.fetch.end(), *self.heartbeats.end()]
        await self._channel.close(grace=None)
        in_session = self._session.close() if self._session is not None else []
        return [*ending, *in_session]


def _of_former_files(error: QuorumlogError, files: TlsFiles | None, made_with: int) -> QuorumlogError:
    """Converts the refusal of a replaced certificate into a lost connection.

    Arguments:
        made_with: the state of the files with which the connection was made.
    """
    if files is None or not isinstance(error, SaslAuthenticationFailedError) or files.look(at_once=True) == made_with:
        return error
    return NetworkError(f"the connection was of a former certificate: {error.message}", definite=error.definite)
