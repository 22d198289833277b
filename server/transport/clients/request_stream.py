"""Bidirectional streams of clients: requests in, replies out as soon as each is ready.

A stream holds a limited number of requests, counted until their answers are written: a client that does not read its
answers is not read from, either. Messages are parsed here and not by gRPC, so that malformed bytes are answered with a
status, and a reply is serialized once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.events import EndedStream, Reply
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.caller_identity import Context
from quorumlog.server.transport.certificate_ends import certificate_end_s, refuse_ended
from quorumlog.server.transport.clients.client_requests import STOPPING, ClientRequests
from quorumlog.server.transport.clients.unary_calls import TRY_LATER
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1.errors_pb2 import Error, ErrorCode

Request = TypeVar("Request", bound=ProtoMessage)

#: A client that reads nothing for this long has failed or is malicious; its connection may still answer pings.
SLOW_READER_S = 60.0
#: A certificate is valid up to and including the second of its end.
_PAST_S = 0.1


class OpenStreams:
    """The open streams of one service.

    Arguments:
        limit: maximum number at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    async def serve(self, stream: RequestStream, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Serves one stream until it ends, or refuses it if too many are open.

        Arguments:
            take: called with each message.
        """
        if self.open >= self._limit:
            await refuse(stream.context, error(ErrorCode.SERVER_BUSY, f"{self._limit} streams are open: {TRY_LATER}"))
        self.open += 1
        try:
            await stream.serve(take)
        finally:
            self.open -= 1
        await stream.dismiss_slow_reader()


class RequestStream:
    """One stream of requests and replies.

    Arguments:
        limit: number of unanswered requests at which reading pauses.
        client: identity of the client.
    """

    def __init__(
        self, requests: ClientRequests, context: Context, limit: int, client: RequestContext = UNKNOWN_CLIENT
    ) -> None:
        self._requests = requests
        self.context = context
        self._limit = limit
        self.client = client
        self._number = requests.open_stream()
        #: True once the node keeps state for this stream: a fetch session, or its authenticated client.
        self.in_session = False
        self._is_let_in = client.listener in (Listener.CLIENT, Listener.PASSWORD)
        self._ended = asyncio.Event()
        self._why_ended: Error | None = None
        self._pending: dict[int, None] = {}
        #: Pairs of a reply and a callback for its size. The reply's request number is 0 if the node was not involved.
        self._answers: deque[tuple[Reply, Callable[[int], None] | None]] = deque()
        self._unanswered = 0
        self._is_paused = False
        #: True once the client was over a quota.
        self._is_limited = False
        self._wake_writer = asyncio.Event()
        self._wake_reader = asyncio.Event()
        #: Start of the current write, by the loop's clock; and the writer task of a client that reads too slowly.
        self._writing_since_s: float | None = None
        self._stalled_writer: asyncio.Future[None] | None = None

    async def serve(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Serves the stream until the client is done, and notifies the node if the client disconnects before that."""
        writer = asyncio.ensure_future(self._write())
        watch = asyncio.ensure_future(self._watch())
        others = (self._read(take), self._requests.closed.wait(), self._ended.wait())
        tasks = [writer, watch, *map(asyncio.ensure_future, others)]
        self._requests.watch_stream(self._number, self)
        try:
            # The first to finish determines the outcome: everything is read and answered; a malformed request (already
            # refused); a client that has disconnected, does not read, or whose session has ended; or a node that stops.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._why_ended is not None:
                await refuse(self.context, self._why_ended)
            if done == {watch}:
                await refuse_ended(self.context, definite=False)
                self._stalled_writer = writer
                tasks.remove(writer)
            for task in done:
                task.result()
            if self._requests.closed.is_set():
                await self.context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        except (grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # gRPC raises these if the stream ended during a read or write.
            return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in self._pending:
                self._requests.abandon(number)
            for reply, _ in self._answers:
                self._requests.times.abandoned(reply.request_id)
            self._requests.close_stream(self._number, is_known=self.in_session)

    async def dismiss_slow_reader(self) -> None:
        """Aborts the call of a client that does not read, as soon as it reads again.

        All replies queued for it are released, except the one that gRPC is writing, which cannot be cancelled.
        """
        if self._stalled_writer is None:
            return
        self._answers.clear()
        self._pending.clear()
        with suppress(grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            await self._stalled_writer
            await self.context.abort(
                grpc.StatusCode.ABORTED,
                "the answers on this stream were not read in time: read faster, or send fewer requests",
            )

    async def _watch(self) -> None:
        """Returns when a write takes too long, or when the client's certificate expires."""
        clock, end_s = asyncio.get_running_loop().time, certificate_end_s(self.context)
        while self._writing_since_s is None or clock() < self._writing_since_s + SLOW_READER_S:
            left_s = end_s - time.time()
            if left_s < 0:
                return
            # An event for each write would cost more.
            await asyncio.sleep(min(SLOW_READER_S / 4, left_s + _PAST_S))

    def submit(
        self,
        request: ProtoMessage,
        size_bytes: int,
        count: Callable[[int], None] | None = None,
        arrived_us: int = 0,
    ) -> None:
        """Submits a request to the node; its reply will be written to the stream.

        Arguments:
            count: called with the reply's size.
            arrived_us: as for ``ClientRequests.submit``.
        """
        number = 0

        def take(reply: Reply) -> None:
            self._pending.pop(number, None)
            self._queue(reply, count)

        self._unanswered += 1
        self.in_session = self.in_session or self._is_let_in
        number = self._requests.submit(request, size_bytes, take, self._number, self.client, arrived_us)
        self._pending[number] = None

    def submit_unanswered(self, request: ProtoMessage, size_bytes: int) -> None:
        """Submits a request that has no reply."""
        self.in_session = self.in_session or self._is_let_in
        self._requests.submit_unanswered(request, size_bytes, self._number, self.client)

    def end(self, ended: EndedStream) -> None:
        """Ends the stream because the client's session has ended."""
        self._why_ended = ended.error
        self._ended.set()

    def pause(self, is_paused: bool) -> None:
        """Pauses reading while the client is over a quota, or resumes it."""
        self._is_paused = is_paused
        self._is_limited = True
        self._wake_reader.set()

    def answer(self, message: ProtoMessage) -> None:
        """Queues an answer to a request that is not submitted to the node."""
        self._unanswered += 1
        self._queue(Reply(0, message))

    def _queue(self, reply: Reply, count: Callable[[int], None] | None = None) -> None:
        self._answers.append((reply, count))
        self._wake_writer.set()

    async def _read(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        while True:
            if self._is_limited:
                # Let the node process what was read last before reading more: it may pause the stream.
                await asyncio.sleep(0)
            while self._unanswered >= self._limit or self._is_paused:
                self._wake_reader.clear()
                await self._wake_reader.wait()
            data = await self.context.read()
            if not isinstance(data, bytes):
                break
            await take(data, self)
        while self._unanswered:
            self._wake_reader.clear()
            await self._wake_reader.wait()

    async def _write(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._stalled_writer is None:
            while self._answers:
                reply, count = self._answers.popleft()
                number, data = reply.request_id, reply.to_bytes()
                if count is not None:
                    count(len(data))
                self._writing_since_s = clock()
                try:
                    await self.context.write(data)
                    self._requests.times.written(number)
                finally:
                    self._requests.times.abandoned(number)
                self._writing_since_s = None
                self._unanswered -= 1
                self._wake_reader.set()
            if self._stalled_writer is None:
                self._wake_writer.clear()
                await self._wake_writer.wait()


async def parse(kind: type[Request], data: bytes, context: Context) -> Request:
    """Parses a message, or ends the call with an error."""
    try:
        return kind.FromString(data)
    except DecodeError:
        await invalid(context, f"{len(data)} bytes that are not a {kind.DESCRIPTOR.name}")
        raise AssertionError("refusing raises") from None


async def invalid(context: Context, message: str, code: ErrorCode.ValueType = ErrorCode.INVALID_REQUEST) -> None:
    """Ends the call with an error for a request that no client library sends."""
    await refuse(context, error(code, message))
