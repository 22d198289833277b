"""What is moved without being asked: nothing by default; else towards balance, and off nodes that are gone for long."""

from __future__ import annotations

import dataclasses

from test_controller import SECOND
from test_rebalancing import Balanced, spread

from quorumlog.server.options import RepairOptions


class Repaired(Balanced):
    """A cluster whose controller acts by itself."""

    def __init__(self, nodes: int, *, rebalance_s: float = 0, recovery_s: float = 0) -> None:
        super().__init__(nodes=nodes, partitions=0)
        repair = RepairOptions(int(rebalance_s * SECOND), int(recovery_s * SECOND))
        self.options = dataclasses.replace(self.options, repair=repair)
        self.take_over()
        self.beat(*self.image.brokers)


def test_nothing_is_moved_by_default() -> None:
    cluster = Repaired(4)
    cluster.assigned("old", *[(1, 2, 3)] * 4)
    cluster.pass_time(seconds=30, without=(3,))
    assert cluster.image.moves.groups() == []


def test_balance_is_kept_step_by_step_where_that_is_wished() -> None:
    cluster = Repaired(4, rebalance_s=5)
    cluster.assigned("old", *[(1, 2, 3)] * 40)
    cluster.pass_time(seconds=4)
    assert cluster.image.moves.groups() == []
    for _ in range(6):
        cluster.pass_time(seconds=6)
        assert len(cluster.image.moves.groups()) <= 20
        cluster.moved()
    assert spread(cluster.counts()[0]) <= 1
    assert spread(cluster.counts()[1]) <= 1


def test_nothing_is_balanced_while_a_node_is_missing() -> None:
    cluster = Repaired(4, rebalance_s=5)
    cluster.assigned("old", *[(1, 2, 3)] * 4)
    cluster.pass_time(seconds=20, without=(4,))
    assert cluster.image.moves.groups() == []


def test_replicas_of_a_node_that_is_gone_for_long_are_made_anew_elsewhere() -> None:
    cluster = Repaired(5, recovery_s=60)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    cluster.pass_time(seconds=50, without=(3,))
    assert cluster.image.moves.groups() == [], "it may come back"
    cluster.led()
    cluster.pass_time(seconds=30, without=(3,))
    moving = [cluster.image.partitions[group] for group in cluster.image.moves.groups()]
    assert len(moving) == 6
    assert all(3 not in partition.target for partition in moving)
    cluster.moved()
    assert cluster.on(3) == []


def test_a_node_that_comes_back_in_time_keeps_its_replicas() -> None:
    cluster = Repaired(5, recovery_s=60)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    for _ in range(3):
        cluster.pass_time(seconds=40, without=(3,))
        cluster.pass_time(seconds=10)
    assert cluster.image.moves.groups() == []


def test_nothing_is_made_anew_while_half_of_the_nodes_are_gone() -> None:
    cluster = Repaired(6, recovery_s=10)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    cluster.pass_time(seconds=60, without=(3, 4, 5))
    assert cluster.image.moves.groups() == []
