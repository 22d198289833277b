"""Connections of which no call came are told of, and no others: on a clock of their own, and with gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from quorumlog.server.certificates.issuing import create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.events import AuditLine
from quorumlog.server.local.ports import ReservedPorts
from quorumlog.server.options import PairFiles
from quorumlog.server.transport.credentials import server_credentials
from quorumlog.server.transport.failed_handshakes import LOG_AGAIN_S, MAX_HOSTS, OTHERS, FailedHandshakes, reason_of
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.server.transport.uncalled_connections import (
    CHECK_EVERY_S,
    LOOK_AGAIN_S,
    MAX_WATCHED,
    Peer,
    UncalledConnections,
    connected_to,
)

DEADLINE_S = 30.0


class Watch:
    """A listener's connections, as a test has them."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.connected: set[Peer] = set()
        self.looks = 0
        self.has_no_descriptors = False
        self.log: list[dict[str, object]] = []
        self.audit: list[AuditLine] = []
        self.failed = FailedHandshakes(self, self.audit.append, lambda: self.now_s)  # type: ignore[arg-type]
        self.watch = UncalledConnections("peer_listen", 9, self.failed, lambda: self.now_s, self.look)

    def warning(self, event: str, **fields: object) -> None:
        assert event == "handshake_failed"
        self.log.append(fields)

    def look(self, port: int) -> set[Peer]:
        assert port == 9
        if self.has_no_descriptors:
            raise OSError(24, "Too many open files")
        self.looks += 1
        return set(self.connected)

    def connect(self, port: int, host: str = "10.0.0.7") -> Peer:
        self.now_s += LOOK_AGAIN_S
        self.connected.add((host, port))
        self.watch.begun()
        return host, port

    def pass_time(self, seconds: float = CHECK_EVERY_S) -> list[AuditLine]:
        """What is told after a while."""
        self.now_s += seconds
        before = len(self.audit)
        self.watch.check()
        self.failed.tell()
        return self.audit[before:]


def test_a_connection_that_is_gone_without_a_call_is_told_of_once() -> None:
    watch = Watch()
    watch.connected.discard(watch.connect(1))
    (line,) = watch.pass_time()
    assert line.event == "handshake_failed"
    assert {key: line.fields[key] for key in ("listener", "host", "times")} == {
        "listener": "peer_listen", "host": "10.0.0.7", "times": 1
    }  # fmt: skip
    assert watch.pass_time() == []
    assert [line["address"] for line in watch.log] == ["10.0.0.7"]


def test_a_connection_that_has_called_or_is_still_there_is_not_told_of() -> None:
    watch = Watch()
    called, silent = watch.connect(1), watch.connect(2)
    watch.watch.called(called)
    watch.connected.discard(called)
    assert watch.pass_time() == []
    watch.connected.discard(silent)
    assert len(watch.pass_time()) == 1, "it has never said anything"


def test_a_call_that_came_just_before_the_end_is_waited_for() -> None:
    watch = Watch()
    peer = watch.connect(1)
    watch.connected.discard(peer)
    assert watch.pass_time(CHECK_EVERY_S / 2) == []
    watch.watch.called(peer)
    assert watch.pass_time() == []


def test_an_older_connection_is_not_taken_for_a_new_one() -> None:
    watch = Watch()
    older = watch.connect(1)
    watch.watch.called(older)
    watch.connect(2)
    watch.connected.clear()
    (line,) = watch.pass_time()
    assert line.fields["times"] == 1


def test_those_of_an_address_are_told_together_and_masses_of_addresses_as_one() -> None:
    watch = Watch()
    for port in range(5):
        watch.connect(port)
    watch.connected.clear()
    (line,) = watch.pass_time()
    assert line.fields["times"] == 5
    for number in range(MAX_HOSTS + 30):
        watch.connect(1, f"10.0.1.{number}")
    watch.connected.clear()
    lines = watch.pass_time()
    assert len(lines) == MAX_HOSTS + 1
    assert lines[-1].fields["host"] == OTHERS and lines[-1].fields["times"] == 30
    assert len(watch.log) == 1
    watch.now_s += LOG_AGAIN_S
    watch.connected.discard(watch.connect(7))
    watch.pass_time()
    assert [line["times"] for line in watch.log] == [5, MAX_HOSTS + 31]


def test_a_flood_of_connections_costs_few_looks_and_little_memory() -> None:
    watch = Watch()
    watch.connected = {("10.0.0.7", port) for port in range(3 * MAX_WATCHED)}
    for _ in range(100):
        watch.watch.begun()
    assert watch.looks == 1
    watch.connected.clear()
    (line,) = watch.pass_time()
    assert line.fields["times"] == MAX_WATCHED


def test_calls_of_connections_that_are_gone_are_forgotten() -> None:
    watch = Watch()
    for port in range(5 * MAX_WATCHED):
        watch.watch.called(("10.0.0.7", port))
    watch.connected = {("10.0.0.7", 1)}
    watch.pass_time()
    assert watch.watch.remembered == 1


