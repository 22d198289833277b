"""Service for other nodes: Identify, and the control, data and snapshot streams."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorumlog.server.step.events import ClusterStanding, PeerIdentity, Stream
from quorumlog.server.step.request_context import node_principal
from quorumlog.server.transport.caller_identity import Context, origin_of
from quorumlog.server.transport.certificate_ends import ENDED, certificate_end_s, refuse_ended
from quorumlog.server.transport.clients.unary_calls import Handlers
from quorumlog.server.transport.peers.peer_codec import (
    FrameError,
    decode_identity,
    encode_hello,
    encode_identity,
    parse_frame,
)
from quorumlog.server.transport.peers.peer_links import PeerLinks
from quorumlog.server.transport.peers.peer_session import (
    CLUSTER_KEY,
    GENERATION_KEY,
    HELLO_TIMEOUT_S,
    ON_SOCKETS,
    WANTED_KEY,
)
from quorumlog.server.transport.peers.peer_sockets import Expected, PeerSocketListener
from quorumlog.server.transport.peers.refused_peers import RefusedPeers
from quorumlog.server.transport.principals import node_id_of
from quorumlog.v1 import peer_pb2

SERVICE = "quorumlog.v1.Peer"


class ServedNode(Protocol):
    """The node behind the service; implemented by ``Node``."""

    @property
    def identity(self) -> PeerIdentity:
        """Its current identity."""

    def standing(self, asker: int) -> ClusterStanding:
        """Returns its view of the cluster, for a node that looks for one."""

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        """Returns why that peer's streams are refused; None if they are accepted."""


class PeerService:
    """Serves peers.

    Arguments:
        refused: is notified of refused peers.
        by_certificate: a caller must have the certificate of the node that it claims to be.
        sockets: accepts sockets for frames; None: frames stay on the streams.
    """

    def __init__(
        self,
        node: ServedNode,
        links: PeerLinks,
        refused: RefusedPeers,
        *,
        by_certificate: bool = False,
        sockets: PeerSocketListener | None = None,
    ) -> None:
        self._node = node
        self._links = links
        self._refused = refused
        self._by_certificate = by_certificate
        self._sockets = sockets

    def handlers(self) -> Handlers:
        """Returns the handlers for the gRPC server."""
        handlers = {
            "Identify": grpc.unary_unary_rpc_method_handler(self.identify),
            "Control": grpc.stream_stream_rpc_method_handler(self.control),
            "Data": grpc.stream_stream_rpc_method_handler(self.data),
            "Snapshot": grpc.stream_stream_rpc_method_handler(self.snapshot),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def identify(self, data: bytes, context: Context) -> bytes:
        """Answers with this node's identity."""
        try:
            request = peer_pb2.IdentifyRequest.FromString(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(data)} bytes that are not an IdentifyRequest")
        await refuse_ended(context)
        said = request.identity
        asker = PeerIdentity(said.cluster_id, said.node_id, said.directory_id, said.boot_id, said.address)
        if (stranger := self._stranger(asker, context)) is not None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._refuse(asker, context, stranger))
        standing = self._node.standing(request.identity.node_id)
        voters = [
            peer_pb2.QuorumMember(node_id=node_id, directory_id=directory, address=address)
            for node_id, directory, address in standing.voters
        ]
        answer = peer_pb2.IdentifyResponse(
            identity=encode_identity(self._node.identity),
            voters=voters,
            known_directory_id=standing.known_directory,
            applied_index=standing.applied_index,
            may_be_outdated=standing.may_be_outdated,
        )
        return answer.SerializeToString()

    async def control(self, _unused: object, context: Context) -> None:
        """Serves a control stream."""
        await self._serve(Stream.CONTROL, context)

    async def data(self, _unused: object, context: Context) -> None:
        """Serves a data stream."""
        await self._serve(Stream.DATA, context)

    async def snapshot(self, _unused: object, context: Context) -> None:
        """Serves a snapshot stream."""
        await self._serve(Stream.SNAPSHOT, context)

    async def _serve(self, stream: Stream, context: Context) -> None:
        if self._sockets is None or not self._sockets.is_listening or stream not in ON_SOCKETS:
            await self._serve_until_end(stream, context, None)
            return
        expected = self._sockets.expect()
        try:
            await self._serve_until_end(stream, context, expected)
        finally:
            self._sockets.forget(expected)

    async def _serve_until_end(self, stream: Stream, context: Context, expected: Expected | None) -> None:
        identity, generation = await self._greet(context, expected)
        try:
            async with asyncio.timeout(_seconds_until(certificate_end_s(context))):
                reason = await self._links.serve(stream, identity, generation, context, expected)
        except TimeoutError:
            reason = ENDED
        await context.abort(grpc.StatusCode.ABORTED, reason)

    async def _greet(self, context: Context, expected: Expected | None) -> tuple[PeerIdentity, int]:
        """Exchanges identities with the opener of a stream; ends the call if it is refused."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await context.read()
            if not isinstance(first, bytes):
                raise FrameError("the stream ended before its first frame")
            identity = decode_identity(parse_frame(first).identity)
            generation = _generation(context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the first frame was not received in time")
        except FrameError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        await refuse_ended(context)
        await self._admit(identity, context)
        announced = (0, b"") if expected is None else (expected.port, expected.token)
        await context.write(encode_hello(self._node.identity, *announced))
        return identity, generation

    def _stranger(self, identity: PeerIdentity, context: Context) -> str | None:
        """Returns why a peer's claimed identity is not accepted; None if it is, or need not be proved."""
        if not self._by_certificate:
            return None
        proved = node_id_of(context.auth_context())
        if proved == identity.node_id:
            return None
        whose = "not a node's" if proved is None else f"of node {proved}"
        return f"it claims to be node {identity.node_id}, but its certificate is {whose}"

    async def _admit(self, identity: PeerIdentity, context: Context) -> None:
        # A claimed identity may only refuse its own stream: a stranger that claims to be two controllers of another
        # cluster could otherwise stop a node that is not ready yet.
        own, wanted = self._node.identity, _said(context, WANTED_KEY)
        if (stranger := self._stranger(identity, context)) is not None:
            refusal: str | None = stranger
        elif wanted is not None and wanted != own.node_id:
            refusal = f"node {own.node_id} answers at {own.address}, expected node {wanted}"
        else:
            refusal = self._node.accepts_peer(identity)
        if refusal is None:
            self._refused.accepted(identity.node_id)
            return
        refusal = self._refuse(identity, context, refusal)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal, ((CLUSTER_KEY, own.cluster_id),))

    def _refuse(self, identity: PeerIdentity, context: Context, reason: str) -> str:
        """Reports a refused peer, and returns the reason as reported."""
        caller, node = origin_of(context), node_id_of(context.auth_context())
        principal = caller.principal if node is None else node_principal(node)
        return self._refused.refused(identity, caller.host, principal, reason)


def _seconds_until(end_s: float) -> float | None:
    # asyncio does not accept an infinite timeout.
    return None if end_s == math.inf else max(0.0, end_s - time.time()) + 0.1


def _generation(context: Context) -> int:
    generation = _said(context, GENERATION_KEY)
    if generation is None:
        raise FrameError(f"the stream has no metadata {GENERATION_KEY}")
    return generation


def _said(context: Context, name: str) -> int | None:
    """Returns a number from the stream's metadata, or None."""
    for key, value in context.invocation_metadata() or ():
        if key == name and str(value).isdecimal():
            return int(value)
    return None
