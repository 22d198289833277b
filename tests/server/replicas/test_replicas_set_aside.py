"""A replica that is set aside as damaged, as the registry of replicas sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.raft.types import NO_NODE, AppendResponse, Heartbeat, Message, VoteResponse
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.server.replicas.damaged_replicas import DamagedReplicas
from quorumlog.server.replicas.replica_removal import ReplicaRemoval
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.events import Job, JobDone
from quorumlog.storage.interface import DamageError, SetAside

GROUP = 1000
SECOND = 1_000_000
TOPIC = Topic("orders", bytes(16), {})


def replicas_of(node_id: int, record: PartitionRecord) -> Replicas:
    host = RaftHost(lambda group, message: None)
    metadata = SimpleNamespace(image=SimpleNamespace(partitions={GROUP: record}))
    replicas = Replicas(
        node_id, "d", host, ReplicaTombstones(node_id, host, {}), cast("Any", None), cast("Any", metadata)
    )
    replicas.found({}, {GROUP: SetAside(3, 120, "a row is damaged")})
    return replicas


@pytest.mark.parametrize("witness", [NO_NODE, 3])
@pytest.mark.parametrize("node_id", [1, 3])
def test_a_replica_that_is_set_aside_stays_where_it_belongs_whichever_kind_it_was(node_id: int, witness: int) -> None:
    """A replica set aside stays on any node of its partition: with damaged rows, a witness looks like a replica."""
    nodes = (1, 2, 3) if witness == NO_NODE else (1, 2)
    record = PartitionRecord(TOPIC, 0, GROUP, nodes, (1,), 1, 3, witness=witness)
    assert replicas_of(node_id, record).moved_away(GROUP) is None


def test_a_replica_that_is_set_aside_leaves_with_its_partition() -> None:
    record = PartitionRecord(TOPIC, 0, GROUP, (1, 2, 3), (1,), 1, 3)
    assert replicas_of(4, record).moved_away(GROUP) is record


class Watched:
    """Damaged replicas over a registry of one, and what they have done."""

    def __init__(self, record: PartitionRecord | None, up: tuple[int, ...], node_id: int = 2) -> None:
        self.host = RaftHost(lambda group, message: None)
        self.former = ReplicaTombstones(node_id, self.host, {})
        self.partitions = {GROUP: record} if record is not None else {}
        image = SimpleNamespace(
            partitions=self.partitions,
            brokers={},
            available_leader=lambda each: each.leader,
            is_fenced=lambda node: node not in up,
            topic_table=SimpleNamespace(was_deleted=lambda group: group not in self.partitions),
        )
        metadata: Any = SimpleNamespace(image=image)
        nothing: Any = None
        self.replicas = Replicas(node_id, "d", self.host, self.former, nothing, metadata)
        self.replicas.found({}, {GROUP: SetAside(3, 120, "a row is damaged")})
        self.endings = ReplicaRemoval(
            self.host, self.replicas, nothing, self.former, nothing, nothing, lambda *_, **__: None
        )
        self.jobs: list[Job] = []
        storage: Any = SimpleNamespace(pass_replica=lambda group: None)
        self.sent: list[tuple[int, Message]] = []
        self.damaged = DamagedReplicas(
            node_id,
            self.host,
            self.replicas,
            self.former,
            metadata,
            storage,
            self.jobs.append,
            lambda group, message: self.sent.append((group, message)),
            lambda *_, **__: None,
        )

    def destroyed(self) -> list[int]:
        transaction = self.host.take_transaction(0)
        return [] if transaction is None else [write.group for write in transaction.writes if write.destroy]

    def look(self, error: Exception | None = None) -> None:
        self.damaged.on_time(0, 0)
        (job,) = self.jobs
        self.damaged.on_done(1, JobDone(job.number, None, error))


def test_a_replica_beside_one_other_and_a_witness_is_kept_until_its_partition_is_moved_away() -> None:
    """A damaged replica beside one other and a witness is kept: node 1 may lead with entries that are not on its disk
    yet, so committed ones may be on this disk only."""
    watched = Watched(PartitionRecord(TOPIC, 0, GROUP, (1, 2), (1,), 1, 3, witness=3), up=(1, 3))
    watched.damaged.hear(0, GROUP, Heartbeat(1, 2, 3, 5, 1))
    watched.damaged.on_time(0, 0)
    assert watched.jobs == []


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(TOPIC, 0, GROUP, (1,), (1,), 1, 3, target=(2,)),
        PartitionRecord(TOPIC, 0, GROUP, (1, 2, 3), (1, 3), 1, 3),
    ],
)
def test_a_damaged_replica_is_kept_until_the_leader_itself_has_spoken_just_now(record: PartitionRecord) -> None:
    """A damaged replica is kept until the current leader has spoken recently: the replica of the leader in the metadata
    may be damaged too, and this copy may be the only one."""
    watched = Watched(record, up=(1, 2, 3))
    watched.damaged.on_time(0, 0)
    watched.damaged.hear(SECOND, GROUP, Heartbeat(1, 2, 2, 5, 1))
    watched.damaged.hear(SECOND, GROUP, VoteResponse(1, 2, 3, False, False))
    watched.damaged.on_time(SECOND, 0)
    watched.damaged.hear(SECOND, GROUP, Heartbeat(1, 2, 3, 5, 1))
    watched.damaged.on_time(3 * SECOND, 0)
    assert watched.jobs == [], "it has spoken, and not for two seconds"
    watched.damaged.hear(3 * SECOND, GROUP, Heartbeat(1, 2, 3, 5, 1))
    watched.damaged.on_time(4 * SECOND, 0)
    assert len(watched.jobs) == 1


def test_a_leader_of_an_older_term_than_a_damaged_replica_has_seen_is_told_of_it() -> None:
    watched = Watched(PartitionRecord(TOPIC, 0, GROUP, (1, 2, 3), (1,), 1, 2), up=(1, 2, 3))
    for term in (2, 3):
        watched.damaged.hear(0, GROUP, Heartbeat(1, 2, term, 5, 1))
    watched.damaged.hear(0, GROUP + 1, Heartbeat(1, 2, 2, 5, 1))
    watched.damaged.hear(0, GROUP, VoteResponse(1, 2, 2, False, False))
    assert watched.sent == [(GROUP, AppendResponse(2, 1, 3, 0, True))]


@pytest.mark.parametrize("deleted", [True, False])
def test_a_damaged_replica_that_leaves_is_given_back_only_after_its_pages_were_looked_at(deleted: bool) -> None:
    """A damaged replica that leaves is destroyed only after its pages were checked: the engine would free any page that
    a damaged header names, even one of another replica."""
    record = PartitionRecord(TOPIC, 0, GROUP, (1, 3, 4), (1,), 1, 5, moved_index=200)
    watched = Watched(None if deleted else record, up=(1, 3, 4))
    watched.endings.find_deleted()
    watched.endings.may_have_moved([GROUP])
    watched.endings.leave(0)
    assert watched.destroyed() == []
    watched.look()
    assert watched.destroyed() == [GROUP]
    assert not watched.replicas.holds(GROUP)
    # It may return, and must not vote twice in a term.
    record.target = (1, 2, 3)
    assert watched.former.begin(record).hard_state.term == (5 if deleted else 4)


def test_a_damaged_replica_that_leaves_stays_where_giving_it_back_would_harm_others() -> None:
    watched = Watched(None, up=(1, 3, 4))
    watched.endings.find_deleted()
    watched.look(DamageError("a page that is another's"))
    assert watched.destroyed() == []
    assert watched.replicas.holds(GROUP)
