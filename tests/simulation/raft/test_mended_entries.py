"""Damaged entries on simulated disks: they are not served, crash no node, and are repaired from peers."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Writing

from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.server.config.options import NodeLimits, ScrubOptions
from quorumlog.simulator.world.cluster import EVERYTHING
from quorumlog.simulator.world.convergence import missing_repairs
from quorumlog.simulator.world.process import SimProcess
from quorumlog.v1 import admin_pb2

pytestmark = pytest.mark.scenario("20a")

SCRUB = ScrubOptions(bytes_per_second=1 << 30, interval_ms=500)


def damage(process: SimProcess, group: int, indexes: list[int]) -> None:
    """These entries cannot be read on that node from now on."""
    process.disk.damaged.setdefault(group, set()).update(indexes)


def forget_in_memory(writing: Writing, group: int) -> None:
    """From now on what the replicas have is what is on their disks."""
    for raft in writing.replicas_of(group).values():
        raft.log.trim(0)


def followers(writing: Writing) -> list[SimProcess]:
    leader = writing.leader()
    return [process for process in writing.cluster.processes.values() if process is not leader]


def acknowledged_sends(writing: Writing) -> int:
    return len(list(writing.history.sends(OperationOutcome.OK)))


def assert_all_went_well(writing: Writing, before: int) -> None:
    acknowledged = [send.offset for send in writing.history.sends(OperationOutcome.OK)]
    assert acknowledged == list(range(len(acknowledged)))
    assert len(acknowledged) > before + 50
    assert all(process.running for process in writing.cluster.processes.values())


@pytest.mark.parametrize("seed", range(1, 4))
def test_entries_damaged_on_every_replica_in_turn_are_found_by_the_scrub_and_mended(seed: int) -> None:
    """The scrub repairs different entries on each replica, also consecutive ones; the partition remains available."""
    writing = Writing(seed, scrub=SCRUB)
    (group,) = writing.groups()
    before = acknowledged_sends(writing)
    terms = {process.replicas[group].raft.term for process in writing.cluster.processes.values()}
    for number, process in writing.cluster.processes.items():
        damage(process, group, [number * 20, number * 20 + 1, number * 20 + 7])
    writing.until(lambda: not any(process.disk.damaged for process in writing.cluster.processes.values()), 10)
    writing.run(1)
    assert_all_went_well(writing, before)
    assert {process.replicas[group].raft.term for process in writing.cluster.processes.values()} == terms


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_restarted_replica_goes_on_with_a_damaged_tail(seed: int) -> None:
    """A restarted replica with a damaged tail follows and acknowledges, and applies the tail once it is repaired."""
    writing = Writing(seed, scrub=SCRUB)
    (group,) = writing.groups()
    victim = followers(writing)[0]
    victim.die(silent=False)
    last = victim.disk.synced[group].last.index
    damage(victim, group, list(range(last - 20, last)))
    before = acknowledged_sends(writing)
    writing.cluster.start(victim.node_id)
    writing.until(lambda: not victim.disk.damaged, 10)
    writing.run(1)
    assert_all_went_well(writing, before)
    raft = victim.replicas[group].raft
    assert raft.applied_index == raft.commit_index > last


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_mends_what_a_follower_needs(seed: int) -> None:
    """A leader repairs damaged entries that a restarted follower lacks: the third replica has them."""
    writing = Writing(seed)
    (group,) = writing.groups()
    leader, late = writing.leader(), followers(writing)[0]
    late.die(silent=False)
    start = late.disk.synced[group].last.index
    writing.run(1)
    end = leader.disk.synced[group].last.index
    assert end > start + 100
    damage(leader, group, list(range(start + 1, start + 60, 7)))
    before = acknowledged_sends(writing)
    forget_in_memory(writing, group)
    writing.cluster.start(late.node_id)
    writing.until(lambda: not leader.disk.damaged, 10)
    writing.run(2)
    assert_all_went_well(writing, before)
    assert late.disk.synced[group].last.index > end


def test_an_entry_that_is_lost_everywhere_is_never_served_and_ends_nobody() -> None:
    writing = Writing(1, scrub=SCRUB)
    (group,) = writing.groups()
    forget_in_memory(writing, group)
    for process in writing.cluster.processes.values():
        damage(process, group, [30])
    before = acknowledged_sends(writing)
    writing.run(5)
    assert_all_went_well(writing, before)
    assert all(process.disk.damaged == {group: {30}} for process in writing.cluster.processes.values())
    for process in writing.cluster.processes.values():
        assert process.node is not None
        assert process.node.readings()["damaged_entries"] == 1


def test_a_scrub_goes_on_where_it_was_after_a_restart() -> None:
    """At this pace a pass takes longer than the life of any node."""
    writing = Writing(1, scrub=ScrubOptions(bytes_per_second=256 << 10, interval_ms=1_000), limits=NodeLimits())
    (group,) = writing.groups()
    victim = followers(writing)[0]
    writing.run(3)
    damage(victim, group, [victim.disk.synced[group].last.index - 5])
    writing.until(lambda: not victim.disk.damaged, 30)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_cluster_is_not_whole_while_a_replica_is_to_begin_anew_for_want_of_what_all_others_gave_up(seed: int) -> None:
    """Its node will start again for that, and waiting for rest includes it."""
    writing = Writing(seed)
    (group,) = writing.groups()
    victim, other = followers(writing)
    damage(victim, group, [20])
    assert "still damaged" in missing_repairs(writing.cluster)
    victim.pause()
    topic_id = writing.cluster.partition_names[group][1]
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=2_000)
    request.partitions.add(topic_id=topic_id, partition=0, before_offset=EVERYTHING)
    leader = writing.leader()
    writing.cluster.request("operator", leader.node_id, request, lambda answer: None)
    writing.until(lambda: all(each.disk.synced[group].anchor.index > 20 for each in (leader, other)), 10)
    assert "still damaged" in missing_repairs(writing.cluster)
    victim.disk.damaged.clear()
    assert not missing_repairs(writing.cluster)


def test_a_cluster_is_as_whole_as_it_can_be_where_no_disk_has_an_entry_any_more() -> None:
    """An entry that is damaged on every disk does not count as a missing repair: no replica can repair it, and none is
    rebuilt."""
    writing = Writing(1)
    (group,) = writing.groups()
    for process in writing.cluster.processes.values():
        damage(process, group, [20])
    assert not missing_repairs(writing.cluster)


def moved_to(writing: Writing, group: int, process: SimProcess) -> bool:
    image = process.image
    return image is not None and image.partitions[group].replicas == (process.node_id,)


def move_to(writing: Writing, process: SimProcess) -> None:
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=2_000)
    request.reassignments.add(topic=TOPIC, partition=0, replicas=[process.node_id])
    writing.cluster.request("admin", writing.leader().node_id, request, lambda answer: None)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_what_is_to_be_the_only_copy_is_mended_before_the_others_go(seed: int, leads: bool) -> None:
    """A replica is repaired before it becomes the only copy, even if no read or scrub has found the damage."""
    writing = Writing(seed)
    (group,) = writing.groups()
    forget_in_memory(writing, group)
    stays = writing.leader() if leads else followers(writing)[0]
    damage(stays, group, [7, 8, 30])
    before = acknowledged_sends(writing)
    move_to(writing, stays)
    writing.until(lambda: moved_to(writing, group, stays), 20)
    assert not stays.disk.damaged
    writing.run(1)
    assert_all_went_well(writing, before)


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_entry_that_nobody_has_any_more_holds_no_move_up(seed: int) -> None:
    writing = Writing(seed)
    (group,) = writing.groups()
    forget_in_memory(writing, group)
    for process in writing.cluster.processes.values():
        damage(process, group, [7])
    before, stays = acknowledged_sends(writing), writing.leader()
    damage(stays, group, [30])
    move_to(writing, stays)
    writing.until(lambda: moved_to(writing, group, stays), 30)
    assert stays.disk.damaged == {group: {7}}
    writing.run(1)
    assert_all_went_well(writing, before)


def test_what_has_to_be_mended_in_the_end_is_what_another_disk_has_and_the_next_entry_vouches_for() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    one, two = followers(writing)
    damage(one, group, [7, 8, 20])
    damage(two, group, [8])
    assert missing_repairs(writing.cluster).startswith("entries [7, 8, 20] of")
    damage(writing.leader(), group, [8])
    assert missing_repairs(writing.cluster).startswith("entries [20] of")
    damage(two, group, [20])
    damage(writing.leader(), group, [20])
    assert not missing_repairs(writing.cluster)
