"""Bidirectional streams of clients: requests in, replies out in the order in which they are ready.

A stream holds a bounded number of requests, counted until their answers are written: a client that does not read its
answers is not read from either. Messages are parsed here and not by gRPC, so that bytes which are none are answered
with a status, and a reply is serialized once.
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

#: A client that takes no more of an answer for so long is gone, or means no good: its connection may well answer pings.
SLOW_READER_S = 60.0
#: A certificate is valid in the second of its end, too.
_PAST_S = 0.1


class OpenStreams:
    """The streams of one service that clients have open.

    Arguments:
        limit: how many there may be at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    async def serve(self, stream: RequestStream, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Serves one stream to its end, unless there are as many as there may be.

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
        limit: unanswered requests at which reading stops.
        client: who speaks.
    """

    def __init__(
        self, requests: ClientRequests, context: Context, limit: int, client: RequestContext = UNKNOWN_CLIENT
    ) -> None:
        self._requests = requests
        self.context = context
        self._limit = limit
        self.client = client
        self._number = requests.open_stream()
        #: True once the node keeps something for this stream: a fetch session, or who it was that was let in.
        self.in_session = False
        self._is_let_in = client.listener in (Listener.CLIENT, Listener.PASSWORD)
        self._ended = asyncio.Event()
        self._why_ended: Error | None = None
        self._pending: dict[int, None] = {}
        #: The number of the request is 0 of one that the node was never asked.
        self._answers: deque[tuple[Reply, Callable[[int], None] | None]] = deque()
        self._unanswered = 0
        self._is_paused = False
        #: True once the client was over a quota.
        self._is_limited = False
        self._wake_writer = asyncio.Event()
        self._wake_reader = asyncio.Event()
        #: When the write under way began, by the loop's clock; and the writer of a client that takes too long.
        self._writing_since_s: float | None = None
        self._stalled_writer: asyncio.Future[None] | None = None

    async def serve(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Reads until the client is done, answers all, and tells the node when the client went away before that."""
        writer = asyncio.ensure_future(self._write())
        watch = asyncio.ensure_future(self._watch())
        others = (self._read(take), self._requests.closed.wait(), self._ended.wait())
        tasks = [writer, watch, *map(asyncio.ensure_future, others)]
        self._requests.watch_stream(self._number, self)
        try:
            # The first to end tells why: all read and answered, a malformed request (refused already), a client
            # that is gone, does not read, or is let in no more, or a node that stops.
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
            # gRPC's way of saying that the stream ended under a read or write.
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
        """Tells a client that does not read why it gets no more, once it does. All that was kept for it has been let go
        but the answer that gRPC has: what is begun there cannot be taken back."""
        if self._stalled_writer is None:
            return
        self._answers.clear()
        self._pending.clear()
        with suppress(grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            await self._stalled_writer
            await self.context.abort(grpc.StatusCode.ABORTED, "the answers on this stream were not read")

    async def _watch(self) -> None:
        """Ends when a write takes too long, or with the client's certificate."""
        clock, end_s = asyncio.get_running_loop().time, certificate_end_s(self.context)
        while self._writing_since_s is None or clock() < self._writing_since_s + SLOW_READER_S:
            left_s = end_s - time.time()
            if left_s < 0:
                return
            # An event per write would cost more.
            await asyncio.sleep(min(SLOW_READER_S / 4, left_s + _PAST_S))

    def submit(
        self,
        request: ProtoMessage,
        size_bytes: int,
        count: Callable[[int], None] | None = None,
        arrived_us: int = 0,
    ) -> None:
        """Hands a request to the node; its reply will be written. ``count`` is told the reply's size. ``arrived_us`` as
        for ``ClientRequests.submit``."""
        number = 0

        def take(reply: Reply) -> None:
            self._pending.pop(number, None)
            self._queue(reply, count)

        self._unanswered += 1
        self.in_session = self.in_session or self._is_let_in
        number = self._requests.submit(request, size_bytes, take, self._number, self.client, arrived_us)
        self._pending[number] = None

    def submit_unanswered(self, request: ProtoMessage, size_bytes: int) -> None:
        """Hands over a request that has no reply."""
        self.in_session = self.in_session or self._is_let_in
        self._requests.submit_unanswered(request, size_bytes, self._number, self.client)

    def end(self, ended: EndedStream) -> None:
        """The node lets the client in no more."""
        self._why_ended = ended.error
        self._ended.set()

    def pause(self, is_paused: bool) -> None:
        """The client is over a quota: the stream is read no further, or again."""
        self._is_paused = is_paused
        self._is_limited = True
        self._wake_reader.set()

    def answer(self, message: ProtoMessage) -> None:
        """Queues an answer to what the node is not asked."""
        self._unanswered += 1
        self._queue(Reply(0, message))

    def _queue(self, reply: Reply, count: Callable[[int], None] | None = None) -> None:
        self._answers.append((reply, count))
        self._wake_writer.set()

    async def _read(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        while True:
            if self._is_limited:
                # The node looks at what was read last before there is more: it may want to have no more.
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
    """The message in some bytes. Ends the call where there is none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        await invalid(context, f"{len(data)} bytes that are not a {kind.DESCRIPTOR.name}")
        raise AssertionError("refusing raises") from None


async def invalid(context: Context, message: str, code: ErrorCode.ValueType = ErrorCode.INVALID_REQUEST) -> None:
    """Ends the call for a request that no client library makes."""
    await refuse(context, error(code, message))
