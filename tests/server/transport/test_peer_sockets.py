"""Sockets between nodes: who gets one, what it carries, and what it refuses."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quorumlog.server.transport.peers import peer_sockets
from quorumlog.server.transport.peers.peer_sockets import (
    MAX_FRAME_BYTES,
    MAX_STRANGERS,
    PeerSocket,
    PeerSocketListener,
    dial,
)

LIMIT_S = 20.0
HOST = "127.0.0.1"


@pytest.fixture
async def listener() -> AsyncIterator[PeerSocketListener]:
    made = PeerSocketListener((HOST, 0), None)
    await made.start()
    running = asyncio.ensure_future(made.run())
    yield made
    running.cancel()
    made.close()


async def connected(listener: PeerSocketListener) -> tuple[PeerSocket, PeerSocket]:
    """Both ends of a connection: of the node that has announced it, and of the one that has dialled."""
    expected = listener.expect()
    dialling = asyncio.ensure_future(dial(HOST, expected.port, expected.token, 1, None))
    accepted = await expected.socket
    accepted.send(expected.token)
    return accepted, await dialling


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    yield reader, writer
    writer.close()


async def until_end(reader: asyncio.StreamReader) -> None:
    """Waits until the node has closed the connection; it sends nothing before."""
    async with asyncio.timeout(LIMIT_S):
        assert await reader.read(100) == b""


async def test_frames_of_any_size_arrive(listener: PeerSocketListener) -> None:
    """In order, whatever pieces the network makes of them; the seed is printed."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    sizes = [0, 1, 65_531, 65_532, 65_533, 1 << 20, *(rng.choice((10, 5_000, 70_000, 300_000)) for _ in range(60))]
    frames = [rng.randbytes(size) for size in sizes]
    one, other = await connected(listener)
    for sender, receiver in ((one, other), (other, one)):
        arrived: list[bytes] = []
        done = asyncio.Event()

        def take(frame: bytes | bytearray, arrived: list[bytes] = arrived, done: asyncio.Event = done) -> None:
            arrived.append(bytes(frame))
            if len(arrived) == len(frames):
                done.set()

        receiver.deliver_to(take)
        for frame in frames:
            assert sender.send(frame)
        async with asyncio.timeout(LIMIT_S):
            await done.wait()
        assert arrived == frames


async def test_early_frames_are_kept(listener: PeerSocketListener) -> None:
    """The node that has dialled takes frames a little later than they may arrive."""
    one, other = await connected(listener)
    one.send(b"first")
    async with asyncio.timeout(LIMIT_S):
        while not other.early:  # noqa: ASYNC110  # the awaited code cannot signal the test
            await asyncio.sleep(0.001)
    arrived: list[bytes | bytearray] = []
    other.deliver_to(arrived.append)
    assert arrived == [b"first"]


async def test_each_end_hears_of_the_end(listener: PeerSocketListener) -> None:
    one, other = await connected(listener)
    other.close("no more")
    assert await other.ended == "no more"
    async with asyncio.timeout(LIMIT_S):
        await one.ended
    assert one.send(b"lost"), "nothing fails: the link is about to end"


async def test_nothing_arrives_after_closing(listener: PeerSocketListener) -> None:
    one, other = await connected(listener)
    arrived: list[bytes | bytearray] = []
    other.deliver_to(lambda frame: (arrived.append(frame), other.close())[0])
    one.send(b"first")
    one.send(b"second")
    async with asyncio.timeout(LIMIT_S):
        await one.ended
    assert arrived == [b"first"]


async def test_peer_that_does_not_read(listener: PeerSocketListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_sockets, "MAX_UNSENT_BYTES", 1 << 20)
    expected = listener.expect()
    async with raw(expected.port) as (_, writer):
        writer.write(struct.pack("<I", len(expected.token)) + expected.token)
        socket = await expected.socket
        for _ in range(100):
            if not socket.send(bytes(1 << 20)):
                break
            await asyncio.sleep(0)
        else:
            pytest.fail("a hundred megabytes were accepted for a peer that does not read")


@pytest.mark.parametrize("shown", [b"", bytes(16), bytes(15), b"x" * 17, bytes(1000)])
async def test_wrong_token_is_refused(listener: PeerSocketListener, shown: bytes) -> None:
    expected = listener.expect()
    async with raw(expected.port) as (reader, writer):
        writer.write(struct.pack("<I", len(shown)) + shown)
        await until_end(reader)
    assert not expected.socket.done()


async def test_token_is_good_once(listener: PeerSocketListener) -> None:
    expected = listener.expect()
    shown = struct.pack("<I", len(expected.token)) + expected.token
    async with raw(expected.port) as (_, first):
        first.write(shown)
        await expected.socket
        async with raw(expected.port) as (reader, second):
            second.write(shown)
            await until_end(reader)


async def test_forgotten_token_is_refused(listener: PeerSocketListener) -> None:
    expected = listener.expect()
    listener.forget(expected)
    with pytest.raises(OSError, match="the peer closed the socket"):
        await dial(HOST, expected.port, expected.token, 1, None)


async def test_socket_ends_with_its_stream(listener: PeerSocketListener) -> None:
    expected = listener.expect()
    dialling = asyncio.ensure_future(dial(HOST, expected.port, expected.token, 1, None))
    (await expected.socket).send(expected.token)
    other = await dialling
    listener.forget(expected)
    async with asyncio.timeout(LIMIT_S):
        await other.ended


async def test_closed_listener_listens_no_longer(listener: PeerSocketListener) -> None:
    assert listener.is_listening
    listener.close()
    assert not listener.is_listening


async def test_silent_connections_are_closed(listener: PeerSocketListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_sockets, "TOKEN_TIMEOUT_S", 0.1)
    expected = listener.expect()
    async with raw(expected.port) as (reader, _):
        await until_end(reader)


async def test_strangers_are_limited(listener: PeerSocketListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_sockets, "TOKEN_TIMEOUT_S", 3_600.0)
    expected = listener.expect()
    silent = [await asyncio.open_connection(HOST, expected.port) for _ in range(MAX_STRANGERS)]
    async with raw(expected.port) as (reader, _):
        await until_end(reader)
    for _, writer in silent:
        writer.close()


async def test_too_large_a_frame_ends_it(listener: PeerSocketListener) -> None:
    """Before anything is allocated for it."""
    expected = listener.expect()
    async with raw(expected.port) as (reader, writer):
        writer.write(struct.pack("<I", len(expected.token)) + expected.token)
        socket = await expected.socket
        writer.write(struct.pack("<I", MAX_FRAME_BYTES + 1))
        async with asyncio.timeout(LIMIT_S):
            assert await socket.ended == f"a frame of {MAX_FRAME_BYTES + 1} bytes, the maximum is {MAX_FRAME_BYTES}"
        await until_end(reader)


async def test_frames_before_the_answer_end_it(listener: PeerSocketListener) -> None:
    expected = listener.expect()
    async with raw(expected.port) as (reader, writer):
        token = struct.pack("<I", len(expected.token)) + expected.token
        writer.write(token + struct.pack("<I", 3) + b"abc")
        await until_end(reader)


async def test_unreachable_port_is_an_os_error() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await dial(HOST, port, bytes(16), 1, None)


async def test_peer_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_sockets, "DIAL_TIMEOUT_S", 0.1)
    server = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
    with pytest.raises(OSError, match="no answer in time"):
        async with asyncio.timeout(LIMIT_S):
            await dial(HOST, server.sockets[0].getsockname()[1], bytes(16), 1, None)
    server.close()
