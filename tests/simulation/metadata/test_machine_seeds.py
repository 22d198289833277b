"""Machines with several nodes that fail together: no two replicas of a partition share one, in any metadata image."""

from __future__ import annotations

from collections import Counter

import pytest

from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.plan import draw_plan
from quorumlog.simulator.seeds.story import Story, simulation_of
from quorumlog.simulator.world.invariants import ClusterInvariants

SEEDS = range(1, 9)


@pytest.mark.thorough
def test_no_two_replicas_share_a_machine() -> None:
    struck: Counter[str] = Counter()
    for seed in SEEDS:
        simulation = simulation_of(seed, Story.MACHINES)
        result = simulation.run()
        assert result.violation is None, (
            f"python -m quorumlog.simulator.simulate --seed {seed} --machines: {result.violation}"
        )
        struck += result.faults
    assert sum(count for kind, count in struck.items() if kind.startswith("machine-")) > len(SEEDS), struck


def test_machines_are_large_enough_for_their_topics() -> None:
    """Each seed has as many machines as a partition needs, and one with several nodes."""
    for seed in range(200):
        cluster = draw_plan(seed, with_machines=True).cluster
        sizes = Counter(cluster.machines)
        needed = cluster.replication_factor + 1 - cluster.replication_factor % 2
        assert len(sizes) >= needed, seed
        assert max(sizes.values()) > 1, seed
        assert len(cluster.machines) == cluster.nodes, seed
        assert len(set(cluster.machines[: len(sizes)])) == len(sizes), seed


@pytest.mark.parametrize(
    "partition",
    [
        {"replicas": (1, 2), "witness": 3},
        {"replicas": (1, 3, 5)},
        {"replicas": (1, 4, 5), "target": (1, 2, 4)},
        {"replicas": (1, 4), "witness": 5, "target": (4, 5), "target_witness": 6},
        {"replicas": (1, 4), "returning": (1, 2, 4)},
    ],
)
def test_shared_machines_are_noticed(partition: dict[str, object]) -> None:
    """The invariant covers replicas and witnesses, before and after a move, and replicas of lost disks."""
    record = PartitionRecord(Topic("t", bytes(16), {}), 0, 1000, isr=(1,), **partition)  # type: ignore[arg-type]
    with pytest.raises(Violation, match="two of the nodes of t-0 share a machine"):
        ClusterInvariants({}).apart_at([record], ("a", "a", "a", "b", "a", "b"))
