"""Nodes are reached although connecting takes seconds, as on a machine with many more busy processes than cores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from quorumlog.sdk.runtime.client_runtime import CHANNEL_OPTIONS
from quorumlog.sdk.spark.nodes import CHANNEL_OPTIONS as SPARK_OPTIONS
from quorumlog.server.transport.channel_options import PEER_CHANNEL_OPTIONS

LIMIT_S = 30.0
DELAY_S = 2.5


@asynccontextmanager
async def delayed(port: int) -> AsyncIterator[int]:
    """Leads to a port of this machine; the first bytes of an answer are late."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
        data = await reader.read(1 << 16)
        await asyncio.sleep(delay_s)
        while data:
            writer.write(data)
            data = await reader.read(1 << 16)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back, 0), carry(ahead, writer, DELAY_S), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    "options", [CHANNEL_OPTIONS, SPARK_OPTIONS, PEER_CHANNEL_OPTIONS], ids=["client", "spark", "peer"]
)
async def test_slow_connection_is_established(options: tuple[tuple[str, int], ...]) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with delayed(port) as slow, grpc.aio.insecure_channel(f"127.0.0.1:{slow}", options=options) as channel:
        async with asyncio.timeout(LIMIT_S):
            await channel.channel_ready()
    await server.stop(None)
