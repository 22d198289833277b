"""Links between nodes over real loopback connections: up, broken once and at once, refused, and up again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc.aio
import pytest
from recorded_log import RecordedLog

from quorumlog.local.ports import ReservedPorts
from quorumlog.raft.types import (
    AppendRequest,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    Heartbeat,
)
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.step.events import (
    AuditLine,
    ClusterStanding,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentified,
    PeerIdentity,
    SnapshotChunk,
    SnapshotOffer,
    Stream,
)
from quorumlog.server.transport.grpc_server import GrpcServer
from quorumlog.server.transport.peers import peer_links
from quorumlog.server.transport.peers.peer_codec import decode_frame, encode_frame, encode_hello, parse_frame
from quorumlog.server.transport.peers.peer_links import PeerLinks
from quorumlog.server.transport.peers.peer_service import PeerService
from quorumlog.server.transport.peers.peer_session import (
    GENERATION_KEY,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_FRAMES,
    FrameQueue,
)
from quorumlog.server.transport.peers.peer_sockets import PeerSocketListener
from quorumlog.server.transport.peers.refused_peers import RefusedPeers
from quorumlog.server.transport.supervision import Supervisor
from quorumlog.wire.entry import EnvelopeKind, seal

Wanted = TypeVar("Wanted")


class End:
    """One end: links and the server that peers connect to, as in a node process.

    Arguments:
        sockets: it accepts sockets for frames; a node of an older version does not.
    """

    def __init__(self, node_id: int, port: int, boot_id: int = 1, *, sockets: bool = True) -> None:
        self.sockets = PeerSocketListener(("127.0.0.1", 0), None) if sockets else None
        self.address = f"127.0.0.1:{port}"
        self.identity = PeerIdentity("cluster", node_id, f"directory-{node_id}", boot_id, self.address)
        self.events: list[Event] = []
        self.log = RecordedLog()
        self.audited: list[AuditLine] = []
        self.failures: list[BaseException] = []
        self.clusters: list[tuple[str, str]] = []
        self.refusal: str | None = None
        self._supervisor = Supervisor(lambda name, error: self.failures.append(error))
        self.links = PeerLinks(
            identity=lambda: self.identity,
            accepts=lambda identity: self.refusal,
            emit=self.events.append,
            supervisor=self._supervisor,
            log=self.log,
            meters=Meters(),
            on_cluster=lambda address, cluster: self.clusters.append((address, cluster)),
        )
        refused = RefusedPeers(self.log, self.audited.append)
        self.service = PeerService(self, self.links, refused, sockets=self.sockets)
        self._server = GrpcServer(self.address, (self.service.handlers(),))

    def standing(self, asker: int) -> ClusterStanding:
        return ClusterStanding(((1, "directory-1", "127.0.0.1:1"),), f"directory-{asker}", 7)

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        return self.refusal

    async def start(self) -> End:
        if self.sockets is not None:
            await self.sockets.start()
            self._supervisor.start(self.sockets.run(), "sockets")
        await self._server.start()
        return self

    async def stop(self) -> None:
        await self._supervisor.stop()
        self.links.close()
        if self.sockets is not None:
            self.sockets.close()
        await self._server.stop(0)
        assert self.failures == []

    def of(self, kind: type[Wanted]) -> list[Wanted]:
        return [event for event in self.events if isinstance(event, kind)]

    def said(self, event: str) -> list[dict[str, object]]:
        return [fields for _, name, fields in self.log.lines if name == event]


async def until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # the awaited code cannot signal the test
            await asyncio.sleep(0.005)


@pytest.fixture(params=[True, False], ids=["socket", "stream"])
async def ends(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[tuple[End, End]]:
    monkeypatch.setattr(peer_links, "IDENTIFY_TIMEOUT_S", 30.0)  # A node retries; here one attempt is enough.
    reserved = ReservedPorts(2)
    first, second = [End(node, port, sockets=request.param) for node, port in enumerate(reserved.ports, start=1)]
    await first.start()
    await second.start()
    yield first, second
    await first.stop()
    await second.stop()
    reserved.close()


def join(first: End, second: End) -> None:
    first.links.connect({2: second.address})
    second.links.connect({1: first.address})


async def joined(first: End, second: End) -> None:
    join(first, second)
    await until(lambda: first.of(PeerConnected) and second.of(PeerConnected))


def a_heartbeat(stream: Stream, round_: int = 5, sequence: int = 0) -> PeerFrame:
    return PeerFrame(stream, sequence, messages=[(3, Heartbeat(1, 2, 1, 0, round_))])


async def test_frames_of_every_stream_arrive_in_order(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    assert first.of(PeerConnected) == [PeerConnected(2, second.identity)]
    sent: dict[Stream, list[PeerFrame]] = {}
    for stream in Stream:
        sent[stream] = [a_heartbeat(stream, n, n if stream is Stream.DATA else 0) for n in range(1, 50)]
        for frame in sent[stream]:
            first.links.send(2, frame)
    messages = {stream: [each for frame in frames for each in frame.messages] for stream, frames in sent.items()}

    def arrived(stream: Stream) -> list[PeerFrame]:
        return [event.frame for event in second.of(FrameReceived) if event.frame.stream is stream]

    # Frames of some streams may arrive as one.
    await until(lambda: sum(len(frame.messages) for stream in Stream for frame in arrived(stream)) == 6 * 49)
    for stream in Stream:
        assert [each for frame in arrived(stream) for each in frame.messages] == messages[stream]
    for stream in (Stream.DATA, Stream.SNAPSHOT, Stream.SNAPSHOT_ANSWER):
        assert arrived(stream) == sent[stream]
    assert {event.peer for event in second.of(FrameReceived)} == {1}


async def test_a_node_that_does_not_listen_announces_no_socket() -> None:
    """A peer that reconnects to a node that is stopping meets a closed listener."""
    reserved = ReservedPorts(2)
    first, second = [End(node, port) for node, port in enumerate(reserved.ports, start=1)]
    closed, second.sockets = second.sockets, None
    assert closed is not None and not closed.is_listening
    await first.start()
    await second.start()
    await joined(first, second)
    first.links.send(2, a_heartbeat(Stream.DATA, sequence=1))
    await until(lambda: second.of(FrameReceived))
    await first.stop()
    await second.stop()
    reserved.close()


async def test_a_peer_that_dies_is_news_at_once_told_once_and_taken_up_again(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    await second.stop()
    await until(lambda: first.of(PeerDisconnected), timeout_s=3)  # Keepalive alone would take longer.
    reborn = await End(2, int(second.address.rpartition(":")[2]), boot_id=2).start()
    reborn.links.connect({1: first.address})
    await until(lambda: len(first.of(PeerConnected)) == 2 and reborn.of(PeerConnected))
    assert first.of(PeerConnected)[1].identity.boot_id == 2
    kinds = [type(e) for e in first.events if isinstance(e, PeerConnected | PeerDisconnected)]
    assert kinds == [PeerConnected, PeerDisconnected, PeerConnected]
    assert len(first.said("link_broken")) == 1
    reborn.links.send(1, a_heartbeat(Stream.DATA, sequence=1))
    await until(lambda: first.of(FrameReceived))
    await reborn.stop()


async def test_a_node_at_the_address_of_a_lost_one_keeps_its_links(ends: tuple[End, End]) -> None:
    """A node at the address of a lost one keeps its links: the lost one stays registered at that address."""
    first, second = ends
    first.links.connect({2: second.address, 3: second.address})
    second.links.connect({1: first.address})
    await until(lambda: first.of(PeerConnected) and second.of(PeerConnected))
    await until(lambda: first.links._peers[3].generation > first.links._peers[2].generation + 3)
    await carries_both_ways(first, second)
    assert [connections(end) for end in ends] == [1, 1]
    assert [end.said("link_broken") for end in ends] == [[], []]
    [unreachable] = [fields for fields in first.said("peer_unreachable") if fields["peer"] == 3]
    assert unreachable["reason"] == f"node 2 answers at {second.address}, expected node 3"


async def test_who_never_was_a_peer_is_not_told_of_as_a_broken_link(ends: tuple[End, End]) -> None:
    """A link that never was established is not logged as broken: a node without its data is refused repeatedly, and the
    refusal is logged already."""
    first, second = ends
    first.refusal = "node 2 is known with another data directory"
    first.links.connect({2: second.address})
    await until(lambda: first.links._peers[2].generation > 3)
    await until(lambda: second.of(PeerDisconnected))
    assert second.said("link_broken") == []
    assert [fields["reason"] for fields in first.said("peer_unreachable")] == [f"refused: {first.refusal}"]


def connections(end: End) -> int:
    return len(end.of(PeerConnected))


async def carries_both_ways(first: End, second: End) -> None:
    """Waits until frames on our streams and answers on the peer's arrive, at both ends."""
    marks = [len(end.events) for end in (first, second)]

    def arrived() -> bool:
        for end, peer in ((first, 2), (second, 1)):
            end.links.send(peer, a_heartbeat(Stream.CONTROL))
            end.links.send(peer, a_heartbeat(Stream.CONTROL_ANSWER))
        fresh = [end.events[mark:] for end, mark in zip((first, second), marks, strict=True)]
        streams = [{event.frame.stream for event in events if isinstance(event, FrameReceived)} for events in fresh]
        return streams == [{Stream.CONTROL, Stream.CONTROL_ANSWER}] * 2

    await until(arrived)


