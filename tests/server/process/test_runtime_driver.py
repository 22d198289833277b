"""The driver: events of one turn make one step, effects go out in order, and every failure is the node's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import pytest
from google.protobuf.message import Message as ProtoMessage
from recorded_log import RecordedLog

from quorumlog.raft.types import Heartbeat
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process.driver import Driver
from quorumlog.server.step.events import (
    ClientGone,
    ClientRequest,
    Effects,
    Event,
    Halt,
    Job,
    JobDone,
    LogLine,
    PeerFrame,
    PeerIdentity,
    Reply,
    StopRequested,
    StorageDone,
    StorageFailed,
    Stream,
)
from quorumlog.server.transport.clients.client_requests import NodeStoppingError
from quorumlog.server.transport.peers.peer_session import FrameQueue
from quorumlog.storage.interface import DiskFullError, StorageEngineError
from quorumlog.storage.transaction import StorageTransaction
from quorumlog.v1 import admin_pb2, data_plane_pb2

FAR_AWAY_US = 1 << 60


class ScriptedNode:
    """Answers each step with what a function makes of its events."""

    def __init__(self, answer: Callable[[list[Event]], Effects] = lambda events: Effects(), cluster: str = "") -> None:
        self.identity = PeerIdentity(cluster, 1, "directory", 1, "127.0.0.1:1")
        self.voters: tuple[tuple[int, str, str], ...] = ()
        self.next_deadline = FAR_AWAY_US
        self.steps: list[list[Event]] = []
        self._answer = answer

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        return None

    def step(self, now: int, wall_ms: int, events: list[Event]) -> Effects:
        assert abs(wall_ms - time.time_ns() // 1_000_000) < 60_000
        self.steps.append(events)
        return self._answer(events)

    def describe(self) -> admin_pb2.DescribeNodeResponse:
        return admin_pb2.DescribeNodeResponse()

    def readings(self) -> Readings:
        return {}


class ImmediateWriter:
    """Answers transactions on the loop's thread; ``completed`` is set to the driver's method."""

    def __init__(self, error: StorageEngineError | None = None) -> None:
        self.submitted: list[StorageTransaction] = []
        self.completed: Callable[[int, StorageEngineError | None], None] | None = None
        self._error = error

    def submit(self, transaction: StorageTransaction) -> None:
        self.submitted.append(transaction)
        assert self.completed is not None
        self.completed(transaction.number, self._error)


def at(node_id: int) -> str:
    """Returns the address at which the controller of this id is configured."""
    return f"127.0.0.1:{node_id}"


class Running:
    """A driver around a scripted node."""

    def __init__(self, node: ScriptedNode, controllers: tuple[int, ...] = (1, 2, 3)) -> None:
        self.node = node
        self.log = RecordedLog()
        self.meters = Meters()
        self.writer = ImmediateWriter()
        self.driver = Driver(node, {each: at(each) for each in controllers}, self.log, self.meters)
        self.writer.completed = self.driver.storage_completed
        self.driver.start(self.writer)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110  # the awaited code cannot signal the test
                await asyncio.sleep(0.001)

    async def end(self) -> str | None:
        async with asyncio.timeout(30):
            await self.driver.wait_halted()
        return self.driver.error


@pytest.mark.scenario("16")
async def test_events_of_one_turn_of_the_loop_make_one_step() -> None:
    running = Running(ScriptedNode())
    await running.until(lambda: running.node.steps == [[]])
    events: list[Event] = [StorageDone(n) for n in range(5)]
    for event in events:
        running.driver.emit(event)
    assert running.node.steps == [[]]
    await running.until(lambda: len(running.node.steps) == 2)
    assert running.node.steps[1] == events
    assert running.meters.rounds == 2
    assert running.meters.events == 5


async def test_a_transaction_comes_back_as_done_or_as_failed() -> None:
    def answer(events: list[Event]) -> Effects:
        return Effects(transaction=None if events else StorageTransaction(7))

    running = Running(ScriptedNode(answer))
    await running.until(lambda: [StorageDone(7)] in running.node.steps)
    assert sum(running.meters.fsync_seconds.counts) == 1

    node = ScriptedNode(answer)
    full = DiskFullError("no room")
    driver = Driver(node, {}, RecordedLog(), Meters())
    writer = ImmediateWriter(full)
    writer.completed = driver.storage_completed
    driver.start(writer)
    await running.until(lambda: [StorageFailed(7, full)] in node.steps)


async def test_a_transaction_that_takes_long_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(ScriptedNode(lambda events: Effects(transaction=None if events else StorageTransaction(7))))
    await running.until(lambda: [StorageDone(7)] in running.node.steps)
    monkeypatch.setattr(running.driver, "_submitted_at", time.perf_counter() - 2)
    running.driver.storage_completed(8, None)
    await running.until(lambda: running.log.lines)
    ((level, event, fields),) = running.log.lines
    assert (level, event) == ("warning", "slow_storage")
    assert cast("float", fields["seconds"]) >= 2


async def test_frames_are_written_before_the_storage_thread_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    queues = {peer: FrameQueue(Stream.CONTROL) for peer in (2, 3)}
    frame = PeerFrame(Stream.CONTROL, messages=[(0, Heartbeat(1, 2, 1, 0, 0))])
    effects = Effects(
        frames=[(peer, frame) for peer in queues],
        transaction=StorageTransaction(1),
        replies=[Reply(1, data_plane_pb2.FetchResponse())],
    )

    async def write_to(peer: int) -> None:
        async def write(data: bytes) -> None:
            order.append(f"frame to {peer}")

        await queues[peer].drain(write)

    running = Running(ScriptedNode(lambda events: Effects() if events else effects))
    monkeypatch.setattr(running.driver.links, "send", lambda peer, frame: queues[peer].put(b"frame"))
    monkeypatch.setattr(running.writer, "submit", lambda transaction: order.append("transaction"))
    monkeypatch.setattr(running.driver.requests, "deliver", lambda reply: order.append("reply"))
    writers = [asyncio.ensure_future(write_to(peer)) for peer in queues]
    await running.until(lambda: len(order) == 4)
    assert order == ["reply", "frame to 2", "frame to 3", "transaction"]
    for task in writers:
        task.cancel()


async def test_a_node_that_halts_hands_over_what_it_was_about_to_write() -> None:
    frame = PeerFrame(Stream.CONTROL, messages=[(0, Heartbeat(1, 2, 1, 0, 0))])
    last = StorageTransaction(1)
    effects = Effects(frames=[(2, frame)], transaction=last, halt=Halt("a reason"))
    running = Running(ScriptedNode(lambda events: effects))
    assert await running.end() == "a reason"
    assert running.writer.submitted == [last]


async def test_the_node_is_stepped_by_its_deadline_and_not_before() -> None:
    node = ScriptedNode()
    stepped_at: list[int] = []

    def answer(events: list[Event]) -> Effects:
        now = time.monotonic_ns() // 1_000
        if not stepped_at:
            node.next_deadline = now + 20_500
        elif now >= node.next_deadline:
            node.next_deadline = FAR_AWAY_US
        stepped_at.append(now)
        return Effects()

    node._answer = answer
    running = Running(node)
    await running.until(lambda: len(stepped_at) == 2)
    assert stepped_at[1] - stepped_at[0] >= 20_500
    # A nearer deadline replaces a farther one that is armed already.
    node.next_deadline = FAR_AWAY_US
    running.driver.emit(StopRequested())
    await running.until(lambda: len(stepped_at) == 3)
    node.next_deadline = time.monotonic_ns() // 1_000 + 300_000
    running.driver.emit(StopRequested())
    await running.until(lambda: len(stepped_at) == 5)


async def test_replies_find_their_requests_and_abandoned_ones_are_told() -> None:
    replies: list[Reply] = []

    def answer(events: list[Event]) -> Effects:
        requests = [event for event in events if isinstance(event, ClientRequest)]
        made = [Reply(one.request_id, data_plane_pb2.MetadataResponse(cluster_id="c")) for one in requests]
        replies.extend(made)
        return Effects(
            replies=[one for one in made if not isinstance(requests[0].message, admin_pb2.DescribeNodeRequest)]
        )

    running = Running(ScriptedNode(answer))
    reply = await running.driver.requests.ask(data_plane_pb2.MetadataRequest(), 0, 30)
    assert isinstance(reply, data_plane_pb2.MetadataResponse)
    assert reply.cluster_id == "c"
    with pytest.raises(TimeoutError):
        await running.driver.requests.ask(admin_pb2.DescribeNodeRequest(), 0, 0.01)
    await running.until(lambda: [ClientGone(replies[-1].request_id)] in running.node.steps)
    waiting = asyncio.create_task(running.driver.requests.ask(admin_pb2.DescribeNodeRequest(), 0, 60))
    await running.until(lambda: len(replies) == 3)
    running.driver.requests.close()
    with pytest.raises(NodeStoppingError):
        await waiting


async def test_requests_beyond_the_nodes_bound_are_not_taken() -> None:
    running = Running(ScriptedNode())
    taken: list[ProtoMessage] = []
    assert running.driver.requests.has_room_for(256 << 20)
    number = running.driver.requests.submit(data_plane_pb2.MetadataRequest(), 200 << 20, taken.append)
    assert not running.driver.requests.has_room_for(100 << 20)
    running.driver.requests.abandon(number)
    assert running.driver.requests.has_room_for(100 << 20)


async def test_halting_as_asked_is_no_error_and_ends_the_stepping() -> None:
    running = Running(ScriptedNode(lambda events: Effects(halt=Halt(None)) if events else Effects()))
    running.driver.emit(StopRequested())
    assert await running.end() is None
    steps = len(running.node.steps)
    running.driver.emit(StopRequested())
    for _ in range(3):
        await asyncio.sleep(0)  # a turn of the loop: a round that was scheduled would run
    assert len(running.node.steps) == steps


async def test_an_invariant_that_does_not_hold_ends_the_node_with_the_place() -> None:
    def answer(events: list[Event]) -> Effects:
        raise AssertionError("committed entries\nhave vanished")

    said = await Running(ScriptedNode(answer)).end()
    assert said is not None
    assert said.startswith("a step of the node failed: AssertionError: committed entries have vanished; in answer (")
    assert "\n" not in said


async def test_a_background_task_that_fails_ends_the_node() -> None:
    async def broken() -> None:
        raise RuntimeError("out of luck")

    running = Running(ScriptedNode())
    running.driver.supervisor.start(broken(), "luck")
    said = await running.end()
    assert said is not None
    assert said.startswith("the task luck failed: RuntimeError: out of luck")


async def test_logs_of_the_node_are_written() -> None:
    line = LogLine("warning", "disk_nearly_full", {"free_bytes": 7})
    running = Running(ScriptedNode(lambda events: Effects(logs=[line])))
    await running.until(lambda: running.log.lines)
    assert running.log.lines[0] == ("warning", "disk_nearly_full", {"free_bytes": 7})


async def test_a_majority_of_strange_controllers_ends_a_node_that_was_never_ready() -> None:
    running = Running(ScriptedNode(cluster="ours"))
    running.driver.heard_cluster(at(2), "theirs")
    running.driver.heard_cluster(at(9), "theirs")
    await asyncio.sleep(0)
    assert running.driver.error is None
    running.driver.heard_cluster(at(3), "theirs")
    said = await running.end()
    assert said is not None
    assert "the data directory belongs to cluster ours, but the reachable controllers form cluster theirs" in said


async def test_one_address_counts_once_whatever_answers_there() -> None:
    running = Running(ScriptedNode(cluster="ours"))
    for cluster in ("theirs", "another", "theirs"):
        running.driver.heard_cluster(at(2), cluster)
    # Its own address may be taken by another node: that proves nothing about the other controllers.
    running.driver.heard_cluster(at(1), "theirs")
    running.driver.emit(StopRequested())
    await running.until(lambda: [StopRequested()] in running.node.steps)
    assert running.driver.error is None


async def test_jobs_are_carried_out_and_what_came_of_them_is_an_event() -> None:
    def answer(events: list[Event]) -> Effects:
        return Effects(jobs=[] if events else [Job(7, lambda: "done"), Job(8, lambda: None)])

    running = Running(ScriptedNode(answer))
    await running.until(lambda: sum(len(events) for events in running.node.steps) == 2)
    assert [event for events in running.node.steps for event in events] == [
        JobDone(7, "done", None),
        JobDone(8, None, None),
    ]
    running.driver.jobs.stop()


async def test_one_stranger_or_a_settled_node_ends_nothing() -> None:
    running = Running(ScriptedNode(cluster="ours"))
    running.driver.heard_cluster(at(2), "theirs")
    running.driver.heard_cluster(at(2), "ours")
    running.driver.heard_cluster(at(3), "theirs")
    running.driver.become_settled()
    for controller in (2, 3):
        running.driver.heard_cluster(at(controller), "theirs")
    running.driver.emit(StopRequested())
    await running.until(lambda: [StopRequested()] in running.node.steps)
