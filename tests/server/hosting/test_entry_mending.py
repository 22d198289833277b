"""An entry that was damaged is written back as its replica keeps it: a witness as a trace, all others whole."""

from __future__ import annotations

import random

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    NO_NODE,
    ORIGIN,
    Configuration,
    Entry,
    EntryId,
    EntryKind,
    HardState,
    Message,
    RaftLogServices,
    RestoredReplica,
    Role,
    VoteResponse,
)
from quorumlog.server.hosting.entry_repair import PAUSE_US, EntryRepair
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.step.events import EntryFound, PeerFrame, PeerIdentity, Stream
from quorumlog.storage.interface import DamageError
from quorumlog.wire.entry import trace_of
from tests.support.raft_services import NoMachine

GROUP, NODE, PEERS = 1000, 1, (2, 3)
SEALER = GroupSealer(GROUP)
FIRST = SEALER.noop(1, 1, 0)
LOST = SEALER.command(b"x" * 200)(2, 1, FIRST.hash)
LAST = SEALER.noop(3, 1, LOST.hash)
TRACE = Entry(LOST.index, LOST.term, EntryKind.TRACE, LOST.hash, trace_of(LOST.data))


class DamagedLog:
    """A log of three entries of which the second cannot be read."""

    def __init__(self) -> None:
        self.suspected: list[int | None] = []

    def term_at(self, group: int, index: int = 0) -> int:
        return 1

    def suspect(self, group: int | None) -> None:
        self.suspected.append(group)

    def hash_at(self, group: int, index: int) -> int:
        return (FIRST, LOST, LAST)[index - 1].hash

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        if first <= LOST.index <= last:
            raise DamageError("entry 2 is damaged", GROUP, LOST.index)
        return [FIRST] if first == FIRST.index else [LAST]


class Mending:
    """A node that repairs the second entry of a log.

    Arguments:
        witness: node id of the group's witness.
    """

    def __init__(
        self, witness: int = NO_NODE, never: int = 0, applied: int = 0, peers: tuple[int, ...] = PEERS
    ) -> None:
        self.links = PeerQueues(NODE, 0, 4_096, self._no_snapshot, ReplicationThrottle(0))
        for peer in peers:
            self.links[peer].open(PeerIdentity("cluster", peer, "directory", 1, f"peer-{peer}:1"), 0)
        self.host = RaftHost(self.links.enqueue)
        witnesses = (witness,) if witness != NO_NODE else ()
        restored = RestoredReplica(
            node_id=NODE,
            group=GROUP,
            configuration=Configuration((NODE, *peers), witnesses=witnesses),
            hard_state=HardState(1, commit=applied),
            last=EntryId(3, 1, LAST.hash),
            first_index=1,
            anchor=ORIGIN,
            applied=applied,
            is_witness=witness == NODE,
        )
        disk = self.disk = DamagedLog()
        raft = RaftGroup(restored, RaftLogServices(disk, SEALER), RaftOptions(), random.Random(1), now=0)  # type: ignore[arg-type]
        self.host.add(GROUP, HostedReplica(raft, NoMachine(), lazy_commit=False))
        self.raft, self.never = raft, never
        self.mender = EntryRepair(NODE, never, 0, self.host, self.links, disk, lambda *args, **fields: None)  # type: ignore[arg-type]
        self.mender.take_up(DamageError("entry 2 is damaged", GROUP, LOST.index))

    @staticmethod
    def _no_snapshot(now: int, group: int, message: Message) -> None:
        raise AssertionError("no peer needs a snapshot")

    def answered(self, *answers: Entry) -> list[Entry]:
        """Returns the entries that are written once each requested peer has answered, in this order."""
        now = 0
        for entry in answers:
            now += PAUSE_US
            self.mender.on_time(now)
            ((peer, frame),) = self.mender.collect()
            assert [(each.group, each.index) for each in frame.wanted] == [(GROUP, LOST.index)]
            found = [EntryFound(GROUP, LOST.index, entry.data)]
            self.mender.on_frame(now, peer, PeerFrame(Stream.SNAPSHOT_ANSWER, entries_found=found))
        transaction = self.host.take_transaction(now)
        return [] if transaction is None else [entry for write in transaction.writes for entry in write.mend]

    def refused(self, *gone: bool) -> None:
        """Answers for each peer in turn that it does not have the entry, until no peer is left.

        Arguments:
            gone: per peer; true if it no longer has the entry, false if it does not have it yet.
        """
        now = 0
        for each in gone:
            now += PAUSE_US
            self.mender.on_time(now)
            ((peer, _),) = self.mender.collect()
            found = [EntryFound(GROUP, LOST.index, b"", "not here", gone=each)]
            self.mender.on_frame(now, peer, PeerFrame(Stream.SNAPSHOT_ANSWER, entries_found=found))
        self.mender.on_time(now + PAUSE_US)

    def lead(self) -> None:
        """Elects the replica in term 2."""
        self.raft.campaign(0)
        while not self.raft.is_leader:
            assert self.raft.role is not Role.FOLLOWER
            pre_vote, term = self.raft.role is Role.PRE_CANDIDATE, 2
            self.raft.step(0, VoteResponse(PEERS[0], NODE, term, pre_vote, True))
            while self.raft.has_ready():
                token = self.raft.take_ready().durable
                if token is not None:
                    self.raft.on_durable(0, token)


