"""Seeded storms over a few cores: loss, duplication, reordering, crashes, slow disks; then healing.

After every step Raft's safety properties are checked, on the cores and on what is synced; in the end the cluster must
come together again. A failure prints the seed; ``STORM_SEEDS=first:last`` runs others.
``make test-compiled`` runs those from 150 to 300.
"""

from __future__ import annotations

import contextlib
import os
import random

import pytest
from checked_cluster import CheckedCluster

from quorumlog.raft.errors import ProposalRefusedError
from quorumlog.raft.types import Configuration

FIRST, LAST = (int(part) for part in os.environ.get("STORM_SEEDS", "0:150").split(":"))
SEEDS_PER_TEST = 50
STEPS = 400


class Storm:
    """Random steps on a cluster.

    Arguments:
        witnessed: the number of copies is even, and the last voter is a witness.
    """

    def __init__(self, seed: int, *, witnessed: bool = False) -> None:
        self.rng = random.Random(seed)
        size = self.rng.choice((3, 5) if witnessed else (3, 3, 5, 4, 1))
        witnesses = (size,) if witnessed else ()
        learners = (size + 1,) if self.rng.random() < 0.4 else ()
        lazy = self.rng.random() < 0.5
        self.cluster = CheckedCluster(tuple(range(1, size + 1)), learners, seed, lazy, witnesses=witnesses)
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
        self.cut.clear()
        self.cluster.recover()

    def any_up(self) -> int | None:
        return self.rng.choice(self.cluster.up) if self.cluster.up else None

    def deliver(self) -> None:
        network = self.cluster.network
        for _ in range(self.rng.randint(1, 12)):
            if not network:
                return
            message = network.pop(self.rng.randrange(len(network)) if self.reorder else 0)
            if self.rng.random() < self.duplication:
                network.append(message)
            if self.rng.random() < self.loss or (message.sender, message.to) in self.cut:
                self.cluster.lose(message)
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
            self.cluster.on_time(node_id)

    def propose(self) -> None:
        for leader in self.cluster.leading():
            self.proposed += 1
            with contextlib.suppress(ProposalRefusedError):
                self.cluster.propose(leader, b"%d" % self.proposed)

    def heartbeat(self) -> None:
        for leader in self.cluster.leading():
            self.cluster.core(leader).heartbeat(self.cluster.now)

    def fall_asleep(self) -> None:
        if self.rng.random() < 0.2:
            # A calm in which every message is delivered. The events that wake the groups come at any time.
            self.cluster.settle()
            self.heartbeat()
            self.cluster.settle()
        for leader in self.cluster.leading():
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
        for leader in self.cluster.leading():
            others = [v for v in self.cluster.core(leader).configuration.data_voters if v != leader]
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
        for leader in self.cluster.leading():
            core = self.cluster.core(leader)
            spare = len(self.cluster.configuration.voters) + 1
            if spare not in self.cluster.replicas:
                return
            learners = () if spare in core.configuration.learners else (spare,)
            with contextlib.suppress(ProposalRefusedError):
                known = core.configuration
                wanted = Configuration(known.voters, learners, witnesses=known.witnesses)
                core.propose_configuration(self.cluster.now, wanted)

    def rivals_campaign(self) -> None:
        # Beyond every lease, so that nothing holds them up but the rules of voting.
        self.cluster.now += self.rng.choice((0, 1_300_000))
        for node_id in self.rng.sample(self.cluster.up, min(2, len(self.cluster.up))):
            self.cluster.core(node_id).campaign(self.cluster.now)


@pytest.mark.parametrize("witnessed", [False, True], ids=["copies", "witness"])
@pytest.mark.parametrize("first", range(FIRST, LAST, SEEDS_PER_TEST))
def test_storms_break_no_promise_and_end_in_one_log(first: int, witnessed: bool) -> None:
    for seed in range(first, min(first + SEEDS_PER_TEST, LAST)):
        try:
            Storm(seed, witnessed=witnessed).run()
        except Exception as error:
            raise AssertionError(f"storm of seed {seed} (STORM_SEEDS={seed}:{seed + 1} repeats it): {error}") from error
