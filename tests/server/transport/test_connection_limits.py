"""Limits for unknown clients: half handshakes, idle connections, floods and large messages all end automatically."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import struct
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientRequest, Event, Reply
from quorumlog.server.transport.channel_options import ConnectionLimits
from quorumlog.server.transport.clients import request_stream
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc

#: Deadline of waits, long before the timeout of the test.
LIMIT_S = 60.0
#: The HTTP/2 preface and an empty SETTINGS frame: a valid client without requests.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0"
SHORT = ConnectionLimits(connections=20, handshake_ms=1_000, idle_ms=4_000, streams=3, message_bytes=1 << 20)


class Node:
    """A server that answers each Metadata and Produce at once, under short limits."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests = ClientRequests(self._answer)
        self.asked = 0
        self.service = DataPlaneService(self.requests, NodeLimits(), Meters())
        self.server = GrpcServer(f"127.0.0.1:{port}", (self.service.handlers(),), SHORT)

    def _answer(self, event: Event) -> None:
        if not isinstance(event, ClientRequest):
            return
        self.asked += 1
        match event.message:
            case pb.ProduceRequest():
                reply = Reply(event.request_id, pb.ProduceResponse(correlation_id=event.message.correlation_id))
            case pb.FetchRequest():
                large = pb.FetchResult(topic_id=b"t" * 16, entries=[bytes(4 << 20)])
                reply = Reply(
                    event.request_id, pb.FetchResponse(correlation_id=event.message.correlation_id, results=[large])
                )
            case _:
                reply = Reply(event.request_id, pb.MetadataResponse())
        asyncio.get_running_loop().call_soon(self.requests.deliver, reply)

    def channel(self, *options: tuple[str, int]) -> grpc.aio.Channel:
        own = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), *options)
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", own)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    reserved = ReservedPorts(1)
    node = Node(reserved.ports[0])
    await node.server.start()
    yield node
    node.requests.close()
    await node.server.stop(0)
    reserved.close()


async def closed_by_node(reader: asyncio.StreamReader) -> bool:
    """Waits for the end of a connection; what comes before it does not matter."""
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionError):
            while await reader.read(65_536):
                pass
    return True


@pytest.mark.parametrize("said", [b"", HELLO[:10], HELLO[:24]], ids=["nothing", "half a preface", "no settings"])
async def test_a_connection_that_does_not_finish_its_greeting_is_closed(node: Node, said: bytes) -> None:
    idle, idle_writer = await asyncio.open_connection("127.0.0.1", node.port)
    idle_writer.write(HELLO)
    idle_end = asyncio.ensure_future(closed_by_node(idle))
    sockets = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(5)]
    for _, writer in sockets:
        writer.write(said)
    assert all([await closed_by_node(reader) for reader, _ in sockets])
    assert not idle_end.done(), "one that has finished its own, before them, may still be without a call"
    await idle_end
    for _, writer in [*sockets, (idle, idle_writer)]:
        writer.close()


async def test_a_connection_without_a_call_is_closed(node: Node) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(HELLO)
    assert await closed_by_node(reader)
    writer.close()


async def test_a_client_that_was_idle_does_not_notice_that_its_connection_was_closed(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
        async with asyncio.timeout(LIMIT_S):
            while (state := channel.get_state()) is not grpc.ChannelConnectivity.IDLE:
                await channel.wait_for_state_change(state)
        await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
    assert node.asked == 2


async def test_a_stream_in_use_outlives_the_idle_limit(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        call = stub.Produce(timeout=LIMIT_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(HELLO)
        assert await closed_by_node(reader), "one that came later and says nothing has been closed"
        writer.close()
        await call.write(a_produce(1))
        assert (await call.read()).correlation_id == 1


async def test_connections_beyond_the_limit_are_closed_and_a_sitting_producer_goes_on(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        call = stub.Produce(timeout=60)
        await call.write(a_produce(1))
        assert (await call.read()).correlation_id == 1
        flood = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(2_000)]
        number = 1
        ended = asyncio.gather(*(closed_by_node(reader) for reader, _ in flood))
        while not ended.done():
            number += 1
            await call.write(a_produce(number))
            async with asyncio.timeout(LIMIT_S):
                assert (await call.read()).correlation_id == number
        await ended
        for _, writer in flood:
            writer.close()
    async with node.channel() as channel:
        await data_plane_pb2_grpc.DataPlaneStub(channel).Metadata(  # type: ignore[no-untyped-call]
            pb.MetadataRequest(), timeout=LIMIT_S, wait_for_ready=True
        )


async def test_no_more_connections_are_served_than_the_limit_says(node: Node) -> None:
    flood = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(SHORT.connections + 10)]
    for _, writer in flood:
        writer.write(HELLO)
    greeted = await asyncio.gather(*(greeting(reader) for reader, _ in flood))
    assert 0 < sum(greeted) <= SHORT.connections
    for _, writer in flood:
        writer.close()


async def greeting(reader: asyncio.StreamReader) -> bool:
    """True if the server sends anything on a connection before it closes it."""
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionError):
            return bool(await reader.read(1))
    return False


async def test_calls_beyond_the_limit_of_a_connection_wait_for_those_before_them(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        calls = [stub.Produce(timeout=LIMIT_S) for _ in range(SHORT.streams)]
        for call in calls:
            await call.write(a_produce(1))
            assert (await call.read()).correlation_id == 1
        further = asyncio.ensure_future(stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S))
        await calls[0].write(a_produce(2))
        assert (await calls[0].read()).correlation_id == 2
        assert not further.done()
        await calls[1].done_writing()
        await further


async def test_a_message_beyond_the_limit_is_refused(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Metadata(pb.MetadataRequest(topics=["t" * (2 << 20)]), timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.asked == 0


async def test_metadata_beyond_the_limit_is_refused(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S, metadata=(("note", "n" * (20 << 10)),))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.asked == 0


async def test_a_message_that_grpc_has_compressed_is_not_inflated(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Metadata(
                pb.MetadataRequest(topics=["t" * 500_000]), timeout=LIMIT_S, compression=grpc.Compression.Gzip
            )
    assert len(gzip.compress(b"t" * 500_000)) < 1_000
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "that are not a MetadataRequest" in (refused.value.details() or "")
    assert node.asked == 0


async def test_a_client_that_does_not_read_is_let_go(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_stream, "SLOW_READER_S", 2.0)
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        call = stub.Fetch()
        for number in range(10):
            partition = pb.FetchPartition(topic_id=b"t" * 16, partition=0)
            await call.write(pb.FetchRequest(correlation_id=number, partitions=[partition]))
        await until(lambda: node.asked == 10)
        await until(lambda: node.service.open_streams == 0)
        # A client that starts to read now gets the answers under way, and then the reason.
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await asyncio.wait_for(read_on(call), LIMIT_S)
    assert (
        ended.value.details() == "the answers on this stream were not read in time: read faster, or send fewer requests"
    )


async def read_on(call: grpc.aio.StreamStreamCall[pb.FetchRequest, pb.FetchResponse]) -> None:
    while isinstance(await call.read(), pb.FetchResponse):
        pass


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110  # the awaited code cannot signal the test
            await asyncio.sleep(0.01)


def a_produce(number: int) -> pb.ProduceRequest:
    batches = [pb.PartitionBatch(topic_id=b"t" * 16, partition=0, batch=struct.pack("<q", number))]
    return pb.ProduceRequest(correlation_id=number, acks=-1, batches=batches)
