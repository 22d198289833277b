"""Copies of logs keep to their rate limit, and other traffic does not wait for them."""

from __future__ import annotations

from collections import Counter

from test_peer_queues import ENTRY, PEER, Leader

from quorumlog.raft.types import AppendRequest, Configuration
from quorumlog.server.hosting.replication_throttle import PACED_BYTES, ReplicationThrottle
from quorumlog.server.step.events import Stream

COPIED, OTHER = 7, 8
RATE = 1 << 20
SECOND = 1_000_000


class Copying(Leader):
    """A leader whose group 7 is being copied to its learner, within a limit."""

    def __init__(self) -> None:
        super().__init__(COPIED, OTHER, frame_bytes=1 << 20)
        self.pace.throttle_of = lambda group: RATE if group == COPIED else 0
        self.sent: Counter[int] = Counter()
        self.now = 3

    def run(self, seconds: float) -> None:
        """Lets time pass as a node does: it looks again when something comes, and when what was held may leave."""
        end = self.now + int(seconds * SECOND)
        while True:
            self.pace.begin(self.now)
            frames = self.queues.collect(self.now, self.host, silent=False)
            for _, frame in frames:
                if frame.stream is Stream.DATA:
                    for group, message in frame.messages:
                        assert isinstance(message, AppendRequest)
                        self.sent[group] += sum(len(entry.data) for entry in message.entries)
                    self._acknowledge(frame)
            if not frames:
                if self.pace.held_until is None or self.pace.held_until > end:
                    self.now = end
                    return
                self.now = self.pace.held_until


def test_a_copy_takes_as_long_as_its_limit_says() -> None:
    leader = Copying()
    leader.propose(COPIED, entries=1_000)
    for _ in range(6):
        leader.run(0.5)
        passed = (leader.now - 3) / SECOND
        assert RATE * passed - PACED_BYTES <= leader.sent[COPIED] <= RATE * passed + 2 * PACED_BYTES
    leader.run(4)
    assert leader.sent[COPIED] > 1_000 * len(ENTRY)
    assert leader.pace.held_until is None


def test_what_is_not_limited_passes_a_copy_that_waits() -> None:
    leader = Copying()
    leader.propose(COPIED, entries=500)
    leader.run(0.01)
    waiting = leader.sent[COPIED]
    leader.propose(OTHER, entries=200)
    leader.run(0.01)
    assert leader.sent[OTHER] > 200 * len(ENTRY)
    assert leader.sent[COPIED] == waiting


def test_a_voter_is_never_held_back() -> None:
    leader = Copying()
    leader.propose(COPIED)
    leader.propose(COPIED)
    leader.raft(COPIED).propose_configuration(leader.now, Configuration((1, PEER)))
    for _ in range(4):
        leader.host.touch(COPIED)
        leader._sync()
        leader.run(1)
    assert PEER in leader.raft(COPIED).configuration.voters
    for _ in range(500):
        leader.raft(COPIED).propose(leader.now, leader.sealed(COPIED))
    leader._sync()
    leader.run(0.01)
    assert leader.sent[COPIED] > 500 * len(ENTRY)


def test_copies_with_one_limit_share_it_and_a_nodes_own_is_for_all() -> None:
    pace = ReplicationThrottle(4 * RATE)
    limits = {1: RATE, 2: RATE, 3: 2 * RATE, 4: 0}
    pace.throttle_of = limits.get
    pace.sent(0, 1, RATE)
    assert pace.holds(SECOND - 1, 2), "it shares its limit with what has left"
    assert not pace.holds(SECOND // 2, 3), "another limit, and a quarter of the node's"
    assert pace.holds(SECOND // 8, 4)
    assert not pace.holds(SECOND // 4, 4)
    assert not pace.holds(0, 0), "the metadata wait for nothing"


def test_the_first_copy_that_may_leave_is_named() -> None:
    """Two limits: the node looks again when the faster one has room, not when both have."""
    pace = ReplicationThrottle(0)
    pace.throttle_of = {1: RATE, 2: 4 * RATE}.get
    pace.begin(0)
    for group in (1, 2):
        assert not pace.holds(0, group)
        pace.sent(0, group, RATE)
    for groups in ((1, 2), (2, 1)):
        pace.begin(1)
        assert all(pace.holds(1, group) for group in groups)
        assert pace.held_until == SECOND // 4
    pace.begin(SECOND // 4)
    assert not pace.holds(SECOND // 4, 2)
    assert pace.holds(SECOND // 4, 1)
    pace.begin(SECOND)
    assert not pace.is_busy


def test_the_slower_of_two_limits_counts() -> None:
    pace = ReplicationThrottle(2 * RATE)
    pace.throttle_of = {1: RATE, 2: 0, 3: None}.get
    pace.begin(0)
    pace.sent(0, 1, RATE)
    assert pace.holds(SECOND // 2, 1) and not pace.holds(SECOND // 2, 2)
    assert pace.holds(SECOND // 2 - 1, 2), "the node's own limit is for all"
    assert not pace.holds(0, 3)
    assert [pace.is_paced(group) for group in (1, 2, 3)] == [True, True, False]
