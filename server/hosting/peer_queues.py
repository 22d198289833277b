"""Links to the other nodes as the node sees them: what waits to be sent, and how much may be in flight.

Data frames are paced: one unacknowledged frame per peer, two when frames are large. What arrives meanwhile gathers
for the next one, so frames fill up by themselves under load.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.types import (
    AppendRequest,
    AppendResponse,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    VoteResponse,
)
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.replication_throttle import PACED_BYTES, ReplicationThrottle
from quorumlog.server.step.events import PeerFrame, PeerIdentity, Stream

#: Frames of at least this size may be two in flight.
LARGE_FRAME_BYTES = 64 << 10
#: What a message costs in a frame beside its entries.
MESSAGE_OVERHEAD_BYTES = 64


@dataclass(slots=True)
class PeerQueue:
    """The link to one peer. ``identity`` is None while it is down; ``heard`` is when the last frame came (µs).

    ``ready_groups`` may have entries for the peer, whose turn comes in this order. ``urgent_sent``: the last data frame
    had some of the urgent group. ``copied_at``: when a part of a paced copy left (µs).
    """

    peer: int
    identity: PeerIdentity | None = None
    heard: int = 0
    connected_at: int = 0
    control: PeerFrame | None = None
    control_answer: PeerFrame | None = None
    data_answer: PeerFrame | None = None
    ready_groups: dict[int, None] = field(default_factory=dict)
    urgent_sent: bool = False
    copied_at: int = 0
    sequence: int = 0
    in_flight: deque[tuple[int, int, int]] = field(default_factory=deque)

    @property
    def up(self) -> bool:
        """Whether frames sent now can arrive."""
        return self.identity is not None

    def may_send(self) -> bool:
        """Whether another data frame may leave."""
        if not self.up or len(self.in_flight) >= 2:
            return False
        return not self.in_flight or self.in_flight[0][1] >= LARGE_FRAME_BYTES

    def acknowledge(self, sequence: int) -> None:
        """The peer has made every frame up to ``sequence`` durable."""
        while self.in_flight and self.in_flight[0][0] <= sequence:
            self.in_flight.popleft()

    def stuck(self, now: int, timeout_us: int) -> bool:
        """Whether the oldest frame has waited for its acknowledgement for too long."""
        return bool(self.in_flight) and now - self.in_flight[0][2] > timeout_us

    def open(self, identity: PeerIdentity, now: int) -> None:
        """Our streams to the peer are new. What waits to be answered on its streams to us is not touched: an
        acknowledgement dropped here would hold up the peer's next frame until it gives the link up."""
        self.identity = identity
        self.connected_at = now
        self.sequence = 0
        self.in_flight.clear()

    def close(self) -> None:
        """A stream of the pair broke: nothing is in flight any more, and nothing that waits can arrive."""
        self.identity = None
        self.in_flight.clear()
        self.control = self.control_answer = self.data_answer = None


