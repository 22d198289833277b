"""The Kafka listener on real sockets: limits on connections, reading, responses, and the events that it reports."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.dynamic_settings import configured_values
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.kafka import listener as listener_module
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest
from quorumlog.server.kafka.codec.primitives import decode, encode
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.connection import KafkaConnectionLimits
from quorumlog.server.kafka.handlers.handler import LongWork, TooMuchWorkError
from quorumlog.server.kafka.listener import KafkaListener, KafkaListenerOptions
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import ClientGone, ClientRequest, EndedStream, Event, Reply, StreamClosed, StreamPause
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.batch import placed
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry

DEADLINE_S = 30.0
SIZE = struct.Struct(">i")
#: The first version of Fetch that names topics by their ids.
_FETCH = 13
TOPIC_ID = bytes(range(16))


class Lines:
    """A log that records its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    warning = info
    debugs = False

    def of(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.events if name == event]


@dataclass
class NodeImage:
    """A node, as far as the listener looks at it."""

    image: MetadataImage | None = field(default_factory=MetadataImage)

    def sees_topic(self, principal: str, name: str) -> bool:
        return True


class Door:
    """A listener with a node behind it that answers when the test requests it."""

    def __init__(self, **options: Any) -> None:
        self._ports = ReservedPorts(1)
        (self.port,) = self._ports.ports
        self.node = NodeImage()
        self.events: list[Event] = []
        self.requests = ClientRequests(self.events.append)
        self.log = Lines()
        self.meters = Meters()
        made = KafkaListenerOptions(f"127.0.0.1:{self.port}", 5, 5, False, 1, KafkaConnectionLimits())
        self.listener = KafkaListener(
            replace(made, **options), ImageView(self.node, 1), self.requests, self.log, self.meters
        )  # type: ignore[arg-type]
        self.task = asyncio.ensure_future(self.listener.run())

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.listener.stop()
        self._ports.close()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                assert not self.task.done() or self.task.cancelled(), self.task.exception()
                await asyncio.sleep(0.005)
        assert condition(), what

    async def connect(self) -> Socket:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    return Socket(*await asyncio.open_connection("127.0.0.1", self.port))
                except ConnectionRefusedError:
                    await asyncio.sleep(0.005)

    @property
    def asked(self) -> list[ClientRequest]:
        return [each for each in self.events if isinstance(each, ClientRequest)]

    def answer(self, request: ClientRequest) -> None:
        reply = data_plane_pb2.MetadataResponse(cluster_id="c" * 22, controller_id=1)
        self.requests.deliver(Reply(request.request_id, reply))


@dataclass
class Socket:
    """A client's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def ask(self, number: int = 1) -> None:
        """Sends a metadata request for no topic."""
        header = pack_request_header(RequestHead(3, 12, number), "somebody", flexible=True)
        content = b"".join((header, *encode(MetadataRequest([]), 12)))
        self.writer.write(SIZE.pack(len(content)) + content)

    def fetch(self, number: int, request: FetchRequest) -> None:
        """Sends a fetch."""
        header = pack_request_header(RequestHead(1, _FETCH, number), "somebody", flexible=True)
        content = b"".join((header, *encode(request, _FETCH)))
        self.writer.write(SIZE.pack(len(content)) + content)

    async def fetched(self, number: int) -> FetchResponse:
        """Returns the response to a fetch."""
        async with asyncio.timeout(DEADLINE_S):
            (size,) = SIZE.unpack(await self.reader.readexactly(4))
            content = await self.reader.readexactly(size)
        assert SIZE.unpack(content[:4]) == (number,)
        return decode(FetchResponse, content, _FETCH, at=5)

    async def answered(self) -> int:
        """Returns the number of the request that the next response is for."""
        async with asyncio.timeout(DEADLINE_S):
            (size,) = SIZE.unpack(await self.reader.readexactly(4))
            (number,) = SIZE.unpack((await self.reader.readexactly(size))[:4])
        return int(number)

    async def is_closed(self) -> bool:
        """True if the node closes the connection; false if it sends data."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    made = Door()
    yield made
    await made.close()


async def test_requests_go_to_the_node_with_who_asks_and_answers_come_back(door: Door) -> None:
    client = await door.connect()
    client.ask(7)
    await door.until(lambda: bool(door.asked), "the node is asked")
    (request,) = door.asked
    assert (request.client.client_id, request.client.host, request.client.listener.name) == (
        "somebody",
        "127.0.0.1",
        "KAFKA",
    )
    assert request.client.principal == "User:ANONYMOUS"
    door.answer(request)
    assert await client.answered() == 7
    assert (door.meters.kafka_requests, door.listener.connections) == (1, 1)


