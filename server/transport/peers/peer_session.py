"""Streams between two nodes: a session of those that we opened, and one of those that the peer opened."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

import grpc
import grpc.aio

from quorumlog.server.config.setting_values import parse_address
from quorumlog.server.step.events import PeerFrame, PeerIdentity, Stream
from quorumlog.server.transport.credentials import PeerDialer
from quorumlog.server.transport.peers.peer_codec import (
    FrameError,
    decode_frame,
    decode_identity,
    encode_hello,
    parse_frame,
)
from quorumlog.server.transport.peers.peer_sockets import CLOSED_BY_PEER, Expected, PeerSocket, dial
from quorumlog.v1 import peer_pb2
from quorumlog.wire.entry import CorruptEntryError

#: Metadata key with the number of the sender's attempt to which a stream belongs.
GENERATION_KEY = "quorumlog-generation"
#: Metadata key with the id of the node for which a stream is intended. Otherwise a node at the address of a lost one,
#: which is still dialled there, would mistake streams intended for that one for later attempts of its own peers, and
#: break theirs.
WANTED_KEY = "quorumlog-wanted-node"
#: Metadata key with the cluster id of a node that refuses a stream.
CLUSTER_KEY = "quorumlog-cluster-id"
#: From opening a stream to the peer's first frame: longer than an attempt to connect may take. A paused process accepts
#: connections but never answers.
HELLO_TIMEOUT_S = 5.0
#: Wait for the reason for which the peer has closed a socket.
_REASON_S = 0.1
#: Frames and bytes that may wait on one stream. The node's own pacing is far lower; beyond this the peer does not read.
MAX_QUEUED_FRAMES = 4_096
MAX_QUEUED_BYTES = 64 << 20

_METHODS = {
    Stream.CONTROL: "/quorumlog.v1.Peer/Control",
    Stream.DATA: "/quorumlog.v1.Peer/Data",
    Stream.SNAPSHOT: "/quorumlog.v1.Peer/Snapshot",
}
_ANSWER_OF = {
    Stream.CONTROL: Stream.CONTROL_ANSWER,
    Stream.DATA: Stream.DATA_ANSWER,
    Stream.SNAPSHOT: Stream.SNAPSHOT_ANSWER,
}
#: Streams whose frames are sent on what we opened ourselves.
OUTBOUND = frozenset(_METHODS)
#: Streams whose frames and answers move to sockets.
ON_SOCKETS = frozenset((Stream.CONTROL, Stream.DATA))
#: Streams whose waiting frames are joined: everything in them may arrive together, and a later lease or acknowledgement
#: replaces an earlier one, as in protobuf's merge of two messages.
_JOINED = frozenset((Stream.CONTROL, Stream.CONTROL_ANSWER, Stream.DATA_ANSWER))
#: Maximum size of joined frames (bytes).
_MAX_JOINED_BYTES = 1 << 20

#: Receives a frame that arrived.
Receive = Callable[[PeerFrame], None]


class LinkBrokenError(Exception):
    """Raised when a stream ends. The message has the reason, in one line.

    Arguments:
        cluster_id: of a peer that refused us, if it reported one.
    """

    def __init__(self, message: str, cluster_id: str | None = None) -> None:
        super().__init__(message)
        self.cluster_id = cluster_id


class FrameQueue:
    """Encoded frames that wait for one stream, and the loop that writes them.

    A write to a stream of gRPC may take longer than a step of the node, and each step may have a frame. Heartbeats and
    votes behind a growing queue would arrive after the timeouts that they are to prevent, so that no group could keep a
    leader. Therefore frames of such streams that wait together become one frame.

    Arguments:
        stream: whose frames they are.
    """

    def __init__(self, stream: Stream) -> None:
        self._joins = stream in _JOINED
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, data: bytes) -> bool:
        """Queues a frame; False if the queue is full. An empty queue accepts a frame of any size."""
        if self._frames and (len(self._frames) >= MAX_QUEUED_FRAMES or self._bytes + len(data) > MAX_QUEUED_BYTES):
            return False
        self._frames.append(data)
        self._bytes += len(data)
        self._wake.set()
        return True

    async def drain(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Writes queued frames, forever; a write that waits for the peer to read delays only this stream."""
        while True:
            while self._frames:
                data = self._take()
                self._bytes -= len(data)
                await write(data)
            self._wake.clear()
            await self._wake.wait()

    def _take(self) -> bytes:
        if not self._joins or len(self._frames) == 1:
            return self._frames.popleft()
        size, frames = 0, list[bytes]()
        while self._frames and (not frames or size + len(self._frames[0]) <= _MAX_JOINED_BYTES):
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return b"".join(frames)


