"""Tombstones of replicas that were moved away from a node."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import Configuration, HardState
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import METADATA_GROUP, PartitionRecord, Topic
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones

TOPIC = Topic("orders", bytes(16), {})


def host_and_rows() -> tuple[RaftHost, dict[bytes, bytes]]:
    return RaftHost(lambda group, message: None), {}


def synced(host: RaftHost, rows: dict[bytes, bytes]) -> dict[int, object]:
    """Carries out what gathers, and returns the writes by group."""
    transaction = host.take_transaction(0)
    assert transaction is not None
    for key, row in transaction.node_state.items():
        if row is None:
            del rows[key]
        else:
            rows[key] = row
    host.on_durable(0, transaction.number)
    return {write.group: write for write in transaction.writes}


def test_a_replica_that_comes_back_begins_in_the_term_after_its_former_life() -> None:
    host, rows = host_and_rows()
    former = ReplicaTombstones(4, host, rows)
    partition = PartitionRecord(TOPIC, 0, 1000, (1, 2, 4), (1,))
    assert former.begin(partition).configuration == Configuration((1, 2, 4))
    synced(host, rows)
    former.ended(1000, 7)
    host.destroy(1000, METADATA_GROUP)
    synced(host, rows)
    # The tombstone survives a restart.
    former = ReplicaTombstones(4, host, rows)
    partition.replicas, partition.target, partition.moved_index = (1, 2, 3), (1, 2, 4), 40
    assert former.votes_from(1000) == 0
    state = former.begin(partition)
    assert former.votes_from(1000) == 40, "no say before it has got as far as the move that removed it"
    assert state.hard_state == HardState(8)
    assert state.configuration == Configuration((1, 2, 3), (4,)), "a learner until the group says otherwise"
    writes = synced(host, rows)
    assert METADATA_GROUP in writes, "otherwise a restart would destroy it again because it was removed before"
    assert ReplicaTombstones(4, host, rows).votes_from(1000) == 40


@pytest.mark.scenario("19b")
def test_a_replica_on_a_new_disk_has_no_say_before_the_move_that_took_it_out() -> None:
    """A replica on a new disk has no vote before the move that removed it: its former disk may have acknowledged any
    entry up to there."""
    host, rows = host_and_rows()
    former = ReplicaTombstones(4, host, rows)
    partition = PartitionRecord(TOPIC, 0, 1000, (1, 2), (1,), 1, 9, target=(1, 2, 4), moved_index=40)
    state = former.begin(partition)
    assert state.configuration == Configuration((1, 2), (4,))
    assert state.hard_state == HardState(9), "no vote in a term that is decided"
    assert former.votes_from(1000) == 40
    synced(host, rows)
    assert ReplicaTombstones(4, host, rows).votes_from(1000) == 40


@pytest.mark.scenario("20b")
def test_a_replica_that_was_given_up_as_damaged_has_no_say_before_all_it_ever_acknowledged_is_committed() -> None:
    host, rows = host_and_rows()
    former = ReplicaTombstones(4, host, rows)
    partition = PartitionRecord(TOPIC, 0, 1000, (1, 2, 4), (1,))
    former.begin(partition)
    synced(host, rows)
    former.lost(1000, 7, last_index=120)
    host.destroy(1000, METADATA_GROUP)
    synced(host, rows)
    former = ReplicaTombstones(4, host, rows)
    state = former.begin(partition)
    assert former.votes_from(1000) == 120
    assert state.hard_state == HardState(8), "in no term in which it may have voted"
    synced(host, rows)
    assert ReplicaTombstones(4, host, rows).votes_from(1000) == 120


def test_a_partition_that_is_deleted_is_forgotten() -> None:
    host, rows = host_and_rows()
    former = ReplicaTombstones(4, host, rows)
    former.ended(1000, 7)
    former.ended(1001, 9)
    synced(host, rows)
    former.forget(lambda group: group == 1000)
    synced(host, rows)
    assert len(rows) == 1


def test_no_replica_is_made_while_its_predecessor_is_being_destroyed() -> None:
    host, rows = host_and_rows()
    ReplicaTombstones(4, host, rows).begin(PartitionRecord(TOPIC, 0, 1000, (1, 2, 4), (1,)))
    synced(host, rows)
    host.destroy(1000, METADATA_GROUP)
    assert host.is_ending(1000)
    assert host.take_transaction(0) is not None
    assert host.is_ending(1000), "it is not durable yet"
    host.on_durable(0, 2)
    assert not host.is_ending(1000)
