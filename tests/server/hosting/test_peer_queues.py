"""Contents of data frames for a peer, when more is queued than a frame can hold."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    AppendRequest,
    AppendResponse,
    Configuration,
    HardState,
    Message,
    RaftLogServices,
    RestoredReplica,
)
from quorumlog.server.hosting.peer_queues import LARGE_FRAME_BYTES, PeerQueue, PeerQueues
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.step.events import PeerFrame, PeerIdentity, Stream
from quorumlog.storage.transaction import RaftGroupWrite
from tests.support.raft_services import NoMachine, NoStore

LEADER, PEER = 1, 2
URGENT = 0
FRAME_BYTES = 4_096
#: One of them fills a frame.
ENTRY = b"x" * FRAME_BYTES


class Leader:
    """A node that leads some groups alone, and a learner of each that acknowledges whatever it gets."""

    def __init__(self, *groups: int, frame_bytes: int = FRAME_BYTES) -> None:
        self.pace = ReplicationThrottle(0)
        self.queues = PeerQueues(LEADER, URGENT, frame_bytes, self._no_snapshot, self.pace)
        self.queues[PEER].open(PeerIdentity("cluster", PEER, "directory", 1, "peer:1"), 0)
        self.host = RaftHost(self.queues.enqueue)
        configuration = Configuration((LEADER,), (PEER,))
        for group in groups:
            restored = RestoredReplica(
                node_id=LEADER,
                group=group,
                configuration=configuration,
                hard_state=HardState(),
                last=ORIGIN,
                first_index=1,
                anchor=ORIGIN,
                applied=0,
            )
            services = RaftLogServices(NoStore(), GroupSealer(group))
            raft = RaftGroup(restored, services, RaftOptions(), random.Random(group), now=0)
            self.host.create(RaftGroupWrite(group, create=configuration, hard_state=HardState()))
            self.host.add(group, HostedReplica(raft, NoMachine(), lazy_commit=False))
            raft.campaign(1)
        while not all(self.raft(group).is_leader for group in groups):
            self._sync()
        while self.next_frame() is not None:
            pass

    @staticmethod
    def _no_snapshot(now: int, group: int, message: Message) -> None:
        raise AssertionError("the peer needs entries")

    def raft(self, group: int) -> RaftGroup:
        return self.host.replicas[group].raft

    def propose(self, group: int, entries: int = 1) -> None:
        for _ in range(entries):
            self.raft(group).propose(2, GroupSealer(group).command(ENTRY))
        self._sync()

    @staticmethod
    def sealed(group: int):  # type: ignore[no-untyped-def]
        return GroupSealer(group).command(ENTRY)

    def _sync(self) -> None:
        self.host.run_round()
        transaction = self.host.take_transaction(1)
        if transaction is not None:
            self.host.on_durable(1, transaction.number)
        for group in self.host.replicas:
            self.queues.mark(group, (PEER,))

    def next_frame(self) -> Counter[int] | None:
        """Returns the number of entries of each group in the next data frame; None when nothing is left to be sent."""
        frames = [frame for _, frame in self.queues.collect(3, self.host, silent=False) if frame.stream is Stream.DATA]
        for frame in frames:
            self._acknowledge(frame)
        if not frames:
            return None
        (frame,) = frames
        entries: Counter[int] = Counter()
        for group, message in frame.messages:
            assert isinstance(message, AppendRequest)
            entries[group] += len(message.entries)
        return entries

    def _acknowledge(self, frame: PeerFrame) -> None:
        self.queues[PEER].acknowledge(frame.sequence)
        for group, message in frame.messages:
            assert isinstance(message, AppendRequest)
            index = message.prev_index + len(message.entries)
            self.raft(group).step(3, AppendResponse(PEER, LEADER, message.term, index))
            self.queues.mark(group, (PEER,))


def test_a_group_that_fills_every_frame_takes_turns_with_the_others() -> None:
    leader = Leader(7, 8, 9)
    leader.propose(7, entries=20)
    leader.propose(8)
    leader.propose(9)
    first_frames = [leader.next_frame() for _ in range(4)]
    gone = sum((frame for frame in first_frames if frame is not None), Counter())
    assert gone[8] == 1 and gone[9] == 1, f"the first frames had {first_frames}"
    assert gone[7] >= 2, "nor does it wait for them"


@pytest.mark.parametrize("others", [1, 30])
def test_the_urgent_group_waits_for_one_frame_at_most_however_many_others_have_entries(others: int) -> None:
    busy = range(100, 100 + others)
    leader = Leader(*busy, URGENT)
    for group in busy:
        leader.propose(group, entries=10)
    assert leader.next_frame()
    leader.propose(URGENT)
    frame = leader.next_frame()
    assert frame is not None and frame[URGENT] == 1


def test_the_others_have_every_second_frame_while_the_urgent_group_catches_up() -> None:
    leader = Leader(URGENT, 7, 8)
    leader.propose(URGENT, entries=30)
    leader.propose(7, entries=5)
    leader.propose(8, entries=5)
    first_frames = [leader.next_frame() for _ in range(20)]
    gone = sum((frame for frame in first_frames if frame is not None), Counter())
    assert (gone[7], gone[8]) == (5, 5), f"the first frames had {first_frames}"
    assert gone[URGENT] >= 10


def link(sizes: tuple[int, ...] = (), sent_at: tuple[int, ...] = ()) -> PeerQueue:
    """Returns an open link with frames of these sizes in flight."""
    made = PeerQueue(PEER)
    made.open(PeerIdentity("cluster", PEER, "directory", 1, "peer:1"), 100)
    for number, size in enumerate(sizes, start=1):
        made.in_flight.append((number, size, sent_at[number - 1] if sent_at else 0))
    return made


@pytest.mark.parametrize(
    ("sizes", "may"),
    [((), True), ((LARGE_FRAME_BYTES - 1,), False), ((LARGE_FRAME_BYTES,), True), ((LARGE_FRAME_BYTES,) * 2, False)],
)
def test_two_frames_are_in_flight_where_they_are_large(sizes: tuple[int, ...], may: bool) -> None:
    assert link(sizes).may_send() is may


def test_a_link_is_stuck_with_its_oldest_frame() -> None:
    made = link((LARGE_FRAME_BYTES,) * 2, sent_at=(10, 900))
    assert not made.stuck(510, 500)
    assert made.stuck(511, 500)
    made.acknowledge(1)
    assert not made.stuck(1_400, 500)
    assert made.stuck(1_401, 500)
    made.acknowledge(2)
    assert not made.stuck(1 << 40, 500)


def test_a_link_that_opens_counts_anew() -> None:
    """A link that opens numbers its frames from the start: the peer would treat continued numbers of another stream as
    late."""
    made = link((10, 20))
    made.sequence = 2
    made.close()
    assert not made.up and not made.may_send()
    made.open(PeerIdentity("cluster", PEER, "directory", 1, "peer:1"), 300)
    assert (made.sequence, len(made.in_flight), made.may_send()) == (0, 0, True)


def test_a_link_that_has_just_opened_is_alive() -> None:
    """A link that has just opened is alive: silence counts from its opening, as nothing was received on it yet."""
    queues = Leader(7).queues
    peer = queues[PEER]
    peer.open(PeerIdentity("cluster", PEER, "directory", 1, "peer:1"), 1_000)
    peer.heard = 10
    assert queues.alive(PEER, 1_500, 500)
    assert not queues.alive(PEER, 1_501, 500)
    peer.heard = 1_200
    assert queues.alive(PEER, 1_700, 500)
    peer.close()
    assert not queues.alive(PEER, 1_300, 500)
    assert not queues.alive(9, 1_300, 500)