class PeerQueues:
    """All links of a node.

    Arguments:
        urgent_group: its entries wait for one frame of the others' at most.
        offer: takes (now, group, message) of a snapshot that a follower needs instead of entries.
        pace: of entries to replicas that are being added.
    """

    def __init__(
        self,
        node_id: int,
        urgent_group: int,
        frame_bytes: int,
        offer: Callable[[int, int, InstallSnapshot], None],
        pace: ReplicationThrottle,
    ) -> None:
        self._node_id = node_id
        self._urgent_group = urgent_group
        self._frame_bytes = frame_bytes
        self._offer = offer
        self._pace = pace
        self._links: dict[int, PeerQueue] = {}

    def __getitem__(self, peer: int) -> PeerQueue:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = PeerQueue(peer)
        return link

    def __iter__(self) -> Iterator[PeerQueue]:
        return iter(self._links.values())

    def find(self, peer: int) -> PeerQueue | None:
        """The link to a peer, if there is one."""
        return self._links.get(peer)

    def forget(self, peer: int) -> None:
        """A peer that is a member of no group here is gone: anybody may come under any number of node ids."""
        self._links.pop(peer, None)

    def alive(self, peer: int, now: int, silence_us: int) -> bool:
        """Whether a peer can be expected to answer: connected, and heard within ``silence_us``."""
        link = self._links.get(peer)
        return link is not None and link.up and now - max(link.heard, link.connected_at) <= silence_us

    def grant(self, leases: Leases) -> None:
        """Tells every connected peer that this node lives."""
        for link in self._links.values():
            if link.up:
                self.control(link).lease = leases.grant(link.peer)

    def enqueue(self, group: int, message: Message) -> None:
        """Puts a message where it belongs: answers on the stream that the peer opened, the rest on our own."""
        link = self[message.to]
        if isinstance(message, AppendResponse):
            self.data_answer(link).messages.append((group, message))
        elif isinstance(message, VoteResponse | HeartbeatResponse):
            self.control_answer(link).messages.append((group, message))
        elif link.up:
            self.control(link).messages.append((group, message))

    @staticmethod
    def control(link: PeerQueue) -> PeerFrame:
        """The control frame that gathers for a peer."""
        if link.control is None:
            link.control = PeerFrame(Stream.CONTROL)
        return link.control

    @staticmethod
    def control_answer(link: PeerQueue) -> PeerFrame:
        """The control answer that gathers for a peer."""
        if link.control_answer is None:
            link.control_answer = PeerFrame(Stream.CONTROL_ANSWER)
        return link.control_answer

    @staticmethod
    def data_answer(link: PeerQueue) -> PeerFrame:
        """The data answer that gathers for a peer."""
        if link.data_answer is None:
            link.data_answer = PeerFrame(Stream.DATA_ANSWER)
        return link.data_answer

    def mark(self, group: int, peers: tuple[int, ...]) -> None:
        """A group that this node leads may have entries for its members."""
        for peer in peers:
            if peer != self._node_id:
                self[peer].ready_groups[group] = None

    def collect(self, now: int, host: RaftHost, *, silent: bool) -> list[tuple[int, PeerFrame]]:
        """Everything that may leave now: control first, then answers, then data as far as pacing allows.

        Arguments:
            silent: entries, which are signs of life too, stay here.
        """
        frames: list[tuple[int, PeerFrame]] = []
        for link in self._links.values():
            gathered = (link.control, link.control_answer, link.data_answer)
            frames.extend((link.peer, frame) for frame in gathered if frame is not None)
            link.control = link.control_answer = link.data_answer = None
        for link in () if silent else self._in_turn():
            while link.ready_groups and link.may_send():
                data = self._next_data(now, link, host)
                if data is None:
                    break
                frames.append((link.peer, data))
        return frames

    def _in_turn(self) -> Iterable[PeerQueue]:
        """The links. Who got a part of a paced copy last waits for the others."""
        links = self._links.values()
        return sorted(links, key=lambda link: link.copied_at) if self._pace.is_busy else links

    def _next_data(self, now: int, link: PeerQueue, host: RaftHost) -> PeerFrame | None:
        """The next data frame for a peer; None when no group has entries for it."""
        data = PeerFrame(Stream.DATA)
        size = 0
        for group in self._turns(link):
            replica = host.replicas.get(group)
            if replica is None or not replica.raft.is_leader:
                del link.ready_groups[group]
                continue
            message, room = None, self._frame_bytes - size
            paced = link.peer in replica.raft.configuration.learners and self._pace.is_paced(group)
            if paced:
                if self._pace.holds(now, group):
                    continue
                room = min(room, PACED_BYTES)
            if replica.raft.wants_append(link.peer, commit_only=not replica.lazy_commit):
                # Where an entry is damaged, the group is looked at again once that is mended.
                with contextlib.suppress(UnreadableEntryError):
                    message = replica.raft.next_append(now, link.peer, room)
            if message is None:
                del link.ready_groups[group]
            elif isinstance(message, InstallSnapshot):
                self._offer(now, group, message)
                del link.ready_groups[group]
            else:
                assert isinstance(message, AppendRequest)
                data.messages.append((group, message))
                added = MESSAGE_OVERHEAD_BYTES + sum(len(entry.data) for entry in message.entries)
                size += added
                if paced:
                    self._pace.sent(now, group, added)
                    link.copied_at = now
                # More of the same group goes last, so that one busy group cannot starve the others. That holds for the
                # one that fills the frame above all.
                del link.ready_groups[group]
                link.ready_groups[group] = None
            if size >= self._frame_bytes:
                break
        if not data.messages:
            return None
        link.urgent_sent = any(group == self._urgent_group for group, _ in data.messages)
        link.sequence += 1
        data.sequence = link.sequence
        link.in_flight.append((link.sequence, size, now))
        return data

    def _turns(self, link: PeerQueue) -> list[int]:
        """The groups in the order in which they may add to a frame.

        The urgent one goes first, unless it was in the frame before: a peer that is behind in a thousand partitions, or
        in that group itself, gets the one and the others.
        """
        turns = list(link.ready_groups)
        if not link.urgent_sent and self._urgent_group in link.ready_groups:
            turns.remove(self._urgent_group)
            turns.insert(0, self._urgent_group)
        return turns
