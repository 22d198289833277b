"""The network between nodes in virtual time: ordered streams over connections that exist, stall and break.

Streams are gRPC streams, so within one connection nothing is lost, duplicated or reordered; faults show as delay, and
then as a broken link (all six streams of a pair end together, as in the shipped adapter). Across connections frames are
lost, and sent again by nodes that cannot tell what had arrived.

An unruly network is worse: it loses, duplicates and reorders frames of streams that stay up. Raft must be safe all the
same, and the nodes must recover once it behaves.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from quorumlog.server.step.events import (
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentity,
    Stream,
)
from quorumlog.simulator.world.scheduler import Scheduler, Timer

FORWARD = (Stream.CONTROL, Stream.DATA, Stream.SNAPSHOT)


class Endpoints(Protocol):
    """The processes at both ends of the connections."""

    def is_up(self, node: int) -> bool:
        """True if the process is running (even if it is paused)."""

    def deliver(self, node: int, event: Event) -> None:
        """Puts an event into the node's queue."""

    def identity(self, node: int) -> PeerIdentity:
        """Returns the identity that the running node reports."""

    def refusal(self, node: int, identity: PeerIdentity) -> str | None:
        """Returns why the node rejects streams of that peer, or None."""


@dataclass(slots=True)
class NetworkOptions:
    """Behaviour of the network. Times in µs."""

    delay_us: tuple[int, int] = (100, 2_000)
    spike_probability: float = 0.01
    spike_us: tuple[int, int] = (5_000, 80_000)
    keepalive_us: int = 2_000_000
    reconnect_us: tuple[int, int] = (10_000, 150_000)


@dataclass(slots=True, frozen=True)
class Unruliness:
    """Faults that streams never have, as probabilities per frame."""

    loss: float = 0.0
    doubling: float = 0.0
    overtaking: float = 0.0

    @property
    def any(self) -> bool:
        """True if any of them is enabled."""
        return bool(self.loss or self.doubling or self.overtaking)


@dataclass(slots=True)
class Connection:
    """The streams that ``opener`` holds to ``acceptor``, in one connection; ``directories`` are theirs."""

    opener: int
    acceptor: int
    directories: dict[int, str]
    is_open: bool = True
    queues: dict[Stream, deque[tuple[int, PeerFrame]]] = field(default_factory=dict)
    pumping: dict[Stream, Timer] = field(default_factory=dict)


