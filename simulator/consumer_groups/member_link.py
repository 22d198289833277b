"""The connections of one simulated member: a process that can stall or crash, requests with timeouts, streams of
heartbeats, and the search for its coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.simulator.world.clients import Answer, PartitionName, Unanswered
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import Error

Served = Callable[[ProtoMessage], None]
#: Duration of delays of a heartbeat stream: longer than a member waits for an answer.
HELD_UP_US = (50_000, 6_000_000)
#: Timeout of the search for the coordinator.
LOOK_UP_US = 300_000


class MemberPort(Protocol):
    """The members' access to nodes, and the judge of the nodes' answers."""

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node, running or not."""

    def request(
        self,
        client: str,
        node: int,
        message: ProtoMessage,
        answered: Answer,
        served: Served | None = None,
        stream: int = 0,
    ) -> None:
        """Sends a request; ``served`` is called when the node replies, ``answered`` when the reply arrives."""

    def open_stream(self, node: int) -> int:
        """Opens a stream of requests to a node."""

    def close_stream(self, client: str, node: int, stream: int) -> None:
        """Closes a stream."""

    def entries_served(
        self,
        node: int,
        name: PartitionName,
        group: int,
        request: data_plane_pb2.FetchRequest,
        result: data_plane_pb2.FetchResult,
    ) -> None:
        """Judges a node's answer to a fetch."""

    def coordinates(self, node: int, group_id: str) -> bool:
        """True if a node leads the coordinator of a group, in the newest term of any node."""


class SimMemberProcess:
    """A process that runs, is stopped, or is dead. While it is stopped, its events wait."""

    def __init__(self) -> None:
        self.alive = True
        self.paused = False
        self._held: deque[Callable[[], None]] = deque()

    def run(self, action: Callable[[], None]) -> None:
        """Runs an action in the process: now, when it resumes, or never."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(action)
        else:
            action()

    def pause(self) -> None:
        """Sends SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """Sends SIGCONT: waiting events are handled first."""
        self.paused = False
        while self._held and self.alive and not self.paused:
            self._held.popleft()()

    def die(self) -> None:
        """Sends SIGKILL."""
        self.alive = False
        self._held.clear()


class MemberLink:
    """Requests of one process; each is answered once, by the node or by a timeout.

    Arguments:
        client: a name for the lanes on which requests keep their order.
        lose: probability that an answer is lost.
        late: probability that a stream is delayed, with all that is sent on it from then on.
    """

    def __init__(
        self,
        client: str,
        port: MemberPort,
        scheduler: Scheduler,
        process: SimMemberProcess,
        lose: float,
        late: float = 0.0,
    ) -> None:
        self.client = client
        self.port = port
        self.process = process
        self.scheduler = scheduler
        self.rng = scheduler.stream(f"{client}/link")
        self.lose = lose
        self.late = late
        self._cut_until = 0

    def cut(self, duration_us: int) -> None:
        """Blocks all messages in both directions for a duration."""
        self._cut_until = self.scheduler.now + duration_us

    @property
    def is_cut(self) -> bool:
        """True if all messages are blocked."""
        return self.scheduler.now < self._cut_until

    def loses(self) -> bool:
        """True if an answer that arrives now is lost."""
        return self.is_cut or self.rng.random() < self.lose

    def ask(
        self, node: int, message: ProtoMessage, done: Answer, timeout_us: int, served: Served | None = None
    ) -> None:
        """Sends a request; ``done`` is called exactly once while the process runs."""
        finished = False

        def finish(answer: ProtoMessage | Unanswered) -> None:
            nonlocal finished
            if not finished:
                finished = True
                self.process.run(lambda: done(answer))

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if not self.loses():
                finish(answer)

        if not self.is_cut:
            self.port.request(self.client, node, message, answered, served)
        self.scheduler.after(timeout_us, lambda: finish(Unanswered.LOST))

    def later(self, least_us: int, most_us: int, action: Callable[[], None]) -> None:
        """Runs an action after some time, if the process is still running."""
        self.scheduler.after(self.rng.randint(least_us, most_us), lambda: self.process.run(action))


