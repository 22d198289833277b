"""The listener for passwords: calls without a session are not read, and calls open to every client are read in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from raw_http2 import RawHttp2

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientRequest, Event, Reply
from quorumlog.server.step.request_context import Listener
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.channel_options import ConnectionLimits
from quorumlog.server.transport.clients import data_plane_service, session_gate
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.clients.session_gate import READ_AT_ONCE_OF_ADDRESS, SessionGate
from quorumlog.server.transport.clients.sign_in_service import sign_in_handlers
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc, sign_in_pb2, sign_in_pb2_grpc
from quorumlog.v1.acls_pb2 import CheckAclsRequest, CheckAclsResponse
from quorumlog.v1.errors_pb2 import ErrorCode

LIMIT_S = 60.0
MESSAGE_BYTES, LOOKED_AHEAD = 4 << 20, 64 << 10
GOOD = (("authorization", "Session good"),)
CALLS = 30


class Node:
    """A node with one session, which answers each request at once."""

    def __init__(self) -> None:
        self._reserved = ReservedPorts(1)
        self.port = self._reserved.ports[0]
        self.requests = ClientRequests(self._answer)
        self.asked: list[ClientRequest] = []
        self.is_in_a_cluster = True
        meters = Meters()
        self.data_plane = DataPlaneService(self.requests, NodeLimits(), meters)
        self.server = GrpcServer(
            f"127.0.0.1:{self.port}",
            (self.data_plane.handlers(), sign_in_handlers(self.requests, meters)),
            ConnectionLimits(message_bytes=MESSAGE_BYTES, unasked_bytes=LOOKED_AHEAD),
            interceptors=(SessionGate(self.requests),),
        )

    def _answer(self, event: Event) -> None:
        if not isinstance(event, ClientRequest):
            return
        self.asked.append(event)
        match event.message:
            case CheckAclsRequest() if not self.is_in_a_cluster:
                answer = CheckAclsResponse(error=error(ErrorCode.CLUSTER_NOT_FORMED, "wait"))
            case CheckAclsRequest() if event.client.token == "good":
                answer = CheckAclsResponse()
            case CheckAclsRequest():
                answer = error(ErrorCode.SASL_AUTHENTICATION_FAILED, "authenticate")
            case sign_in_pb2.BeginScramRequest():
                answer = sign_in_pb2.BeginScramResponse(server_first="r=...")
            case pb.ProduceRequest():
                answer = pb.ProduceResponse(correlation_id=event.message.correlation_id)
            case _:
                answer = pb.MetadataResponse(cluster_id="c")
        asyncio.get_running_loop().call_soon(self.requests.deliver, Reply(event.request_id, answer))

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", (("grpc.use_local_subchannel_pool", 1),))

    async def close(self) -> None:
        self.requests.close()
        await self.server.stop(0)
        self._reserved.close()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    await node.server.start()
    yield node
    await node.close()


async def taken_of(node: Node, path: str, quiet_s: float = 0.5) -> RawHttp2:
    """Starts many calls at once on one connection without a session, each with almost all of a large message."""
    stranger = await RawHttp2.connect("127.0.0.1", node.port)
    for _ in range(CALLS):
        stranger.begin(path, MESSAGE_BYTES - 100, MESSAGE_BYTES - 200)
    async with asyncio.timeout(LIMIT_S):
        await stranger.push(quiet_s)
    return stranger


@pytest.mark.parametrize("rpc", ["DataPlane/Metadata", "DataPlane/Produce", "DataPlane/Fetch"])
async def test_of_a_call_without_a_session_nothing_is_read(node: Node, rpc: str) -> None:
    stranger = await taken_of(node, f"/quorumlog.v1.{rpc}")
    async with asyncio.timeout(LIMIT_S):
        while len(stranger.ended) < CALLS:
            await stranger.push(0.5)
    assert stranger.taken <= (CALLS + 1) * LOOKED_AHEAD
    assert all(isinstance(each.message, CheckAclsRequest) for each in node.asked)
    stranger.close()


@pytest.mark.parametrize("path", ["/quorumlog.v1.SignIn/BeginScram", "/grpc.health.v1.Health/Check"])
async def test_of_what_everybody_may_call_few_requests_are_read_at_once(
    node: Node, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_gate, "READ_WITHIN_S", 8.0)
    stranger = await taken_of(node, path, 1.0)
    assert not stranger.ended
    held = READ_AT_ONCE_OF_ADDRESS * MESSAGE_BYTES + CALLS * LOOKED_AHEAD
    assert READ_AT_ONCE_OF_ADDRESS * (MESSAGE_BYTES - 200) // 2 < stranger.taken <= held
    async with asyncio.timeout(LIMIT_S):
        while len(stranger.ended) < CALLS:
            await stranger.push(0.5)
    stranger.close()


async def test_a_stream_without_a_session_takes_no_place(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane_service, "MAX_STREAMS", 1)
    async with node.channel() as strangers, node.channel() as own:
        silent = data_plane_pb2_grpc.DataPlaneStub(strangers).Produce(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await silent.read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, "though it has asked for nothing yet"
        assert node.data_plane.open_streams == 0
        stub = data_plane_pb2_grpc.DataPlaneStub(own)  # type: ignore[no-untyped-call]
        call = stub.Produce(timeout=LIMIT_S, metadata=GOOD)
        batch = pb.PartitionBatch(topic_id=b"t" * 16, batch=b"x")
        await call.write(pb.ProduceRequest(correlation_id=7, acks=-1, batches=[batch]))
        assert (await call.read()).correlation_id == 7


async def test_who_has_a_session_is_served_and_the_node_is_asked_once(node: Node) -> None:
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(3):
            answer = await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S, metadata=GOOD)
            assert answer.cluster_id == "c"
        for metadata in ((), (("authorization", "Session bad"),), (("authorization", "good"),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert refused.value.details() == "authenticate"
    questions = [each for each in node.asked if isinstance(each.message, CheckAclsRequest)]
    assert [each.client.token for each in questions] == ["good", "", "bad", ""]
    assert {each.client.listener for each in questions} == {Listener.PASSWORD}


async def test_before_a_node_belongs_to_a_cluster_nobody_has_a_session(node: Node) -> None:
    node.is_in_a_cluster = False
    async with node.channel() as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        for code, in_a_cluster in ((grpc.StatusCode.UNAVAILABLE, False), (grpc.StatusCode.UNAUTHENTICATED, True)):
            node.is_in_a_cluster = in_a_cluster
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
            assert refused.value.code() is code, "and that is not remembered"


async def test_sign_in_and_health_are_open(node: Node) -> None:
    async with node.channel() as channel:
        sign_in = sign_in_pb2_grpc.SignInStub(channel)  # type: ignore[no-untyped-call]
        begun = await asyncio.gather(
            *(sign_in.BeginScram(sign_in_pb2.BeginScramRequest(client_first="n"), timeout=LIMIT_S) for _ in range(50))
        )
        assert {each.server_first for each in begun} == {"r=..."}
        await node.server.set_serving(True)
        health = health_pb2_grpc.HealthStub(channel)
        serving = await health.Check(health_pb2.HealthCheckRequest(), timeout=LIMIT_S)
        assert serving.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT_S)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health.Check(health_pb2.HealthCheckRequest(service="none"), timeout=LIMIT_S)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    assert not any(isinstance(each.message, CheckAclsRequest) for each in node.asked)


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\xff" * 10, grpc.StatusCode.INVALID_ARGUMENT), (b"x" * 20_000, grpc.StatusCode.RESOURCE_EXHAUSTED)],
    ids=["no message", "too large"],
)
async def test_what_is_no_sign_in_is_refused(node: Node, data: bytes, code: grpc.StatusCode) -> None:
    async with node.channel() as channel:
        for path in ("/quorumlog.v1.SignIn/BeginScram", "/grpc.health.v1.Health/Check"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(path)(data, timeout=LIMIT_S)
            assert refused.value.code() is code
