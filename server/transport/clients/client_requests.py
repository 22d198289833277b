"""Requests of clients that the node works on: each is bounded, answered once, and forgotten when its client goes."""

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

#: What a client reads whose request was under way when the node stopped.
STOPPING = "the node is stopping: ask another one"

#: Requests, and bytes of requests, that the node works on at once for all clients together.
MAX_PENDING_REQUESTS = 20_000
MAX_PENDING_BYTES = 256 << 20


class NodeStoppingError(Exception):
    """The node stops; the request may or may not have taken effect."""


class WatchedStream(Protocol):
    """A stream of a client, of which the node may say something."""

    def end(self, ended: EndedStream) -> None:
        """Its client is not let in any more."""

    def pause(self, is_paused: bool) -> None:
        """It is to be read no further, or to be read again."""


class ClientRequests:
    """Gives requests their numbers and brings replies back.

    Arguments:
        emit: takes events for the node.

    Attributes:
        times: where the time of requests goes.
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
        """Whether another request of this size may be submitted."""
        return len(self._pending) < MAX_PENDING_REQUESTS and self._pending_bytes + size_bytes <= MAX_PENDING_BYTES

    def open_stream(self) -> int:
        """The number of a new stream."""
        return next(self._numbers)

    def watch_stream(self, stream: int, watched: WatchedStream) -> None:
        """Has a stream told when the node ends it or holds it up, until it is closed."""
        self._streams[stream] = watched

    def close_stream(self, stream: int, *, is_known: bool) -> None:
        """A stream has ended; its requests have been abandoned.

        Arguments:
            is_known: the node has heard of it.
        """
        self._streams.pop(stream, None)
        if is_known:
            self._emit(StreamClosed(stream))

    def end_stream(self, ended: EndedStream) -> None:
        """The node lets a client in no more."""
        watched = self._streams.get(ended.stream)
        if watched is not None:
            watched.end(ended)

    def pause_stream(self, pause: StreamPause) -> None:
        """The node has a client wait, or no longer."""
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
    ) -> int:
        """Hands a request to the node; returns its number. ``on_reply`` is called once, or never after ``abandon``.

        Arguments:
            arrived_us: when it came, by the clock of the node's steps, where that is to be told; else 0.
        """
        number = next(self._numbers)
        self._pending[number] = (size_bytes, on_reply)
        self._pending_bytes += size_bytes
        self.times.came(number, message)
        self._emit(ClientRequest(number, message, stream, client, size_bytes, arrived_us))
        return number

    def submit_unanswered(
        self, message: ProtoMessage, size_bytes: int, stream: int = 0, client: RequestContext = UNKNOWN_CLIENT
    ) -> None:
        """Hands over a request that has no reply (acks=0)."""
        self._emit(ClientRequest(next(self._numbers), message, stream, client, size_bytes))

    def deliver(self, reply: Reply) -> None:
        """Brings a reply to whoever waits for it, if anybody still does."""
        entry = self._pending.pop(reply.request_id, None)
        if entry is not None:
            self._pending_bytes -= entry[0]
            self.times.answered(reply.request_id, reply.told)
            entry[1](reply)

    def abandon(self, number: int) -> None:
        """Nobody waits for this reply any more."""
        self.times.abandoned(number)
        entry = self._pending.pop(number, None)
        if entry is not None:
            self._pending_bytes -= entry[0]
            self._emit(ClientGone(number))

    def close(self) -> None:
        """The node is stopping: whoever waits for a reply waits in vain."""
        self.closed.set()

    async def ask(
        self, message: ProtoMessage, size_bytes: int, timeout_s: float, client: RequestContext = UNKNOWN_CLIENT
    ) -> ProtoMessage:
        """Submits a request and waits for its reply.

        Raises:
            TimeoutError: none came in time; the node has been told that nobody waits.
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
