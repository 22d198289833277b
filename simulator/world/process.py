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
from quorumlog.server.partition.partition import Partition
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
from quorumlog.wire.entry import BatchHeader

#: Duration of a job (µs).
JOB_US = (50, 5_000)
EPOCH_MS = 1_700_000_000_000
#: Numbers of requests and streams through the node's services start here.
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
    """Ignores the answer to a client that has disconnected."""


class Door(Protocol):
    """The services of a running process, through which clients may connect."""

    def reply(self, reply: Reply) -> None:
        """Delivers the node's answer to a request of these services."""

    def pause_stream(self, pause: StreamPause) -> None:
        """Pauses or resumes reading of a client's stream."""

    def pause(self) -> None:
        """Pauses the process."""

    def resume(self) -> None:
        """Resumes the process."""

    def close(self, silent: bool) -> None:
        """Ends the process; ``silent``: together with its machine, so that no client is notified."""


class Observer(Protocol):
    """An observer of the processes."""

    def stepped(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """Receives a step before its effects are carried out."""

    def identify(self, node: int, address: str) -> None:
        """Looks up the node at an address for a node."""

    def report_loss(self, node: int, address: str, directory_id: str) -> None:
        """Requests that the node at an address gives up a former disk of a node."""

    def halted(self, process: SimProcess, error: str | None) -> None:
        """Handles the exit of a node."""


class SimProcess:
    """A machine with a disk, on which the node's process starts, pauses and crashes.

    Arguments:
        rate_ppm: deviation of this machine's monotonic clock from the simulation's, in millionths.
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
        self._actions: list[tuple[int, Callable[[Partition, int, int], None]]] = []
        self._step_timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._requests = 0
        self._streams = 0
        #: When each was opened, on the node's clock.
        self._open_streams: dict[int, int] = {}
        self._pending: dict[int, _PendingRequest] = {}
        #: Creates the services of each life, if there are any.
        self.make_door: Callable[[], Door] | None = None
        self.door: Door | None = None

    @property
    def address(self) -> str:
        """Its listening address, now or at its next start."""
        return self._options.address

    def move_to(self, address: str) -> None:
        """Lets the next process listen at another address."""
        self._options = replace(self._options, address=address)

    @property
    def running(self) -> bool:
        """True if the process exists, paused or not."""
        return self.node is not None

    @property
    def replicas(self) -> Mapping[int, HostedReplica]:
        """The running node's replicas by group; empty if it is not running."""
        return {} if self.node is None else self.node.replicas

    def next_sequence(self, group: int, header: BatchHeader) -> int:
        """Returns the sequence number that the node expects next from a producer; -1: it has no such replica."""
        hosted = self.replicas.get(group)
        if hosted is None or not isinstance(hosted.machine, Partition):
            return -1
        known = hosted.machine.producers.known(header.producer_id)
        return 0 if known is None or known.epoch < header.producer_epoch else known.next_sequence

    @property
    def options(self) -> NodeOptions:
        """The options with which its node starts."""
        return self._options

    @property
    def image(self) -> MetadataImage | None:
        """The running node's metadata image, once it belongs to a cluster."""
        return None if self.node is None else self.node.image

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a new process with the data on disk."""
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
        """Kills the process, or (``silent``) cuts the machine's power. Clients of a killed process notice
        immediately.
        """
        if self.node is None:
            return
        self.node = None
        self._inbox, self._actions = [], []
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
        """Sends SIGSTOP."""
        self.paused = True
        if self.door is not None:
            self.door.pause()

    def resume(self) -> None:
        """Sends SIGCONT."""
        self.paused = False
        if self.node is not None:
            self._inbox = self._interleaved(self._inbox)
            self._wake()
        if self.door is not None:
            self.door.resume()

    def stop(self) -> None:
        """Sends SIGTERM."""
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
        """Handles the arrival of a client's request."""
        self._requests += 1
        kind = type(message).__name__
        self._pending[self._requests] = _PendingRequest(kind, self._scheduler.now, answered, served, stream)
        connected_us = self._open_streams.get(stream, 0)
        self.deliver(ClientRequest(self._requests, message, stream, client, connected_us=connected_us))

    def act(self, life: int, group: int, action: Callable[[Partition, int, int], None]) -> None:
        """Has the process act on its replica of a partition in its next step, if it still is of that life.

        Arguments:
            action: called with the replica, the monotonic time (µs) and the wall clock (ms).
        """
        if self.node is not None and self.life == life:
            self._actions.append((group, action))
            self._wake()

    def _carry_out_actions(self) -> None:
        assert self.node is not None
        actions, self._actions = self._actions, []
        for group, action in actions:
            hosted = self.node.replicas.get(group)
            if hosted is not None and isinstance(hosted.machine, Partition):
                action(hosted.machine, self._now(), self.wall_ms)
                self.node.touch(group)

    def open_stream(self) -> int:
        """Opens a stream for a client; returns its number."""
        self._streams += 1
        if self.running:
            self._open_streams[self._streams] = self._now()
        return self._streams

    def close_stream(self, stream: int) -> None:
        """Closes a client's stream: its pending requests are abandoned."""
        for number, pending in self._pending.items():
            if pending.stream == stream:
                self._pending[number] = replace(pending, answered=_nobody, served=None)
                self.deliver(ClientGone(number))
        self._open_streams.pop(stream, None)
        self.deliver(StreamClosed(stream))

    def waiting_since(self, before_us: int) -> list[str]:
        """Returns the kinds of requests that arrived before some time, and that clients still wait for."""
        return [
            pending.kind
            for pending in self._pending.values()
            if pending.since_us < before_us and pending.answered is not _nobody
        ]

    def has_stream(self, stream: int) -> bool:
        """True if a client's stream still exists: it ends with the process."""
        return stream in self._open_streams

    def _interleaved(self, events: list[Event]) -> list[Event]:
        """Reorders events after a pause, as sockets are read in any order; those of one source stay in order."""
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
        """Returns the source of an event, whose events arrive in order."""
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
            # An event that has arrived need not have been read: a node may step between two events of the queue.
            place = self._rng.randint(1, len(events) - 1)
            events, self._inbox = events[:place], events[place:]
            self._wake()
        self.steps += 1
        self.disk.read_by_node = True
        if self._actions:
            self._carry_out_actions()
        effects = self.node.step(self._now(), self.wall_ms, events)
        self.disk.read_by_node = False
        self._trace(events, effects)
        self._observer.stepped(self, events, effects)
        self._carry_out(effects)
        if self.node is not None:
            self.node.check_deadlines()
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
        """Closes a stream whose client lost its access: pending requests get no answer."""
        assert stream < DOOR_NUMBERS, "the services of simulated nodes admit every client"
        self._open_streams.pop(stream, None)
        for number, pending in list(self._pending.items()):
            if pending.stream == stream:
                self._pending[number] = replace(pending, answered=_nobody, served=None)
                self.deliver(ClientGone(number))
                answer = pending.answered
                self._scheduler.after(self._rng.randint(100, 2_000), lambda answer=answer: answer(Unanswered.LOST))  # type: ignore[misc]
        self.deliver(StreamClosed(stream))

    def _work(self, job: Job, life: int) -> None:
        """Runs a job of the process at one instant; paused processes do nothing."""
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
        """Returns the true duration of a time measured by its monotonic clock, rounded up."""
        return -(-own_us * 1_000_000 // self._clock_rate) + 1

    @property
    def wall_ms(self) -> int:
        """The time of its wall clock, in milliseconds since the epoch."""
        return EPOCH_MS + self.wall_offset_ms + self._scheduler.now // 1_000

    def _trace(self, events: list[Event], effects: Effects) -> None:
        # One flat list, converted to text at once: this runs for every step of every node.
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
