"""Random courses of one group, chosen and cut down by hypothesis; checked after every rule, healed in the end.

The storms of ``test_raft_storms.py`` find what happens often; here hypothesis looks for what hardly ever does, and a
failure is printed as the shortest course that still shows it. ``RAFT_COURSES=20000`` searches longer, at random.
"""

from __future__ import annotations

import contextlib
import os
import sys

import pytest
from checked_cluster import CheckedCluster
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from quorumlog.raft.errors import RaftError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Configuration, Message

COURSES = int(os.environ.get("RAFT_COURSES", "0"))
#: Few and always the same, for every run of the tests; or many and new.
CONTINUOUS = settings(derandomize=True, max_examples=250, stateful_step_count=60)
SEARCH = settings(max_examples=COURSES or 1, stateful_step_count=100, print_blob=True)

#: Taken modulo the number of nodes, so that any number is one.
node = st.integers(0, 5)
place = st.integers(0, 30)
yes = st.booleans()


class Courses(RuleBasedStateMachine):
    """One group under everything that a network, a disk and a driver may do to it.

    After every rule each driver takes what is ready and each disk writes, but for those that are hindered. Messages
    arrive only when a rule says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster: CheckedCluster
        self.proposed = 0
        self.paused = 0
        self.stalled: set[int] = set()
        self.delayed: list[Message] = []

    @initialize(
        voters=st.sampled_from((3, 3, 5, 4, 2, 1)),
        learner=yes,
        spare=st.integers(0, 2),
        lazy=yes,
        seed=st.integers(0, 9),
        led=yes,
    )
    def begin(self, voters: int, learner: bool, spare: int, lazy: bool, seed: int, led: bool) -> None:
        learners = (voters + 1,) if learner else ()
        spares = tuple(range(voters + learner + 1, voters + learner + spare + 1))
        self.cluster = CheckedCluster(tuple(range(1, voters + 1)), learners, seed, lazy, spares)
        if led:
            self.cluster.elect(1)

    # -- network --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.cluster.network)
    @rule(which=place, count=st.integers(1, 9))
    def deliver(self, which: int, count: int) -> None:
        """Some messages arrive, in an order of their own."""
        network = self.cluster.network
        for _ in range(min(count, len(network))):
            self.arrive(network.pop(which % len(network)))
            self.cluster.check()

    @precondition(lambda self: self.cluster.network)
    @rule()
    def deliver_all(self) -> None:
        messages, self.cluster.network = self.cluster.network, []
        for message in messages:
            self.arrive(message)

    def arrive(self, message: Message) -> None:
        self.cluster.deliver(message)
        self.drive(message.to)

    @precondition(lambda self: self.cluster.network)
    @rule(which=place)
    def drop(self, which: int) -> None:
        network = self.cluster.network
        self.cluster.lose(network.pop(which % len(network)))

    @precondition(lambda self: self.cluster.network and len(self.cluster.network) < 100)
    @rule(which=place)
    def duplicate(self, which: int) -> None:
        network = self.cluster.network
        network.append(network[which % len(network)])

    @rule(which=node, inbound=yes, only_late=yes)
    def cut(self, which: int, inbound: bool, only_late: bool) -> None:
        """Everything under way to one node, or from it, is lost, or comes much later."""
        cluster = self.cluster
        node_id = which % len(cluster.replicas) + 1
        network, cluster.network = cluster.network, []
        for message in network:
            if (message.to if inbound else message.sender) != node_id:
                cluster.network.append(message)
            elif only_late and len(self.delayed) < 100:
                self.delayed.append(message)
            else:
                cluster.lose(message)

    @precondition(lambda self: self.delayed)
    @rule()
    def what_was_delayed_is_under_way(self) -> None:
        self.cluster.network += self.delayed
        self.delayed = []

    # -- nodes and disks ------------------------------------------------------------------------------------------

    def drive(self, node_id: int) -> None:
        """The node's driver and disk have their turn, unless they are paused or stalled."""
        if node_id not in self.cluster.up or node_id == self.paused:
            return
        self.cluster.drain(node_id)
        if node_id not in self.stalled:
            self.cluster.persist(node_id, len(self.cluster.replicas[node_id].unsynced))
            self.cluster.drain(node_id)

    @rule(paused=st.one_of(st.none(), node), stalled=st.sets(node, max_size=2))
    def hinder(self, paused: int | None, stalled: set[int]) -> None:
        """Until it is the turn of others, one driver takes nothing, and some disks write only on request."""
        self.paused = 0 if paused is None else paused % len(self.cluster.replicas) + 1
        self.stalled = {number % len(self.cluster.replicas) + 1 for number in stalled}

    @precondition(lambda self: any(replica.unsynced for replica in self.cluster.replicas.values()))
    @rule(which=node, writes=st.integers(1, 4))
    def persist(self, which: int, writes: int) -> None:
        writing = [node_id for node_id, replica in self.cluster.replicas.items() if replica.unsynced]
        self.cluster.persist(writing[which % len(writing)], writes)

    @rule(which=node, synced=st.lists(st.integers(0, 3), min_size=8, max_size=8), noticed=yes, all_of_them=yes)
    def crash_or_start(self, which: int, synced: list[int], noticed: bool, all_of_them: bool) -> None:
        """A process dies, or the power fails everywhere; of the writes under way the oldest were synced."""
        cluster = self.cluster
        node_id = which % len(cluster.replicas) + 1
        if node_id not in cluster.up:
            cluster.start(node_id)
            return
        victims = cluster.up if all_of_them else [node_id]
        for victim in victims:
            cluster.crash(victim, synced[victim - 1])
        for other in cluster.up if noticed else ():
            cluster.core(other).peer_lost(cluster.now, node_id)
        for victim in victims:
            if 2 * len(cluster.up) <= len(cluster.replicas):
                cluster.start(victim)

    @rule(which=node, other=node, reset=yes)
    def connection_breaks(self, which: int, other: int, reset: bool) -> None:
        core = self.chosen(which)
        others = [peer for peer in self.cluster.replicas if peer != core.node_id]
        if others:
            (core.peer_unreachable if reset else core.peer_lost)(self.cluster.now, others[other % len(others)])

    def chosen(self, number: int) -> RaftGroup:
        """Some node that is up; there always is one."""
        return self.cluster.core(self.cluster.up[number % len(self.cluster.up)])

    # -- time -----------------------------------------------------------------------------------------------------

    @rule(which=node, us=st.sampled_from((0, 1_000, 50_000, 300_000, 700_000, 1_300_000)), punctual=yes)
    def wait(self, which: int, us: int, punctual: bool) -> None:
        """Time passes, up to one node's deadline (0) or just so; the others act on theirs, or may be paused."""
        core = self.chosen(which)
        wanted = core.next_deadline if not us and core.is_voter else self.cluster.now + us
        if wanted < 1 << 60:
            self.cluster.now = max(self.cluster.now, wanted)
        for node_id in self.cluster.up if punctual else [core.node_id]:
            self.cluster.on_time(node_id)

    @rule(which=node)
    def campaign(self, which: int) -> None:
        self.chosen(which).campaign(self.cluster.now)

    @precondition(lambda self: self.cluster.leading())
    @rule()
    def heartbeat(self) -> None:
        for leader in self.cluster.leading():
            self.cluster.core(leader).heartbeat(self.cluster.now)

    @precondition(lambda self: self.cluster.leading())
    @rule(calm=yes, reachable=st.sets(node, min_size=3))
    def fall_asleep(self, calm: bool, reachable: set[int]) -> None:
        """Leaders put their groups to sleep, perhaps after a calm in which every message is delivered."""
        if calm:
            self.cluster.settle()
            self.heartbeat()
            self.cluster.settle()
        for leader in self.cluster.leading():
            self.cluster.core(leader).quiesce(self.cluster.now, {number + 1 for number in reachable})

    @rule(which=node, silent_us=st.sampled_from((0, 100_000, 600_000)))
    def wake(self, which: int, silent_us: int) -> None:
        """A lease is no longer valid."""
        contacts = dict.fromkeys(self.cluster.replicas, self.cluster.now - silent_us)
        self.chosen(which).wake(self.cluster.now, contacts)

    # -- the group's users ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.cluster.leading())
    @rule(which=node, count=st.integers(1, 6))
    def propose(self, which: int, count: int) -> None:
        leaders = self.cluster.leading()
        self.append(leaders[which % len(leaders)], count)

    def append(self, leader: int, count: int) -> None:
        with contextlib.suppress(RaftError):
            for _ in range(count):
                self.proposed += 1
                self.cluster.propose(leader, b"%d" % self.proposed)

    @precondition(lambda self: self.cluster.leading())
    @rule(which=node, to=node)
    def transfer(self, which: int, to: int) -> None:
        leaders = self.cluster.leading()
        leader = leaders[which % len(leaders)]
        voters = [voter for voter in self.cluster.core(leader).configuration.voters if voter != leader]
        if voters:
            with contextlib.suppress(RaftError):
                self.cluster.core(leader).transfer_leadership(self.cluster.now, voters[to % len(voters)])

    @precondition(lambda self: self.cluster.leading())
    @rule(which=node, wanted=st.lists(node, min_size=1, max_size=4), calm=yes)
    def replace_voters(self, which: int, wanted: list[int], calm: bool) -> None:
        """Requests other voters: a node that is not a member becomes a learner first, all others change at once."""
        leaders = self.cluster.leading()
        core = self.cluster.core(leaders[which % len(leaders)])
        voters = tuple(dict.fromkeys(number % len(self.cluster.replicas) + 1 for number in wanted))
        known = core.configuration
        with contextlib.suppress(RaftError):
            new = tuple(voter for voter in voters if voter not in known.members)
            if new:
                core.propose_configuration(self.cluster.now, Configuration(known.voters, (*known.learners, *new)))
                if not calm:
                    return
                self.cluster.settle(stalled=self.stalled)
            learners = tuple(learner for learner in core.configuration.learners if learner not in voters)
            core.propose_configuration(self.cluster.now, Configuration(voters, learners))

    @rule(which=node)
    def destroy_a_removed_replica(self, which: int) -> None:
        self.cluster.destroy_removed(which % len(self.cluster.replicas) + 1)

    @rule(which=node, back=st.integers(0, 2))
    def compact_or_change_learners(self, which: int, back: int) -> None:
        core = self.chosen(which)
        top = min(core.applied_index, core.durable_index) - back
        if core.is_leader and self.cluster.configuration.learners and back == 0:
            known = core.configuration
            spare = (node for node in self.cluster.configuration.learners if node not in known.members)
            learners = () if known.learners else tuple(spare)
            with contextlib.suppress(RaftError):
                core.propose_configuration(self.cluster.now, Configuration(known.voters, learners))
        elif not self.cluster.replicas[core.node_id].unsynced and top >= core.first_index:
            self.cluster.compact(core.node_id, top)

    # -- longer stretches in which nothing else goes wrong, so that courses get somewhere -------------------------

    @rule(which=node, cut=st.sets(node, max_size=2), entries=st.integers(0, 3))
    def settle(self, which: int, cut: set[int], entries: int) -> None:
        """Everything under way is done, among those who are not cut off; without a leader they try to elect one."""
        if not self.cluster.leading():
            self.cluster.now += 2 * self.cluster.options.election_timeout_us
            self.chosen(which).campaign(self.cluster.now)
        for leader in self.cluster.leading():
            self.append(leader, entries)
        self.cluster.settle(cut={number + 1 for number in cut}, stalled=self.stalled)

    @precondition(lambda self: self.cluster.leading())
    @rule(which=node, with_it=st.sets(node, max_size=1), entries=st.integers(0, 3))
    def succession(self, which: int, with_it: set[int], entries: int) -> None:
        """Cuts off the leader, perhaps with another node; it still accepts entries while the others elect a new one."""
        old = self.cluster.leading()
        self.append(old[0], entries)
        cut = {*old, *(number + 1 for number in with_it)}
        rest = [node_id for node_id in self.cluster.up if node_id not in cut]
        self.cluster.now += 2 * self.cluster.options.election_timeout_us
        if rest:
            self.cluster.core(rest[which % len(rest)]).campaign(self.cluster.now)
            self.cluster.settle(cut=cut, stalled=self.stalled)

    @invariant()
    def every_promise_holds(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check()
            for node_id in self.cluster.up:
                self.drive(node_id)
            self.cluster.check()

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "cluster"):
            self.cluster.recover()


@pytest.mark.thorough
def test_no_course_breaks_a_promise_and_all_end_in_one_log() -> None:
    profile = SEARCH if COURSES else CONTINUOUS
    checks = list(HealthCheck)
    run_state_machine_as_test(Courses, settings=settings(profile, deadline=None, suppress_health_check=checks))
