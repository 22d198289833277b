"""Connections of which no call came: all that a node sees of a handshake that gRPC has refused.

gRPC tells a program neither of connections nor of handshakes. But it asks for the certificate as a handshake begins,
and at that moment the socket is among this process's descriptors, with the address of the other side. A connection
that is gone again a little later without a call has failed in its handshake, or has never said anything.

Looking through the descriptors takes about 2 µs for each. So that a flood of connections costs little, it is done ten
times in a second at most. Of connections that begin and end in between nothing is seen.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from quorumlog.server.transport.callers import Context
from quorumlog.server.transport.failed_handshakes import FailedHandshakes

#: How often is looked for new connections at most, and how often for those that are gone.
LOOK_AGAIN_S = 0.1
CHECK_EVERY_S = 1.0
#: Connections that are watched at once.
MAX_WATCHED = 1_000
#: Connections of which a call came are remembered up to about so many that are gone.
_STALE = 1_000
REASON = "no call came of it: its handshake of TLS failed, or it said nothing"

_Handler = Any  # grpc.RpcMethodHandler of messages whose types are not known here
#: Address and port of the other side.
Peer = tuple[str, int]


def connected_to(port: int) -> set[Peer]:
    """The other sides of this process's connections to one of its ports."""
    found: set[Peer] = set()
    for name in os.listdir("/dev/fd"):
        peer = _other_side(int(name), port)
        if peer is not None:
            found.add(peer)
    return found


def _other_side(descriptor: int, port: int) -> Peer | None:
    try:
        looked_at = socket.socket(fileno=descriptor)
    except OSError:
        return None  # It is no socket, or none any more.
    try:
        if looked_at.family not in (socket.AF_INET, socket.AF_INET6) or looked_at.getsockname()[1] != port:
            return None
        host, its_port = looked_at.getpeername()[:2]
    except OSError:
        return None  # It listens, or its other side is gone.
    finally:
        looked_at.detach()  # It is gRPC's, which closes it.
    return host.removeprefix("::ffff:"), its_port


def caller(context: Context) -> Peer | None:
    """Address and port that a call comes from."""
    kind, _, place = unquote(context.peer()).partition(":")
    host, _, port = place.rpartition(":")
    return (host.strip("[]").removeprefix("::ffff:"), int(port)) if kind in ("ipv4", "ipv6") else None


class UncalledConnections(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # it takes no types when it runs
    """Watches the connections of a listener with TLS.

    Arguments:
        listener: the setting that says where it listens.
        port: the one it listens on.
        told: is told of those that came to nothing.
        clock: in seconds.
        connected: the other sides of connections to a port.
    """

    def __init__(
        self,
        listener: str,
        port: int,
        told: FailedHandshakes,
        clock: Callable[[], float] = time.monotonic,
        connected: Callable[[int], set[Peer]] = connected_to,
    ) -> None:
        self._listener = listener
        self._port = port
        self._told = told
        self._clock = clock
        self._connected = connected
        self._look_again_s = -LOOK_AGAIN_S
        #: Held while what follows changes: connections begin on threads of gRPC's.
        self._lock = threading.Lock()
        self._called: set[Peer] = set()
        #: Connections without a call yet, and when they were seen first.
        self._watched: dict[Peer, float] = {}

    @property
    def remembered(self) -> int:
        """Connections that are remembered, with those that are gone."""
        return len(self._called) + len(self._watched)

    def begun(self) -> None:
        """A handshake begins. Called by gRPC on a thread of its own."""
        now = self._clock()
        with self._lock:
            if now < self._look_again_s:
                return
            self._look_again_s = now + LOOK_AGAIN_S
        connected = self._now_connected() or set()  # Without the lock, for which calls wait.
        with self._lock:
            for peer in connected - self._called:
                if len(self._watched) < MAX_WATCHED:
                    self._watched.setdefault(peer, now)

    def _now_connected(self) -> set[Peer] | None:
        """The other sides; None where no descriptor is left to look with."""
        try:
            return self._connected(self._port)
        except OSError:
            return None

    def called(self, peer: Peer) -> None:
        """A call came of a connection."""
        with self._lock:
            self._called.add(peer)
            self._watched.pop(peer, None)

    def check(self) -> None:
        """Tells of the connections that are gone without a call."""
        with self._lock:
            has_stale = len(self._called) > MAX_WATCHED + _STALE
            if not self._watched and not has_stale:
                return
            called = set(self._called) if has_stale else set()
        connected, before = self._now_connected(), self._clock() - CHECK_EVERY_S
        if connected is None:
            return
        with self._lock:
            self._called -= called - connected
            # A call that came just before the end may still be on its way to us.
            gone = [peer for peer, since in self._watched.items() if peer not in connected and since <= before]
            for peer in gone:
                del self._watched[peer]
        for host, _ in gone:
            self._told.failed(self._listener, host, REASON)

    async def run(self) -> None:
        """Tells of them for as long as the node serves."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self.check()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Called by gRPC with each call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # Nobody serves that. Who asks for nothing else has not called, either.
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            serve = getattr(handler, kind)
            if serve is not None:
                return handler._replace(**{kind: self._noted(serve)})
        return handler

    def _noted(self, serve: Callable[..., Any]) -> Callable[..., Any]:
        """The same function of a service, which takes note of who calls it. gRPC serves each kind in another way."""
        if inspect.isasyncgenfunction(serve):

            async def generate(request: object, context: Context) -> Any:
                self._note(context)
                async for each in serve(request, context):
                    yield each

            return generate
        if not inspect.iscoroutinefunction(serve):
            return serve

        async def answer(request: object, context: Context) -> Any:
            self._note(context)
            return await serve(request, context)

        return answer

    def _note(self, context: Context) -> None:
        peer = caller(context)
        if peer is not None:
            self.called(peer)
