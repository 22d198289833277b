"""Faults that leave enough of a Raft group: a failure after any fault beyond them would be no finding."""

from __future__ import annotations

from quiet_cluster import Writing

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.world.process import SimProcess
from quorumlog.simulator.world.replica_sets import is_enough_without


def nodes(writing: Writing) -> tuple[SimProcess, SimProcess, SimProcess]:
    """The leader, and the two others."""
    leader = writing.leader()
    one, other = (process for process in writing.cluster.processes.values() if process is not leader)
    return leader, one, other


def test_two_of_three_are_enough_and_one_is_not() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    _, one, other = nodes(writing)
    assert is_enough_without(writing.cluster, one.node_id, group)
    other.disk.broken.add(group)
    assert not is_enough_without(writing.cluster, one.node_id, group)


def test_a_replica_that_begins_anew_does_not_count_before_it_has_a_say() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    _, one, other = nodes(writing)
    other.die(silent=False)
    other.disk.broken.add(group)
    writing.cluster.start(other.node_id)
    writing.until(lambda: group not in other.disk.broken, 15)
    assert not is_enough_without(writing.cluster, one.node_id, group)
    writing.until(lambda: is_enough_without(writing.cluster, one.node_id, group), 15)


def test_what_is_damaged_elsewhere_must_be_whole_on_a_third() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    leader, one, other = nodes(writing)
    other.disk.damaged[group] = {20}
    assert is_enough_without(writing.cluster, one.node_id, group)
    leader.disk.damaged[group] = {30}
    assert not is_enough_without(writing.cluster, one.node_id, group), "either may start again"


def test_a_node_without_its_metadata_counts_in_no_group() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    _, one, other = nodes(writing)
    other.disk.damaged[METADATA_GROUP] = {2}
    assert not is_enough_without(writing.cluster, one.node_id, group)
    assert not is_enough_without(writing.cluster, one.node_id, METADATA_GROUP)
    assert is_enough_without(writing.cluster, other.node_id, group)


def test_those_that_are_enough_vote_and_are_on_disk_whether_they_are_up_or_not() -> None:
    writing = Writing(1)
    (group,) = writing.groups()
    _, one, other = nodes(writing)
    other.die(silent=False)
    assert is_enough_without(writing.cluster, one.node_id, group)
    writing.cluster.wipe(other.node_id)
    assert is_enough_without(writing.cluster, other.node_id, group)
    assert not is_enough_without(writing.cluster, one.node_id, group)
