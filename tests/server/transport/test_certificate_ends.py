"""Calls and streams of clients end with the certificate that their connection was made with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.certificates.issuing import create_authority, create_client, create_node
from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.options import NodeLimits, PairFiles
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientRequest, Event, Reply
from quorumlog.server.step.request_context import Listener
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.credentials import server_credentials
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc

LIMIT_S = 60.0
SECOND = 1 / 86_400


class Node:
    """A server with TLS that answers each Metadata request at once, and records the requests."""

    def __init__(self, folder: Path) -> None:
        self._reserved = ReservedPorts(1)
        self.address = f"127.0.0.1:{self._reserved.ports[0]}"
        self.authority = create_authority(folder, "ca")
        pair = create_node(folder, self.authority, 1, ["127.0.0.1"])
        files = PairFiles(pair.certificate, pair.key, self.authority.certificate)
        self.requests = ClientRequests(self._answer)
        self.asked: list[ClientRequest] = []
        self.server = GrpcServer(
            self.address,
            (DataPlaneService(self.requests, NodeLimits(), Meters()).handlers(),),
            credentials=server_credentials(WatchedPair(files, lambda reason: None, lambda taken: None)),
            requests=self.requests,
        )
        self._folder = folder

    def _answer(self, event: Event) -> None:
        if isinstance(event, ClientRequest):
            self.asked.append(event)
            reply = Reply(event.request_id, pb.MetadataResponse())
            asyncio.get_running_loop().call_soon(self.requests.deliver, reply)

    def channel(self, user: str, days: float) -> grpc.aio.Channel:
        pair = create_client(self._folder, self.authority, user, days)
        credentials = grpc.ssl_channel_credentials(
            self.authority.certificate.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
        )
        return grpc.aio.secure_channel(self.address, credentials)

    async def close(self) -> None:
        self.requests.close()
        await self.server.stop(0)
        self._reserved.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    await node.server.start()
    yield node
    await node.close()


async def test_a_request_carries_the_user_and_the_listener(node: Node) -> None:
    async with node.channel("alice", 1) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
    (request,) = node.asked
    assert (request.principal, request.client.listener) == ("User:alice", Listener.CLIENT)


async def test_streams_and_later_calls_end_with_the_certificate(node: Node) -> None:
    async with node.channel("short", 8 * SECOND) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)  # type: ignore[no-untyped-call]
        await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
        call = stub.Produce(timeout=LIMIT_S)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await stub.Metadata(pb.MetadataRequest(), timeout=LIMIT_S)
        assert late.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "has expired" in (late.value.details() or "")
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=LIMIT_S)
        with contextlib.suppress(grpc.aio.AioRpcError):  # On a busy machine the call has ended by now.
            await reflection.write(question)
        with pytest.raises(grpc.aio.AioRpcError) as blind:
            await reflection.read()
        assert blind.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(node.asked) == 1
