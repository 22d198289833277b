"""Links between nodes with certificates: a frame gets in only from the node that it is of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.events import ClusterStanding, Event, FrameReceived, PeerConnected, PeerDisconnected, PeerIdentity
from quorumlog.server.local.ports import ReservedPorts
from quorumlog.server.log_output import Log
from quorumlog.server.metrics import Meters
from quorumlog.server.options import PairFiles
from quorumlog.server.transport.credentials import PeerDialer, server_credentials
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.server.transport.peer_links import PeerLinks
from quorumlog.server.transport.peer_service import PeerService
from quorumlog.server.transport.supervision import Supervisor

LIMIT_S = 15.0
SECOND = 1 / 86_400


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    info = warning = error = debug


class Side:
    """One node: what it says that it is, and the certificate that it has."""

    def __init__(self, node_id: int, port: int, pair: Issued, authority: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self.identity = PeerIdentity("cluster", node_id, "directory", node_id, self.address)
        self.events: list[Event] = []
        self.log = Lines()
        log: Log = self.log  # type: ignore[assignment]
        files = PairFiles(pair.certificate, pair.key, authority)

        def watched() -> WatchedPair:
            return WatchedPair(files, lambda reason: None, lambda taken: None)

        self.supervisor = Supervisor(lambda name, error: None)
        self.links = PeerLinks(
            identity=lambda: self.identity, accepts=lambda identity: None, emit=self.events.append,
            supervisor=self.supervisor, log=log, meters=Meters(), on_cluster=lambda address, cluster: None,
            dialer=PeerDialer(watched()),
        )  # fmt: skip
        service = PeerService(
            identity=lambda: self.identity, standing=lambda asker: ClusterStanding((), "", 0),
            accepts=lambda identity: None, links=self.links, log=log, by_certificate=True,
        )  # fmt: skip
        self.server = GrpcServer(self.address, (service.handlers(),), credentials=server_credentials(watched()))

    def has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    def said(self, event: str) -> list[str]:
        return [str(fields.get("reason")) for line, fields in self.log.lines if line == event]

    async def close(self) -> None:
        await self.supervisor.stop()
        self.links.close()
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
        while not condition():  # noqa: ASYNC110  # what is waited for does not know of the test
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
    assert honest.said("peer_refused") == ["it says that it is node 3, but its certificate is of node 2"]
    assert liar.said("peer_unreachable") == ["it says that it is node 3, but its certificate is of node 2"]
    assert not honest.has(FrameReceived) and not liar.has(PeerConnected)


async def test_whoever_answers_with_another_nodes_certificate_is_not_spoken_to(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    liar = await world.side(3, create_node(tmp_path / "b", world.authority, 2, []))
    honest.links.connect({3: liar.address})
    await until(lambda: honest.said("peer_unreachable"))
    assert not liar.has(FrameReceived) and not liar.said("peer_refused"), "the handshake failed, before any hello"
    assert not honest.has(PeerConnected)
    assert all("\n" not in reason for reason in honest.said("peer_unreachable"))


async def test_a_users_certificate_speaks_for_no_node(world: World, tmp_path: Path) -> None:
    honest = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    user = await world.side(2, create_client(tmp_path / "b", world.authority, "mallory"))
    user.links.connect({1: honest.address})
    await until(lambda: honest.said("peer_refused"))
    assert honest.said("peer_refused") == ["it says that it is node 2, but its certificate is of no node"]


async def test_a_link_ends_with_the_certificate_that_opened_it(world: World, tmp_path: Path) -> None:
    long = await world.side(1, create_node(tmp_path / "a", world.authority, 1, []))
    short = await world.side(2, create_node(tmp_path / "b", world.authority, 2, [], days=5 * SECOND))
    ends_s = time.time() + 5
    short.links.connect({1: long.address})
    await until(lambda: short.has(PeerConnected))
    await until(lambda: short.has(PeerDisconnected))
    assert time.time() > ends_s - 1
    await until(lambda: long.said("link_broken") or short.said("link_broken"))
    assert "not valid any more" in short.said("link_broken")[0]
