"""What nodes serve to nodes: Identify, and the control, data and snapshot streams."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorumlog.server.events import ClusterStanding, PeerIdentity, Stream
from quorumlog.server.log_output import Log
from quorumlog.server.transport.callers import Context
from quorumlog.server.transport.certificate_ends import ENDED, certificate_end_s
from quorumlog.server.transport.peer_codec import (
    FrameError,
    decode_identity,
    encode_hello,
    encode_identity,
    parse_frame,
)
from quorumlog.server.transport.peer_links import PeerLinks
from quorumlog.server.transport.peer_session import CLUSTER_KEY, GENERATION_KEY, HELLO_TIMEOUT_S, WANTED_KEY
from quorumlog.server.transport.principals import node_id_of
from quorumlog.server.transport.unary_calls import Handlers
from quorumlog.v1 import peer_pb2

SERVICE = "quorumlog.v1.Peer"


#: Refused nodes of which is remembered what was said in the log, and characters of that: what strangers call
#: themselves takes no more memory.
MAX_REFUSED = 100
MAX_REASON_LENGTH = 500


class PeerService:
    """Serves peers.

    Arguments:
        identity: says who this node is now.
        standing: ``Node.standing``.
        accepts: ``Node.accepts_peer``.
        by_certificate: who calls must have the certificate of the node that it says it is.
    """

    def __init__(
        self,
        *,
        identity: Callable[[], PeerIdentity],
        standing: Callable[[int], ClusterStanding],
        accepts: Callable[[PeerIdentity], str | None],
        links: PeerLinks,
        log: Log,
        by_certificate: bool = False,
    ) -> None:
        self._by_certificate = by_certificate
        self._identity = identity
        self._standing = standing
        self._accepts = accepts
        self._links = links
        self._log = log
        self._refused: dict[int, str] = {}

    def handlers(self) -> Handlers:
        """What the gRPC server serves."""
        handlers = {
            "Identify": grpc.unary_unary_rpc_method_handler(self.identify),
            "Control": grpc.stream_stream_rpc_method_handler(self.control),
            "Data": grpc.stream_stream_rpc_method_handler(self.data),
            "Snapshot": grpc.stream_stream_rpc_method_handler(self.snapshot),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def identify(self, data: bytes, context: Context) -> bytes:
        """Says who this node is."""
        try:
            request = peer_pb2.IdentifyRequest.FromString(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(data)} bytes that are not an IdentifyRequest")
        if self._by_certificate and node_id_of(context.auth_context()) != request.identity.node_id:
            stranger = f"it asks as node {request.identity.node_id}, and its certificate is not that node's"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, stranger)
        standing = self._standing(request.identity.node_id)
        voters = [
            peer_pb2.QuorumMember(node_id=node_id, directory_id=directory, address=address)
            for node_id, directory, address in standing.voters
        ]
        answer = peer_pb2.IdentifyResponse(
            identity=encode_identity(self._identity()),
            voters=voters,
            known_directory_id=standing.known_directory,
            applied_index=standing.applied_index,
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
        identity, generation = await self._greet(context)
        try:
            async with asyncio.timeout(_seconds_until(certificate_end_s(context))):
                reason = await self._links.serve(stream, identity, generation, context)
        except TimeoutError:
            reason = ENDED
        await context.abort(grpc.StatusCode.ABORTED, reason)

    async def _greet(self, context: Context) -> tuple[PeerIdentity, int]:
        """Reads who opened the stream and says who serves it; ends the call when the two do not belong together."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await context.read()
            if not isinstance(first, bytes):
                raise FrameError("the stream ended before its first frame")
            identity = decode_identity(parse_frame(first).identity)
            generation = _generation(context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the first frame did not come in time")
        except FrameError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        await self._admit(identity, context)
        await context.write(encode_hello(self._identity()))
        return identity, generation

    def _stranger(self, identity: PeerIdentity, context: Context) -> str | None:
        """Why a node is not believed to be the one that it says; None if it is, or nobody has to prove it."""
        if not self._by_certificate:
            return None
        proved = node_id_of(context.auth_context())
        if proved == identity.node_id:
            return None
        whose = "of no node" if proved is None else f"of node {proved}"
        return f"it says that it is node {identity.node_id}, but its certificate is {whose}"

    async def _admit(self, identity: PeerIdentity, context: Context) -> None:
        # What it claims to be may refuse its stream and no more: a stranger that calls itself two controllers of
        # another cluster would end a node that is not ready yet.
        own, wanted = self._identity(), _said(context, WANTED_KEY)
        if (stranger := self._stranger(identity, context)) is not None:
            refusal: str | None = stranger
        elif wanted is not None and wanted != own.node_id:
            refusal = f"node {own.node_id} answers at {own.address}, expected node {wanted}"
        else:
            refusal = self._accepts(identity)
        if refusal is None:
            self._refused.pop(identity.node_id, None)
            return
        # It will try again every second: one line per reason is enough.
        refusal = refusal[:MAX_REASON_LENGTH]
        if self._refused.get(identity.node_id) != refusal:
            self._refused[identity.node_id] = refusal
            if len(self._refused) > MAX_REFUSED:
                del self._refused[next(iter(self._refused))]
            self._log.info("peer_refused", peer=identity.node_id, address=identity.address, reason=refusal)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal, ((CLUSTER_KEY, own.cluster_id),))


def _seconds_until(end_s: float) -> float | None:
    # asyncio takes no infinite time.
    return None if end_s == math.inf else max(0.0, end_s - time.time()) + 0.1


def _generation(context: Context) -> int:
    generation = _said(context, GENERATION_KEY)
    if generation is None:
        raise FrameError(f"the stream does not say {GENERATION_KEY}")
    return generation


def _said(context: Context, name: str) -> int | None:
    """A number that the stream says of itself in its metadata."""
    for key, value in context.invocation_metadata() or ():
        if key == name and str(value).isdecimal():
            return int(value)
    return None
