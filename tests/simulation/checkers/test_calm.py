"""The judge of the time without requests: it excuses changes that the nodes finish on their own, and nothing else."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC, Quiet

from quorumlog.raft.group import RaftGroup
from quorumlog.server.config.options import BalanceOptions
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.simulation import Simulation
from quorumlog.simulator.world.convergence import Calm, unfinished_changes
from quorumlog.v1 import admin_pb2

BALANCE = BalanceOptions(enabled=True, check_interval_us=50_000, grace_us=0, max_transfers=1)


class Balanced(Quiet):
    """Four nodes with two partitions, each led by its preferred leader."""

    def __init__(self) -> None:
        super().__init__(1, partitions=2, balance=BALANCE, nodes=4)
        self.until(lambda: not unfinished_changes(self.cluster), 10)
        self.run(2)

    def move(self, partition: int) -> None:
        """Starts to move a partition off its leader."""
        image = self.cluster.processes[1].image
        assert image is not None
        record = image.topics[TOPIC].partitions[partition]
        (free,) = set(self.cluster.node_ids) - set(record.replicas)
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
        request.reassignments.add(topic=TOPIC, partition=partition, replicas=(free, *record.replicas[1:]))
        self.cluster.request("admin", 1, request, lambda _: None)
        self.until(lambda: bool(unfinished_changes(self.cluster)), 5)

    def group_of(self, partition: int) -> int:
        """The Raft group of a partition."""
        image = self.cluster.processes[1].image
        assert image is not None
        return image.topics[TOPIC].partitions[partition].group

    def elect(self, group: int) -> None:
        """Makes a follower of a group campaign without a reason."""
        leader = self.led_by(group)
        assert leader is not None
        node = self.cluster.processes[leader].node
        raft: RaftGroup = self.replicas_of(group)[leader]
        assert node is not None
        heir = next(each for each in raft.configuration.voters if each != leader)
        raft.transfer_leadership(self.cluster.processes[leader]._now(), heir)
        node._host.touch(group)

    def settle(self, calm: Calm) -> None:
        """Waits for the end of the changes, and until everything sleeps."""
        self.until(lambda: not unfinished_changes(self.cluster), 20)
        calm.changes_finished()
        self.until(lambda: not calm.awake(), 10)


def test_a_move_under_way_is_waited_for() -> None:
    balanced = Balanced()
    before = balanced.replicas_of(balanced.group_of(0))
    terms = {node: raft.term for node, raft in before.items()}
    balanced.move(0)
    calm = Calm(balanced.cluster)
    balanced.settle(calm)
    assert terms != {node: raft.term for node, raft in balanced.replicas_of(balanced.group_of(0)).items()}
    calm.check()


def test_an_election_beside_a_move_is_noticed() -> None:
    balanced = Balanced()
    balanced.move(0)
    calm = Calm(balanced.cluster)
    balanced.elect(balanced.group_of(1))
    balanced.settle(calm)
    with pytest.raises(Violation, match=f"an election without a fault: .* group {balanced.group_of(1)} "):
        calm.check()


def test_an_election_after_a_move_is_noticed() -> None:
    balanced = Balanced()
    balanced.move(0)
    calm = Calm(balanced.cluster)
    balanced.settle(calm)
    balanced.elect(balanced.group_of(0))
    balanced.run(3)
    with pytest.raises(Violation, match="an election without a fault"):
        calm.check()


def test_a_seed_whose_nodes_are_balanced_at_the_end() -> None:
    assert Simulation(3289).run().violation is None
