"""A client asks a node more at once than one connection takes: what is too much waits at the client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk.cluster.call_limiter import MOST_CALLS, LimitedChannel
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.errors import ClientClosedError, RequestTimedOutError
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientRequest, Event, Reply
from quorumlog.server.transport.channel_options import DEFAULT_LIMITS
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2 as pb

LIMIT_S = 30.0


class Node:
    """A server that answers each Metadata, at once or on request, and counts what waits."""

    def __init__(self) -> None:
        self._reserved = ReservedPorts(1)
        self.address = f"127.0.0.1:{self._reserved.ports[0]}"
        self.requests = ClientRequests(self._take)
        self.answers_at_once = True
        self.waiting: list[int] = []
        self.asked = 0
        self.server = GrpcServer(self.address, (DataPlaneService(self.requests, NodeLimits(), Meters()).handlers(),))

    def _take(self, event: Event) -> None:
        if isinstance(event, ClientRequest):
            self.asked += 1
            self.waiting.append(event.request_id)
            if self.answers_at_once:
                asyncio.get_running_loop().call_soon(self.answer)

    def answer(self) -> None:
        for number in self.waiting:
            self.requests.deliver(Reply(number, pb.MetadataResponse()))
        self.waiting.clear()

    async def close(self) -> None:
        await self.server.stop(0)
        self._reserved.close()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.server.start()
    yield made
    await made.close()


@pytest.fixture
async def connection(node: Node) -> AsyncIterator[NodeConnection]:
    ids = itertools.count(1)
    made = NodeConnection(node.address, "many", SYSTEM_RUNTIME, lambda: next(ids))
    yield made
    await made.close()


def ask(connection: NodeConnection, timeout_s: float = LIMIT_S) -> asyncio.Task[pb.MetadataResponse]:
    call = connection.call(connection.data_plane.Metadata(pb.MetadataRequest(), timeout=timeout_s))
    return asyncio.ensure_future(call)


async def until_asked(node: Node, count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while node.asked < count:  # noqa: ASYNC110 - the node is called on gRPC's own threads
            await asyncio.sleep(0.01)


async def test_no_call_is_refused_for_being_one_of_many(node: Node, connection: NodeConnection) -> None:
    for _ in range(3):
        failed = await asyncio.gather(*(ask(connection) for _ in range(500)), return_exceptions=True)
        assert [each for each in failed if isinstance(each, BaseException)] == []
    assert node.asked == 1_500


async def test_a_connection_has_room_for_its_streams_beside_the_calls(node: Node, connection: NodeConnection) -> None:
    assert DEFAULT_LIMITS.streams // 2 > MOST_CALLS
    node.answers_at_once = False
    requests = [ask(connection) for _ in range(MOST_CALLS + 20)]
    await until_asked(node, MOST_CALLS)
    assert not any(each.done() for each in requests)
    node.answers_at_once = True
    node.answer()
    await asyncio.wait_for(asyncio.gather(*requests), LIMIT_S)


async def test_a_call_that_finds_no_room_in_its_time_was_never_made(node: Node, connection: NodeConnection) -> None:
    node.answers_at_once = False
    requests = [ask(connection) for _ in range(MOST_CALLS)]
    await until_asked(node, MOST_CALLS)
    late = ask(connection, timeout_s=0.05)
    with pytest.raises(RequestTimedOutError, match="in flight") as error:
        await late
    assert error.value.definite
    given_up = ask(connection)
    await asyncio.sleep(0)
    given_up.cancel()
    node.answer()
    await asyncio.wait_for(asyncio.gather(*requests), LIMIT_S)
    assert node.asked == MOST_CALLS
    node.answers_at_once = True
    assert await ask(connection) is not None


async def test_a_close_ends_what_waits_for_room(node: Node, connection: NodeConnection) -> None:
    node.answers_at_once = False
    requests = [ask(connection) for _ in range(MOST_CALLS + 5)]
    await until_asked(node, MOST_CALLS)
    await connection.close()
    ended = await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), LIMIT_S)
    assert {type(each) for each in ended} == {ClientClosedError}
    assert node.asked == MOST_CALLS


async def test_waiting_for_room_takes_of_the_time_of_a_call() -> None:
    now_s = 0.0
    given: list[float | None] = []
    under_way: list[asyncio.Future[None]] = []

    class Channel:
        def unary_unary(self, *arguments: object) -> Callable[..., Awaitable[None]]:
            async def method(request: object, timeout: float | None) -> None:
                given.append(timeout)
                under_way.append(asyncio.get_running_loop().create_future())
                await under_way[-1]

            return method

    call = LimitedChannel(Channel(), "node:1", lambda: now_s).unary_unary("method")
    calls = [asyncio.ensure_future(call(None, timeout=10.0)) for _ in range(MOST_CALLS)]
    await asyncio.sleep(0)
    calls += [asyncio.ensure_future(call(None, timeout=timeout)) for timeout in (10.0, None, 4.0)]
    await asyncio.sleep(0)
    assert given == [10.0] * MOST_CALLS
    now_s = 6.0
    for each in under_way[:3]:
        each.set_result(None)
    async with asyncio.timeout(30):
        while len(given) < MOST_CALLS + 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert given[MOST_CALLS:] == [4.0, None, 0.001], "a call is never made without any time"
    for each in under_way[3:]:
        each.set_result(None)
    await asyncio.gather(*calls)
