"""Keys for tokens reach the node before the tokens do, and again when they have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from token_issuer import file_of, options, public

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.bearer_tokens import TokenVerifier
from quorumlog.server.step.events import ClientRequest, Event, Reply, TokenKeysRead
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.session_gate import SessionGate
from quorumlog.server.transport.clients.sign_in_service import KeysForNode, sign_in_handlers
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1.sign_in_pb2 import SignInByTokenRequest, SignInByTokenResponse
from quorumlog.v1.sign_in_pb2_grpc import SignInStub

LIMIT_S = 60.0


class KeyFile:
    """A file that a test replaces."""

    def __init__(self) -> None:
        self.replace("first")

    def replace(self, kid: str) -> None:
        self._verifier = JwtVerifier(parse_keys(file_of(public(kid)), ("ES256",)), options())

    def current(self) -> TokenVerifier:
        return self._verifier


class Node:
    """A node that answers each token at once, and records the events that it receives."""

    def __init__(self) -> None:
        self._reserved = ReservedPorts(1)
        self.heard: list[str] = []
        self.file = KeyFile()
        self.requests = ClientRequests(self._hear)
        handlers = sign_in_handlers(self.requests, Meters(), KeysForNode(self.file, self._hear))
        self.address = f"127.0.0.1:{self._reserved.ports[0]}"
        self.server = GrpcServer(self.address, (handlers,), interceptors=(SessionGate(self.requests),))

    def _hear(self, event: Event) -> None:
        if isinstance(event, TokenKeysRead):
            self.heard.append("keys")
        if isinstance(event, ClientRequest):
            assert isinstance(event.message, SignInByTokenRequest)
            self.heard.append(event.message.bearer_token[:10])
            answer = SignInByTokenResponse(session_token="s", lifetime_ms=1_000)
            asyncio.get_running_loop().call_soon(self.requests.deliver, Reply(event.request_id, answer))

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


async def test_a_node_has_the_keys_as_they_are_before_it_is_shown_a_token(node: Node) -> None:
    async with grpc.aio.insecure_channel(node.address, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        stub = SignInStub(channel)  # type: ignore[no-untyped-call]
        for bearer in ("one", "two"):
            assert (await stub.SignInByToken(SignInByTokenRequest(bearer_token=bearer), timeout=LIMIT_S)).session_token
        node.file.replace("second")
        await stub.SignInByToken(SignInByTokenRequest(bearer_token="three"), timeout=LIMIT_S)
        largest = SignInByTokenRequest(bearer_token="x" * (16 << 10), session_token="y" * 43)
        await stub.SignInByToken(largest, timeout=LIMIT_S)
    assert node.heard == ["keys", "one", "two", "keys", "three", "x" * 10]