class OutboundSession:
    """Our streams to a peer, each on a connection of its own.

    Arguments:
        node_id, address: of the peer.
        generation: number of this attempt; the peer prefers the highest.
        dialer: opens the connections.
    """

    def __init__(self, node_id: int, address: str, generation: int, dialer: PeerDialer) -> None:
        self._node_id = node_id
        self._dialer = dialer
        self._sockets: dict[Stream, PeerSocket] = {}
        metadata = ((GENERATION_KEY, str(generation)), (WANTED_KEY, str(node_id)))
        self._channels = {stream: dialer.channel(address, node_id) for stream in _METHODS}
        self._calls = {
            stream: self._channels[stream].stream_stream(method, bytes, bytes)(None, metadata=metadata)
            for stream, method in _METHODS.items()
        }
        self._queues = {stream: FrameQueue(stream) for stream in _METHODS}
        self._closed = asyncio.Event()
        #: Port and token of the socket for each stream; port 0: none.
        self._announced: dict[Stream, tuple[int, bytes]] = {}
        self.address = address
        self.identity: PeerIdentity | None = None

    def send(self, stream: Stream, data: bytes) -> bool:
        """Queues one of our frames; False if that queue is full."""
        peer_socket = self._sockets.get(stream)
        return self._queues[stream].put(data) if peer_socket is None else peer_socket.send(data)

    def close(self) -> None:
        """Closes the streams; ``run`` then raises LinkBrokenError."""
        self._closed.set()
        for peer_socket in self._sockets.values():
            peer_socket.close()
        for call in self._calls.values():
            call.cancel()

    async def greet(self, own: PeerIdentity) -> PeerIdentity:
        """Exchanges identities on all streams.

        Raises:
            LinkBrokenError: the peer is unreachable, refuses, or does not answer in time.
        """
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                answers = await self._exchange_hellos(encode_hello(own))
        except TimeoutError:
            raise LinkBrokenError("no answer in time") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.BaseError):
            raise await self._explain() from None
        hellos = {stream: _hello_in(answer) for stream, answer in answers.items()}
        identities = [_identity_in(hello) for hello in hellos.values()]
        if any(identity != identities[0] for identity in identities):
            raise LinkBrokenError("the streams reached different processes")
        self._announced = {stream: (hellos[stream].socket_port, hellos[stream].socket_token) for stream in ON_SOCKETS}
        self.identity = identities[0]
        return identities[0]

    async def _exchange_hellos(self, hello: bytes) -> dict[Stream, object]:
        for call in self._calls.values():
            await call.write(hello)
        return {stream: await call.read() for stream, call in self._calls.items()}

    async def open_sockets(self) -> str:
        """Moves the streams for which the peer has announced a socket; returns why one cannot be reached, or an empty
        string.
        """
        host = parse_address(self.address)[0]
        for stream, (port, token) in self._announced.items():
            if port:
                try:
                    self._sockets[stream] = await dial(host, port, token, self._node_id, self._dialer.contexts)
                except OSError as error:
                    return one_line(str(error))
        return ""

    async def run(self, own_id: int, receive: Receive) -> None:
        """Writes queued frames and delivers received ones until the link breaks.

        Raises:
            LinkBrokenError: always, eventually.
        """
        assert self.identity is not None
        peer = self.identity.node_id
        await run_until_first(
            self._closed,
            *(
                carry(peer_socket, _ANSWER_OF[stream], peer, own_id, receive)
                for stream, peer_socket in self._sockets.items()
            ),
            *(self._queues[stream].drain(call.write) for stream, call in self._calls.items()),
            *(
                read_frames(call.read, _ANSWER_OF[stream], peer, own_id, receive)
                for stream, call in self._calls.items()
            ),
        )

    async def release(self) -> None:
        """Closes the connections."""
        self.close()
        for channel in self._channels.values():
            await channel.close(None)

    async def _explain(self) -> LinkBrokenError:
        """Returns why a greeting failed: a peer that refuses reports it in the status of the call, not of the write."""
        for call in self._calls.values():
            if call.done():
                cluster = dict(await call.trailing_metadata()).get(CLUSTER_KEY)
                reason = one_line(await call.details() or (await call.code()).name)
                return LinkBrokenError(reason, cluster if isinstance(cluster, str) else None)
        return LinkBrokenError("the stream ended")


