"""Leases between two nodes: what wakes which sleeping group, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.replication import NEVER
from quorumlog.raft.types import Configuration
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.step.events import Lease

TIMEOUT = 600_000
HEARTBEAT = 100_000
BOOT, PEERS_BOOT = 11, 22


@dataclass
class Sleeper:
    """A group as the leases see it. ``woken`` keeps the contacts with which it was woken."""

    group: int
    leader_id: int
    node_id: int = 1
    quiescent: bool = True
    configuration: Configuration = field(default_factory=lambda: Configuration((1, 2, 3)))
    woken: list[Mapping[int, int]] = field(default_factory=list)

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def wake(self, now: int, contacts: Mapping[int, int]) -> None:
        self.quiescent = False
        self.woken.append(contacts)


class Setting:
    """Node 1 with its leases; nodes 2 and 3 send when the test requests it."""

    def __init__(self) -> None:
        self.now = 0
        self.touched: list[int] = []
        self.leases = Leases(BOOT, TIMEOUT, self.touched.append)

    def hear(self, peer: int, *, epoch: int = 0, boot_id: int = PEERS_BOOT, heard_round: int | None = None) -> None:
        heard = self.leases.grant(peer).round if heard_round is None else heard_round
        self.leases.heard(self.now, peer, Lease(boot_id, epoch, self.now // HEARTBEAT + 1, heard))

    def interval(self, *peers: int, heard_round: int | None = None) -> None:
        """Passes one heartbeat interval in which these peers send."""
        self.now += HEARTBEAT
        self.leases.begin_round()
        for peer in peers:
            self.hear(peer, heard_round=heard_round)
        self.leases.on_time(self.now)

    def sleep(self, group: int, leader: int) -> Sleeper:
        sleeper = Sleeper(group, leader)
        self.follow(sleeper)
        return sleeper

    def follow(self, sleeper: Sleeper) -> None:
        self.leases.follow(self.now, sleeper.group, cast(RaftGroup, sleeper))


@pytest.fixture
def node() -> Setting:
    made = Setting()
    made.interval(2, 3)
    return made


def test_a_group_sleeps_for_as_long_as_its_leaders_node_is_heard(node: Setting) -> None:
    sleeper = node.sleep(7, leader=2)
    for _ in range(50):
        node.interval(2, 3)
    assert not sleeper.woken and not node.touched


def test_silence_of_the_leaders_node_wakes_its_groups_and_no_others(node: Setting) -> None:
    of_2, of_3 = node.sleep(7, leader=2), node.sleep(8, leader=3)
    last_heard = node.now
    for _ in range(TIMEOUT // HEARTBEAT):
        assert not of_2.woken
        node.interval(3)
    assert node.touched == [7] and not of_3.woken
    assert of_2.woken[0][2] == last_heard, "the election timeout runs from the leader's last message"


def test_the_lease_runs_out_at_its_deadline(node: Setting) -> None:
    assert node.leases.next_deadline == NEVER, "without a sleeping replica there is nothing to watch"
    node.sleep(7, leader=2)
    assert node.leases.next_deadline == node.now + TIMEOUT


@pytest.mark.scenario("24a")
def test_another_boot_id_wakes_the_groups_of_the_former_life(node: Setting) -> None:
    sleeper = node.sleep(7, leader=2)
    node.hear(2, boot_id=PEERS_BOOT + 1)
    assert sleeper.woken


@pytest.mark.scenario("24b")
def test_another_epoch_wakes_the_groups_that_the_peer_may_no_longer_lead(node: Setting) -> None:
    sleeper, other = node.sleep(7, leader=2), node.sleep(8, leader=3)
    node.hear(2, epoch=1)
    assert sleeper.woken and not other.woken


@pytest.mark.scenario("24b")
def test_the_epoch_grows_when_this_node_stops_leading_a_group_awake_or_not(node: Setting) -> None:
    led = node.sleep(7, leader=1)
    before = node.leases.grant(2).epoch
    led.leader_id = 2
    node.follow(led)
    assert node.leases.grant(2).epoch == before + 1
    awake = Sleeper(8, leader_id=1, quiescent=False)
    node.follow(awake)
    node.follow(awake)
    assert node.leases.grant(2).epoch == before + 1, "a leader that continues is not a change"
    awake.leader_id = 3
    node.follow(awake)
    assert node.leases.grant(2).epoch == before + 2


@pytest.mark.scenario("17a")
def test_a_led_group_wakes_when_a_follower_no_longer_answers_though_it_still_speaks(node: Setting) -> None:
    led = node.sleep(7, leader=1)
    answered = node.now
    stale = node.leases.grant(2).round
    for _ in range(TIMEOUT // HEARTBEAT):
        assert not led.woken
        node.interval(2, 3, heard_round=stale)
    assert led.woken[0] == {2: answered, 3: answered}
    assert node.leases.reachable() == set()


@pytest.mark.scenario("17b")
def test_a_led_group_that_went_to_sleep_without_a_peer_wakes_when_it_answers_again(node: Setting) -> None:
    node.leases.lost(3)
    assert node.leases.reachable() == {2}
    led = node.sleep(7, leader=1)
    node.interval(2)
    assert not led.woken
    node.interval(2, 3)
    assert led.woken and node.leases.reachable() == {2, 3}


@pytest.mark.scenario("17b")
def test_a_call_to_sleep_that_comes_after_the_connection_broke_is_not_obeyed(node: Setting) -> None:
    node.leases.lost(2)
    late = node.sleep(7, leader=2)
    assert late.woken and node.touched == [7]


@pytest.mark.scenario("24a")
def test_rounds_that_a_former_life_of_this_node_counted_are_no_answer(node: Setting) -> None:
    restarted = Setting()
    restarted.interval()
    restarted.hear(2, heard_round=5_000)
    assert restarted.leases.reachable() == set()
    restarted.hear(2)
    assert restarted.leases.reachable() == {2}


def test_the_next_deadline_is_the_earliest_lease() -> None:
    """The next deadline is the earliest expiry of a lease, whether received from a peer or acknowledged by one."""
    setting = Setting()
    setting.interval(2, 3)
    sleeper = setting.sleep(7, leader=1)
    assert sleeper.quiescent
    for _ in range(3):
        # Node 3 continues to send, and no longer receives anything from this node.
        setting.now += HEARTBEAT
        setting.leases.begin_round()
        setting.hear(2)
        setting.hear(3, heard_round=0)
    assert setting.leases.next_deadline == HEARTBEAT + TIMEOUT
    setting.now = HEARTBEAT + TIMEOUT - 1
    setting.leases.on_time(setting.now)
    assert sleeper.quiescent
    setting.now += 1
    setting.leases.on_time(setting.now)
    assert not sleeper.quiescent
