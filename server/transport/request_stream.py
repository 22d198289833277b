"""Bidirectional streams of clients: requests in, replies out in the order in which they are ready.

A stream holds a bounded number of requests, counted until their answers are written: a client that does not read its
answers is not read from either. Messages are parsed here and not by gRPC, so that bytes which are none are answered
with a status, and a reply is serialized once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.client_origin import UNKNOWN_CLIENT, ClientOrigin
from quorumlog.server.transport.callers import Context
from quorumlog.server.transport.client_requests import STOPPING, ClientRequests
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.server.transport.unary_calls import TRY_LATER
from quorumlog.server.wire_errors import error
from quorumlog.v1.errors_pb2 import ErrorCode

Request = TypeVar("Request", bound=ProtoMessage)


class OpenStreams:
    """The streams of one service that clients have open.

    Arguments:
        limit: how many there may be at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open = 0

    async def serve(self, stream: RequestStream, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Serves one stream to its end, unless there are as many as there may be.

        Arguments:
            take: called with each message.
        """
        if self._open >= self._limit:
            await refuse(stream.context, error(ErrorCode.SERVER_BUSY, f"{self._limit} streams are open: {TRY_LATER}"))
        self._open += 1
        try:
            await stream.serve(take)
        finally:
            self._open -= 1


class RequestStream:
    """One stream of requests and replies.

    Arguments:
        limit: unanswered requests at which reading stops.
        client: who speaks.
    """

    def __init__(
        self, requests: ClientRequests, context: Context, limit: int, client: ClientOrigin = UNKNOWN_CLIENT
    ) -> None:
        self._requests = requests
        self.context = context
        self._limit = limit
        self.client = client
        self._number = requests.open_stream()
        #: True once the node keeps something for this stream.
        self.in_session = False
        self._pending: dict[int, None] = {}
        self._answers: deque[tuple[ProtoMessage, Callable[[int], None] | None]] = deque()
        self._unanswered = 0
        self._wake_writer = asyncio.Event()
        self._wake_reader = asyncio.Event()

    async def serve(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        """Reads until the client is done, answers all, and tells the node when the client went away before that."""
        tasks = [
            asyncio.ensure_future(work) for work in (self._read(take), self._write(), self._requests.closed.wait())
        ]
        try:
            # The first to end tells why: all read and answered, a malformed request (refused already), a client
            # that is gone, or a node that stops.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
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
            if self.in_session:
                self._requests.close_stream(self._number)

    def submit(self, request: ProtoMessage, size_bytes: int, count: Callable[[int], None] | None = None) -> None:
        """Hands a request to the node; its reply will be written. ``count`` is told the reply's size."""
        number = 0

        def reply(message: ProtoMessage) -> None:
            self._pending.pop(number, None)
            self._unanswered -= 1
            self.answer(message, count)

        self._unanswered += 1
        number = self._requests.submit(request, size_bytes, reply, self._number, self.client)
        self._pending[number] = None

    def answer(self, message: ProtoMessage, count: Callable[[int], None] | None = None) -> None:
        """Queues an answer."""
        self._unanswered += 1
        self._answers.append((message, count))
        self._wake_writer.set()

    async def _read(self, take: Callable[[bytes, RequestStream], Awaitable[None]]) -> None:
        while True:
            while self._unanswered >= self._limit:
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
        while True:
            while self._answers:
                message, count = self._answers.popleft()
                data = message.SerializeToString()
                if count is not None:
                    count(len(data))
                await self.context.write(data)
                self._unanswered -= 1
                self._wake_reader.set()
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
