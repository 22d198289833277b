"""A replica that does not lead and serves committed records: what it may serve, and from where."""

from __future__ import annotations

import random

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    AppendRequest,
    Configuration,
    DurableToken,
    Entry,
    HardState,
    Heartbeat,
    RaftLogServices,
    RestoredReplica,
)
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.durable_raft_group import check_chain
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.partition.partition import Partition
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header
from tests.support.partition_rig import GROUP, MemoryLog, MemoryStore, Rig, batch

LEADER, SELF = 1, 2


class Follower:
    """The replica of node 2, which receives what a leader, node 1, has in its log."""

    def __init__(self, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        self.leader = Rig()
        self.leader.lead()
        self.log = MemoryLog()
        sealer = GroupSealer(GROUP)
        restored = RestoredReplica(
            node_id=SELF,
            group=GROUP,
            configuration=Configuration(voters),
            hard_state=HardState(),
            last=ORIGIN,
            first_index=1,
            anchor=ORIGIN,
            applied=0,
        )
        services = RaftLogServices(MemoryStore(self.log), sealer, check_chain=check_chain)
        self.raft = RaftGroup(restored, services, RaftOptions(), random.Random(1), now=0)
        identity = PartitionId(b"t" * 16, "orders", 0)
        self.partition = Partition(identity, self.raft, sealer, self.log, {}, NodeLimits())
        self.pending: list[tuple[DurableToken, list[Entry]]] = []
        self._sent = ORIGIN

    def append(self, *, commit: bool = True) -> None:
        """The leader appends a batch of three records and sends what is new; ``commit``: it is committed by others."""
        self.leader.produce(batch(count=3))
        self.leader.settle()
        entries = [entry for index, entry in sorted(self.leader.log.log.items()) if index > self._sent.index]
        before, self._sent = self._sent, self.leader.raft.last_id
        index = self._sent.index if commit else before.index
        term = self.leader.raft.term
        self.raft.step(1, AppendRequest(LEADER, SELF, term, before.index, before.term, index, entries))
        self.settle()

    def settle(self) -> None:
        """Applies what is committed; pending writes wait for `write`."""
        while self.raft.has_ready():
            ready = self.raft.take_ready()
            if ready.committed:
                self.partition.apply(ready.committed)
            if ready.durable is not None:
                self.pending.append((ready.durable, list(ready.entries)))
            self.partition.update_leadership()
        self.partition.forget_durable()

    def write(self) -> None:
        """The disk has everything."""
        for token, entries in self.pending:
            self.log.log.update((entry.index, entry) for entry in entries)
            self.raft.on_durable(2, token)
        self.pending.clear()
        self.settle()

    def read(self, offset: int) -> list[int]:
        """The first offsets of the batches that it serves."""
        return [parse_header(entry).base_offset for entry in self.partition.read(offset, 1 << 20)]


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_committed_batches_are_read_before_they_are_durable(follower: Follower) -> None:
    """A quorum of others has them: they are served from memory, then from the disk."""
    follower.append()
    follower.append()
    assert follower.partition.follows
    assert follower.read(0) == [0, 3]
    assert follower.read(4) == [3]
    follower.write()
    assert follower.read(4) == [3]
    assert not follower.partition._not_durable


def test_uncommitted_batches_are_not_read(follower: Follower) -> None:
    """Another leader may replace them."""
    follower.append()
    follower.write()
    follower.append(commit=False)
    follower.write()
    assert follower.partition.high_watermark == 3
    assert follower.read(0) == [0]
    assert follower.read(3) == []


def test_other_epochs_are_refused(follower: Follower) -> None:
    """A client that has a newer leader than this replica, or an older one, looks it up (KIP-320)."""
    follower.append()
    term = follower.raft.term
    for epoch, code in ((term - 1, ErrorCode.FENCED_LEADER_EPOCH), (term + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        problem = follower.partition.check_follower(epoch)
        assert problem is not None
        assert problem.code == code
    assert follower.partition.check_follower(term) is None


def test_offset_ahead_is_no_error(follower: Follower) -> None:
    """Only its leader can tell where the log ends; below the log start an offset is refused."""
    follower.append()
    assert follower.partition.check_offset(1_000) is None
    problem = follower.partition.check_offset(-1)
    assert problem is not None
    assert problem.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("voters", [(1, 3), (1, 3, 4)])
def test_former_member_does_not_serve(voters: tuple[int, ...]) -> None:
    """A replica that was removed, or is being filled, is not a voter: it may be far behind indefinitely."""
    follower = Follower(voters)
    follower.append()
    assert not follower.partition.follows
    problem = follower.partition.check_follower(-1)
    assert problem is not None
    assert problem.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_candidate_does_not_serve(follower: Follower) -> None:
    """Without a leader a replica cannot learn what is committed."""
    follower.append()
    follower.write()
    follower.raft.campaign(5_000_000)
    follower.settle()
    assert not follower.partition.follows
    follower.raft.step(5_000_001, Heartbeat(LEADER, SELF, follower.raft.term, follower.raft.commit_index, 1))
    follower.settle()
    assert follower.partition.follows


def test_next_leader_is_followed(follower: Follower) -> None:
    """The first heartbeat of the next term suffices: what was served before stays committed."""
    follower.append()
    follower.write()
    successor = follower.raft.term + 1
    follower.raft.step(3, Heartbeat(3, SELF, successor, follower.raft.commit_index, 1))
    follower.settle()
    assert follower.raft.leader_id == 3
    assert follower.partition.follows
    assert follower.read(0) == [0]
