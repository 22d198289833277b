"""Client streams over real gRPC: pipelined, bounded both ways, and forgotten when the client goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio
import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientGone, ClientRequest, Event, Reply, StreamClosed, StreamPause
from quorumlog.server.transport.clients.client_requests import MAX_PENDING_BYTES, ClientRequests
from quorumlog.server.transport.clients.data_plane_service import (
    MAX_FETCHES_PER_STREAM,
    MAX_PRODUCES_PER_STREAM,
    DataPlaneService,
)
from quorumlog.server.transport.clients.request_stream import OpenStreams
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.v1 import data_plane_pb2, data_plane_pb2_grpc
from quorumlog.v1.errors_pb2 import ErrorCode

TOPIC = b"t" * 16
#: On a stream: an unsuccessful wait is a failure of its own, long before the time-out of the test.
LIMIT_S = 60.0


class Stage:
    """A server whose node is the test: it sees events and answers when it likes."""

    def __init__(self, port: int) -> None:
        self.events: list[Event] = []
        self.on_request: Callable[[ClientRequest], None] = lambda asked: None
        self.requests = ClientRequests(self._take)
        self.meters = Meters()
        service = DataPlaneService(self.requests, NodeLimits(), self.meters)
        self.server = GrpcServer(f"127.0.0.1:{port}", (service.handlers(),))
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
        self.stub = data_plane_pb2_grpc.DataPlaneStub(self.channel)  # type: ignore[no-untyped-call]

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ClientRequest):
            self.on_request(event)

    @property
    def asked(self) -> list[ClientRequest]:
        return [event for event in self.events if isinstance(event, ClientRequest)]

    @property
    def gone(self) -> list[int]:
        return [event.request_id for event in self.events if isinstance(event, ClientGone)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # the awaited code cannot signal the test
            await asyncio.sleep(0.002)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    reserved = ReservedPorts(1)
    stage = Stage(reserved.ports[0])
    await stage.server.start()
    yield stage
    await stage.channel.close()
    stage.requests.close()
    await stage.server.stop(0)
    reserved.close()


async def test_a_unary_request_with_too_many_items_is_refused_before_it_holds_the_node_up(stage: Stage) -> None:
    many = data_plane_pb2.MetadataRequest(topics=["x"] * 10_001)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stage.stub.Metadata(many, timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "topics has 10001 items" in (refused.value.details() or "")
    assert stage.asked == []


def a_fetch(number: int) -> data_plane_pb2.FetchRequest:
    partition = data_plane_pb2.FetchPartition(topic_id=TOPIC, partition=0)
    return data_plane_pb2.FetchRequest(correlation_id=number, partitions=[partition])


def a_produce(number: int, acks: int = -1) -> data_plane_pb2.ProduceRequest:
    batches = [data_plane_pb2.PartitionBatch(topic_id=TOPIC, partition=p, batch=b"batch") for p in range(2)]
    return data_plane_pb2.ProduceRequest(correlation_id=number, acks=acks, batches=batches)


async def test_answers_come_in_the_order_in_which_they_are_ready(stage: Stage) -> None:
    call = stage.stub.Produce(timeout=LIMIT_S)
    for number in (1, 2, 3):
        await call.write(a_produce(number))
    await until(lambda: len(stage.asked) == 3)
    assert [one.message for one in stage.asked] == [a_produce(1), a_produce(2), a_produce(3)]
    for position in (2, 0, 1):
        response = data_plane_pb2.ProduceResponse(correlation_id=position + 1)
        stage.requests.deliver(Reply(stage.asked[position].request_id, response))
    await call.done_writing()
    assert [answer.correlation_id async for answer in call] == [3, 1, 2]
    assert await call.code() is grpc.StatusCode.OK
    assert stage.gone == []
    assert stage.meters.produce_requests == 3


async def test_a_request_without_acks_has_no_answer(stage: Stage) -> None:
    call = stage.stub.Produce(timeout=LIMIT_S)
    for number in range(2 * MAX_PRODUCES_PER_STREAM):
        await call.write(a_produce(number, acks=0))
    await call.done_writing()
    assert [answer async for answer in call] == []
    assert len(stage.asked) == 2 * MAX_PRODUCES_PER_STREAM


async def test_a_stream_is_read_no_further_than_its_bound_and_its_end_is_told(stage: Stage) -> None:
    call = stage.stub.Fetch(timeout=LIMIT_S)
    for number in range(10 * MAX_FETCHES_PER_STREAM):
        await call.write(a_fetch(number))
    await until(lambda: len(stage.asked) == MAX_FETCHES_PER_STREAM)
    stage.requests.deliver(Reply(stage.asked[0].request_id, data_plane_pb2.FetchResponse(correlation_id=0)))
    assert (await call.read()).correlation_id == 0
    await until(lambda: len(stage.asked) == MAX_FETCHES_PER_STREAM + 1)
    call.cancel()
    await until(lambda: len(stage.gone) == MAX_FETCHES_PER_STREAM)
    assert set(stage.gone) == {one.request_id for one in stage.asked[1:]}


async def test_a_stream_of_a_client_that_is_over_a_quota_is_read_one_request_at_a_time(stage: Stage) -> None:
    held: list[int] = []

    def hold(asked: ClientRequest) -> None:
        """Pauses the stream as the node does: the driver schedules its step for the next turn of the loop."""
        held.append(asked.stream)
        asyncio.get_running_loop().call_soon(stage.requests.pause_stream, StreamPause(asked.stream, is_paused=True))

    def of_stream() -> int:
        return len([each for each in stage.asked if each.stream == held[0]])

    stage.on_request = hold
    call = stage.stub.Produce(timeout=LIMIT_S)
    writer = asyncio.ensure_future(write_all(call, range(8)))
    await until(lambda: held)
    stage.on_request = lambda asked: hold(asked) if asked.stream == held[0] else None
    other = stage.stub.Produce(timeout=LIMIT_S)
    seen = 0
    while seen < 8:
        # Another stream shows that the node has read on.
        for number in range(5):
            await other.write(a_produce(number))
        await until(lambda: len(stage.asked) - of_stream() == 5)
        if seen:
            assert of_stream() == seen
        else:
            assert of_stream() <= 2, "the second was being read already when the first was looked at"
            stage.requests.deliver(Reply(stage.asked[0].request_id, data_plane_pb2.ProduceResponse(correlation_id=0)))
            assert (await call.read()).correlation_id == 0, "what is ready is answered all the same"
        stage.events[:] = [each for each in stage.events if isinstance(each, ClientRequest) and each.stream == held[0]]
        seen = of_stream() + 1
        stage.requests.pause_stream(StreamPause(held[0], is_paused=False))
        await until(lambda: of_stream() >= min(seen, 8))  # noqa: B023
    await writer
    stage.requests.pause_stream(StreamPause(12_345, is_paused=True))  # of one that is gone


async def write_all(call: grpc.aio.StreamStreamCall, numbers: range) -> None:  # type: ignore[type-arg]
    for number in numbers:
        await call.write(a_produce(number))


async def test_a_client_that_does_not_read_its_answers_is_not_read_from(stage: Stage) -> None:
    call = stage.stub.Fetch(timeout=LIMIT_S)
    answered = 0
    block = bytes(2 << 20)

    def answer_all() -> int:
        nonlocal answered
        while answered < len(stage.asked):
            result = data_plane_pb2.FetchResult(topic_id=TOPIC, entries=[block])
            response = data_plane_pb2.FetchResponse(correlation_id=answered, results=[result])
            stage.requests.deliver(Reply(stage.asked[answered].request_id, response))
            answered += 1
        return answered

    for number in range(3 * MAX_FETCHES_PER_STREAM):
        await call.write(a_fetch(number))
    # Some answers fit into the transport's own buffers; what cannot leave counts against the bound.
    await until(lambda: answer_all() >= MAX_FETCHES_PER_STREAM)
    for _ in range(20):
        # Calls of other clients are served, while this stream is read no further.
        with pytest.raises(grpc.aio.AioRpcError):
            await stage.stub.Metadata(data_plane_pb2.MetadataRequest(topics=["x"] * 10_001), timeout=LIMIT_S)
        assert answer_all() < 2 * MAX_FETCHES_PER_STREAM
    for number in range(3 * MAX_FETCHES_PER_STREAM):
        answer_all()
        assert (await call.read()).correlation_id == number
    call.cancel()


async def test_a_node_with_too_much_pending_says_so_for_each_batch(stage: Stage) -> None:
    stage.requests.submit(a_produce(0), MAX_PENDING_BYTES, lambda reply: None)
    produce, fetch = stage.stub.Produce(timeout=LIMIT_S), stage.stub.Fetch(timeout=LIMIT_S)
    await produce.write(a_produce(9))
    await fetch.write(a_fetch(8))
    produced, fetched = await produce.read(), await fetch.read()
    assert produced.correlation_id == 9
    assert fetched.correlation_id == 8
    for result in (*produced.results, *fetched.results):
        assert result.error.code == ErrorCode.SERVER_BUSY
        assert result.error.retriable
        assert result.error.definite
    assert len(produced.results) == 2
    assert len(stage.asked) == 1
    assert stage.meters.requests_refused == 2


async def test_a_node_that_stops_says_so_to_those_who_wait(stage: Stage) -> None:
    call = stage.stub.Fetch(timeout=LIMIT_S)
    await call.write(a_fetch(1))
    asking = asyncio.ensure_future(stage.stub.Metadata(data_plane_pb2.MetadataRequest()))
    await until(lambda: len(stage.asked) == 2)
    stage.requests.close()
    with pytest.raises(grpc.aio.AioRpcError) as streamed:
        await call.read()
    with pytest.raises(grpc.aio.AioRpcError) as single:
        await asking
    for caught in (streamed, single):
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "the node is stopping" in str(caught.value.details())


async def test_a_session_is_bound_to_its_stream_and_ends_with_it(stage: Stage) -> None:
    calls = [stage.stub.Fetch(timeout=LIMIT_S) for _ in range(3)]
    for number, call in enumerate(calls):
        request = a_fetch(1)
        request.session_epoch = 1 if number < 2 else 0
        await call.write(request)
    await until(lambda: len(stage.asked) == 3)
    streams = {one.stream for one in stage.asked}
    assert len(streams) == 3 and 0 not in streams
    follow_up = data_plane_pb2.FetchRequest(correlation_id=2, session_epoch=2)
    await calls[0].write(follow_up)
    await until(lambda: len(stage.asked) == 4)
    for call in calls:
        call.cancel()
    await until(lambda: len(stage.gone) == 4)
    in_session = {one.stream for one in stage.asked if one.message.session_epoch == 1}  # type: ignore[attr-defined]
    await until(lambda: {event.stream for event in stage.events if isinstance(event, StreamClosed)} == in_session)
    assert stage.asked[3].stream in in_session
    closed = [number for number, event in enumerate(stage.events) if isinstance(event, StreamClosed)]
    gone = [number for number, event in enumerate(stage.events) if isinstance(event, ClientGone)]
    assert min(closed) > min(gone)


class Broken(Exception):
    """A stream breaks off."""


class BrokenStream:
    """A stream that ends as specified."""

    def __init__(self, end: BaseException | None) -> None:
        self.context = self
        self._end = end
        self.served = False

    async def serve(self, take: object) -> None:
        self.served = True
        if self._end is not None:
            raise self._end

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object = ()) -> None:
        raise Broken(details)

    async def dismiss_slow_reader(self) -> None:
        """Does nothing: it is not a slow reader."""


@pytest.mark.parametrize("end", [None, Broken(), asyncio.CancelledError()], ids=["done", "broken", "cancelled"])
async def test_streams_that_end_in_any_way_are_given_back(end: BaseException | None) -> None:
    streams = OpenStreams(2)
    for _ in range(5):
        stream = BrokenStream(end)
        with contextlib.suppress(Broken, asyncio.CancelledError):
            await streams.serve(stream, None)  # type: ignore[arg-type]
        assert stream.served, "the limit of streams is used up"


async def test_no_more_streams_are_open_than_there_may_be() -> None:
    streams, held = OpenStreams(1), asyncio.Event()

    class Held(BrokenStream):
        async def serve(self, take: object) -> None:
            await held.wait()

    first = asyncio.ensure_future(streams.serve(Held(None), None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    with pytest.raises(Broken, match="1 streams are open"):
        await streams.serve(BrokenStream(None), None)  # type: ignore[arg-type]
    held.set()
    await first