class SimNetwork:
    """All connections, and their obstacles.

    Arguments:
        carry: returns a sender's frame as the receiver gets it (through the codec, or the same frame).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        options: NetworkOptions,
        endpoints: Endpoints,
        carry: Callable[[int, int, PeerFrame], PeerFrame] = lambda sender, receiver, frame: frame,
    ) -> None:
        self.slowdown = 1
        self.spiky = True
        self.unruliness = Unruliness()
        self.frames = 0
        self._scheduler = scheduler
        self._rng = rng
        self._options = options
        self._endpoints = endpoints
        self._carry = carry
        self._connections: dict[tuple[int, int], Connection] = {}
        self._wanted: dict[int, tuple[int, ...]] = {}
        self._attempting: set[tuple[int, int]] = set()
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._untold: set[tuple[int, int]] = set()

    # -- connections --------------------------------------------------------------------------------------------

    def want(self, node: int, peers: tuple[int, ...]) -> None:
        """Makes ``node`` hold streams to ``peers``, and to no other node, from now on."""
        self._wanted[node] = peers
        for peer in sorted(acceptor for opener, acceptor in self._connections if opener == node):
            if peer not in peers:
                self.reset(node, peer)
        for peer in peers:
            self._attempt_soon(node, peer)

    def connected(self, opener: int, acceptor: int) -> bool:
        """True if the opener's streams to the acceptor are open."""
        return (opener, acceptor) in self._connections

    def _attempt_soon(self, opener: int, acceptor: int) -> None:
        pair = (opener, acceptor)
        if pair in self._connections or pair in self._attempting:
            return
        self._attempting.add(pair)
        self._scheduler.after(self._rng.randint(*self._options.reconnect_us), lambda: self._attempt(opener, acceptor))

    def _attempt(self, opener: int, acceptor: int) -> None:
        self._attempting.discard((opener, acceptor))
        if acceptor not in self._wanted.get(opener, ()) or not self._endpoints.is_up(opener):
            return
        if not self._endpoints.is_up(acceptor) or not self.reachable(opener, acceptor):
            self._attempt_soon(opener, acceptor)
            return
        identity, own = self._endpoints.identity(acceptor), self._endpoints.identity(opener)
        if self._endpoints.refusal(acceptor, own) is not None or (
            self._endpoints.refusal(opener, identity) is not None
        ):
            self._attempt_soon(opener, acceptor)
            return
        # Opening new streams ends the rest of the old ones: their end is reported before anything new arrives.
        self._tell_disconnected(acceptor, opener)
        self._tell_disconnected(opener, acceptor)
        directories = {opener: own.directory_id, acceptor: identity.directory_id}
        self._connections[(opener, acceptor)] = Connection(opener, acceptor, directories)
        self._endpoints.deliver(opener, PeerConnected(acceptor, identity))

    def reset(self, one: int, other: int) -> None:
        """Breaks the link of a pair, with all of its streams; each side is notified once, and opens new ones."""
        broken = False
        for pair in ((one, other), (other, one)):
            connection = self._connections.pop(pair, None)
            if connection is not None:
                broken = True
                self._leave_received(connection)
                self._close(connection)
        if broken:
            self._notice(one, other, self._rng.randint(*self._options.delay_us))
            self._notice(other, one, self._rng.randint(*self._options.delay_us))

    def sever(self, node: int) -> list[tuple[int, int]]:
        """Cuts all links of ``node``, and resets the others' connections to it; the node detects it by keepalive. The
        others react immediately, while it still believes itself connected.

        Returns:
            The cut links, for ``mend``.
        """
        cut: list[tuple[int, int]] = []
        for peer in sorted({n for pair in self._connections if node in pair for n in pair} - {node}):
            for pair in ((node, peer), (peer, node)):
                connection = self._connections.pop(pair, None)
                if connection is not None:
                    self._close(connection)
                self._cuts[pair] += 1
                cut.append(pair)
            self._notice(peer, node, self._rng.randint(*self._options.delay_us))
            self._notice(node, peer, self._options.keepalive_us)
        return cut

    def process_died(self, node: int, silent: bool) -> None:
        """Closes the sockets of a crashed node. Peers notice immediately, or (``silent``: power loss) by keepalive."""
        self._wanted.pop(node, None)
        self._untold = {pair for pair in self._untold if pair[0] != node}
        peers = set()
        for pair in sorted(pair for pair in self._connections if node in pair):
            self._close(self._connections.pop(pair))
            peers.add(pair[0] if pair[1] == node else pair[1])
        for peer in sorted(peers):
            delay = self._options.keepalive_us if silent else self._rng.randint(*self._options.delay_us)
            self._notice(peer, node, delay)

    def _close(self, connection: Connection) -> None:
        connection.is_open = False
        for queue in connection.queues.values():
            queue.clear()

    def _notice(self, node: int, peer: int, delay: int) -> None:
        self._untold.add((node, peer))
        self._scheduler.after(delay, lambda: self._tell_disconnected(node, peer))

    def _tell_disconnected(self, node: int, peer: int) -> None:
        if (node, peer) not in self._untold:
            return
        self._untold.discard((node, peer))
        if self._endpoints.is_up(node):
            self._endpoints.deliver(node, PeerDisconnected(peer))
            if peer in self._wanted.get(node, ()):
                self._attempt_soon(node, peer)

    def _leave_received(self, connection: Connection) -> None:
        """Delivers a part of the data in flight, which was received already."""
        for stream, queue in connection.queues.items():
            if queue and self._rng.random() < 0.5:
                sender, receiver = self._ends(connection, stream)
                if not self._blocked(sender, receiver):
                    for _, frame in list(queue)[: self._rng.randint(1, len(queue))]:
                        self._arrive(sender, receiver, frame, connection.directories[sender])

    # -- frames -------------------------------------------------------------------------------------------------

    def send(self, sender: int, receiver: int, frame: PeerFrame) -> None:
        """Sends a frame; it arrives in order on its stream, or never."""
        forward = frame.stream in FORWARD
        connection = self._connections.get((sender, receiver) if forward else (receiver, sender))
        if connection is None:
            return
        self.frames += 1
        if self.unruliness.any:
            self._send_unruly(connection, sender, receiver, frame)
            return
        self._enqueue(connection, frame.stream, self._carry(sender, receiver, frame))

    def _send_unruly(self, connection: Connection, sender: int, receiver: int, frame: PeerFrame) -> None:
        how, draw = self.unruliness, self._rng.random
        if draw() < how.loss:
            return
        for _ in range(2 if draw() < how.doubling else 1):
            carried = self._carry(sender, receiver, frame)
            if draw() < how.overtaking:
                # Delayed separately, so that later frames overtake it; if the connection ends first, it arrives on the
                # next one.
                self._scheduler.after(
                    self._delay() + self._rng.randint(1_000, 200_000),
                    lambda carried=carried: self._straggle(connection, sender, receiver, carried),  # type: ignore[misc]
                )
            else:
                self._enqueue(connection, frame.stream, carried)

    def _straggle(self, connection: Connection, sender: int, receiver: int, frame: PeerFrame) -> None:
        if not self._blocked(sender, receiver) and self.unruliness.any:
            self._arrive(sender, receiver, frame, connection.directories[sender])

    def _enqueue(self, connection: Connection, stream: Stream, frame: PeerFrame) -> None:
        queue = connection.queues.setdefault(stream, deque())
        ready = self._scheduler.now + self._delay()
        if queue:
            ready = max(ready, queue[-1][0])
        queue.append((ready, frame))
        self._pump_soon(connection, stream)

    def _pump_soon(self, connection: Connection, stream: Stream) -> None:
        queue = connection.queues[stream]
        if queue and stream not in connection.pumping:
            connection.pumping[stream] = self._scheduler.at(queue[0][0], lambda: self._pump(connection, stream))

    def _pump(self, connection: Connection, stream: Stream) -> None:
        connection.pumping.pop(stream, None)
        sender, receiver = self._ends(connection, stream)
        if not connection.is_open or self._blocked(sender, receiver):
            # Cut: the frames wait, as TCP retransmits; healing sends them again, keepalive breaks the connection.
            return
        _, frame = connection.queues[stream].popleft()
        self._arrive(sender, receiver, frame, connection.directories[sender])
        self._pump_soon(connection, stream)

    def _arrive(self, sender: int, receiver: int, frame: PeerFrame, directory_id: str) -> None:
        if self._endpoints.is_up(receiver):
            self._endpoints.deliver(receiver, FrameReceived(sender, frame, directory_id))

    @staticmethod
    def _ends(connection: Connection, stream: Stream) -> tuple[int, int]:
        if stream in FORWARD:
            return connection.opener, connection.acceptor
        return connection.acceptor, connection.opener

    def _delay(self) -> int:
        least, most = self._options.delay_us
        delay = least + int((most - least) * self._rng.random())
        if self.spiky and self._rng.random() < self._options.spike_probability:
            delay += self._rng.randint(*self._options.spike_us)
        return delay * self.slowdown

    # -- cuts ---------------------------------------------------------------------------------------------------

    def reachable(self, one: int, other: int) -> bool:
        """True if a request and its answer can pass between two nodes."""
        return not self._blocked(one, other) and not self._blocked(other, one)

    def cut(self, sender: int, receiver: int) -> None:
        """Drops everything from ``sender`` to ``receiver``, until it is mended as often as it was cut; a connection
        breaks after the keepalive.
        """
        self._cuts[(sender, receiver)] += 1

        def give_up() -> None:
            if self._blocked(sender, receiver):
                self.reset(sender, receiver)

        self._scheduler.after(self._options.keepalive_us, give_up)

    def mend(self, sender: int, receiver: int) -> None:
        """Undoes one ``cut``; once none is left, waiting frames are sent."""
        self._cuts[(sender, receiver)] -= 1
        if not self._blocked(sender, receiver):
            for pair in ((sender, receiver), (receiver, sender)):
                self._flow(self._connections.get(pair))

    def heal(self) -> None:
        """Removes all cuts, slowness and unruliness; waiting frames are sent."""
        self._cuts.clear()
        self.slowdown = 1
        self.unruliness = Unruliness()
        soon = self._scheduler.now + self._options.delay_us[1]
        for _, connection in sorted(self._connections.items()):
            for timer in connection.pumping.values():
                timer.cancel()
            connection.pumping.clear()
            for stream, queue in connection.queues.items():
                # Frames sent over a slow network would delay all later ones for seconds.
                connection.queues[stream] = deque((min(ready, soon), frame) for ready, frame in queue)
            self._flow(connection)

    def _flow(self, connection: Connection | None) -> None:
        if connection is not None:
            for stream in sorted(connection.queues, key=lambda stream: stream.value):
                self._pump_soon(connection, stream)

    def _blocked(self, sender: int, receiver: int) -> bool:
        return self._cuts[(sender, receiver)] > 0
