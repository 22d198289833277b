"""Replicas that were found damaged when their node started: set aside, and made whole by their leader."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Quiet, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.raft.types import HardState
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.world.process import SimProcess
from quorumlog.v1 import admin_pb2

pytestmark = pytest.mark.scenario("20b")


def break_replica(writing: Writing, process: SimProcess, group: int) -> None:
    """Kills a node, damages the rows of a replica on its disk, and starts it again."""
    process.die(silent=False)
    process.disk.broken.add(group)
    writing.cluster.start(process.node_id)


def acknowledged(writing: Writing) -> list[int]:
    return [send.offset for send in writing.history.sends(OperationOutcome.OK)]


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broken_replica_begins_anew_without_a_hand(seed: int, leads: bool) -> None:
    writing = Writing(seed)
    (group,) = writing.groups()
    leader = writing.leader()
    victim = leader if leads else next(p for p in writing.cluster.processes.values() if p is not leader)
    last = victim.disk.synced[group].last.index
    break_replica(writing, victim, group)
    assert group not in victim.replicas
    writing.until(lambda: group in victim.replicas, 15)
    writing.until(lambda: victim.replicas[group].raft.commit_index > last, 15)
    before = len(acknowledged(writing))
    writing.run(2)
    found = acknowledged(writing)
    assert found == list(range(len(found)))
    assert len(found) > before + 50
    # It counts again: without another one, the partition continues.
    other = next(p for p in writing.cluster.processes.values() if p is not victim)
    other.die(silent=False)
    writing.run(5)
    assert len(acknowledged(writing)) > len(found) + 50


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broken_replica_is_kept_while_the_others_are_not_there(seed: int) -> None:
    """A broken replica is kept while another one is down: it may be the last copy."""
    writing = Writing(seed)
    (group,) = writing.groups()
    leader = writing.leader()
    victim, third = (process for process in writing.cluster.processes.values() if process is not leader)
    third.die(silent=True)
    writing.run(5)
    break_replica(writing, victim, group)
    writing.run(10)
    assert group in victim.disk.broken
    assert group not in victim.replicas
    assert victim.node is not None
    assert victim.node.readings()["replicas_set_aside"] == 1
    writing.cluster.start(third.node_id)
    writing.until(lambda: group in victim.replicas, 20)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broken_replica_that_stood_for_election_last_begins_anew_without_a_hand(seed: int) -> None:
    """A broken replica that crashed as a candidate is rebuilt without an operator.

    No other replica received its term: their leader continues in an earlier one. Only a leader of that term or a later
    one is known to have all entries that the broken replica helped to commit.
    """
    writing = Writing(seed)
    (group,) = writing.groups()
    victim = next(process for process in writing.cluster.processes.values() if process is not writing.leader())
    victim.die(silent=False)
    state = victim.disk.synced[group].hard_state
    victim.disk.synced[group].set_hard_state(HardState(state.term + 1, victim.node_id, state.commit))
    victim.disk.broken.add(group)
    writing.cluster.start(victim.node_id)
    writing.until(lambda: group in victim.replicas, 15)
    writing.until(lambda: victim.replicas[group].raft.commit_index > 0, 15)
    before = len(acknowledged(writing))
    writing.run(3)
    found = acknowledged(writing)
    assert found == list(range(len(found)))
    assert len(found) > before + 50


@pytest.mark.parametrize("down_s", [0.0, 30.0])
@pytest.mark.parametrize("seed", range(1, 3))
def test_a_broken_replica_begins_anew_where_nobody_writes(seed: int, down_s: float) -> None:
    """Its leader sleeps, and must send a message before it has a leader."""
    quiet = Quiet(seed)
    quiet.until(lambda: all(quiet.led_by(group) is not None for group in quiet.groups()) and bool(quiet.groups()), 10)
    (group,) = quiet.groups()
    quiet.until(lambda: all(raft.quiescent for raft in quiet.replicas_of(group).values()), 10)
    victim = quiet.cluster.processes[next(n for n in quiet.cluster.node_ids if n != quiet.led_by(group))]
    victim.die(silent=False)
    victim.disk.broken.add(group)
    quiet.run(down_s)
    quiet.cluster.start(victim.node_id)
    quiet.until(lambda: group in victim.replicas, 15)
    quiet.until(lambda: all(raft.quiescent for raft in quiet.replicas_of(group).values()), 15)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broken_replica_that_is_to_be_the_only_one_begins_anew(seed: int) -> None:
    """A broken replica is rebuilt if a move waits for it as the only one in the new half of a joint configuration."""
    writing = Writing(seed)
    (group,) = writing.groups()
    victim = next(process for process in writing.cluster.processes.values() if process is not writing.leader())
    break_replica(writing, victim, group)
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=2_000)
    request.reassignments.add(topic=TOPIC, partition=0, replicas=[victim.node_id])
    writing.cluster.request("admin", writing.leader().node_id, request, lambda answer: None)

    def moved() -> bool:
        image = victim.image
        return image is not None and group in image.partitions and image.partitions[group].replicas == (victim.node_id,)

    writing.until(moved, 30)
    before = len(acknowledged(writing))
    writing.run(3)
    found = acknowledged(writing)
    assert found == list(range(len(found)))
    assert len(found) > before + 50


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_replica_that_began_anew_has_no_say_before_it_has_caught_up(seed: int) -> None:
    """Its leader and it have acknowledged what the third has never received. With its forgetful vote the third would
    lead, and truncate that."""
    writing = Writing(seed)
    (group,) = writing.groups()
    leader = writing.leader()
    victim, third = (process for process in writing.cluster.processes.values() if process is not leader)
    third.die(silent=False)
    writing.run(1)
    writing.cluster.start(third.node_id)
    promised = len(acknowledged(writing))
    last = victim.disk.synced[group].last.index
    victim.die(silent=False)
    victim.disk.broken.add(group)
    writing.cluster.start(victim.node_id)
    until_anew = 0
    while group not in victim.replicas and until_anew < 20_000:
        writing.run(0.001)
        until_anew += 1
    raft = victim.replicas[group].raft
    if raft.commit_index < last:
        raft.campaign(raft.next_deadline)
        assert not raft.is_leader
    leader.die(silent=False)
    writing.run(3)
    writing.cluster.start(leader.node_id)
    writing.run(3)
    found = acknowledged(writing)
    assert found == list(range(len(found)))
    assert len(found) > promised


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broken_replica_ends_where_a_snapshot_of_the_metadata_says_that_its_partition_was_moved_away(
    seed: int,
) -> None:
    quiet = Quiet(seed, checkpoint_entries=1)
    quiet.until(lambda: bool(quiet.groups()) and None not in map(quiet.led_by, (METADATA_GROUP, *quiet.groups())), 10)
    (group,) = quiet.groups()
    leader = quiet.led_by(group)
    assert leader is not None
    stays, nodes = quiet.cluster.processes[leader], quiet.cluster.processes
    victim = next(p for n, p in nodes.items() if n not in (leader, quiet.led_by(METADATA_GROUP)))
    victim.die(silent=False)
    victim.disk.broken.add(group)
    for node in quiet.cluster.node_ids:
        quiet.cluster.network.cut(node, victim.node_id)
    quiet.cluster.start(victim.node_id)
    quiet.run(1)
    before = victim.disk.synced[METADATA_GROUP].last.index
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=2_000)
    request.reassignments.add(topic=TOPIC, partition=0, replicas=[leader])
    quiet.cluster.request("admin", leader, request, lambda answer: None)

    def is_moved() -> bool:
        record = stays.image.partitions[group] if stays.image is not None else None
        return record is not None and record.replicas == (leader,) and not record.is_moving

    quiet.until(is_moved, 20)
    others = [process for process in nodes.values() if process is not victim]
    quiet.until(lambda: all(each.disk.synced[METADATA_GROUP].anchor.index > before for each in others), 10)
    assert group in victim.disk.broken
    quiet.cluster.network.heal()
    quiet.until(lambda: group not in victim.disk.synced, 10)
