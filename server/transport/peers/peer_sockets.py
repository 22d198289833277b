"""Sockets between nodes that carry the frames of control and data streams, without gRPC.

A frame and its answer cost half as much processor time on a socket as on a gRPC stream, and wake fewer threads. All
frames that have arrived on a socket are delivered before the node's next step. A stream of gRPC delivers one frame in
each turn of the loop: on a busy machine that delayed heartbeats by seconds. gRPC remains the way to open a link: the
first answer on a stream names a port and a token, and the node that opened the stream connects there and shows the
token. A node of an older version names none, or only one for entries. A port that cannot be reached is not used: then
the frames stay on the stream. A socket lasts no longer than the streams of its link.

Each frame on a socket is preceded by its length, u32 in little-endian order. The first one in each direction is the
token.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.certificates.names import node_host
from quorumlog.server.transport.principals import auth_context_of, node_id_of
from quorumlog.server.transport.tls_contexts import ClientTlsContexts, TlsContexts

_LENGTH = struct.Struct("<I")
_TOKEN_BYTES = 16
#: Received frames up to this size share one buffer; a larger one gets a buffer of its own.
_STAGING_BYTES = 64 << 10
#: Maximum size of a frame, as of a message of gRPC.
MAX_FRAME_BYTES = 256 << 20
#: Bytes that may wait to be sent; beyond this the peer does not read.
MAX_UNSENT_BYTES = 64 << 20
#: Time limits for a connection to show its token, and for a node to connect.
TOKEN_TIMEOUT_S = 5.0
DIAL_TIMEOUT_S = 1.0
#: Maximum number of connections that have not shown their token yet; further ones are closed.
MAX_STRANGERS = 64
_ACCEPT_AGAIN_S = 0.05
#: The end of a connection that the peer has closed.
CLOSED_BY_PEER = "the peer closed the socket"

#: Receives a frame that arrived.
TakeFrame = Callable[[bytes | bytearray], None]


class PeerSocket(asyncio.BufferedProtocol):
    """One connection. Frames are delivered in the order in which the peer has sent them.

    Arguments:
        take: receives each frame, on the event loop.

    Attributes:
        early: frames that nothing has taken yet.
        ended: set to the reason once the connection has ended; never to an exception.
    """

    def __init__(self, take: TakeFrame) -> None:
        self.take = take
        self.early: list[bytes | bytearray] = []
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._staging = bytearray(_STAGING_BYTES)
        self._staged = 0
        #: The large frame that is being received.
        self._large: bytearray | None = None
        self._received = 0

    def is_of(self, node_id: int) -> bool:
        """True if the peer's certificate names a node, or without TLS."""
        connection = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return connection is None or node_id_of(auth_context_of(connection)) == node_id

    def deliver_to(self, take: TakeFrame) -> None:
        """Delivers frames to ``take`` from now on, first those that have arrived since the token."""
        self.take, early, self.early = take, self.early, []
        for frame in early:
            self._deliver(frame)

    def send(self, frame: bytes) -> bool:
        """Sends a frame; False if the peer does not read."""
        transport = self._transport
        if transport is None:
            return True  # It has ended, and the link is about to be.
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            return False
        transport.writelines((_LENGTH.pack(len(frame)), frame))
        return True

    def close(self, reason: str = "the link was closed") -> None:
        """Closes the connection; nothing is delivered afterwards."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    # -- asyncio's protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports have no base class of asyncio

    def connection_lost(self, error: Exception | None) -> None:
        """Notes the end."""
        self._transport = None
        self._end(CLOSED_BY_PEER if error is None else str(error))

    def eof_received(self) -> None:
        """Lets the transport close."""

    def get_buffer(self, hint: int) -> memoryview:
        """Returns where the next bytes go."""
        if self._large is not None:
            return memoryview(self._large)[self._received :]
        return memoryview(self._staging)[self._staged :]

    def buffer_updated(self, count: int) -> None:
        """Delivers the frames that are complete."""
        if self._large is None:
            self._staged += count
            self._deliver_staged()
            return
        self._received += count
        if self._received == len(self._large):
            frame, self._large = self._large, None
            self._deliver(frame)

    def _deliver_staged(self) -> None:
        at, staged = 0, self._staged
        while staged - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._staging, at)
            if length > self.max_frame_bytes:
                self.close(f"a frame of {length} bytes, the maximum is {self.max_frame_bytes}")
                return
            first, end = at + _LENGTH.size, at + _LENGTH.size + length
            if end <= staged:
                self._deliver(bytes(memoryview(self._staging)[first:end]))
                at = end
                continue
            if end - at > _STAGING_BYTES:
                self._large = bytearray(length)
                self._received = staged - first
                self._large[: self._received] = memoryview(self._staging)[first:staged]
                at = staged
            break
        self._staging[: staged - at] = self._staging[at:staged]
        self._staged = staged - at

    def _deliver(self, frame: bytes | bytearray) -> None:
        if not self.ended.done():
            self.take(frame)


@dataclass(slots=True, frozen=True)
class Expected:
    """A connection that a peer may make.

    Arguments:
        port: where it is accepted.
        token: what it has to show.
        socket: the connection, once the peer has made it.
    """

    port: int
    token: bytes
    socket: asyncio.Future[PeerSocket]


class PeerSocketListener:
    """Accepts the connections that were announced to peers.

    Arguments:
        place: host and port; port 0: the system chooses one.
        contexts: for TLS; None: plaintext.
    """

    def __init__(self, place: tuple[str, int], contexts: TlsContexts | None) -> None:
        self._place = place
        self._contexts = contexts
        self._listening: socket.socket | None = None
        self._expected: dict[bytes, Expected] = {}
        self._strangers: set[asyncio.Task[None]] = set()
        self._open: set[PeerSocket] = set()

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            OSError: it cannot listen on the address.
        """
        loop = asyncio.get_running_loop()
        host, port = self._place
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        self._listening = socket.create_server(place[:2], family=family)
        self._listening.setblocking(False)

    @property
    def connections(self) -> int:
        """Number of open connections that carry frames."""
        return len(self._open)

    @property
    def is_listening(self) -> bool:
        """True from the start to the end: a node that is stopping announces no more connections."""
        return self._listening is not None and self._listening.fileno() >= 0

    def expect(self) -> Expected:
        """Returns a new connection to announce, while this is listening."""
        assert self._listening is not None and self.is_listening
        port, token = self._listening.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES)
        expected = Expected(port, token, asyncio.get_running_loop().create_future())
        self._expected[token] = expected
        return expected

    def forget(self, expected: Expected) -> None:
        """Accepts an announced connection no longer, and closes it if it exists."""
        self._expected.pop(expected.token, None)
        if not expected.socket.cancel() and not expected.socket.cancelled():
            expected.socket.result().close()

    async def run(self) -> None:
        """Accepts connections, forever."""
        assert self._listening is not None
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._listening)
            except OSError:  # The peer has disconnected, or no file descriptors are left.
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if len(self._strangers) >= MAX_STRANGERS:
                accepted.close()
                continue
            task = loop.create_task(self._identify(accepted))
            self._strangers.add(task)
            task.add_done_callback(self._strangers.discard)

    def close(self) -> None:
        """Stops listening, and closes all connections."""
        if self._listening is not None:
            self._listening.close()
        for task in list(self._strangers):
            task.cancel()
        for expected in list(self._expected.values()):
            self.forget(expected)

    async def _identify(self, accepted: socket.socket) -> None:
        """Waits for the token of a connection, and hands the connection over."""
        loop = asyncio.get_running_loop()
        shown: asyncio.Future[bytes] = loop.create_future()

        def take(frame: bytes | bytearray) -> None:
            if shown.done():
                connection.close("a frame before the answer")
            else:
                shown.set_result(bytes(frame))

        connection = PeerSocket(take)
        connection.max_frame_bytes = _TOKEN_BYTES
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                context = None if self._contexts is None else self._contexts.current()
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=context)
                done, _ = await asyncio.wait((shown, connection.ended), return_when=asyncio.FIRST_COMPLETED)
        except (OSError, ssl.SSLError, TimeoutError):
            accepted.close()
            connection.close()
            return
        expected = self._take_expected(shown.result()) if shown in done else None
        if expected is None or expected.socket.done():
            connection.close()
            return
        connection.max_frame_bytes = MAX_FRAME_BYTES
        self._open.add(connection)
        connection.ended.add_done_callback(lambda _: self._open.discard(connection))
        expected.socket.set_result(connection)

    def _take_expected(self, token: bytes) -> Expected | None:
        found = [each for each in self._expected if hmac.compare_digest(each, token)]
        return self._expected.pop(found[0]) if found else None


async def dial(host: str, port: int, token: bytes, node_id: int, contexts: ClientTlsContexts | None) -> PeerSocket:
    """Connects to a node that has announced the connection.

    Arguments:
        node_id: with TLS, the node whose certificate is expected.

    Raises:
        OSError: it is not reachable, or does not accept the connection.
    """
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[None] = loop.create_future()

    def take(frame: bytes | bytearray) -> None:
        if accepted.done():
            connection.early.append(frame)
        else:
            accepted.set_result(None)

    connection = PeerSocket(take)
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            await loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=None if contexts is None else contexts.current(),
                server_hostname=None if contexts is None else node_host(node_id),
            )
            connection.send(token)
            done, _ = await asyncio.wait((accepted, connection.ended), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        connection.close()
        raise OSError("no answer in time") from None
    except BaseException:
        connection.close()
        raise
    if accepted not in done:
        raise OSError(connection.ended.result())
    return connection
