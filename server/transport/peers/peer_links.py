"""Links to every peer: kept up, and reported when they break, so that the node detects a crashed process immediately.

A link consists of six streams: control, data and snapshots, each opened once by this node and once by the peer. When
any of them breaks, all six are closed and the node gets one PeerDisconnected: what was in flight in either direction is
lost, and both sides restart numbering. Otherwise a peer that numbers its data frames from 1 again would receive the
acknowledgements of its previous process. Streams carry the number of the attempt that opened them, so that two nodes
which close a link at the same moment do not take each other's new streams for the old ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import (
    ClusterStanding,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentified,
    PeerIdentity,
    Stream,
)
from quorumlog.server.transport.credentials import PeerDialer
from quorumlog.server.transport.peers.peer_codec import FrameError, decode_identity, encode_frame, encode_identity
from quorumlog.server.transport.peers.peer_session import OUTBOUND, InboundSession, LinkBrokenError, OutboundSession
from quorumlog.server.transport.peers.peer_sockets import Expected
from quorumlog.server.transport.supervision import Supervisor
from quorumlog.v1 import peer_pb2

IDENTIFY_TIMEOUT_S = 1.0
FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0
#: Pause before a socket of a peer is tried again that could not be reached, such as one behind a firewall.
SOCKET_AGAIN_S = 60.0


@dataclass(slots=True)
class _Peer:
    """State of the link to one node. ``holder`` is the task that keeps our streams up, if we should have any."""

    node_id: int
    address: str = ""
    holder: asyncio.Task[None] | None = None
    outbound: OutboundSession | None = None
    inbound: InboundSession | None = None
    generation: int = 0
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    last_complaint: str = ""
    no_socket_until_s: float = 0.0


class PeerLinks:
    """Carries frames between this node and its peers.

    Arguments:
        identity: returns this node's current identity; the cluster id is set at formation.
        accepts: ``Node.accepts_peer``.
        emit: receives events for the node.
        supervisor: runs the background tasks.
        on_cluster: called with the address that we dialled (host:port) and the cluster id of the node that answers
            there,
            even if it refuses us. Its own node id is not passed: one node could claim several.
        dialer: opens connections.
        node_at: returns which node should answer at an address to be identified; None if unknown.
    """

    def __init__(
        self,
        *,
        identity: Callable[[], PeerIdentity],
        accepts: Callable[[PeerIdentity], str | None],
        emit: Callable[[Event], None],
        supervisor: Supervisor,
        log: Log,
        meters: Meters,
        on_cluster: Callable[[str, str], None],
        dialer: PeerDialer | None = None,
        node_at: Callable[[str], int | None] = lambda address: None,
    ) -> None:
        self._dialer = dialer or PeerDialer()
        self._node_at = node_at
        self._identity = identity
        self._accepts = accepts
        self._emit = emit
        self._supervisor = supervisor
        self._log = log
        self._meters = meters
        self._on_cluster = on_cluster
        self._own_id = identity().node_id
        self._peers: dict[int, _Peer] = {}
        self._identifying: set[str] = set()
        self._random = random.Random()

    # -- effects of the node ---------------------------------------------------------------------------------------

    def connect(self, addresses: dict[int, str]) -> None:
        """Keeps streams open to these peers (node id -> host:port) from now on, and to no others."""
        for node_id, address in addresses.items():
            peer = self._peer(node_id)
            if node_id == self._own_id or peer.address == address:
                continue
            self._let_go(peer)
            peer.address = address
            peer.holder = self._supervisor.start(self._hold(peer), f"link-{node_id}")
        for peer in list(self._peers.values()):
            if peer.node_id not in addresses and peer.holder is not None:
                self._let_go(peer)
                peer.address = ""

    def send(self, node_id: int, frame: PeerFrame) -> None:
        """Sends a frame, or drops it if no stream is open: Raft tolerates lost frames."""
        peer = self._peers.get(node_id)
        if peer is None:
            return
        session = peer.outbound if frame.stream in OUTBOUND else peer.inbound
        if session is None:
            return
        data = encode_frame(frame)
        self._meters.frames_sent += 1
        self._meters.frame_bytes_sent += len(data)
        if not session.send(frame.stream, data):
            self._break(peer, f"the peer does not read: its {frame.stream.value} queue is full")

    def close(self) -> None:
        """Closes every link permanently."""
        for peer in self._peers.values():
            self._break(peer, "this node is stopping")
            self._let_go(peer)

    def identify(self, address: str) -> None:
        """Requests the identity of the node at an address; a PeerIdentified follows if it answers in time."""
        if address not in self._identifying:
            self._identifying.add(address)
            self._supervisor.start(self._ask_identity(address), f"identify-{address}")

    # -- streams opened by peers -----------------------------------------------------------------------------------

    async def serve(
        self,
        stream: Stream,
        identity: PeerIdentity,
        generation: int,
        context: grpc.aio.ServicerContext[bytes, bytes],
        expected: Expected | None = None,
    ) -> str:
        """Serves a stream of an accepted peer until it ends; returns the reason.

        Arguments:
            expected: the socket that has been announced to the peer for the frames of this stream.
        """
        peer = self._peer(identity.node_id)
        session = self._join(peer, stream, identity, generation)
        if session is None:
            return "a later attempt of the same process has replaced this stream"
        # The peer is alive and reaches us: if our own attempts have failed, the next one need not wait.
        peer.hurry.set()
        reason = "the peer has disconnected"
        try:
            directory = session.identity.directory_id
            await session.run(
                stream, context, self._own_id, lambda frame: self._received(peer, frame, directory), expected
            )
        except LinkBrokenError as error:
            reason = str(error)
        finally:
            if peer.inbound is session:
                self._break(peer, reason)
                self._forget_stranger(peer)
        return reason

    def _join(self, peer: _Peer, stream: Stream, identity: PeerIdentity, generation: int) -> InboundSession | None:
        current = peer.inbound
        if current is not None:
            if current.is_same_as(identity, generation, stream):
                return current
            if not current.is_older_than(identity, generation):
                return None
            self._break(peer, "the peer has reopened its streams")
        peer.inbound = InboundSession(identity, generation)
        return peer.inbound

    def _received(self, peer: _Peer, frame: PeerFrame, directory_id: str) -> None:
        self._meters.frames_received += 1
        self._emit(FrameReceived(peer.node_id, frame, directory_id))

    # -- our own streams -------------------------------------------------------------------------------------------

    async def _hold(self, peer: _Peer) -> None:
        """Keeps our streams to one peer open for as long as the node wants them."""
        backoff = FIRST_BACKOFF_S
        while True:
            peer.hurry.clear()
            peer.generation += 1
            session = OutboundSession(peer.node_id, peer.address, peer.generation, self._dialer)
            was_up = False
            started = asyncio.get_running_loop().time()
            try:
                identity = await self._greet(peer, session)
                await self._open_sockets(peer, session)
                peer.outbound = session
                was_up = True
                peer.last_complaint = ""
                self._emit(PeerConnected(peer.node_id, identity))
                directory = identity.directory_id
                await session.run(self._own_id, lambda frame: self._received(peer, frame, directory))  # noqa: B023
            except LinkBrokenError as error:
                if peer.outbound is session:
                    self._break(peer, str(error))
                elif not was_up:
                    self._complain(peer, str(error))
            finally:
                await session.release()
            # Only a link that lasted resets the backoff: one that breaks as soon as it is up must not cause a busy
            # loop.
            if asyncio.get_running_loop().time() - started > MAX_BACKOFF_S:
                backoff = FIRST_BACKOFF_S
            await self._pause(peer, backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_S)

    async def _greet(self, peer: _Peer, session: OutboundSession) -> PeerIdentity:
        try:
            identity = await session.greet(self._identity())
        except LinkBrokenError as error:
            if error.cluster_id is not None:
                self._on_cluster(session.address, error.cluster_id)
            raise
        self._on_cluster(session.address, identity.cluster_id)
        if identity.node_id != peer.node_id:
            raise LinkBrokenError(f"node {identity.node_id} answers at {peer.address}, expected node {peer.node_id}")
        refusal = self._accepts(identity)
        if refusal is not None:
            raise LinkBrokenError(f"refused: {refusal}")
        return identity

    async def _open_sockets(self, peer: _Peer, session: OutboundSession) -> None:
        """Opens the sockets for frames. A port that could not be reached is not tried again for a while."""
        now_s = asyncio.get_running_loop().time()
        if now_s < peer.no_socket_until_s:
            return
        reason = await session.open_sockets()
        if reason:
            peer.no_socket_until_s = now_s + SOCKET_AGAIN_S
            self._log.info("peer_socket_unreachable", peer=peer.node_id, address=peer.address, reason=reason)

    async def _pause(self, peer: _Peer, backoff_s: float) -> None:
        """Waits before the next attempt, or until the peer itself connects."""
        try:
            async with asyncio.timeout(backoff_s * self._random.uniform(0.5, 1.0)):
                await peer.hurry.wait()
        except TimeoutError:
            return

    def _complain(self, peer: _Peer, reason: str) -> None:
        """Logs why a peer is unreachable, once for each reason."""
        if reason != peer.last_complaint:
            peer.last_complaint = reason
            self._log.info("peer_unreachable", peer=peer.node_id, address=peer.address, reason=reason)

    def _break(self, peer: _Peer, reason: str) -> None:
        """Closes the rest of a link of which one stream has broken, and notifies the node once."""
        outbound, inbound = peer.outbound, peer.inbound
        peer.outbound = peer.inbound = None
        for session in (outbound, inbound):
            if session is not None:
                session.close()
        if outbound is not None or inbound is not None:
            self._emit(PeerDisconnected(peer.node_id))
        # If ours was never up, the reason was logged already; the peer's may connect and break with every attempt.
        if outbound is not None:
            self._log.warning("link_broken", peer=peer.node_id, reason=reason)

    def _let_go(self, peer: _Peer) -> None:
        if peer.holder is not None:
            peer.holder.cancel()
            peer.holder = None
            self._break(peer, "no longer a peer at this address")

    def _forget_stranger(self, peer: _Peer) -> None:
        """Removes a peer that connected on its own and has disconnected: a stranger may use any number of node ids.

        A peer that was ever dialled is kept, because its attempts must continue to be counted.
        """
        if peer.holder is None and not peer.generation and self._peers.get(peer.node_id) is peer:
            del self._peers[peer.node_id]

    def _peer(self, node_id: int) -> _Peer:
        return self._peers.setdefault(node_id, _Peer(node_id))

    # -- formation -------------------------------------------------------------------------------------------------

    async def _ask_identity(self, address: str) -> None:
        try:
            answer = await self._call_identify(address)
            identity = decode_identity(answer.identity)
        except (grpc.aio.AioRpcError, FrameError):
            # Not reachable yet; the node retries.
            return
        finally:
            self._identifying.discard(address)
        self._on_cluster(address, identity.cluster_id)
        voters = tuple((member.node_id, member.directory_id, member.address) for member in answer.voters)
        standing = ClusterStanding(voters, answer.known_directory_id, answer.applied_index, answer.may_be_outdated)
        self._emit(PeerIdentified(identity, standing))

    async def _call_identify(self, address: str) -> peer_pb2.IdentifyResponse:
        request = peer_pb2.IdentifyRequest(identity=encode_identity(self._identity()))
        async with self._dialer.channel(address, self._node_at(address)) as channel:
            call = channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)
            data = await call(request.SerializeToString(), timeout=IDENTIFY_TIMEOUT_S)
        try:
            return peer_pb2.IdentifyResponse.FromString(data)
        except DecodeError:
            raise FrameError(f"{len(data)} bytes that are not an IdentifyResponse") from None