async def test_it_listens_once_the_cluster_is_at_the_feature_level() -> None:
    door = Door(feature_level=2)
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", door.port)
    assert door.node.image is not None
    door.node.image.feature_level = 2
    await door.connect()
    await door.close()


@pytest.mark.parametrize("limit", ["connections", "connections_per_ip"])
async def test_connections_beyond_a_limit_are_closed_and_make_room_when_others_go(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_TELL_AGAIN_S", 60.0)
    door = Door(**{limit: 2})
    served = [await door.connect(), await door.connect()]
    await door.until(lambda: door.listener.connections == 2, "both are taken")
    for _ in range(5):
        assert await (await door.connect()).is_closed()
    assert door.meters.kafka_connections_refused == 5
    assert len(door.log.of("kafka_connection_refused")) == 1, "a flood is one line"
    served[0].writer.close()
    await door.until(lambda: door.listener.connections == 1, "there is room")
    another = await door.connect()
    another.ask()
    await door.until(lambda: bool(door.asked), "it is served")
    await door.close()


async def test_the_limit_of_an_address_changes() -> None:
    """Open connections stay; a lower limit counts for new ones."""
    door = Door(connections_per_ip=2)
    served = [await door.connect(), await door.connect()]
    await door.until(lambda: door.listener.connections == 2, "both are taken")
    values = configured_values(NodeOptions(1, "", {}))
    door.listener.follow_settings(replace(values, kafka_connections_per_ip=3))
    served.append(await door.connect())
    await door.until(lambda: door.listener.connections == 3, "a third is taken")
    door.listener.follow_settings(replace(values, kafka_connections_per_ip=1))
    assert await (await door.connect()).is_closed()
    assert door.listener.connections == 3
    served[0].ask()
    await door.until(lambda: bool(door.asked), "an open one is served")
    await door.close()


async def test_who_went_away_is_forgotten_and_the_node_is_told(door: Door) -> None:
    client = await door.connect()
    client.ask()
    await door.until(lambda: bool(door.asked), "the node is asked")
    client.writer.close()
    await door.until(lambda: any(isinstance(each, StreamClosed) for each in door.events), "its stream is closed")
    assert ClientGone(door.asked[0].request_id) in door.events
    assert door.listener.connections == 0
    door.answer(door.asked[0])


async def test_a_client_over_its_quota_is_asked_no_further_until_it_may(door: Door) -> None:
    client = await door.connect()
    client.ask(1)
    await door.until(lambda: len(door.asked) == 1, "the node is asked")
    stream = door.asked[0].stream
    door.requests.pause_stream(StreamPause(stream, is_paused=True))
    client.ask(2)
    await asyncio.sleep(0.05)
    assert len(door.asked) == 1
    door.requests.pause_stream(StreamPause(stream, is_paused=False))
    await door.until(lambda: len(door.asked) == 2, "it continues")


async def test_a_client_that_the_node_lets_in_no_more_is_closed(door: Door) -> None:
    client = await door.connect()
    client.ask()
    await door.until(lambda: bool(door.asked), "the node is asked")
    door.requests.end_stream(EndedStream(door.asked[0].stream, error(ErrorCode.SASL_SESSION_EXPIRED, "over")))
    assert await client.is_closed()


async def test_requests_wait_for_room_and_go_on_by_themselves(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    is_full = True
    monkeypatch.setattr(door.requests, "has_room_for", lambda size_bytes: not is_full)
    monkeypatch.setattr(listener_module, "_LOOK_AT_SILENCE_S", 0.1)
    client = await door.connect()
    client.ask()
    await door.until(lambda: door.listener.connections == 1, "it is connected")
    await asyncio.sleep(0.05)
    assert not door.asked
    is_full = False
    await door.until(lambda: bool(door.asked), "the node is asked")


class Counting:
    """A transport, and how often it is written to."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.writes = 0

    def writelines(self, parts: list[bytes]) -> None:
        self.writes += 1
        self._transport.writelines(parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_whoever_asks_a_thousand_times_at_once_is_answered_in_turn_with_all_others(door: Door) -> None:
    """A thousand requests in one read are answered in parts: all at once would block others for a third of a second."""
    client = await door.connect()
    await door.until(lambda: door.listener.connections == 1, "it is taken")
    (served,) = door.listener._open
    counting = served._transport = Counting(served._transport)  # type: ignore[assignment]
    header = pack_request_header(RequestHead(ApiVersionsRequest.API_KEY, 3, 5), "somebody", flexible=True)
    content = b"".join((header, *encode(ApiVersionsRequest("a", "1"), 3)))
    served.data_received((SIZE.pack(len(content)) + content) * 1_000)
    assert counting.writes == 1, "others have their turn"
    for _ in range(1_000):
        assert await client.answered() == 5
    assert counting.writes == 10


async def test_requests_that_never_become_whole_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Incomplete requests of all connections have a shared limit: the connection with the oldest one is closed."""
    monkeypatch.setattr(listener_module, "MOST_HELD_BYTES", 1)
    door = Door(connections=10, connections_per_ip=10, limits=KafkaConnectionLimits(request_bytes=1 << 20))
    slow = []
    for _ in range(5):
        client = await door.connect()
        client.writer.write(SIZE.pack(1 << 20) + bytes(900 << 10))
        await client.writer.drain()
        slow.append(client)
    assert await slow[0].is_closed()
    await door.until(lambda: door.listener.connections == 4, "one has made way")
    (line,) = door.log.of("kafka_connection_refused")
    assert line == {
        "address": "127.0.0.1",
        "reason": "its incomplete request is the oldest, and the memory budget is exhausted",
    }
    assert door.meters.kafka_connections_ended == 1
    honest = await door.connect()
    honest.ask(3)
    await door.until(lambda: len(door.asked) == 1, "others are served")
    for each in slow:
        each.writer.close()
    await door.until(lambda: door.listener.connections == 1, "all have gone")
    assert door.listener._unfinished.size_bytes == 0
    await door.close()


async def test_answers_that_nobody_reads_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread responses of all clients have a shared limit: each may leave some thirty megabytes."""
    monkeypatch.setattr(listener_module, "MOST_HELD_BYTES", 1)
    limits = KafkaConnectionLimits(unsent_bytes=6 << 20)
    door = Door(connections=10, connections_per_ip=10, limits=limits)
    clients = [await door.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.writer.transport.pause_reading()
        client.ask(number)
        await door.until(lambda: len(door.asked) == number + 1, "the node is asked")  # noqa: B023
        # The kernel buffers some of it.
        large = data_plane_pb2.MetadataResponse(cluster_id="c", controller_id=1)
        large.topics.extend(data_plane_pb2.TopicMetadata(name="x" * 30_000) for _ in range(400))
        door.requests.deliver(Reply(door.asked[number].request_id, large))
        await asyncio.sleep(0)
    await door.until(lambda: door.listener.connections < 6, "one has made way")
    lines = door.log.of("kafka_connection_refused")
    assert "its responses are unread for the longest" in str(lines[0]["reason"])
    last = clients[-1]
    last.writer.transport.resume_reading()
    assert await last.answered() == 5, "the newest is served"
    last.ask(77)
    await door.until(lambda: len(door.asked) == 7, "who has read is asked on")
    for each in clients:
        each.writer.transport.abort()
    await door.until(lambda: door.listener.connections == 0, "all have gone")
    assert door.listener._unread.size_bytes == 0
    await door.close()


async def test_answers_that_wait_for_one_before_them_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses that wait for an earlier one are limited in bytes: a client may send a slow request before one with a
    large response."""
    monkeypatch.setattr(listener_module, "MOST_HELD_BYTES", 1)
    door = Door(connections=10, connections_per_ip=10, limits=KafkaConnectionLimits(unsent_bytes=1 << 20))
    clients = [await door.connect() for _ in range(4)]
    large = data_plane_pb2.MetadataResponse(cluster_id="c", controller_id=1)
    large.topics.extend(data_plane_pb2.TopicMetadata(name="x" * 30_000) for _ in range(36))
    for number, client in enumerate(clients):
        client.ask(1)
        client.ask(2)
        await door.until(lambda: len(door.asked) == 2 * number + 2, "the node is asked")  # noqa: B023
        door.requests.deliver(Reply(door.asked[-1].request_id, large))
    assert await clients[0].is_closed()
    await door.until(lambda: door.listener.connections == 3, "one has made way")
    (line,) = door.log.of("kafka_connection_refused")
    assert "its responses are unread" in str(line["reason"])
    for waited_for in door.asked[::2]:
        door.answer(waited_for)
    assert [await clients[-1].answered(), await clients[-1].answered()] == [1, 2], "the others continue"
    for each in clients:
        each.writer.transport.abort()
    await door.until(lambda: door.listener.connections == 0, "all have gone")
    assert door.listener._unread.size_bytes == 0
    await door.close()


async def test_batches_that_wait_to_be_looked_at_fill_no_memory(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that wait for the translating thread are limited; a larger batch is accepted if no other one waits."""
    monkeypatch.setattr(listener_module, "MOST_WORK_BYTES", 100)
    may_end, outcomes = threading.Event(), list[Exception | None]()

    def take(size_bytes: int) -> None:
        work = LongWork(lambda: may_end.wait(DEADLINE_S), size_bytes=size_bytes)
        door.listener.work(work, "127.0.0.1", lambda _, problem: outcomes.append(problem))

    take(150)
    take(1)
    await door.until(lambda: len(outcomes) == 1, "it is not taken")
    assert isinstance(outcomes[0], TooMuchWorkError)
    may_end.set()
    await door.until(lambda: len(outcomes) == 2, "a single larger request is accepted")
    take(60)
    take(40)
    await door.until(lambda: len(outcomes) == 4, "there is room again")
    assert outcomes[1:] == [None] * 3


async def test_silence_ends_a_connection_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_LOOK_AT_SILENCE_S", 0.02)
    door = Door(limits=KafkaConnectionLimits(silence_us=50_000))
    client = await door.connect()
    assert await client.is_closed()
    assert door.meters.kafka_connections_ended == 0
    await door.close()


async def test_bytes_that_are_no_request_are_one_line_and_the_end(door: Door) -> None:
    client = await door.connect()
    client.writer.write(SIZE.pack(-1))
    assert await client.is_closed()
    (line,) = door.log.of("kafka_connection_ended")
    assert (line["fault"], line["address"]) == ("oversized", "127.0.0.1")
    assert door.meters.kafka_connections_ended == 1


async def test_a_request_that_meets_a_fault_of_the_nodes_own_ends_its_connection_alone(door: Door) -> None:
    client, other = await door.connect(), await door.connect()
    client.ask()
    await door.until(lambda: len(door.asked) == 1, "the node is asked")
    door.requests.deliver(Reply(door.asked[0].request_id, data_plane_pb2.FetchResponse()))
    assert await client.is_closed()
    (line,) = door.log.of("kafka_connection_ended")
    assert line["fault"] == "failed"
    other.ask(5)
    await door.until(lambda: len(door.asked) == 2, "the other is served")
    door.answer(door.asked[1])
    assert await other.answered() == 5


async def test_stored_batches_are_served_unchanged(door: Door) -> None:
    """The node delivers batches beside its reply, and the client gets each as it was produced."""
    client = await door.connect()
    wanted = [FetchPartition(number, -1, 0, partition_max_bytes=1 << 20) for number in range(2)]
    client.fetch(5, FetchRequest(min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)]))
    await door.until(lambda: bool(door.asked), "the node is asked")
    told = data_plane_pb2.FetchResponse()
    for number in range(2):
        told.results.add(topic_id=TOPIC_ID, partition=number, high_watermark=4)
    batches = [kafka_batch([(None, b"%d" % number, 7, [])]) for number in range(3)]
    entries = [stored_kafka_entry(batch, number, term=6) for number, batch in enumerate(batches)]
    door.requests.deliver(Reply(door.asked[0].request_id, told, [entries, []]))
    (topic,) = (await client.fetched(5)).responses
    first, second = topic.partitions
    served = [b"".join(placed(batch, number, 6)) for number, batch in enumerate(batches)]
    assert bytes(first.records) == b"".join(served)
    assert (first.high_watermark, second.high_watermark, bytes(second.records)) == (4, 4, b"")
    assert door.meters.fetch_bytes == told.ByteSize() + sum(map(len, entries))


async def test_when_it_stops_every_connection_ends(door: Door) -> None:
    client = await door.connect()
    client.ask()
    await door.until(lambda: bool(door.asked), "the node is asked")
    door.listener.stop()
    assert await client.is_closed()


async def test_what_comes_after_the_end_of_a_certificate_is_not_looked_at(door: Door) -> None:
    client = await door.connect()
    client.ask(1)
    await door.until(lambda: len(door.asked) == 1, "the node is asked")
    (served,) = door.listener._open
    served._ends_s = 0.0
    client.ask(2)
    assert await client.is_closed()
    assert len(door.asked) == 1
