"""``python -m bench messages``: processor time of a message between two nodes and its answer, by transport.

Two processes: one sends messages, the other answers each with 16 bytes. The transports are those between nodes: a
stream of gRPC, and the sockets that carry entries (``server/transport/peers/peer_sockets.py``), both also with TLS. In
each repetition all transports have their turn, another one first. The figures are processor time and wake-ups of both
processes, which other load on the machine changes less than it changes rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import grpc.aio
import uvloop

from bench.options import add_json
from bench.printing import result_console
from bench.process_cost import TICK_S, cpu_seconds, wake_ups
from bench.target_table import FigureLine, show, write_json
from quorumlog.pure import version_line
from quorumlog.server.certificates.issuing import create_authority, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.options import PairFiles
from quorumlog.server.transport.channel_options import DEFAULT_LIMITS, server_options
from quorumlog.server.transport.credentials import PeerDialer, server_credentials
from quorumlog.server.transport.peers.peer_sockets import PeerSocket, PeerSocketListener, dial
from quorumlog.server.transport.tls_contexts import TlsContexts

HOST, NODE = "127.0.0.1", 1
ANSWER = bytes(16)
SIZES = {"100 B": 100, "64 KiB": 64 << 10}
SERVICE, METHOD = "bench.Messages", "Stream"
#: The transports, by name.
GRPC, SOCKET, GRPC_TLS, SOCKET_TLS = "gRPC", "socket", "gRPC with TLS", "socket with TLS"
TRANSPORTS = (GRPC, SOCKET, GRPC_TLS, SOCKET_TLS)
#: Most that a socket's message may cost, as a share of gRPC's.
TARGET, TARGET_TLS = 0.25, 0.6
#: Time limits: for the messages of one turn, and for the other process to start.
TURN_S, START_S = 300.0, 60.0

#: Sends messages of a size, a number of them at a time, and returns when all are answered.
Exchange = Callable[[int, bytes, int], Any]


@dataclass(slots=True, frozen=True)
class Cost:
    """Cost of one message with its answer, of both processes together.

    Arguments:
        cpu_us: user and system time in microseconds.
        wake_ups: how often a thread was woken.
    """

    cpu_us: float
    wake_ups: float


# -- the process that answers ------------------------------------------------------------------------------------------


async def _serve(directory: Path) -> None:
    """Listens with each transport, prints the ports and tokens in one line, and answers until standard input ends."""
    pair = _watched(directory)
    places: dict[str, tuple[int, str]] = {}
    async with AsyncExitStack() as stack:
        for name in TRANSPORTS:
            with_tls = name in (GRPC_TLS, SOCKET_TLS)
            if name in (GRPC, GRPC_TLS):
                places[name] = await _listen_grpc(stack, pair if with_tls else None)
            else:
                places[name] = await _listen_socket(stack, pair if with_tls else None)
        print(json.dumps(places), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _listen_grpc(stack: AsyncExitStack, pair: WatchedPair | None) -> tuple[int, str]:
    async def answer(messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for _ in messages:
            yield ANSWER

    server = grpc.aio.server(options=server_options(DEFAULT_LIMITS))
    methods = {METHOD: grpc.stream_stream_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    address = f"{HOST}:0"
    port = (
        server.add_insecure_port(address) if pair is None else server.add_secure_port(address, server_credentials(pair))
    )
    await server.start()
    stack.push_async_callback(server.stop, None)
    return port, ""


async def _listen_socket(stack: AsyncExitStack, pair: WatchedPair | None) -> tuple[int, str]:
    def connected(future: asyncio.Future[PeerSocket]) -> None:
        if future.cancelled():
            return
        connection = future.result()
        connection.send(ANSWER)  # Accepts the connection, as a node does.
        connection.deliver_to(lambda _: _answer(connection))

    listener = PeerSocketListener((HOST, 0), None if pair is None else TlsContexts(pair))
    await listener.start()
    running = asyncio.ensure_future(listener.run())
    stack.callback(listener.close)
    stack.callback(running.cancel)
    expected = listener.expect()
    expected.socket.add_done_callback(connected)
    return expected.port, expected.token.hex()


def _answer(connection: PeerSocket) -> None:
    connection.send(ANSWER)


# -- the process that sends and measures -------------------------------------------------------------------------------


@asynccontextmanager
async def _grpc(dialer: PeerDialer, port: int) -> AsyncIterator[Exchange]:
    channel = dialer.channel(f"{HOST}:{port}", NODE)
    try:
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")()

        async def exchange(count: int, message: bytes, in_flight: int) -> None:
            credit = asyncio.Semaphore(in_flight)

            async def receive() -> None:
                for _ in range(count):
                    await call.read()
                    credit.release()

            receiving = asyncio.ensure_future(receive())
            for _ in range(count):
                await credit.acquire()
                await call.write(message)
            await receiving

        yield exchange
        call.cancel()
    finally:
        await channel.close()


@asynccontextmanager
async def _socket(dialer: PeerDialer, port: int, token: str) -> AsyncIterator[Exchange]:
    connection = await dial(HOST, port, bytes.fromhex(token), NODE, dialer.contexts)

    async def exchange(count: int, message: bytes, in_flight: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent = answered = 0

        def take(_: bytes | bytearray) -> None:
            nonlocal sent, answered
            answered += 1
            if sent < count:
                sent += 1
                connection.send(message)
            elif answered == count:
                done.set_result(None)

        connection.deliver_to(take)
        sent = min(count, in_flight)
        for _ in range(sent):
            connection.send(message)
        await done

    try:
        yield exchange
    finally:
        connection.close()


def _watched(directory: Path) -> WatchedPair:
    files = PairFiles(directory / f"node-{NODE}.crt", directory / f"node-{NODE}.key", directory / "nodes.crt")
    return WatchedPair(files, lambda _: None, lambda _: None)


@contextmanager
def _answering(directory: Path) -> Any:
    """The other process: its process, and its places."""
    command = [sys.executable, "-m", "bench.messages", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


async def _measure(parsed: argparse.Namespace, directory: Path) -> dict[tuple[str, str], list[Cost]]:
    costs: dict[tuple[str, str], list[Cost]] = {(name, size): [] for name in TRANSPORTS for size in SIZES}
    with _answering(directory) as (process, places):
        async with AsyncExitStack() as stack:
            exchanges: dict[str, Exchange] = {}
            for name in TRANSPORTS:
                dialer = PeerDialer(_watched(directory) if name in (GRPC_TLS, SOCKET_TLS) else None)
                port, token = places[name]
                opened = _socket(dialer, port, token) if token else _grpc(dialer, port)
                exchanges[name] = await stack.enter_async_context(opened)
                await asyncio.wait_for(exchanges[name](100, bytes(100), parsed.in_flight), TURN_S)
            for repetition in range(parsed.repetitions):
                for at in range(len(TRANSPORTS)):
                    name = TRANSPORTS[(repetition + at) % len(TRANSPORTS)]
                    for size, size_bytes in SIZES.items():
                        cost = await _cost_of(exchanges[name], parsed, bytes(size_bytes), process.pid)
                        costs[name, size].append(cost)
    return costs


async def _cost_of(exchange: Exchange, parsed: argparse.Namespace, message: bytes, other: int) -> Cost:
    pids = (os.getpid(), other)
    cpu, woken = sum(map(cpu_seconds, pids)), sum(map(wake_ups, pids))
    await asyncio.wait_for(exchange(parsed.messages, message, parsed.in_flight), TURN_S)
    cpu, woken = sum(map(cpu_seconds, pids)) - cpu, sum(map(wake_ups, pids)) - woken
    cpu = max(cpu, TICK_S)  # Less than that does not show.
    return Cost(1e6 * cpu / parsed.messages, woken / parsed.messages)


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench messages", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=5_000, help="messages of each transport and size in a repetition"
    )
    parser.add_argument("--in-flight", type=int, default=8, help="messages that are not answered yet, at most")
    parser.add_argument("--repetitions", type=int, default=5)
    add_json(parser)
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        create_node(directory, create_authority(directory, "nodes"), NODE, [HOST])
        costs = uvloop.run(_measure(parsed, directory))
    lines = [line for size in SIZES for line in _lines(costs, size)]
    title = f"a message and its answer, both processes, {parsed.in_flight} in flight; {version_line()}"
    show(result_console(), title, lines)
    if parsed.json is not None:
        figures = {f"{name}, {size}": [asdict(cost) for cost in runs] for (name, size), runs in costs.items()}
        write_json(parsed.json, {"costs": figures}, lines)
    return 0


def _lines(costs: dict[tuple[str, str], list[Cost]], size: str) -> list[FigureLine]:
    """The costs of each transport, and the ratios of sockets to gRPC within the same repetition."""
    lines = []
    for name in TRANSPORTS:
        cpu = [cost.cpu_us for cost in costs[name, size]]
        woken = median(cost.wake_ups for cost in costs[name, size])
        figure = f"{median(cpu):.0f} µs ({min(cpu):.0f}-{max(cpu):.0f}), {woken:.1f} wake-ups"
        lines.append(FigureLine(f"{size}, {name}", figure))
    for of, to, target in ((SOCKET, GRPC, TARGET), (SOCKET_TLS, GRPC_TLS, TARGET_TLS)):
        pairs = zip(costs[of, size], costs[to, size], strict=True)
        ratios = [one.cpu_us / other.cpu_us for one, other in pairs]
        figure = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        lines.append(FigureLine(f"{size}, {of} to {to}", figure, median(ratios), target))
    return lines


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
