"""Pending requests of clients: bounded, answered once, and dropped when their client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.events import (
    ClientGone,
    ClientRequest,
    EndedStream,
    Event,
    Reply,
    StreamClosed,
    StreamPause,
)
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.server.transport.clients.request_times import RequestTimes

#: Error for requests in progress when the node stops.
STOPPING = "the node is stopping: send the request to another node"

#: Limits shared by all clients, on requests in progress and their bytes.
MAX_PENDING_REQUESTS = 20_000
MAX_PENDING_BYTES = 256 << 20


class NodeStoppingError(Exception):
    """Raised if the node stops before it answers; the request may or may not have taken effect."""


class WatchedStream(Protocol):
    """A client's stream that the node can end or pause."""

    def end(self, ended: EndedStream) -> None:
        """Ends the stream because the client's session has ended."""

    def pause(self, is_paused: bool) -> None:
        """Pauses or resumes reading the stream."""


class ClientRequests:
    """Assigns numbers to requests and delivers replies.

    Arguments:
        emit: receives events for the node.

    Attributes:
        times: latencies of requests, by stage.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._numbers = count(1)
        self._pending: dict[int, tuple[int, Callable[[Reply], None]]] = {}
        self._pending_bytes = 0
        self.times = RequestTimes()
        self._streams: dict[int, WatchedStream] = {}
        self.closed = asyncio.Event()

    def has_room_for(self, size_bytes: int) -> bool:
        """True if another request of this size may be submitted."""
        return len(self._pending) < MAX_PENDING_REQUESTS and self._pending_bytes + size_bytes <= MAX_PENDING_BYTES

    def open_stream(self) -> int:
        """Returns the number of a new stream."""
        return next(self._numbers)

    def watch_stream(self, stream: int, watched: WatchedStream) -> None:
        """Registers a stream for the node's notifications to end or pause it, until it is closed."""
        self._streams[stream] = watched

    def close_stream(self, stream: int, *, is_known: bool) -> None:
        """Removes a stream that has ended, after its requests were abandoned.

        Arguments:
            is_known: the node keeps state of the stream and has to be notified.
        """
        self._streams.pop(stream, None)
        if is_known:
            self._emit(StreamClosed(stream))

    def end_stream(self, ended: EndedStream) -> None:
        """Delivers the node's notification that a client's session has ended."""
        watched = self._streams.get(ended.stream)
        if watched is not None:
            watched.end(ended)

    def pause_stream(self, pause: StreamPause) -> None:
        """Delivers the node's notification to pause or resume a client."""
        watched = self._streams.get(pause.stream)
        if watched is not None:
            watched.pause(pause.is_paused)

    def submit(
        self,
        message: ProtoMessage,
        size_bytes: int,
        on_reply: Callable[[Reply], None],
        stream: int = 0,
        client: RequestContext = UNKNOWN_CLIENT,
        arrived_us: int = 0,
        connected_us: int = 0,
    ) -> int:
        """Submits a request to the node and returns its number. ``on_reply`` is called once; never after ``abandon``.

        Arguments:
            arrived_us: arrival time on the clock of the node's steps, for traced requests; otherwise 0.
            connected_us: of Kafka's clients: when the connection was accepted, on that clock.
        """
        number = next(self._numbers)
        self._pending[number] = (size_bytes, on_reply)
        self._pending_bytes += size_bytes
        self.times.came(number, message)
        self._emit(ClientRequest(number, message, stream, client, size_bytes, arrived_us, connected_us))
        return number

    def submit_unanswered(
        self, message: ProtoMessage, size_bytes: int, stream: int = 0, client: RequestContext = UNKNOWN_CLIENT
    ) -> None:
        """Submits a request that has no reply (acks=0)."""
        self._emit(ClientRequest(next(self._numbers), message, stream, client, size_bytes))

    def deliver(self, reply: Reply) -> None:
        """Delivers a reply, unless the request was abandoned."""
        entry = self._pending.pop(reply.request_id, None)
        if entry is not None:
            self._pending_bytes -= entry[0]
            self.times.answered(reply.request_id, reply.told)
            entry[1](reply)

    def abandon(self, number: int) -> None:
        """Drops the reply to a request and notifies the node."""
        self.times.abandoned(number)
        entry = self._pending.pop(number, None)
        if entry is not None:
            self._pending_bytes -= entry[0]
            self._emit(ClientGone(number))

    def close(self) -> None:
        """Wakes all callers that wait for a reply: the node is stopping."""
        self.closed.set()

    async def ask(
        self, message: ProtoMessage, size_bytes: int, timeout_s: float, client: RequestContext = UNKNOWN_CLIENT
    ) -> ProtoMessage:
        """Submits a request and waits for its reply.

        Raises:
            TimeoutError: no reply in time; the request is abandoned.
            NodeStoppingError: the node stopped before it answered.
        """
        answer: asyncio.Future[ProtoMessage] = asyncio.get_running_loop().create_future()

        def take(reply: Reply) -> None:
            if not answer.done():
                answer.set_result(reply.message)

        number = self.submit(message, size_bytes, take, client=client)
        stopping = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait((answer, stopping), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                self.times.written(number)
                return answer.result()
            raise NodeStoppingError if stopping.done() else TimeoutError
        finally:
            stopping.cancel()
            self.abandon(number)
