"""Seeded storms over a few cores: loss, duplication, reordering, crashes, slow disks; then healing.

After every step Raft's safety properties are checked, on the cores and on what is synced; in the end the cluster must
come together again. A failure prints the seed; ``STORM_SEEDS=first:last`` runs others.
"""

from __future__ import annotations

import contextlib
import os
import random

import pytest
from raft_cluster import Cluster

from quorumlog.raft.errors import ProposalRefusedError
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import Configuration, Entry, InstallSnapshot, Role

FIRST, LAST = (int(part) for part in os.environ.get("STORM_SEEDS", "0:300").split(":"))
SEEDS_PER_TEST = 50
STEPS = 400

#: Small limits, so that a storm meets them.
SMALL = RaftOptions(
    max_uncommitted_bytes=40,
    max_append_bytes=8,
    max_inflight_appends=3,
    max_inflight_bytes=16,
    max_apply_bytes=12,
    cache_bytes=10,
)


class CheckedCluster(Cluster):
    """A cluster that checks Raft's properties (paper, figure 3) as it goes."""

    def __init__(self, voters: tuple[int, ...], learners: tuple[int, ...], seed: int) -> None:
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        self.committed_in: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int]] = {}
        self.terms: dict[int, int] = {}
        super().__init__(voters, learners, seed=seed, options=SMALL)

    def applying(self, node_id: int, entry: Entry) -> None:
        agreed = self.committed.setdefault(entry.index, (entry.term, entry.hash))
        # The term in which it was seen to be committed: leaders of earlier terms may not have heard of it.
        self.committed_in.setdefault(entry.index, self.core(node_id).term)
        assert agreed == (entry.term, entry.hash), f"state machines disagree at {entry.index}"
        expected = self.replicas[node_id].applied_from + len(self.replicas[node_id].applied) + 1
        assert entry.index == expected, "applied out of order"
        self.check_quorum_holds(entry.index, entry.hash)

    def check(self) -> None:
        for node_id in self.up:
            core = self.core(node_id)
            term, commit = self.seen.get(node_id, (0, 0))
            assert core.term >= term, "a term went back"
            assert core.commit_index >= commit, "a commit index went back"
            self.seen[node_id] = (core.term, core.commit_index)
            if core.quiescent:
                assert core.last_id.index == core.commit_index, "asleep with an uncommitted tail"
            if core.role is Role.LEADER:
                if self.leaders.setdefault(core.term, node_id) != node_id:
                    raise AssertionError(f"two leaders in term {core.term}")
                self.check_leader(node_id)

    def check_leader(self, node_id: int) -> None:
        core = self.core(node_id)
        newest = max((index for index, term in self.committed_in.items() if term <= core.term), default=0)
        assert core.last_id.index >= newest, "a leader lacks a committed entry"
        for index in range(max(core.first_index, newest - 3), newest + 1):
            entry_id = core.entry_id(index)
            assert self.committed[index] == (entry_id.term, entry_id.hash), "a leader lacks a committed entry"
        if core.leads_committed:
            commit = core.entry_id(core.commit_index)
            self.check_quorum_holds(commit.index, commit.hash)
        own = [e for e in self.uncommitted(node_id) if e.term == core.term]
        assert core.uncommitted_bytes == sum(len(e.data) for e in own), "uncommitted bytes drift"

    def check_quorum_holds(self, index: int, entry_hash: int) -> None:
        voters = self.configuration.voters
        holders = sum(self.holds(voter, index, entry_hash) for voter in voters)
        assert holders > len(voters) // 2, f"entry {index} is committed, but not synced on a quorum"

    def uncommitted(self, node_id: int) -> list[Entry]:
        core = self.core(node_id)
        if core.commit_index == core.last_id.index:
            return []
        return core.entries_between(core.commit_index + 1, core.last_id.index, 1 << 30)

    def holds(self, node_id: int, index: int, entry_hash: int) -> bool:
        disk = self.replicas[node_id].disk
        if index <= disk.anchor.index:
            return True
        return index <= disk.last.index and disk.entries(index, index, 0)[0].hash == entry_hash

    def check_logs_match(self) -> None:
        by_id: dict[tuple[int, int], int] = {}
        for replica in self.replicas.values():
            for entry in replica.disk.log:
                assert by_id.setdefault((entry.index, entry.term), entry.hash) == entry.hash, "logs do not match"


