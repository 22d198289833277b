"""A client's channel follows its files: the node returns under another authority, and is reached."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk.runtime import security, tls_files
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.runtime.renewed_channel import RenewedChannel
from quorumlog.sdk.runtime.tls_files import TlsFiles
from quorumlog.server.certificates.issuing import create_authority, create_client, create_node

LIMIT_S = 60.0


async def echo(request: bytes, context: object) -> bytes:
    return request


async def echo_all(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


class Place:
    """A server that returns with certificates of another authority."""

    def __init__(self, root: Path) -> None:
        self._reserved = ReservedPorts(1)
        self.address = f"127.0.0.1:{self._reserved.ports[0]}"
        self._root = root

    async def serve(self, name: str) -> grpc.aio.Server:
        folder = self._root / name
        authority = create_authority(folder, "ca")
        node, _ = create_node(folder, authority, 1, ["127.0.0.1"]), create_client(folder, authority, "alice")
        credentials = grpc.ssl_server_credentials(
            [(node.key.read_bytes(), node.certificate.read_bytes())], authority.certificate.read_bytes(), True
        )
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = {
            "Echo": grpc.unary_unary_rpc_method_handler(echo),
            "EchoAll": grpc.stream_stream_rpc_method_handler(echo_all),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
        assert server.add_secure_port(self.address, credentials)
        await server.start()
        return server

    def give(self, name: str) -> TlsFiles:
        """The client gets the certificates of an authority."""
        own = [self._root / file for file in ("ca.crt", "alice.crt", "alice.key")]
        for path in own:
            os.replace(self._root / name / path.name, path)
        return TlsFiles(*map(str, own))

    def close(self) -> None:
        self._reserved.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tls_files, "LOOKED_AT_S", 0.0)
    return Place(tmp_path)


async def test_calls_are_made_with_the_files_as_they_are(place: Place) -> None:
    first = await place.serve("first")
    opened: list[grpc.aio.Channel] = []

    def open_channel(credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
        opened.append(grpc.aio.secure_channel(place.address, credentials))
        return opened[-1]

    channel = RenewedChannel(place.give("first"), open_channel)
    ask = channel.unary_unary("/Test/Echo")
    talk = channel.stream_stream("/Test/EchoAll")
    assert await ask(b"1", timeout=LIMIT_S) == b"1"
    stream = talk(timeout=LIMIT_S)
    await stream.write(b"2")
    assert await stream.read() == b"2"
    await asyncio.gather(*(ask(b"3", timeout=LIMIT_S) for _ in range(3)))
    assert len(opened) == 1
    # What is open continues over its connection; what is started is made with the new files.
    second_at = Place(place._root)
    second = await second_at.serve("second")
    place.address = second_at.address
    place.give("second")
    assert await ask(b"4", timeout=LIMIT_S) == b"4"
    former, present = opened
    await stream.write(b"5")
    assert await stream.read() == b"5"
    assert former.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    async with asyncio.timeout(LIMIT_S):
        while former.get_state() is not grpc.ChannelConnectivity.SHUTDOWN:  # noqa: ASYNC110 - gRPC notifies no one
            await asyncio.sleep(0.01)
    assert await ask(b"6", timeout=LIMIT_S) == b"6"
    assert present.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await channel.close()
    assert present.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    for server in (first, second):
        await server.stop(None)
    for each in (place, second_at):
        each.close()


async def test_a_channel_that_nobody_uses_leaves_nodes_in_peace(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "IDLE_MS", 3_000)
    server = await place.serve("first")
    await server.stop(None)
    opened: list[grpc.aio.Channel] = []
    secure_channel = grpc.aio.secure_channel

    def noted(*arguments: Any, **options: Any) -> grpc.aio.Channel:
        opened.append(secure_channel(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(grpc.aio, "secure_channel", noted)
    runtime = security.runtime_with_tls(SYSTEM_RUNTIME, place.give("first"))
    channel = runtime.open_channel(place, place.address, "idle")
    with pytest.raises(grpc.RpcError):
        await channel.unary_unary("/Test/Echo")(b"1", timeout=LIMIT_S)
    (inner,) = opened
    assert inner.get_state() is not grpc.ChannelConnectivity.IDLE, "it tries again"
    async with asyncio.timeout(LIMIT_S):
        while inner.get_state() is not grpc.ChannelConnectivity.IDLE:  # noqa: ASYNC110 - gRPC notifies no one
            await asyncio.sleep(0.05)
    await channel.close()
    place.close()