@dataclass(slots=True)
class _Expected:
    """An answer that must not overtake earlier answers of the node on the same stream."""

    done: Callable[[ProtoMessage], None]
    answer: ProtoMessage | None = None


class HeartbeatStream:
    """One stream of heartbeats to one node: answers arrive in the order in which the node gave them.

    Arguments:
        broken: called once when the node has crashed, or an answer is lost; no answer arrives after that.
    """

    def __init__(self, node: int, link: MemberLink, broken: Callable[[], None]) -> None:
        self.node = node
        self._link = link
        self._broken = broken
        self._number = link.port.open_stream(node)
        #: Streams overtake each other, and requests outside of streams.
        self._lane = f"{link.client}/{self._number}"
        self._open = True
        #: Until then the network delays data on it: beyond retries on other streams, and changes of coordinator.
        self._held_until = 0
        #: An answer was lost unnoticed: later ones must not arrive either.
        self._silent = False
        self._order: deque[_Expected] = deque()

    def send(self, message: ProtoMessage, done: Callable[[ProtoMessage], None], served: Served) -> None:
        """Sends a heartbeat. ``served`` is called when the node gives its answer."""
        expected = _Expected(done)

        def given(answer: ProtoMessage) -> None:
            served(answer)
            self._order.append(expected)

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if self._link.is_cut:
                self._silent = True
            if not self._open or self._silent:
                return
            if isinstance(answer, Unanswered) or self._link.loses():
                self.close()
                self._link.process.run(self._broken)
            else:
                expected.answer = answer
                self._link.process.run(self._deliver)

        link = self._link
        if link.late and link.rng.random() < link.late:
            self._held_until = link.scheduler.now + link.rng.randint(*HELD_UP_US)
        if not link.is_cut:
            self._hand_over(lambda: link.port.request(self._lane, self.node, message, answered, given, self._number))

    def close(self) -> None:
        """Closes the stream."""
        if self._open:
            self._open = False
            self._hand_over(lambda: self._link.port.close_stream(self._lane, self.node, self._number))

    def _hand_over(self, action: Callable[[], None]) -> None:
        """Runs an action at the node, after all that was sent before."""
        if self._held_until <= self._link.scheduler.now:
            action()
        else:
            self._link.scheduler.at(self._held_until, action)

    def _deliver(self) -> None:
        while self._open and not self._silent and self._order and self._order[0].answer is not None:
            first = self._order.popleft()
            assert first.answer is not None
            first.done(first.answer)


class SimCoordinator:
    """The node that coordinates one group, as one member sees it.

    Arguments:
        found: called whenever an unknown coordinator becomes known.
    """

    def __init__(self, group_id: str, link: MemberLink, found: Callable[[], None]) -> None:
        self.node = NO_NODE
        self._group_id = group_id
        self._link = link
        self._found = found
        self._epoch = 0
        self._asking = False

    def forget(self) -> None:
        """Drops the coordinator, which does not answer."""
        self.node = NO_NODE

    def learn(self, error: Error) -> None:
        """Uses the coordinator named by a rejection; if it is not newer than the known one, it must be looked up."""
        hint = error.leader
        self.node = NO_NODE
        if error.HasField("leader") and hint.node_id >= 0 and hint.leader_epoch > self._epoch:
            self.node, self._epoch = hint.node_id, hint.leader_epoch

    def ask(self) -> None:
        """Looks up the coordinator at some node, unless a lookup is under way."""
        if self._asking:
            return
        self._asking = True
        node = self._link.rng.choice(self._link.port.node_ids)
        self._link.ask(node, pb.FindCoordinatorsRequest(group_ids=[self._group_id]), self._answered, LOOK_UP_US)

    def _answered(self, answer: ProtoMessage | Unanswered) -> None:
        self._asking = False
        if isinstance(answer, pb.FindCoordinatorsResponse) and not answer.HasField("error"):
            coordinator = answer.coordinators[0]
            newer = coordinator.leader_epoch >= self._epoch
            if not coordinator.HasField("error") and coordinator.node_id >= 0 and newer:
                self.node, self._epoch = coordinator.node_id, coordinator.leader_epoch
        if self.node == NO_NODE:
            self._link.later(20_000, 120_000, self.ask)
        else:
            self._found()