async def test_both_ends_settle_after_breaking_at_the_same_moment(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    for round_ in range(2, 12):
        for one, peer in ((first, 2), (second, 1)):
            one.links._break(one.links._peer(peer), "the test says so")
        await until(partial(lambda wanted: min(connections(first), connections(second)) >= wanted, round_))
        await carries_both_ways(first, second)
    for one in (first, second):
        reported = [type(e) for e in one.events if isinstance(e, PeerConnected | PeerDisconnected)]
        assert reported[::2] == [PeerConnected] * len(reported[::2])
        assert reported[1::2] == [PeerDisconnected] * len(reported[1::2])


async def test_a_refused_peer_hears_why_and_is_logged_once(ends: tuple[End, End]) -> None:
    first, second = ends
    second.refusal = "you belong to another cluster"
    first.links.connect({2: second.address})
    await until(lambda: first.said("peer_unreachable"))
    await until(lambda: first.links._peer(2).generation > 2)
    assert [line["reason"] for line in first.said("peer_unreachable")] == ["you belong to another cluster"]
    assert len(second.said("peer_refused")) == 1
    assert [line.fields["reason"] for line in second.audited] == ["you belong to another cluster"]
    assert first.of(PeerConnected) == []
    assert (second.address, "cluster") in first.clusters


@pytest.mark.parametrize("refused", [False, True])
async def test_what_a_stranger_claims_to_be_tells_of_no_cluster(ends: tuple[End, End], refused: bool) -> None:
    """A claim of an incoming peer does not prove that a cluster exists: only the node at a configured address is
    believed."""
    first, _ = ends
    first.refusal = "you belong to another cluster" if refused else None
    channel = grpc.aio.insecure_channel(first.address)
    for controller in (2, 3):
        call = channel.stream_stream("/quorumlog.v1.Peer/Control", bytes, bytes)(
            None, metadata=((GENERATION_KEY, "1"),)
        )
        await call.write(encode_hello(PeerIdentity("theirs", controller, "directory", 1, "127.0.0.1:9")))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        assert call.done() is refused
        call.cancel()
    await channel.close()
    assert first.clusters == []


@pytest.mark.parametrize("refused", [False, True])
async def test_strangers_who_came_and_went_leave_nothing_behind(ends: tuple[End, End], refused: bool) -> None:
    """Unknown peers leave no state behind, although each has a node id of its own and a refusal of any length."""
    first, second = ends
    await joined(first, second)
    strangers = range(10, 115) if refused else range(10, 20)
    channel = grpc.aio.insecure_channel(first.address)
    for stranger in strangers:
        first.refusal = f"{stranger} is not known" + "!" * 10_000 if refused else None
        call = channel.stream_stream("/quorumlog.v1.Peer/Control", bytes, bytes)(
            None, metadata=((GENERATION_KEY, "1"),)
        )
        await call.write(encode_hello(PeerIdentity("cluster", stranger, "directory", 1, "127.0.0.1:9")))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        call.cancel()
    first.refusal = None
    await channel.close()
    await until(lambda: first.links._peers.keys() == {2})
    assert len(first.service._refused) == (100 if refused else 0)
    said = first.said("peer_refused")
    assert all(len(str(line["reason"])) <= 500 for line in said)
    assert len(said) == len(first.audited) == (100 if refused else 0), "those who come in masses are counted"
    await carries_both_ways(first, second)


async def test_a_cluster_is_told_of_by_the_address_that_was_dialled(ends: tuple[End, End]) -> None:
    first, second = ends
    second.identity = replace(second.identity, address="127.0.0.1:9", cluster_id="theirs")
    first.links.identify(second.address)
    await until(lambda: first.clusters)
    assert first.clusters == [(second.address, "theirs")]


async def test_an_unexpected_node_at_an_address_is_not_taken_for_the_peer(ends: tuple[End, End]) -> None:
    first, second = ends
    first.links.connect({3: second.address})
    await until(lambda: first.said("peer_unreachable"))
    assert f"node 2 answers at {second.address}, expected node 3" in str(first.said("peer_unreachable")[0])
    assert first.of(PeerConnected) == []


async def test_a_corrupt_entry_breaks_the_link_and_never_reaches_the_node(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    sealed = bytearray(seal(3, 1, 1, 0, EnvelopeKind.COMMAND, b"body"))
    sealed[-1] ^= 1
    entry = Entry(1, 1, EntryKind.COMMAND, 0, bytes(sealed))
    first.links.send(2, PeerFrame(Stream.DATA, 1, messages=[(3, AppendRequest(1, 2, 1, 0, 0, 0, [entry]))]))
    await until(lambda: second.of(PeerDisconnected) and first.of(PeerDisconnected))
    assert second.of(FrameReceived) == []
    (line,) = second.said("link_broken")
    assert "invalid frame: checksum of entry 1 in group 3" in str(line["reason"])
    await until(lambda: len(first.of(PeerConnected)) == 2)


async def test_a_process_that_listens_but_never_answers_is_given_up_in_time(ends: tuple[End, End]) -> None:
    first, _ = ends
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        first.links.connect({9: f"127.0.0.1:{silent.getsockname()[1]}"})
        await until(lambda: first.said("peer_unreachable"))
    first.links.connect({})


async def test_a_peer_that_cancels_every_call_is_tried_again_and_again(ends: tuple[End, End]) -> None:
    first, _ = ends

    async def cancel(_unused: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.CANCELLED, "")

    methods = {name: grpc.stream_stream_rpc_method_handler(cancel) for name in ("Control", "Data", "Snapshot")}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("quorumlog.v1.Peer", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    first.links.connect({9: f"127.0.0.1:{port}"})
    await until(lambda: first.links._peer(9).generation > 3)
    first.links.connect({})
    await server.stop(0)


async def test_a_peer_no_longer_wanted_is_let_go(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    first.links.connect({})
    await until(lambda: second.of(PeerDisconnected))
    assert len(first.of(PeerDisconnected)) == 1


async def test_an_older_attempt_does_not_replace_a_newer_one(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    channel = grpc.aio.insecure_channel(second.address)
    for generation, accepted in (("0", False), ("99", True)):
        call = channel.stream_stream("/quorumlog.v1.Peer/Control", bytes, bytes)(
            None, metadata=((GENERATION_KEY, generation),)
        )
        await call.write(encode_hello(first.identity))
        assert isinstance(await call.read(), bytes)
        if accepted:
            await until(lambda: second.of(PeerDisconnected))
        else:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
            assert await call.code() is grpc.StatusCode.ABORTED
            assert second.of(PeerDisconnected) == []
        call.cancel()
    await channel.close()


async def test_a_peer_that_restarts_behind_a_half_open_link_is_let_in(ends: tuple[End, End]) -> None:
    first, second = ends
    channel = grpc.aio.insecure_channel(second.address)
    # The streams of the former process are never closed: its machine lost power. Attempts are counted from 1 again.
    for boot_id, generation in ((1, "7"), (2, "1")):
        call = channel.stream_stream("/quorumlog.v1.Peer/Control", bytes, bytes)(
            None, metadata=((GENERATION_KEY, generation),)
        )
        await call.write(encode_hello(replace(first.identity, boot_id=boot_id)))
        assert isinstance(await call.read(), bytes)
        # The node is notified that the former process has ended.
        await until(lambda ended=boot_id - 1: len(second.of(PeerDisconnected)) == ended)  # type: ignore[misc]
    await call.write(encode_frame(a_heartbeat(Stream.CONTROL)))
    await until(lambda: second.of(FrameReceived))
    await channel.close()


async def test_slices_of_a_snapshot_do_not_hold_up_heartbeats(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    offer = SnapshotOffer(1, EntryId(9, 3, 77), Configuration((1, 2)), 40, 40 << 20, 0)
    for number in range(40):
        chunk = SnapshotChunk(3, 1, number, bytes(1 << 20), offer if number == 0 else None)
        first.links.send(2, PeerFrame(Stream.SNAPSHOT, chunks=[chunk]))
    first.links.send(2, a_heartbeat(Stream.CONTROL))
    await until(lambda: len(second.of(FrameReceived)) == 41)
    streams = [event.frame.stream for event in second.of(FrameReceived)]
    assert streams.index(Stream.CONTROL) < 40, "the heartbeat came last"
    assert [e.frame.chunks[0].number for e in second.of(FrameReceived) if e.frame.chunks] == list(range(40))


async def test_identify_finds_a_node_and_its_voters(ends: tuple[End, End]) -> None:
    first, second = ends
    first.links.identify(second.address)
    first.links.identify("127.0.0.1:1")
    await until(lambda: first.of(PeerIdentified))
    assert first.of(PeerIdentified) == [
        PeerIdentified(second.identity, ClusterStanding(((1, "directory-1", "127.0.0.1:1"),), "directory-1", 7))
    ]


async def test_a_queue_takes_no_more_than_its_bounds() -> None:
    many, large = FrameQueue(Stream.DATA), FrameQueue(Stream.DATA)
    assert all(many.put(b"") for _ in range(MAX_QUEUED_FRAMES))
    assert not many.put(b"")
    block = bytes(MAX_QUEUED_BYTES // 4)
    assert [large.put(block) for _ in range(5)] == [True, True, True, True, False]


@pytest.mark.parametrize("stream", [Stream.CONTROL, Stream.CONTROL_ANSWER, Stream.DATA_ANSWER])
async def test_frames_that_wait_together_are_written_as_one(stream: Stream) -> None:
    """Otherwise votes and heartbeats arrive later and later on a machine where a write takes longer than a step."""
    queue, written = FrameQueue(stream), list[bytes]()
    first_write = asyncio.Event()

    async def write(data: bytes) -> None:
        written.append(data)
        await first_write.wait()

    draining = asyncio.ensure_future(queue.drain(write))
    frames = [a_heartbeat(stream, number) for number in range(1_000)]
    frames[3].lease, frames[700].lease = (7, 1, 30, 0), (7, 2, 700, 699)
    frames[4].acknowledged, frames[701].acknowledged = 4, 701
    queue.put(encode_frame(frames[0]))
    await until(lambda: bool(written))
    assert all(queue.put(encode_frame(frame)) for frame in frames[1:])
    first_write.set()
    await until(lambda: len(written) == 2)
    draining.cancel()
    joined_frame = decode_frame(parse_frame(written[1]), stream, 1, 2)
    assert joined_frame.messages == [each for frame in frames[1:] for each in frame.messages]
    assert (joined_frame.lease, joined_frame.acknowledged) == ((7, 2, 700, 699), 701)


async def test_joined_frames_have_a_limit() -> None:
    queue, written = FrameQueue(Stream.CONTROL), list[int]()

    async def write(data: bytes) -> None:
        written.append(len(data))

    block = bytes(400 << 10)
    assert all(queue.put(block) for _ in range(5))
    draining = asyncio.ensure_future(queue.drain(write))
    await until(lambda: sum(written) == 5 * len(block))
    draining.cancel()
    assert [size // len(block) for size in written] == [2, 2, 1]


async def test_heartbeats_have_a_socket_of_their_own(ends: tuple[End, End]) -> None:
    first, second = ends
    await joined(first, second)
    for end in ends:
        if end.sockets is not None:
            await until(lambda end=end: end.sockets.connections == 2)  # type: ignore[misc]


async def test_the_bytes_of_frames_that_were_written_are_given_back() -> None:
    queue, written = FrameQueue(Stream.DATA), list[int]()

    async def write(data: bytes) -> None:
        written.append(len(data))

    block = bytes(MAX_QUEUED_BYTES // 4)
    draining = asyncio.ensure_future(queue.drain(write))
    for number in range(2, 18, 2):
        # One frame is always accepted, the second only if there is room.
        assert [queue.put(block), queue.put(block)] == [True, True], f"all is written after {number - 2} frames"
        await until(lambda number=number: len(written) == number)  # type: ignore[misc]
    draining.cancel()
