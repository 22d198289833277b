"""Outgoing queues to the other nodes: the frames that wait to be sent, and the limit on frames in flight.

Data frames are paced: one unacknowledged frame per peer, two if frames are large. Messages that arrive in between
gather for the next frame, so frames fill up automatically under load.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.log import size_of
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

#: Two frames may be in flight if they have at least this size.
LARGE_FRAME_BYTES = 64 << 10
#: What a link without frames to send has gathered.
NO_FRAMES = (None, None, None)
#: Size of a message in a frame in addition to its entries.
MESSAGE_OVERHEAD_BYTES = 64


@dataclass(slots=True)
class PeerQueue:
    """The link to one peer. ``identity`` is None while it is down; ``heard`` is when the last frame arrived (µs).

    ``ready_groups`` may have entries for the peer, and are served in this order. ``urgent_sent``: the last data frame
    had entries of the urgent group. ``copied_at``: when a part of a paced copy was last sent (µs).
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
        """True if frames sent now can arrive."""
        return self.identity is not None

    def may_send(self) -> bool:
        """True if another data frame may be sent."""
        if self.identity is None or len(self.in_flight) >= 2:
            return False
        return not self.in_flight or self.in_flight[0][1] >= LARGE_FRAME_BYTES

    def acknowledge(self, sequence: int) -> None:
        """Removes every frame up to ``sequence`` from those in flight: the peer has made them durable."""
        while self.in_flight and self.in_flight[0][0] <= sequence:
            self.in_flight.popleft()

    def stuck(self, now: int, timeout_us: int) -> bool:
        """True if the oldest frame in flight has waited for its acknowledgement for too long."""
        return bool(self.in_flight) and now - self.in_flight[0][2] > timeout_us

    def open(self, identity: PeerIdentity, now: int) -> None:
        """Resets the link for new streams to the peer.

        Pending answers on the peer's streams to this node are kept: an acknowledgement dropped here would delay the
        peer's next frame until it gives the link up.
        """
        self.identity = identity
        self.connected_at = now
        self.sequence = 0
        self.in_flight.clear()

    def close(self) -> None:
        """Marks the link as down: no frame in flight, and no waiting frame, can arrive."""
        self.identity = None
        self.in_flight.clear()
        self.control = self.control_answer = self.data_answer = None


class PeerQueues:
    """All links of a node.

    Arguments:
        urgent_group: the group whose entries wait for at most one frame of other groups.
        offer: called with (now, group, message) when a follower needs a snapshot instead of entries.
        pace: throttle for entries to replicas that are being added.
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
        """Returns the link to a peer, or None."""
        return self._links.get(peer)

    def forget(self, peer: int) -> None:
        """Forgets a peer that is not a member of any group here. Otherwise callers with invented node ids could fill
        the memory."""
        self._links.pop(peer, None)

    def alive(self, peer: int, now: int, silence_us: int) -> bool:
        """True if a peer can be expected to answer: connected, and heard from within ``silence_us``."""
        link = self._links.get(peer)
        return link is not None and link.up and now - max(link.heard, link.connected_at) <= silence_us

    def grant(self, leases: Leases) -> None:
        """Queues a lease for every connected peer."""
        for link in self._links.values():
            if link.up:
                self.control(link).lease = leases.grant(link.peer)

    def enqueue(self, group: int, message: Message) -> None:
        """Queues a message on its stream: answers on the stream that the peer opened, all others on this node's own."""
        link = self[message.to]
        if isinstance(message, AppendResponse):
            self.data_answer(link).messages.append((group, message))
        elif isinstance(message, VoteResponse | HeartbeatResponse):
            self.control_answer(link).messages.append((group, message))
        elif link.up:
            self.control(link).messages.append((group, message))

    @staticmethod
    def control(link: PeerQueue) -> PeerFrame:
        """Returns the pending control frame for a peer."""
        if link.control is None:
            link.control = PeerFrame(Stream.CONTROL)
        return link.control

    @staticmethod
    def control_answer(link: PeerQueue) -> PeerFrame:
        """Returns the pending control answer for a peer."""
        if link.control_answer is None:
            link.control_answer = PeerFrame(Stream.CONTROL_ANSWER)
        return link.control_answer

    @staticmethod
    def data_answer(link: PeerQueue) -> PeerFrame:
        """Returns the pending data answer for a peer."""
        if link.data_answer is None:
            link.data_answer = PeerFrame(Stream.DATA_ANSWER)
        return link.data_answer

    def mark(self, group: int, peers: tuple[int, ...]) -> None:
        """Marks a group that this node leads as possibly having entries for its members."""
        for peer in peers:
            if peer != self._node_id:
                self[peer].ready_groups[group] = None

    def collect(self, now: int, host: RaftHost, *, silent: bool) -> list[tuple[int, PeerFrame]]:
        """Removes and returns every frame that may be sent now: control first, then answers, then data as pacing
        allows.

        Arguments:
            silent: entries, which are also signs of life, are held back.
        """
        frames: list[tuple[int, PeerFrame]] = []
        for link in self._links.values():
            gathered = (link.control, link.control_answer, link.data_answer)
            if gathered != NO_FRAMES:
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
        """Returns the links, those last that most recently got a part of a paced copy."""
        links = self._links.values()
        return sorted(links, key=lambda link: link.copied_at) if self._pace.is_busy else links

    def _next_data(self, now: int, link: PeerQueue, host: RaftHost) -> PeerFrame | None:
        """Returns the next data frame for a peer; None if no group has entries for it."""
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
                # If an entry is damaged, the group is examined again once it is repaired.
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
                added = MESSAGE_OVERHEAD_BYTES + size_of(message.entries)
                size += added
                if paced:
                    self._pace.sent(now, group, added)
                    link.copied_at = now
                # More of the same group goes last, so that one busy group cannot starve the others, least of all when
                # it fills the frame.
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
        """Returns the groups in the order in which they may add to a frame.

        The urgent group goes first unless it was in the previous frame, so that a peer that is behind in a thousand
        partitions, or in the urgent group itself, gets both.
        """
        turns = list(link.ready_groups)
        if not link.urgent_sent and self._urgent_group in link.ready_groups:
            turns.remove(self._urgent_group)
            turns.insert(0, self._urgent_group)
        return turns