class Storm:
    """Random steps on a cluster."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        size = self.rng.choice((3, 3, 5, 4, 1))
        learners = (size + 1,) if self.rng.random() < 0.4 else ()
        self.cluster = CheckedCluster(tuple(range(1, size + 1)), learners, seed)
        self.cluster.lazy_commit = self.rng.random() < 0.5
        self.loss = self.rng.choice((0.0, 0.1, 0.4))
        self.duplication = self.rng.choice((0.0, 0.2))
        self.reorder = self.rng.random() < 0.5
        self.cut: set[tuple[int, int]] = set()
        self.proposed = 0
        self.taken = 0

    def run(self) -> None:
        actions = {
            self.deliver: 60,
            self.persist: 30,
            self.propose: 14,
            self.heartbeat: 8,
            self.fall_asleep: 4,
            self.wake: 1,
            self.time_passes: 7,
            self.start: 4,
            self.compact: 2,
            self.crash: 1.5,
            self.lose_connection: 1,
            self.cut_link: 0.7,
            self.heal_links: 0.7,
            self.transfer: 0.7,
            self.rivals_campaign: 2,
            self.change_learners: 0.5,
        }
        names, weights = list(actions), list(actions.values())
        for action in self.rng.choices(names, weights, k=STEPS):
            self.taken += 1
            action()
            for node_id in self.cluster.up:
                if self.rng.random() < 0.8:
                    self.cluster.drain(node_id, pull=self.rng.random() < 0.8)
            self.cluster.check()
        self.cluster.check_logs_match()
        self.recover()

    def any_up(self) -> int | None:
        return self.rng.choice(self.cluster.up) if self.cluster.up else None

    def leaders(self) -> list[int]:
        return [node_id for node_id in self.cluster.up if self.cluster.core(node_id).is_leader]

    def deliver(self) -> None:
        network = self.cluster.network
        for _ in range(self.rng.randint(1, 12)):
            if not network:
                return
            message = network.pop(self.rng.randrange(len(network)) if self.reorder else 0)
            if self.rng.random() < self.duplication:
                network.append(message)
            if self.rng.random() < self.loss or (message.sender, message.to) in self.cut:
                sender = self.cluster.replicas[message.sender].core
                if isinstance(message, InstallSnapshot) and sender is not None:
                    sender.snapshot_status(self.cluster.now, message.to, False)
                continue
            self.cluster.deliver(message)
            self.cluster.drain(message.to) if message.to in self.cluster.up else None
            self.cluster.check()

    def persist(self) -> None:
        node_id = self.any_up()
        if node_id is None:
            return
        unsynced = len(self.cluster.replicas[node_id].unsynced)
        if unsynced and self.rng.random() < 0.3:
            self.cluster.persist(node_id, unsynced)
        for _ in range(self.rng.randint(0, len(self.cluster.replicas[node_id].unsynced))):
            self.cluster.persist(node_id)

    def time_passes(self) -> None:
        self.cluster.now += self.rng.randint(1, 500_000)
        for node_id in self.cluster.up:
            if self.cluster.core(node_id).next_deadline <= self.cluster.now:
                self.cluster.core(node_id).on_time(self.cluster.now)

    def propose(self) -> None:
        for leader in self.leaders():
            self.proposed += 1
            with contextlib.suppress(ProposalRefusedError):
                self.cluster.propose(leader, b"%d" % self.proposed)

    def heartbeat(self) -> None:
        for leader in self.leaders():
            self.cluster.core(leader).heartbeat(self.cluster.now)

    def fall_asleep(self) -> None:
        if self.rng.random() < 0.2:
            # A calm, in which everybody hears of everything. What wakes them again comes when it likes.
            self.cluster.settle()
            self.heartbeat()
            self.cluster.settle()
        for leader in self.leaders():
            core = self.cluster.core(leader)
            core.quiesce(self.cluster.now, {member for member in core.progress if self.rng.random() < 0.9})

    def wake(self) -> None:
        """A lease has run out."""
        node_id = self.any_up()
        if node_id is not None:
            self.cluster.core(node_id).wake(self.cluster.now, {})

    def crash(self) -> None:
        node_id = self.any_up()
        if node_id is not None:
            self.cluster.crash(node_id, synced=self.rng.randint(0, 3))
            self.cluster.seen.pop(node_id, None)
            if self.rng.random() < 0.7:
                for other in self.cluster.up:
                    self.cluster.core(other).peer_lost(self.cluster.now, node_id)

    def start(self) -> None:
        down = [node_id for node_id in self.cluster.replicas if node_id not in self.cluster.up]
        if down:
            self.cluster.start(self.rng.choice(down))

    def cut_link(self) -> None:
        nodes = list(self.cluster.replicas)
        self.cut.add((self.rng.choice(nodes), self.rng.choice(nodes)))

    def heal_links(self) -> None:
        self.cut.clear()

    def lose_connection(self) -> None:
        node_id, peer = self.any_up(), self.rng.choice(list(self.cluster.replicas))
        if node_id is not None and node_id != peer:
            if self.rng.random() < 0.5:
                self.cluster.core(node_id).peer_lost(self.cluster.now, peer)
            else:
                self.cluster.core(node_id).peer_unreachable(self.cluster.now, peer)

    def transfer(self) -> None:
        for leader in self.leaders():
            others = [v for v in self.cluster.core(leader).configuration.voters if v != leader]
            if others:
                self.cluster.core(leader).transfer_leadership(self.cluster.now, self.rng.choice(others))

    def compact(self) -> None:
        node_id = self.any_up()
        if node_id is None or self.cluster.replicas[node_id].unsynced:
            return
        core = self.cluster.core(node_id)
        top = min(core.applied_index, core.durable_index)
        if top >= core.first_index and core.applied_index == self.cluster.core(node_id).commit_index:
            self.cluster.compact(node_id, top)

    def change_learners(self) -> None:
        for leader in self.leaders():
            core = self.cluster.core(leader)
            spare = len(self.cluster.configuration.voters) + 1
            if spare not in self.cluster.replicas:
                return
            learners = () if spare in core.configuration.learners else (spare,)
            with contextlib.suppress(ProposalRefusedError):
                core.propose_configuration(self.cluster.now, Configuration(core.configuration.voters, learners))

    def rivals_campaign(self) -> None:
        # Beyond every lease, so that nothing holds them up but the rules of voting.
        self.cluster.now += self.rng.choice((0, 1_300_000))
        for node_id in self.rng.sample(self.cluster.up, min(2, len(self.cluster.up))):
            self.cluster.core(node_id).campaign(self.cluster.now)

    def recover(self) -> None:
        """Everything heals; the cluster must find a leader and one log, within a bounded time."""
        cluster = self.cluster
        self.cut.clear()
        for node_id, replica in cluster.replicas.items():
            if replica.core is None:
                cluster.start(node_id)
        for node_id in cluster.up:
            cluster.core(node_id).wake(cluster.now, {})
        interval = cluster.options.heartbeat_interval_us
        for _ in range(100):
            cluster.settle()
            cluster.check()
            if self.converged():
                cluster.check_logs_match()
                return
            cluster.now += interval
            for node_id in cluster.up:
                core = cluster.core(node_id)
                if core.next_deadline <= cluster.now:
                    core.on_time(cluster.now)
                core.heartbeat(cluster.now)
        state = [
            (core.node_id, core.role, core.term, core.commit_index, core.last_id.index, dict(core.progress))
            for core in map(cluster.core, cluster.up)
        ]
        raise AssertionError(f"no convergence: {state}")

    def converged(self) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1:
            return False
        leader = self.cluster.core(leaders[0])
        members = [self.cluster.core(member) for member in leader.configuration.members]
        return all(
            core.last_id == leader.last_id
            and core.applied_index == leader.last_id.index
            and core.leader_id == leaders[0]
            for core in members
        ) and all(
            progress.state is ProgressState.REPLICATE and progress.inflights.bytes == 0
            for member, progress in leader.progress.items()
            if member != leaders[0]
        )


@pytest.mark.parametrize("first", range(FIRST, LAST, SEEDS_PER_TEST))
def test_storms_break_no_promise_and_end_in_one_log(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_TEST, LAST)):
        try:
            Storm(seed).run()
        except Exception as error:
            raise AssertionError(f"storm of seed {seed} (STORM_SEEDS={seed}:{seed + 1} repeats it): {error}") from error