def test_a_process_without_descriptors_to_look_with_goes_on() -> None:
    watch = Watch()
    watch.connected.discard(watch.connect(1))
    watch.has_no_descriptors = True
    assert watch.pass_time() == []
    watch.watch.begun()
    watch.has_no_descriptors = False
    assert len(watch.pass_time()) == 1


def test_the_other_sides_of_connections_to_a_port_are_found_among_the_descriptors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.1", 0)) as other:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as there, socket.create_connection(other.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                # The client's own end has that port on its other side.
                assert connected_to(port) == {there.getsockname()}
                there.sendall(b"x")
                assert accepted.recv(1) == b"x", "nothing was closed"
        assert connected_to(port) == set()


# -- with gRPC ------------------------------------------------------------------------------------------------------


class Served:
    """A listener of nodes, with what is told of it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port, self.folder = port, folder
        self.node_ca, self.client_ca = (create_authority(folder, name) for name in ("node-ca", "client-ca"))
        self.node = create_node(folder, self.node_ca, 1, ["127.0.0.1"])
        self.audit: list[AuditLine] = []
        self.failed = FailedHandshakes(self, self.audit.append)  # type: ignore[arg-type]
        self.watch = UncalledConnections("peer_listen", port, self.failed)
        files = PairFiles(self.node.certificate, self.node.key, self.node_ca.certificate)
        pair = WatchedPair(files, lambda reason: None, lambda taken: None)
        credentials = server_credentials(pair, self.watch.begun)
        self.server = GrpcServer(f"127.0.0.1:{port}", (), credentials=credentials, interceptors=(self.watch,))

    def warning(self, event: str, **fields: object) -> None:
        pass

    async def told(self, times: int) -> list[AuditLine]:
        """What is told once so many connections have come to nothing; of no more within a while."""
        async with asyncio.timeout(DEADLINE_S):
            while self.times < times:
                await asyncio.sleep(0.05)
                self.watch.check()
                self.failed.tell()
        assert self.times == times
        return self.audit

    @property
    def times(self) -> int:
        return sum(int(str(line.fields["times"])) for line in self.audit)

    # -- who tries --------------------------------------------------------------------------------------------------

    def plain(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as raw:
            raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            raw.recv(100)

    def hello(self, certificate: Path | None = None, key: Path | None = None, version: str = "TLSv1_3") -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        context.set_alpn_protocols(["h2"])
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        with (
            socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as raw,
            contextlib.suppress(OSError),
            context.wrap_socket(raw) as wrapped,
        ):
            wrapped.recv(100)

    def ask(self) -> None:
        pair = create_node(self.folder / "2", self.node_ca, 2, ["127.0.0.1"])
        made = grpc.ssl_channel_credentials(
            self.node_ca.certificate.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
        )
        expected = (("grpc.ssl_target_name_override", "node-1.quorumlog.internal"),)
        with grpc.secure_channel(f"127.0.0.1:{self.port}", made, expected) as channel:
            channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)(b"", timeout=DEADLINE_S)


@pytest.fixture
def port() -> Iterator[int]:
    reserved = ReservedPorts(1)
    (one,) = reserved.ports
    yield one
    reserved.close()


def test_each_handshake_that_grpc_refuses_is_told_of_with_its_address(tmp_path: Path, port: int) -> None:
    (tmp_path / "2").mkdir()
    over = -60 / 86_400

    async def run() -> None:
        served = Served(tmp_path, port)
        await served.server.start()
        user = create_client(tmp_path, served.client_ca, "mallory")
        expired = create_node(tmp_path, served.node_ca, 3, ["127.0.0.1"], days=over)
        for attempt in (
            served.plain,
            served.hello,
            lambda: served.hello(user.certificate, user.key),
            lambda: served.hello(expired.certificate, expired.key),
            lambda: served.hello(version="TLSv1_1"),
        ):
            before = served.times
            await asyncio.to_thread(attempt)
            await served.told(before + 1)
        await asyncio.to_thread(served.ask)
        await asyncio.sleep(2 * CHECK_EVERY_S)
        served.watch.check()
        served.failed.tell()
        assert served.times == 5, "whoever is served is none of them"
        assert {(line.fields["listener"], line.fields["host"]) for line in served.audit} == {
            ("peer_listen", "127.0.0.1")
        }
        await served.server.stop(0)

    asyncio.run(run())


def test_a_connection_that_is_reset_at_once_ends_nothing(tmp_path: Path, port: int) -> None:
    (tmp_path / "2").mkdir()

    async def run() -> None:
        served = Served(tmp_path, port)
        await served.server.start()
        for _ in range(20):
            raw = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()
        await asyncio.to_thread(served.ask)
        await served.server.stop(0)

    asyncio.run(run())


def test_no_handshake_fails_without_a_reason() -> None:
    """A connection that is gone again says nothing in words."""
    assert reason_of(ConnectionAbortedError()) == "ConnectionAbortedError"
    assert reason_of(ssl.SSLError(1, "wrong version number")) == "wrong version number"