def test_a_leader_hands_over_to_who_has_a_snapshot_in_place_of_what_it_has_lost() -> None:
    """A leader that can give a follower neither the entry nor a snapshot hands over to a peer with a snapshot."""
    mending = Mending()
    mending.lead()
    mending.refused(True, False)
    assert mending.raft.is_transferring
    mending = Mending()
    mending.lead()
    mending.refused(False, False)
    assert not mending.raft.is_transferring, "the peer that is asked may have it soon"


def test_what_the_metadata_have_applied_is_given_up_with_their_next_checkpoint() -> None:
    mending = Mending(never=GROUP, applied=3)
    mending.refused(True, True)
    assert mending.mender.has_lost(GROUP)
    assert mending.disk.suspected == []


def test_metadata_that_can_never_be_applied_are_damage_of_the_nodes_storage() -> None:
    mending = Mending(never=GROUP, applied=1)
    with pytest.raises(DamageError, match="the storage of this node is set aside"):
        mending.refused(True, True)
    assert mending.disk.suspected == [GROUP]


def test_one_of_two_that_vote_on_the_metadata_does_not_take_the_quorum_with_it() -> None:
    """One of two metadata voters keeps its damaged storage: without its vote no node could be elected, and it could not
    return."""
    mending = Mending(never=GROUP, applied=1, peers=(2,))
    mending.refused(True)
    assert mending.disk.suspected == []


def test_the_only_one_with_the_metadata_does_not_wait_for_ever_for_what_nobody_can_bring() -> None:
    mending = Mending(never=GROUP, applied=1, peers=())
    with pytest.raises(DamageError, match="the storage of this node is set aside"):
        mending.refused()
    assert mending.disk.suspected == [GROUP]
    mending = Mending(never=GROUP, applied=3, peers=())
    mending.refused()
    assert mending.mender.has_lost(GROUP), "a checkpoint takes its place"


def test_metadata_are_led_by_one_that_can_apply_them() -> None:
    """A controller that can no longer apply its log hands over: it would otherwise lead as long as a voter is behind
    it."""
    mending = Mending(never=GROUP, applied=1)
    mending.lead()
    mending.refused(True, False)
    assert mending.raft.is_transferring
    mending = Mending(never=GROUP, applied=3)
    mending.lead()
    mending.refused(True, False)
    assert not mending.raft.is_transferring, "a checkpoint takes its place"


def test_a_replica_is_mended_with_the_entry() -> None:
    assert Mending(witness=3).answered(LOST) == [LOST]


def test_a_replica_is_not_mended_with_a_trace_and_asks_the_next_one() -> None:
    assert Mending(witness=2).answered(TRACE) == []
    assert Mending(witness=2).answered(TRACE, LOST) == [LOST]


def test_a_witness_keeps_a_trace_of_the_entry_and_no_payload() -> None:
    assert Mending(witness=NODE).answered(LOST) == [TRACE]


def test_a_witness_keeps_changes_of_the_members_whole() -> None:
    change = SEALER.config(2, 1, FIRST.hash, Configuration((1, 2, 3)))
    assert Mending(witness=NODE).answered(change) == [change]
