"""Automatic moves: none by default; optionally towards balance, and off nodes that are absent for long."""

from __future__ import annotations

import dataclasses

import pytest
from test_controller import SECOND
from test_rebalancing import Balanced, spread

from quorumlog.server.config.options import RepairOptions
from quorumlog.v1 import admin_pb2


class Repaired(Balanced):
    """A cluster whose controller rebalances and repairs automatically."""

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
    assert cluster.image.moves.groups() == [], "it may return"
    cluster.led()
    cluster.pass_time(seconds=30, without=(3,))
    moving = [cluster.image.partitions[group] for group in cluster.image.moves.groups()]
    assert len(moving) == 6
    assert all(3 not in partition.target for partition in moving)
    cluster.moved()
    assert cluster.on(3) == []


def test_a_node_whose_disk_is_being_replaced_gets_its_replicas_back() -> None:
    cluster = Repaired(5, recovery_s=60)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    cluster.pass_time(seconds=4, without=(3,))
    cluster.led()
    directory = cluster.image.brokers[3].registration.directory_id
    replaced = cluster.alter(3, admin_pb2.NODE_ACTION_REPLACE_DISK, directory_id=directory)
    assert not replaced.HasField("error"), replaced.error.message
    cluster.pass_time(seconds=2, without=(3,))
    cluster.moved()
    cluster.pass_time(seconds=90, without=(3,))
    partitions = cluster.image.partitions.values()
    assert [(each.replicas, each.is_moving, each.returning) for each in partitions] == [((1, 2), False, (1, 2, 3))] * 6


@pytest.mark.parametrize("gone", [2, 3], ids=["a replica is gone", "the witness is gone"])
def test_a_witness_is_where_the_repair_has_it(gone: int) -> None:
    cluster = Repaired(5, recovery_s=10)
    cluster.assigned("old", *[(1, 2)] * 6)
    before = {group: each.witness for group, each in cluster.image.partitions.items() if gone in each.hosts}
    cluster.pass_time(seconds=4, without=(gone,))
    cluster.led()
    cluster.pass_time(seconds=30, without=(gone,))
    moving = [cluster.image.partitions[group] for group in cluster.image.moves.groups()]
    assert {each.group for each in moving} == set(before)
    for partition in moving:
        assert gone not in partition.wanted_voters
        assert len(set(partition.wanted_voters)) == 3
        assert gone == before[partition.group] or partition.wanted_witness == before[partition.group]


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
