"""Pages over HTTPS: every page requires a client certificate, and the metrics require permission."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.options import PairFiles
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process import http_server as page_server
from quorumlog.server.process.metrics_page import MetricsPage, SecuredPages
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.transport.clients.request_times import RequestTimes

LIMIT_S = 30.0


class Served:
    """A node's pages, and the clients that requested the metrics. Alice may see them."""

    def __init__(self, folder: Path) -> None:
        self._reserved = ReservedPorts(1)
        self.address = f"127.0.0.1:{self._reserved.ports[0]}"
        authority = create_authority(folder, "ca")
        node = create_node(folder, authority, 1, ["127.0.0.1"])
        self.authority = authority.certificate
        with self.authority.open("ab") as file:
            file.write("# Főtanúsítvány\n".encode())
        self.users = {user: create_client(folder, authority, user) for user in ("alice", "bob")}
        self.asked: list[RequestContext] = []
        watched = WatchedPair(
            PairFiles(node.certificate, node.key, self.authority), lambda reason: None, lambda pair: None
        )
        #: Address and reason of handshakes that failed.
        self.failed: list[tuple[str, str]] = []
        self._told = asyncio.Event()
        secured = SecuredPages(self.address, watched, self._refuse, self._note_failed)
        self.exporter = MetricsPage(None, secured, Meters(), dict, lambda: "", ("0", False), RequestTimes())

    async def _refuse(self, client: RequestContext) -> str:
        self.asked.append(client)
        return "" if client.principal == "User:alice" else f"{client.principal} may not"

    def get(self, path: str, pair: Issued | None) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.authority))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        try:
            with urllib.request.urlopen(f"https://{self.address}/{path}", timeout=LIMIT_S, context=context) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def _note_failed(self, host: str, reason: str) -> None:
        self.failed.append((host, reason))
        self._told.set()

    async def wait_for_failed(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.failed) < count:
                self._told.clear()
                await self._told.wait()

    def close(self) -> None:
        self.exporter.close()
        self._reserved.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    yield made
    await asyncio.to_thread(made.close)


async def test_metrics_are_for_those_who_may_see_them(served: Served) -> None:
    status, text = await asyncio.to_thread(served.get, "metrics", served.users["alice"])
    assert (status, "quorumlog_build_info" in text) == (200, True)
    (client,) = served.asked
    assert (client.principal, client.listener, client.host) == ("User:alice", Listener.CLIENT, "127.0.0.1")
    assert client.serial, "it can be revoked"
    assert await asyncio.to_thread(served.get, "metrics", served.users["bob"]) == (403, "User:bob may not\n")
    assert await asyncio.to_thread(served.get, "livez", served.users["bob"]) == (200, "ok\n")
    assert len(served.asked) == 2


async def test_nobody_is_served_without_a_certificate_of_a_user(served: Served, tmp_path: Path) -> None:
    stranger = create_client(tmp_path, create_authority(tmp_path / "other", "ca"), "carol")
    for path in ("metrics", "livez"):
        for pair in (None, stranger):
            with pytest.raises(OSError, match=r"(?i)ssl|tls|certificate|reset|closed|refused|EOF"):
                await asyncio.to_thread(served.get, path, pair)
    assert served.asked == []
    await served.wait_for_failed(4)
    assert {host for host, _ in served.failed} == {"127.0.0.1"}
    assert any("PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason for _, reason in served.failed)
    assert all(reason for _, reason in served.failed)


async def test_a_handshake_that_fails_at_the_pages_is_told_of_with_its_address_and_why(served: Served) -> None:
    def greet(words: bytes) -> None:
        host, _, port = served.address.rpartition(":")
        with socket.create_connection((host, int(port)), LIMIT_S) as stranger:
            stranger.sendall(words)
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(1 << 10):
                    pass

    await asyncio.to_thread(greet, b"GET /metrics HTTP/1.1\r\n\r\n")
    await served.wait_for_failed(1)
    ((host, reason),) = served.failed
    assert (host, "HTTP_REQUEST" in reason) == ("127.0.0.1", True), reason


async def test_a_request_that_trickles_in_ends_with_its_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that trickles in ends at its time limit: otherwise it would hold a connection indefinitely."""
    monkeypatch.setattr(page_server, "REQUEST_S", 1.0)

    def trickle() -> float:
        context = ssl.create_default_context(cafile=str(served.authority))
        alice = served.users["alice"]
        context.load_cert_chain(alice.certificate, alice.key)
        host, _, port = served.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), LIMIT_S) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
        ):
            began_s = time.monotonic()
            secured.settimeout(0.05)
            while time.monotonic() < began_s + LIMIT_S:
                try:
                    secured.sendall(b"G")
                    if not secured.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            return time.monotonic() - began_s

    assert await asyncio.to_thread(trickle) < LIMIT_S
    status, _ = await asyncio.to_thread(served.get, "metrics", served.users["alice"])
    assert status == 200


async def test_strangers_who_stay_silent_hold_only_so_many_connections(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = served.address.rpartition(":")
    with monkeypatch.context() as hurried:
        hurried.setattr(page_server, "HANDSHAKE_S", 0.3)
        silent = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(page_server.MAX_CONNECTIONS + 8)]

        def ended() -> bool:
            return all(each.recv(1) == b"" for each in silent)

        assert await asyncio.to_thread(ended), "those beyond the limit at once, all others with their handshake"
    for each in silent:
        each.close()
    status, _ = await asyncio.to_thread(served.get, "metrics", served.users["alice"])
    assert status == 200
