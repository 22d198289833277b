"""Handshakes: a client that does not finish one as the listener requires is not served, and is closed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import warnings
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from raw_http2 import RawHttp2

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.certificates import issuing
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.options import NodeLimits, PairFiles
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientRequest, Event, Reply
from quorumlog.server.transport.channel_options import ConnectionLimits
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.credentials import PeerDialer, server_credentials
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2 as pb

LIMIT_S = 60.0
HANDSHAKE_MS = 2_000
METADATA = "/quorumlog.v1.DataPlane/Metadata"
MINUTE = 1 / 1_440


class Node:
    """A server that requires certificates, and records its callers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reserved = ReservedPorts(1)
        self.port = self._reserved.ports[0]
        self.authority = create_authority(folder, "client-ca")
        pair = create_node(folder, self.authority, 1, ["127.0.0.1"])
        files = PairFiles(pair.certificate, pair.key, self.authority.certificate)
        self.requests = ClientRequests(self._answer)
        self.asked: list[str] = []
        self.server = GrpcServer(
            f"127.0.0.1:{self.port}",
            (DataPlaneService(self.requests, NodeLimits(), Meters()).handlers(),),
            ConnectionLimits(handshake_ms=HANDSHAKE_MS),
            server_credentials(WatchedPair(files, lambda reason: None, lambda taken: None)),
        )

    def _answer(self, event: Event) -> None:
        if isinstance(event, ClientRequest):
            self.asked.append(event.principal)
            reply = Reply(event.request_id, pb.MetadataResponse(cluster_id="c"))
            asyncio.get_running_loop().call_soon(self.requests.deliver, reply)

    async def close(self) -> None:
        self.requests.close()
        await self.server.stop(0)
        self._reserved.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path / "node")
    await node.server.start()
    yield node
    await node.close()


def context_of(
    pair: Issued | None, alpn: list[str] | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Returns a client context that verifies no server, and offers this certificate, these protocols and version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    if alpn is None or alpn:
        context.set_alpn_protocols(alpn or ["h2"])
    if version is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = context.maximum_version = version
    return context


def with_usage(folder: Path, authority: Issued, user: str, usage: x509.ObjectIdentifier) -> Issued:
    uri = x509.UniformResourceIdentifier(f"quorumlog:user:{user}")
    return issuing._create(folder, authority, user, user, [uri], [usage], 1)


def not_yet(folder: Path, authority: Issued) -> Issued:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(issuing, "_BACKDATED", -timedelta(days=1))
        return create_client(folder, authority, "early", 3)


#: Invalid clients, by their fault; None: without TLS.
STRANGERS: dict[str, Callable[[Path, Issued], ssl.SSLContext | None]] = {
    "plaintext": lambda folder, ca: None,
    "TLS 1.0": lambda folder, ca: context_of(create_client(folder, ca, "u"), version=ssl.TLSVersion.TLSv1),
    "TLS 1.1": lambda folder, ca: context_of(create_client(folder, ca, "u"), version=ssl.TLSVersion.TLSv1_1),
    "no ALPN": lambda folder, ca: context_of(create_client(folder, ca, "u"), alpn=[]),
    "HTTP/1.1": lambda folder, ca: context_of(create_client(folder, ca, "u"), alpn=["http/1.1"]),
    "no certificate": lambda folder, ca: context_of(None),
    "of another authority": lambda folder, ca: context_of(
        create_client(folder, create_authority(folder, "other"), "alice")
    ),
    "self-signed": lambda folder, ca: context_of(create_authority(folder, "alice")),
    "signed by a user": lambda folder, ca: context_of(create_client(folder, create_client(folder, ca, "u"), "alice")),
    "over": lambda folder, ca: context_of(create_client(folder, ca, "late", -MINUTE)),
    "not started": lambda folder, ca: context_of(not_yet(folder, ca)),
    "for servers only": lambda folder, ca: context_of(
        with_usage(folder, ca, "server", ExtendedKeyUsageOID.SERVER_AUTH)
    ),
    "for mail": lambda folder, ca: context_of(with_usage(folder, ca, "mail", ExtendedKeyUsageOID.EMAIL_PROTECTION)),
}


async def ask(node: Node, context: ssl.SSLContext | None, quiet_s: float = 0.5) -> bool:
    """True if a call is answered before the connection has been silent for ``quiet_s`` seconds."""
    with contextlib.suppress(OSError, ssl.SSLError):
        connection = await RawHttp2.connect("127.0.0.1", node.port, context)
        stream = connection.begin(METADATA, 0, 0)
        async with asyncio.timeout(LIMIT_S):
            await connection.push(quiet_s, answer_to=stream)
        answered = stream in connection.answered
        connection.close()
        return answered
    return False


async def test_an_honest_client_is_answered(node: Node, tmp_path: Path) -> None:
    for number, version in enumerate((None, ssl.TLSVersion.TLSv1_2)):
        pair = create_client(tmp_path, node.authority, f"honest-{number}")
        assert await ask(node, context_of(pair, version=version), LIMIT_S)
        assert node.asked[-1] == f"User:honest-{number}"


@pytest.mark.parametrize("what", STRANGERS)
async def test_a_stranger_gets_nothing_in(node: Node, tmp_path: Path, what: str) -> None:
    before = len(node.asked)
    assert not await ask(node, STRANGERS[what](tmp_path, node.authority))
    assert len(node.asked) == before


async def test_half_a_handshake_is_closed_in_time(node: Node) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = context_of(None).wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        half.do_handshake()
    hello = outgoing.read()
    for said in (hello[:20], hello):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(said)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(ConnectionError):
                while await reader.read(65_536):
                    pass
        assert asyncio.get_running_loop().time() - began < HANDSHAKE_MS / 1_000 + 30
        writer.close()


async def test_resets_end_nothing(node: Node, tmp_path: Path) -> None:
    """Connections that are reset before their handshake leave the node serving."""
    for _ in range(20):
        raw = socket.create_connection(("127.0.0.1", node.port), LIMIT_S)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
    assert await ask(node, context_of(create_client(tmp_path, node.authority, "honest")), LIMIT_S)


async def test_who_answers_with_a_certificate_for_clients_is_not_spoken_to(tmp_path: Path) -> None:
    """A call to a node whose certificate has the right name but the wrong usage fails."""
    authority = create_authority(tmp_path, "node-ca")
    names = [x509.UniformResourceIdentifier("quorumlog:node:2"), x509.DNSName("node-2.quorumlog.internal")]
    wrong = issuing._create(tmp_path, authority, "wrong", "wrong", names, [ExtendedKeyUsageOID.CLIENT_AUTH], 1)
    own = create_node(tmp_path, authority, 1, [])

    def watched(pair: Issued) -> WatchedPair:
        files = PairFiles(pair.certificate, pair.key, authority.certificate)
        return WatchedPair(files, lambda reason: None, lambda taken: None)

    reserved = ReservedPorts(1)
    place = f"127.0.0.1:{reserved.ports[0]}"
    server = GrpcServer(place, (), credentials=server_credentials(watched(wrong)))
    await server.start()
    async with PeerDialer(watched(own)).channel(place, 2) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)(b"", timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)
    reserved.close()
