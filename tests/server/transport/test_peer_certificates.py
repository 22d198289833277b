"""Links between nodes with certificates: a frame gets in only from the node that it is of."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.options import PairFiles
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import (
    AuditLine,
    ClusterStanding,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentity,
    Stream,
)
from quorumlog.server.transport.credentials import PeerDialer, server_credentials
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.server.transport.peers.peer_codec import encode_hello, encode_identity
from quorumlog.server.transport.peers.peer_links import PeerLinks
from quorumlog.server.transport.peers.peer_service import PeerService
from quorumlog.server.transport.peers.peer_session import GENERATION_KEY
from quorumlog.server.transport.peers.peer_sockets import PeerSocketListener
from quorumlog.server.transport.peers.refused_peers import RefusedPeers
from quorumlog.server.transport.supervision import Supervisor
from quorumlog.server.transport.tls_contexts import ClientTlsContexts, TlsContexts
from quorumlog.v1 import peer_pb2

LIMIT_S = 60.0
SECOND = 1 / 86_400


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    info = warning = error = debug


class Side:
    """One node: the identity that it claims, and its certificate."""

    def __init__(self, node_id: int, port: int, pair: Issued, authority: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self.identity = PeerIdentity("cluster", node_id, "directory", node_id, self.address)
        self.events: list[Event] = []
        self.log = Lines()
        self.audited: list[AuditLine] = []
        log: Log = self.log  # type: ignore[assignment]
        files = PairFiles(pair.certificate, pair.key, authority)

        def watched() -> WatchedPair:
            return WatchedPair(files, lambda reason: None, lambda taken: None)

        self.supervisor = Supervisor(lambda name, error: None)
        self.links = PeerLinks(
            identity=lambda: self.identity,
            accepts=lambda identity: None,
            emit=self.events.append,
            supervisor=self.supervisor,
            log=log,
            meters=Meters(),
            on_cluster=lambda address, cluster: None,
            dialer=PeerDialer(watched()),
        )
        self.sockets = PeerSocketListener(("127.0.0.1", 0), TlsContexts(watched()))
        service = PeerService(
            self, self.links, RefusedPeers(log, self.audited.append), by_certificate=True, sockets=self.sockets
        )
        self.server = GrpcServer(self.address, (service.handlers(),), credentials=server_credentials(watched()))

    def standing(self, asker: int) -> ClusterStanding:
        return ClusterStanding((), "", 0)

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        return None

    def has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    def said(self, event: str) -> list[str]:
        return [str(fields.get("reason")) for line, fields in self.log.lines if line == event]

    async def close(self) -> None:
        await self.supervisor.stop()
        self.links.close()
        self.sockets.close()
        await self.server.end_calls(0)


class World:
    """Sides that are closed in the end, and their authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = create_authority(folder, "node-ca")
        self._reserved = ReservedPorts(2)
        self._sides: list[Side] = []

    async def side(self, node_id: int, pair: Issued) -> Side:
        port = self._reserved.ports[len(self._sides)]
        side = Side(node_id, port, pair, self.authority.certificate)
        self._sides.append(side)
        await side.sockets.start()
        side.supervisor.start(side.sockets.run(), "sockets")
        await side.server.start()
        return side

    async def close(self) -> None:
        for side in self._sides:
            await side.close()
        self._reserved.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    yield world
    await world.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  # the awaited code cannot signal the test
            await asyncio.sleep(0.01)


async def test_nodes_with_their_own_certificates_are_linked(world: World, tmp_path: Path) -> None:
    first = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    second = await world.side(2, create_node(tmp_path / "b", world.authority, 2, []))
    first.links.connect({2: second.address})
    await until(lambda: first.has(PeerConnected))


