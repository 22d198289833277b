"""Requests on their way to the node and replies on their way back, without a network."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientGone, ClientRequest, Event, Reply, StreamClosed
from quorumlog.server.transport.caller_identity import MAX_CLIENT_ID_LENGTH, origin_of
from quorumlog.server.transport.clients import client_requests, unary_calls
from quorumlog.server.transport.clients.client_requests import MAX_PENDING_BYTES, ClientRequests, NodeStoppingError
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.clients.request_stream import RequestStream
from quorumlog.server.transport.clients.unary_calls import unary_handler
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.server.transport.supervision import Supervisor
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ANY = data_plane_pb2.MetadataRequest()
ANSWER = data_plane_pb2.MetadataResponse(cluster_id="c")
TOPIC = b"t" * 16


class Ended(Exception):
    """A call was ended with a status."""


class Call:
    """The context that gRPC passes with a call."""

    def __init__(self, *messages: bytes, remaining_s: float | None = None) -> None:
        self._messages = list(messages)
        self._remaining_s = remaining_s
        self.written: list[bytes] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_read = asyncio.Event()
        self.code, self.said, self.error_info = 0, "", error_details_pb2.ErrorInfo()

    def time_remaining(self) -> float | None:
        return self._remaining_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def read(self) -> bytes | object:
        if self._messages:
            return self._messages.pop(0)
        self.is_read.set()
        return object()

    async def write(self, data: bytes) -> None:
        await self.may_write.wait()
        self.written.append(data)

    async def abort(self, code: Any, details: str, trailing: Any = ()) -> None:
        self.code, self.said = code.value[0], details
        for key, value in trailing:
            if key == "grpc-status-details-bin":
                (detail,) = status_pb2.Status.FromString(value).details
                detail.Unpack(self.error_info)
        raise Ended

    @property
    def unread(self) -> int:
        return len(self._messages)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def requests(events: list[Event]) -> ClientRequests:
    return ClientRequests(events.append)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# -- requests -------------------------------------------------------------------------------------------------------


async def test_what_a_request_takes_is_given_back_once_however_it_ends(requests: ClientRequests) -> None:
    def full() -> bool:
        return not requests.has_room_for(1)

    for _ in range(2):
        number = requests.submit(ANY, MAX_PENDING_BYTES, lambda reply: None)
        assert full()
        requests.deliver(Reply(number, ANSWER))
        requests.deliver(Reply(number, ANSWER))
        requests.abandon(number)
        assert not full()
        number = requests.submit(ANY, MAX_PENDING_BYTES, lambda reply: None)
        requests.abandon(number)
        requests.deliver(Reply(number, ANSWER))
        requests.abandon(number)
        assert not full()
        assert requests.has_room_for(MAX_PENDING_BYTES)
        assert not requests.has_room_for(MAX_PENDING_BYTES + 1)


async def test_requests_are_bounded_by_number_too(requests: ClientRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_requests, "MAX_PENDING_REQUESTS", 3)
    for _ in range(3):
        assert requests.has_room_for(0)
        requests.submit(ANY, 0, lambda reply: None)
    assert not requests.has_room_for(0)


async def test_the_node_is_told_of_those_who_went_before_their_reply_and_of_no_others(
    requests: ClientRequests, events: list[Event]
) -> None:
    answered, gone = (requests.submit(ANY, 1, lambda reply: None) for _ in range(2))
    requests.deliver(Reply(answered, ANSWER))
    requests.abandon(answered)
    requests.abandon(gone)
    requests.abandon(gone)
    assert [event for event in events if isinstance(event, ClientGone)] == [ClientGone(gone)]


@pytest.mark.parametrize("end", ["time", "cancelled", "stopping"])
async def test_a_call_that_nobody_waits_for_leaves_nothing_behind(
    requests: ClientRequests, events: list[Event], end: str
) -> None:
    asking = asyncio.ensure_future(requests.ask(ANY, MAX_PENDING_BYTES, 0.3 if end == "time" else 60))
    await turns()
    assert not requests.has_room_for(1)
    if end == "cancelled":
        asking.cancel()
    elif end == "stopping":
        requests.close()
    errors = {"time": TimeoutError, "cancelled": asyncio.CancelledError, "stopping": NodeStoppingError}
    with pytest.raises(errors[end]):
        await asking
    assert requests.has_room_for(MAX_PENDING_BYTES)
    assert isinstance(events[-1], ClientGone)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await turns()
    assert all(task.done() for task in others)


# -- unary calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout_ms", "remaining_s", "waits_s"),
    [
        (0, None, 30.5),
        (2_000, None, 2.5),
        (10_000_000, None, 600.5),
        (2_000, 1.0, 1.0),
        (2_000, 2.2, 2.2),
        (2_000, 100.0, 2.5),
        (0, 100.0, 30.5),
    ],
)
async def test_a_call_is_waited_for_as_long_as_it_says_and_never_past_its_deadline(
    timeout_ms: int, remaining_s: float | None, waits_s: float
) -> None:
    """A call waits slightly longer than its request's timeout, and never past its deadline: the node answers first, and
    its answer gives the reason."""
    request = data_plane_pb2.InitProducerIdRequest(timeout_ms=timeout_ms)
    waited = unary_calls._timeout_s(request, Call(remaining_s=remaining_s))  # type: ignore[arg-type]
    assert waited == pytest.approx(waits_s)


async def unary(requests: ClientRequests, data: bytes, meters: Meters, answer: Any = None) -> Call:
    """Returns a unary call that has ended, with its answer."""
    handler: Any = unary_handler(admin_pb2.ListReassignmentsRequest, requests, meters)
    call = Call(remaining_s=0.05 if answer is None else 60)
    asking = asyncio.ensure_future(handler.unary_unary(data, call))
    await turns()
    if answer is not None:
        requests.deliver(Reply(1, answer))
    with suppress(Ended):
        call.written.append(await asking)
    return call


async def test_an_answer_that_is_an_error_as_a_whole_is_a_status_with_its_name(requests: ClientRequests) -> None:
    problem = errors_pb2.Error(code=ErrorCode.NOT_CONTROLLER, message="ask another", retriable=True, definite=True)
    response = admin_pb2.ListReassignmentsResponse(error=problem)
    call = await unary(requests, b"", Meters(), response)
    assert (call.code, call.said, call.error_info.reason) == (14, "ask another", "NOT_CONTROLLER")
    assert call.written == []


async def test_no_answer_in_time_may_yet_have_an_effect(requests: ClientRequests) -> None:
    call = await unary(requests, b"", Meters())
    assert (call.code, call.error_info.reason) == (4, "REQUEST_TIMED_OUT")
    assert dict(call.error_info.metadata) == {"retriable": "true", "definite": "false"}


async def test_what_is_refused_for_want_of_room_has_had_no_effect_and_is_counted(
    requests: ClientRequests, events: list[Event]
) -> None:
    requests.submit(ANY, MAX_PENDING_BYTES + 1, lambda reply: None)
    meters = Meters()
    call = await unary(requests, b"", meters)
    assert (call.code, call.error_info.reason) == (8, "SERVER_BUSY")
    assert dict(call.error_info.metadata) == {"retriable": "true", "definite": "true"}
    assert (meters.requests_refused, meters.admin_requests) == (1, 1)
    assert len(events) == 1


async def test_bytes_that_are_no_message_end_the_call(requests: ClientRequests, events: list[Event]) -> None:
    call = await unary(requests, b"\xff\xff", Meters())
    assert (call.code, call.said) == (3, "2 bytes that are not a ListReassignmentsRequest")
    assert events == []


async def test_an_error_carries_the_leader_that_it_knows() -> None:
    problem = errors_pb2.Error(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, message="moved", retriable=True)
    problem.leader.node_id, problem.leader.leader_epoch = 3, 7
    call = Call()
    with pytest.raises(Ended):
        await refuse(call, problem)  # type: ignore[arg-type]
    assert call.code == 9
    reported = {"retriable": "true", "definite": "false", "leader": "3", "leader_epoch": "7"}
    assert dict(call.error_info.metadata) == reported


# -- streams --------------------------------------------------------------------------------------------------------


def a_fetch(number: int, **fields: Any) -> data_plane_pb2.FetchRequest:
    partition = data_plane_pb2.FetchPartition(topic_id=TOPIC, partition=0)
    return data_plane_pb2.FetchRequest(correlation_id=number, partitions=[partition], **fields)


async def test_a_stream_is_not_read_while_its_answers_cannot_be_written(
    requests: ClientRequests, events: list[Event]
) -> None:
    call = Call(*(b"%d" % number for number in range(5)))
    stream = RequestStream(requests, call, 2)  # type: ignore[arg-type]
    call.may_write.clear()

    async def take(data: bytes, stream: RequestStream) -> None:
        stream.submit(ANY, len(data))

    serving = asyncio.ensure_future(stream.serve(take))
    await turns()
    assert call.unread == 3
    for event in list(events):
        assert isinstance(event, ClientRequest)
        requests.deliver(Reply(event.request_id, ANSWER))
    await turns()
    assert call.unread == 3, "answered, but not written"
    call.may_write.set()
    await turns()
    assert call.unread == 1
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_stream_that_breaks_off_is_forgotten_its_requests_before_its_session(
    requests: ClientRequests, events: list[Event]
) -> None:
    for in_session in (True, False):
        events.clear()
        call = Call(b"1", b"2", b"3")
        stream = RequestStream(requests, call, 10)  # type: ignore[arg-type]

        async def take(data: bytes, stream: RequestStream, in_session: bool = in_session) -> None:
            stream.in_session = in_session
            stream.submit(ANY, MAX_PENDING_BYTES // 3)

        serving = asyncio.ensure_future(stream.serve(take))
        await turns()
        requested = [event for event in events if isinstance(event, ClientRequest)]
        requests.deliver(Reply(requested[1].request_id, ANSWER))
        await turns()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        gone = [ClientGone(requested[0].request_id), ClientGone(requested[2].request_id)]
        assert events[3:] == gone + ([StreamClosed(requested[0].stream)] if in_session else [])
        assert requests.has_room_for(MAX_PENDING_BYTES)


async def test_a_stream_ends_when_all_is_answered_and_not_before(requests: ClientRequests, events: list[Event]) -> None:
    call = Call(b"1")
    stream = RequestStream(requests, call, 10)  # type: ignore[arg-type]
    sizes: list[int] = []

    async def take(data: bytes, stream: RequestStream) -> None:
        stream.submit(ANY, 1, sizes.append)

    serving = asyncio.ensure_future(stream.serve(take))
    await asyncio.wait_for(call.is_read.wait(), 30)
    await turns()
    assert not serving.done()
    (requested,) = events
    assert isinstance(requested, ClientRequest)
    requests.deliver(Reply(requested.request_id, ANSWER))
    await asyncio.wait_for(serving, 30)
    assert call.written == [ANSWER.SerializeToString()]
    assert sizes == [len(call.written[0])]
    assert events == [requested]


async def served(
    requests: ClientRequests, kind: str, request: Any, limits: NodeLimits | None = None
) -> tuple[Call, Meters]:
    """Serves a stream of one request; returns the call with the immediate answers, and the meters."""
    meters = Meters()
    service = DataPlaneService(requests, limits or NodeLimits(), meters)
    call = Call(request.SerializeToString())
    serving = asyncio.ensure_future(getattr(service, kind)(None, call))
    await turns()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return call, meters


async def test_a_session_hears_that_the_node_is_busy_as_a_whole(requests: ClientRequests) -> None:
    """A session receives the error of a busy node as a whole: results by partition would count as a step of the
    session, which the node has not made."""
    requests.submit(ANY, MAX_PENDING_BYTES + 1, lambda reply: None)
    call, meters = await served(requests, "fetch", a_fetch(4, session_epoch=2))
    (answer,) = (data_plane_pb2.FetchResponse.FromString(data) for data in call.written)
    assert (answer.correlation_id, answer.error.code, len(answer.results)) == (4, ErrorCode.SERVER_BUSY, 0)
    call, meters = await served(requests, "fetch", a_fetch(5))
    (answer,) = (data_plane_pb2.FetchResponse.FromString(data) for data in call.written)
    assert not answer.HasField("error")
    assert [result.error.code for result in answer.results] == [ErrorCode.SERVER_BUSY]
    assert meters.requests_refused == 1


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_a_request_larger_than_the_node_takes_is_refused_for_good(
    requests: ClientRequests, events: list[Event], acks: int
) -> None:
    batch = data_plane_pb2.PartitionBatch(topic_id=TOPIC, partition=0, batch=bytes(100))
    request = data_plane_pb2.ProduceRequest(correlation_id=4, acks=acks, batches=[batch])
    call, meters = await served(requests, "produce", request, NodeLimits(request_bytes=100))
    answers = [data_plane_pb2.ProduceResponse.FromString(data) for data in call.written]
    codes = [[result.error.code for result in answer.results] for answer in answers]
    assert codes == ([] if acks == 0 else [[ErrorCode.RECORD_TOO_LARGE]])
    assert not any(result.error.retriable for answer in answers for result in answer.results)
    assert events == []
    _, meters = await served(requests, "produce", request, NodeLimits(request_bytes=request.ByteSize()))
    assert isinstance(events[0], ClientRequest)
    assert (meters.produce_requests, meters.produce_bytes) == (1, request.ByteSize())


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (data_plane_pb2.FetchRequest(), "no partition: send at least one"),
        (data_plane_pb2.FetchRequest(session_epoch=1), "no partition: send at least one"),
        (a_fetch(1, forgotten=[{"topic_id": TOPIC}, {"topic_id": TOPIC}]), "a partition twice"),
        (a_fetch(1, forgotten=[{"topic_id": TOPIC[1:]}]), "a topic id has 15 bytes"),
        (data_plane_pb2.FetchRequest(partitions=[{"topic_id": TOPIC, "partition": -1}]), "numbered from 0"),
        (data_plane_pb2.FetchRequest(partitions=[{"topic_id": TOPIC}] * 2), "a partition twice"),
    ],
)
async def test_a_fetch_of_a_shape_that_no_client_sends_ends_the_stream(
    requests: ClientRequests, events: list[Event], request_: data_plane_pb2.FetchRequest, said: str
) -> None:
    call, _ = await served(requests, "fetch", request_)
    assert call.code == 3
    assert said in call.said
    assert events == []


async def test_a_session_that_goes_on_may_name_nothing(requests: ClientRequests, events: list[Event]) -> None:
    await served(requests, "fetch", data_plane_pb2.FetchRequest(session_epoch=2))
    assert isinstance(events[0], ClientRequest)
    assert isinstance(events[-1], StreamClosed)


@pytest.mark.parametrize(
    ("agent", "peer", "client_id", "host"),
    [
        ("billing grpc-python/1.6", "ipv4:10.0.0.7:40000", "billing", "10.0.0.7"),
        (b"billing grpc-c/1", "ipv6:%5B::1%5D:40000", "billing", "::1"),
        ("a grpc b grpc-python/1", "ipv4:10.0.0.7:1", "a grpc b", "10.0.0.7"),
        ("x" * 300, "unix:", "x" * MAX_CLIENT_ID_LENGTH, ""),
        ("", "", "", ""),
    ],
)
def test_a_member_is_shown_by_what_it_calls_itself_and_where_it_is(
    agent: str | bytes, peer: str, client_id: str, host: str
) -> None:
    context: Any = SimpleNamespace(
        invocation_metadata=lambda: (("user-agent", agent),), peer=lambda: peer, auth_context=dict
    )
    assert (origin_of(context).client_id, origin_of(context).host) == (client_id, host)


# -- background tasks -----------------------------------------------------------------------------------------------


async def test_a_task_that_fails_is_told_by_name_and_one_that_was_stopped_is_not() -> None:
    failed: list[tuple[str, str]] = []
    supervisor = Supervisor(lambda name, error: failed.append((name, str(error))))
    ended: list[str] = []

    async def work(name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            if name == "bad":
                raise RuntimeError("broken")
        finally:
            ended.append(name)

    for name, seconds in (("bad", 0), ("good", 0), ("long", 60)):
        supervisor.start(work(name, seconds), name)
    await turns()
    await supervisor.stop()
    assert failed == [("bad", "broken")]
    assert sorted(ended) == ["bad", "good", "long"]
