"""One node process in virtual time: it gathers events, steps the shipped node, and carries out the effects."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.raft_host import HostedReplica
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.node.node import Node
from quorumlog.server.process.job_thread import carry_out
from quorumlog.server.step.events import (
    ClientGone,
    ClientRequest,
    Effects,
    Event,
    FrameReceived,
    Job,
    Reply,
    StopRequested,
    StreamClosed,
    StreamPause,
)
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.clients import Answer, Unanswered
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.network import SimNetwork
from quorumlog.simulator.world.scheduler import Scheduler, Timer

#: How long a job takes, in µs.
JOB_US = (50, 5_000)
EPOCH_MS = 1_700_000_000_000
#: Requests and streams that come by way of the node's services have numbers from here on.
DOOR_NUMBERS = 1 << 40


@dataclass(slots=True, frozen=True)
class _PendingRequest:
    """A request that is not answered yet."""

    kind: str
    since_us: int
    answered: Answer
    served: Callable[[ProtoMessage], None] | None
    stream: int


def _nobody(answer: ProtoMessage | Unanswered) -> None:
    """Takes the answer of whoever has gone."""


class Door(Protocol):
    """The services of a running process, by way of which clients may come."""

    def reply(self, reply: Reply) -> None:
        """The node has answered a request that came this way."""

    def pause_stream(self, pause: StreamPause) -> None:
        """The node has a client of a stream wait, or no longer."""

    def pause(self) -> None:
        """The process stands still."""

    def resume(self) -> None:
        """It goes on."""

    def close(self, silent: bool) -> None:
        """The process is gone; ``silent``: with its machine, so that nobody is told."""


class Observer(Protocol):
    """Who watches the processes."""

    def stepped(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """A step has been taken; its effects have not been carried out yet."""

    def identify(self, node: int, address: str) -> None:
        """A node asks who is at an address."""

    def report_loss(self, node: int, address: str, directory_id: str) -> None:
        """A node asks the one at an address to have a former disk of its own given up."""

    def halted(self, process: SimProcess, error: str | None) -> None:
        """A node says that it is done."""


class SimProcess:
    """A machine with a disk, on which the node's process starts, pauses and dies.

    Arguments:
        rate_ppm: how much faster than the simulation's this machine's monotonic clock goes, in millionths.
    """

    def __init__(
        self,
        options: NodeOptions,
        disk: SimDisk,
        scheduler: Scheduler,
        network: SimNetwork,
        observer: Observer,
        rate_ppm: int = 0,
    ) -> None:
        self.node_id = options.node_id
        self.disk = disk
        self.node: Node | None = None
        self.paused = self.stopping = False
        self.wall_offset_ms = 0
        self.steps = 0
        self._options = options
        self._scheduler = scheduler
        self._network = network
        self._observer = observer
        self._rng = scheduler.stream(f"process-{options.node_id}")
        self._clock_offset_us = self._rng.randrange(0, 1 << 40)
        self._clock_rate = 1_000_000 + rate_ppm
        self._addresses: dict[str, int] = {}
        self.life = 0
        self._inbox: list[Event] = []
        self._step_timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._requests = 0
        self._streams = 0
        self._open_streams: set[int] = set()
        self._pending: dict[int, _PendingRequest] = {}
        #: Makes the services of each life, if there are any.
        self.make_door: Callable[[], Door] | None = None
        self.door: Door | None = None

    @property
    def address(self) -> str:
        """Where it listens, or will when it starts."""
        return self._options.address

    def move_to(self, address: str) -> None:
        """The next process listens at another address."""
        self._options = replace(self._options, address=address)

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self.node is not None

    @property
    def replicas(self) -> Mapping[int, HostedReplica]:
        """The running node's replicas by group; none when it does not run."""
        return {} if self.node is None else self.node.replicas

    @property
    def image(self) -> MetadataImage | None:
        """The running node's metadata image, once it belongs to a cluster."""
        return None if self.node is None else self.node.image

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process on what is on the disk."""
        assert self.node is None
        self.life += 1
        self.paused = self.stopping = False
        seed = self._rng.getrandbits(64)
        self.node = Node(
            self._options, self.disk, random.Random(seed), self._now(), self.wall_ms, self._rng.getrandbits(63)
        )
        self._scheduler.trace(f"{self.node_id} starts life {self.life}")
        if self.make_door is not None:
            self.door = self.make_door()
        self._wake()

    def die(self, silent: bool) -> None:
        """SIGKILL, or (``silent``) the machine's power. Clients of a killed process learn of it at once."""
        if self.node is None:
            return
        self.node = None
        self._inbox = []
        for timer in (self._step_timer, self._deadline_timer):
            if timer is not None:
                timer.cancel()
        self._step_timer = self._deadline_timer = None
        self.disk.crash()
        self._network.process_died(self.node_id, silent)
        door, self.door = self.door, None
        if door is not None:
            door.close(silent)
        pending, self._pending = self._pending, {}
        self._open_streams.clear()
        for each in pending.values():
            self._scheduler.after(1_000, lambda answered=each.answered: answered(Unanswered.LOST))  # type: ignore[misc]
        self._scheduler.trace(f"{self.node_id} dies")

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        if self.door is not None:
            self.door.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        if self.node is not None:
            self._inbox = self._interleaved(self._inbox)
            self._wake()
        if self.door is not None:
            self.door.resume()

    def stop(self) -> None:
        """SIGTERM."""
        if self.node is not None:
            self.stopping = True
            self.deliver(StopRequested())

    # -- events ---------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Puts an event into the queue of the running process."""
        self._inbox.append(event)
        self._wake()

    def request(
        self,
        message: ProtoMessage,
        answered: Answer,
        served: Callable[[ProtoMessage], None] | None,
        stream: int = 0,
        client: RequestContext = UNKNOWN_CLIENT,
    ) -> None:
        """A client's request has arrived."""
        self._requests += 1
        kind = type(message).__name__
        self._pending[self._requests] = _PendingRequest(kind, self._scheduler.now, answered, served, stream)
        self.deliver(ClientRequest(self._requests, message, stream, client))

    def open_stream(self) -> int:
        """A client opens a stream: its number."""
        self._streams += 1
        if self.running:
            self._open_streams.add(self._streams)
        return self._streams

    def close_stream(self, stream: int) -> None:
        """A client has closed a stream: nobody waits any more for what is pending on it."""
        for number, pending in self._pending.items():
            if pending.stream == stream:
                self._pending[number] = replace(pending, answered=_nobody, served=None)
                self.deliver(ClientGone(number))
        self._open_streams.discard(stream)
        self.deliver(StreamClosed(stream))

    def waiting_since(self, before_us: int) -> list[str]:
        """What kinds of requests came before some time, and are not answered though somebody waits for that."""
        return [
            pending.kind
            for pending in self._pending.values()
            if pending.since_us < before_us and pending.answered is not _nobody
        ]

    def has_stream(self, stream: int) -> bool:
        """Whether a stream that a client has opened is still there: it ends with the process."""
        return stream in self._open_streams

    def _interleaved(self, events: list[Event]) -> list[Event]:
        """After a pause, sockets are read in any order; what came from one place stays in order."""
        sources: dict[object, list[Event]] = {}
        for event in events:
            sources.setdefault(self._source(event), []).append(event)
        merged: list[Event] = []
        waiting = list(sources.values())
        while waiting:
            source = self._rng.choice(waiting)
            merged.append(source.pop(0))
            if not source:
                waiting.remove(source)
        return merged

    def _source(self, event: Event) -> object:
        """What arrives in order."""
        if isinstance(event, ClientRequest | ClientGone) and event.request_id >= DOOR_NUMBERS:
            return "door"
        if isinstance(event, StreamClosed) and event.stream >= DOOR_NUMBERS:
            return "door"
        if isinstance(event, ClientRequest | StreamClosed) and event.stream:
            return event.stream
        if isinstance(event, ClientGone):
            return self._pending[event.request_id].stream
        return getattr(event, "peer", type(event))

    def _wake(self) -> None:
        if self._step_timer is None and not self.paused:
            self._step_timer = self._scheduler.after(10 + int(140 * self._rng.random()), self._step)

    def _step(self) -> None:
        self._step_timer = None
        if self.node is None or self.paused:
            return
        events, self._inbox = self._inbox, []
        if len(events) > 1 and self._rng.random() < 0.2:
            # What has arrived need not have been read: a node may step between two of a queue's events.
            place = self._rng.randint(1, len(events) - 1)
            events, self._inbox = events[:place], events[place:]
            self._wake()
        self.steps += 1
        self.disk.read_by_node = True
        effects = self.node.step(self._now(), self.wall_ms, events)
        self.disk.read_by_node = False
        self._trace(events, effects)
        self._observer.stepped(self, events, effects)
        self._carry_out(effects)
        if self.node is not None:
            self._arm(self.node.next_deadline)

    def _arm(self, deadline: int) -> None:
        when = -((self._clock_offset_us - deadline) * 1_000_000 // self._clock_rate)  # rounded up
        if self._deadline_timer is not None:
            if self._deadline_timer.action is not None and self._deadline_timer.when == when:
                return
            self._deadline_timer.cancel()
        self._deadline_timer = self._scheduler.at(when, self._wake)

    def _carry_out(self, effects: Effects) -> None:
        life = self.life
        for peer, frame in effects.frames:
            self._network.send(self.node_id, peer, frame)
        if effects.transaction is not None:

            def done(event: Event) -> None:
                if self.node is not None and self.life == life:
                    self.deliver(event)

            self.disk.submit(effects.transaction, done)
        for job in effects.jobs:
            self._scheduler.after(self._rng.randint(*JOB_US), lambda job=job: self._work(job, life))  # type: ignore[misc]
        for reply in effects.replies:
            if reply.request_id >= DOOR_NUMBERS:
                if self.door is not None:
                    self.door.reply(reply)
                continue
            if reply.request_id not in self._pending:
                kind = type(reply.message).__name__
                raise Violation(
                    f"node {self.node_id} answers request {reply.request_id} twice, now with a {kind}: {reply.message}"
                )
            pending = self._pending.pop(reply.request_id)
            if pending.served is not None:
                pending.served(reply.message)
            self._scheduler.after(
                self._rng.randint(100, 2_000),
                lambda a=pending.answered, m=reply.message: a(m),  # type: ignore[misc]
            )
        for ended in effects.ended_streams:
            self._end_stream(ended.stream)
        for address in effects.identify:
            self._observer.identify(self.node_id, address)
        for pause in effects.stream_pauses:
            if pause.stream >= DOOR_NUMBERS and self.door is not None:
                self.door.pause_stream(pause)
        for address, directory_id in effects.report_loss:
            self._observer.report_loss(self.node_id, address, directory_id)
        if effects.connect is not None:
            self._network.want(self.node_id, tuple(sorted(effects.connect)))
        if effects.halt is not None:
            self._observer.halted(self, effects.halt.error)

    def _end_stream(self, stream: int) -> None:
        """The node lets a client in no more: what is pending on its stream has no answer, and the stream is closed."""
        assert stream < DOOR_NUMBERS, "the services of simulated nodes let everybody in"
        self._open_streams.discard(stream)
        for number, pending in list(self._pending.items()):
            if pending.stream == stream:
                self._pending[number] = replace(pending, answered=_nobody, served=None)
                self.deliver(ClientGone(number))
                told = pending.answered
                self._scheduler.after(self._rng.randint(100, 2_000), lambda told=told: told(Unanswered.LOST))  # type: ignore[misc]
        self.deliver(StreamClosed(stream))

    def _work(self, job: Job, life: int) -> None:
        """A job of the process's, done at once when its time has come; paused processes do nothing."""
        if self.node is None or self.life != life:
            return
        if self.paused:
            self._scheduler.after(JOB_US[1], lambda: self._work(job, life))
            return
        self.disk.read_by_node = self.disk.read_by_job = True
        done = carry_out(job)
        self.disk.read_by_node = self.disk.read_by_job = False
        self.deliver(done)

    def _now(self) -> int:
        return self._clock_offset_us + self._scheduler.now * self._clock_rate // 1_000_000

    def true_us(self, own_us: int) -> int:
        """How long that really was which its monotonic clock has measured, rounded up."""
        return -(-own_us * 1_000_000 // self._clock_rate) + 1

    @property
    def wall_ms(self) -> int:
        """What its wall clock shows, in milliseconds since the epoch."""
        return EPOCH_MS + self.wall_offset_ms + self._scheduler.now // 1_000

    def _trace(self, events: list[Event], effects: Effects) -> None:
        # One flat list, made text at once: this is done for every step of every node.
        said: list[object] = [self.node_id]
        for event in events:
            if isinstance(event, FrameReceived):
                frame = event.frame
                said += (event.peer, frame.stream.name, frame.sequence, len(frame.messages))
            else:
                said.append(type(event).__name__)
        for peer, frame in effects.frames:
            said += (">", peer, frame.stream.name, frame.sequence, frame.acknowledged, len(frame.messages))
        for write in effects.transaction.writes if effects.transaction is not None else ():
            said += ("w", write.group, write.truncate_from, write.hard_state)
            said += [entry.hash for entry in write.entries]
        for reply in effects.replies:
            said += (reply.request_id, type(reply.message).__name__)
        self._scheduler.trace(str(said))