async def test_a_node_that_says_it_is_another_gets_no_frame_in(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    liar = await world.side(3, create_node(tmp_path / "b", world.authority, 2, []))
    liar.links.connect({1: honest.address})
    await until(lambda: liar.said("peer_unreachable") and honest.said("peer_refused"))
    assert honest.said("peer_refused") == ["it claims to be node 3, but its certificate is of node 2"]
    assert liar.said("peer_unreachable") == ["it claims to be node 3, but its certificate is of node 2"]
    assert not honest.has(FrameReceived) and not liar.has(PeerConnected)
    (reported,) = honest.audited
    assert (reported.event, reported.fields["principal"], reported.fields["host"]) == (
        "peer_refused",
        "Node:2",
        "127.0.0.1",
    )
    assert (reported.fields["peer"], reported.fields["times"]) == (3, 1)


async def test_whoever_answers_with_another_nodes_certificate_is_not_spoken_to(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    liar = await world.side(3, create_node(tmp_path / "b", world.authority, 2, []))
    honest.links.connect({3: liar.address})
    await until(lambda: honest.said("peer_unreachable"))
    assert not liar.has(FrameReceived) and not liar.said("peer_refused"), "the handshake failed, before any hello"
    assert not honest.has(PeerConnected)
    assert all("\n" not in reason for reason in honest.said("peer_unreachable"))


async def test_socket_with_another_certificate_is_refused(world: World, tmp_path: Path) -> None:
    """The streams are those of node 2, the socket for their entries shows the certificate of node 3."""
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    liar = await world.side(2, create_node(tmp_path / "b", world.authority, 2, []))
    other = create_node(tmp_path / "c", world.authority, 3, [])
    files = PairFiles(other.certificate, other.key, world.authority.certificate)
    liar.links._dialer.contexts = ClientTlsContexts(WatchedPair(files, lambda reason: None, lambda taken: None))
    liar.links.connect({1: honest.address})
    await until(lambda: liar.has(PeerConnected))
    assert liar.said("peer_socket_unreachable") == ["the peer closed the socket"]


async def test_a_users_certificate_speaks_for_no_node(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    user = await world.side(2, create_client(tmp_path / "b", world.authority, "mallory"))
    user.links.connect({1: honest.address})
    await until(lambda: honest.said("peer_refused"))
    assert honest.said("peer_refused") == ["it claims to be node 2, but its certificate is not a node's"]
    assert [line.fields["principal"] for line in honest.audited] == ["User:mallory"]


async def test_a_link_ends_with_the_certificate_that_opened_it(world: World, tmp_path: Path) -> None:
    long = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    ends_s = time.time() + 8
    short = await world.side(2, create_node(tmp_path / "b", world.authority, 2, [], days=8 * SECOND))
    short.links.connect({1: long.address})
    await until(lambda: short.has(PeerConnected))
    await until(lambda: short.has(PeerDisconnected))
    assert time.time() > ends_s - 1
    await until(lambda: short.said("link_broken"))
    assert "has expired" in short.said("link_broken")[0]


async def test_with_a_certificate_that_has_ended_no_stream_begins_on_a_connection_that_is_open(
    world: World, tmp_path: Path
) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    pair = create_node(tmp_path / "b", world.authority, 2, [], days=8 * SECOND)
    credentials = grpc.ssl_channel_credentials(
        world.authority.certificate.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    expected = (("grpc.ssl_target_name_override", "node-1.quorumlog.internal"),)
    peer = PeerIdentity("cluster", 2, "directory", 2, "127.0.0.1:9")
    async with grpc.aio.secure_channel(honest.address, credentials, expected) as channel:
        identify = channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)
        question = peer_pb2.IdentifyRequest(identity=encode_identity(peer)).SerializeToString()
        await identify(question, timeout=LIMIT_S)
        stream = channel.stream_stream("/quorumlog.v1.Peer/Control", bytes, bytes)
        open_call = stream(None, metadata=((GENERATION_KEY, "1"),))
        await open_call.write(encode_hello(peer))
        assert await open_call.read()
        with pytest.raises(grpc.aio.AioRpcError):
            await open_call.read()
        for again in (2, 3):
            late = stream(None, metadata=((GENERATION_KEY, str(again)),))
            await late.write(encode_hello(peer))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await late.read()
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, "not even greeted"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await identify(question, timeout=LIMIT_S)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_who_asks_under_another_nodes_name_is_told_of_too(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    pair = create_node(tmp_path / "b", world.authority, 2, [])
    credentials = grpc.ssl_channel_credentials(
        world.authority.certificate.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    expected = (("grpc.ssl_target_name_override", "node-1.quorumlog.internal"),)
    async with grpc.aio.secure_channel(honest.address, credentials, expected) as channel:
        question = peer_pb2.IdentifyRequest(identity=peer_pb2.NodeIdentity(node_id=3)).SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)(question, timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert honest.said("peer_refused") == [refused.value.details()]
    assert [line.fields["principal"] for line in honest.audited] == ["Node:2"]


#: Certificates with which no handshake succeeds. With one that is over or not started a node does not even start.
WRONG: dict[str, Callable[[Path, Issued], Issued]] = {
    "a client's, of the authority of clients": lambda folder, ca: create_client(
        folder, create_authority(folder, "client-ca"), "admin"
    ),
    "a node's, of another authority": lambda folder, ca: create_node(folder, create_authority(folder, "other"), 2, []),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_certificate_gets_no_frame_in_and_is_a_line_at_who_tried(
    world: World, tmp_path: Path, what: str
) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    wrong = await world.side(2, WRONG[what](tmp_path / "b", world.authority))
    wrong.links.connect({1: honest.address})
    honest.links.connect({2: wrong.address})
    await until(lambda: wrong.said("peer_unreachable") and honest.said("peer_unreachable"))
    await until(lambda: wrong.links._peer(1).generation > 2)
    assert not honest.has(FrameReceived) and not honest.has(PeerConnected) and not wrong.has(PeerConnected)
    assert len(wrong.said("peer_unreachable")) == 1 and "\n" not in wrong.said("peer_unreachable")[0]
    assert not honest.said("peer_refused"), "it fails inside gRPC, which reports it nowhere"


class Recorder:
    """A proxy before a node that records the bytes that each connection sends to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.said: list[bytearray] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection("127.0.0.1", self._port)
        kept = bytearray()
        self.said.append(kept)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, keep: bool) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65_536):
                    kept.extend(data if keep else b"")
                    sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, before, True), pump(behind, writer, False))

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)


async def test_a_connection_that_was_recorded_gets_nothing_in_when_it_is_sent_again(
    world: World, tmp_path: Path
) -> None:
    sender = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    receiver = await world.side(2, create_node(tmp_path / "b", world.authority, 2, []))
    recorder = Recorder(int(receiver.address.rpartition(":")[2]))
    sender.links.connect({2: await recorder.start()})
    await until(lambda: sender.has(PeerConnected))
    for number in range(1, 4):
        sender.links.send(2, PeerFrame(Stream.DATA, number))
    await until(lambda: sum(isinstance(event, FrameReceived) for event in receiver.events) == 3)
    sender.links.connect({})
    await until(lambda: receiver.has(PeerDisconnected))
    before = list(receiver.events)
    for said in recorder.said:
        assert len(said) > 500, "its handshake and its frames"
        reader, writer = await asyncio.open_connection("127.0.0.1", int(receiver.address.rpartition(":")[2]))
        writer.write(said)
        answered = b""
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65_536):
                    answered += data
        writer.close()
        assert len(answered) < 5_000, "no more than its half of a handshake"
    assert receiver.events == before and not receiver.said("peer_refused")
    await recorder.close()
