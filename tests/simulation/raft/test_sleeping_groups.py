"""Idle groups of whole nodes: they become quiescent, and soon have a leader after any failure of its node."""

from __future__ import annotations

import pytest
from quiet_cluster import Quiet

from quorumlog.raft.types import AppendResponse
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.step.events import FrameReceived, PeerFrame, Stream

SEEDS = range(1, 5)
#: A heartbeat interval, and what a message needs.
NEXT_LEASE_S = 0.15


def asleep(quiet: Quiet, group: int) -> bool:
    """The group has a leader, and all of its replicas sleep."""
    replicas = quiet.replicas_of(group).values()
    return quiet.led_by(group) is not None and all(raft.quiescent for raft in replicas)


def all_asleep(seed: int, partitions: int = 1) -> Quiet:
    """A cluster whose partitions have gone to sleep."""
    quiet = Quiet(seed, partitions)
    quiet.until(lambda: len(quiet.groups()) == partitions and all(asleep(quiet, g) for g in quiet.groups()), 10)
    return quiet


def step_down(quiet: Quiet, group: int) -> int:
    """Makes a group's leader step down: sends it a newer term, which has no leader. Returns its node."""
    node = quiet.led_by(group)
    assert node is not None
    term = quiet.replicas_of(group)[node].term
    other = next(n for n in quiet.cluster.node_ids if n != node)
    refusal = AppendResponse(other, node, term + 1, 0, rejected=True)
    quiet.cluster.deliver(node, FrameReceived(other, PeerFrame(Stream.CONTROL, messages=[(group, refusal)])))
    quiet.until(lambda: not quiet.replicas_of(group)[node].is_leader, 0.1)
    return node


def wakes_within(quiet: Quiet, group: int, nodes: set[int], seconds: float) -> None:
    quiet.until(lambda: not any(quiet.replicas_of(group)[node].quiescent for node in nodes), seconds)


@pytest.mark.scenario("17a")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_follower_that_no_longer_hears_its_sleeping_leader_wakes_it_and_deposes_nobody(seed: int) -> None:
    quiet = all_asleep(seed)
    (group,) = quiet.groups()
    leader = quiet.led_by(group)
    assert leader is not None
    term = quiet.replicas_of(group)[leader].term
    deaf = next(node for node in quiet.cluster.node_ids if node != leader)
    quiet.cluster.network.cut(leader, deaf)
    wakes_within(quiet, group, {leader, deaf}, 1.5)
    quiet.run(3)
    assert (quiet.led_by(group), quiet.replicas_of(group)[leader].term) == (leader, term)
    quiet.cluster.network.heal()
    quiet.until(lambda: asleep(quiet, group), 10)
    assert (quiet.led_by(group), quiet.replicas_of(group)[deaf].term) == (leader, term)


@pytest.mark.scenario("17b")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_connection_that_breaks_under_a_sleeping_group_costs_it_no_leader(seed: int) -> None:
    quiet = all_asleep(seed)
    (group,) = quiet.groups()
    leader = quiet.led_by(group)
    assert leader is not None
    term = quiet.replicas_of(group)[leader].term
    other = next(node for node in quiet.cluster.node_ids if node != leader)
    quiet.cluster.network.reset(leader, other)
    wakes_within(quiet, group, {leader, other}, 0.1)
    quiet.until(lambda: asleep(quiet, group), 10)
    assert (quiet.led_by(group), quiet.replicas_of(group)[other].term) == (leader, term)


@pytest.mark.scenario("24a")
@pytest.mark.parametrize("down_s", [0.0, 0.03, 0.09])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_restarts_between_two_leases_keeps_no_group_asleep(seed: int, down_s: float) -> None:
    quiet = all_asleep(seed, partitions=3)
    victim = next(node for node in map(quiet.led_by, quiet.groups()) if node is not None)
    led = [group for group in quiet.groups() if quiet.led_by(group) == victim]
    # Its power fails, so that no node is notified.
    quiet.cluster.processes[victim].die(silent=True)
    quiet.run(down_s)
    quiet.cluster.start(victim)
    quiet.until(lambda: all(quiet.led_by(group) is not None for group in led), 2)
    quiet.until(lambda: all(asleep(quiet, group) for group in quiet.groups()), 20)


@pytest.mark.scenario("24b")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_stops_leading_one_group_keeps_it_not_asleep_by_leading_others(seed: int) -> None:
    quiet = all_asleep(seed, partitions=6)
    group = next(g for g in quiet.groups() if sum(quiet.led_by(o) == quiet.led_by(g) for o in quiet.groups()) > 1)
    node = step_down(quiet, group)
    assert any(quiet.led_by(other) == node for other in quiet.groups()), "it leads others"
    wakes_within(quiet, group, set(quiet.cluster.node_ids), NEXT_LEASE_S)
    quiet.until(lambda: quiet.led_by(group) is not None, 2)
    quiet.until(lambda: asleep(quiet, group), 10)


@pytest.mark.scenario("24b")
def test_without_the_epoch_its_leases_would(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = Leases.grant
    monkeypatch.setattr(Leases, "grant", lambda self, peer: grant(self, peer)._replace(epoch=0))
    quiet = all_asleep(seed=1, partitions=6)
    group = next(g for g in quiet.groups() if sum(quiet.led_by(o) == quiet.led_by(g) for o in quiet.groups()) > 1)
    step_down(quiet, group)
    with pytest.raises(AssertionError, match="not within"):
        wakes_within(quiet, group, set(quiet.cluster.node_ids), NEXT_LEASE_S)