class InboundSession:
    """The streams that a peer opened to us, as far as they have arrived.

    Arguments:
        identity: claimed by the peer.
        generation: number of the peer's attempt.
    """

    def __init__(self, identity: PeerIdentity, generation: int) -> None:
        self.identity = identity
        self.generation = generation
        self._queues = {answer: FrameQueue(answer) for answer in _ANSWER_OF.values()}
        self._closed = asyncio.Event()
        self._open: set[Stream] = set()
        self._sockets: dict[Stream, PeerSocket] = {}

    def is_older_than(self, identity: PeerIdentity, generation: int) -> bool:
        """True if streams of that attempt replace these: of another process, or of a later attempt."""
        return self.identity.boot_id != identity.boot_id or self.generation < generation

    def is_same_as(self, identity: PeerIdentity, generation: int, stream: Stream) -> bool:
        """True if such a stream completes this session."""
        return self.identity == identity and self.generation == generation and stream not in self._open

    def send(self, stream: Stream, data: bytes) -> bool:
        """Queues an answer; False if that queue is full."""
        peer_socket = self._sockets.get(stream)
        return self._queues[stream].put(data) if peer_socket is None else peer_socket.send(data)

    def close(self) -> None:
        """Closes the streams; ``run`` then raises LinkBrokenError."""
        self._closed.set()

    async def _carry(self, expected: Expected, stream: Stream, own_id: int, receive: Receive) -> None:
        peer_socket = await expected.socket
        if not peer_socket.is_of(self.identity.node_id):
            raise LinkBrokenError("its socket has the certificate of another node")
        self._sockets[_ANSWER_OF[stream]] = peer_socket
        peer_socket.send(expected.token)
        await carry(peer_socket, stream, self.identity.node_id, own_id, receive)

    async def run(
        self,
        stream: Stream,
        context: grpc.aio.ServicerContext[bytes, bytes],
        own_id: int,
        receive: Receive,
        expected: Expected | None = None,
    ) -> None:
        """Delivers frames and writes queued answers of one stream until the link breaks.

        Arguments:
            expected: the socket that has been announced to the peer.

        Raises:
            LinkBrokenError: always, eventually.
        """
        self._open.add(stream)
        await run_until_first(
            self._closed,
            *(() if expected is None else (self._carry(expected, stream, own_id, receive),)),
            self._queues[_ANSWER_OF[stream]].drain(context.write),
            read_frames(context.read, stream, self.identity.node_id, own_id, receive),
        )


async def carry(peer_socket: PeerSocket, stream: Stream, sender: int, own_id: int, receive: Receive) -> None:
    """Delivers the frames of a socket until it ends.

    Raises:
        LinkBrokenError: it ended, or the peer sent something invalid.
    """

    def take(data: bytes | bytearray) -> None:
        try:
            frame = decode_frame(parse_frame(data), stream, sender, own_id)
        except (FrameError, CorruptEntryError) as error:
            peer_socket.close(f"dropped, the peer sent an invalid frame: {error}")
            return
        receive(frame)

    peer_socket.deliver_to(take)
    reason = await peer_socket.ended
    if reason == CLOSED_BY_PEER:
        # The peer also ends its streams, and they give the reason.
        await asyncio.sleep(_REASON_S)
    raise LinkBrokenError(reason)


async def read_frames(
    read: Callable[[], Awaitable[object]], stream: Stream, sender: int, own_id: int, receive: Receive
) -> None:
    """Delivers the frames of one stream until it ends.

    Raises:
        LinkBrokenError: it ended, or the peer sent something invalid.
    """
    while True:
        data = await read()
        if not isinstance(data, bytes):
            raise LinkBrokenError("the peer closed the stream")
        try:
            frame = decode_frame(parse_frame(data), stream, sender, own_id)
        except (FrameError, CorruptEntryError) as error:
            raise LinkBrokenError(f"dropped, the peer sent an invalid frame: {error}") from None
        receive(frame)


async def run_until_first(closed: asyncio.Event, *loops: Coroutine[object, object, None]) -> None:
    """Runs loops until one fails or ``closed`` is set, then cancels them all.

    Raises:
        LinkBrokenError: always; any unexpected exception of a loop is raised as it is.
    """
    tasks: list[asyncio.Task[object]] = [asyncio.ensure_future(loop) for loop in (*loops, closed.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        if task.cancelled():
            continue
        error = task.exception()
        if isinstance(error, grpc.aio.AioRpcError):
            raise LinkBrokenError(describe(error))
        # gRPC raises these for reads and writes on a call that has just ended.
        if isinstance(error, asyncio.InvalidStateError | grpc.aio.BaseError):
            raise LinkBrokenError("the stream ended")
        if error is not None:
            raise error
    raise LinkBrokenError("the link was closed")


def _hello_in(answer: object) -> peer_pb2.Frame:
    if not isinstance(answer, bytes):
        raise LinkBrokenError("the peer closed the stream before it sent its identity")
    try:
        return parse_frame(answer)
    except FrameError as error:
        raise LinkBrokenError(str(error)) from None


def _identity_in(hello: peer_pb2.Frame) -> PeerIdentity:
    try:
        return decode_identity(hello.identity)
    except FrameError as error:
        raise LinkBrokenError(str(error)) from None


def describe(error: grpc.aio.AioRpcError) -> str:
    """Returns gRPC's error as one line."""
    return one_line(error.details() or error.code().name)


def one_line(text: str) -> str:
    """Returns gRPC's text as one line, without the prefix "failed to connect to all addresses; last error: ..."."""
    if text.startswith("failed to connect"):
        text = text.rpartition(": ")[2]
    return " ".join(text.split())[:200]
