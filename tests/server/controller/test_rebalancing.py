"""Balance: replicas over racks, as many and as large on each node, leaders even; with few moves."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from test_controller import registration
from test_node_decisions import DRAIN, Leaving

from quorumlog.server.controller.rebalancing import Rebalancing
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

MIB = 1 << 20


class Balanced(Leaving):
    """A cluster with leaders to rebalance."""

    def assigned(self, name: str, *replicas: tuple[int, ...]) -> None:
        topic = admin_pb2.NewTopic(name=name, num_partitions=-1, replication_factor=-1)
        for nodes in replicas:
            topic.replica_assignments.add(replicas=nodes)
        assert not any(each.HasField("error") for each in self.create(topic))
        self.led()

    def tell_sizes(self, sizes: dict[int, int]) -> None:
        beat = self.heartbeat(1)
        for group, size in sizes.items():
            beat.log_sizes.add(group=group, size_bytes=size)
        self.ask(heartbeat=beat)

    def rebalance(self, **fields: object) -> admin_pb2.RebalancePartitionsResponse:
        response = self.ask(rebalance_partitions=admin_pb2.RebalancePartitionsRequest(**fields))  # type: ignore[arg-type]
        if response.HasField("error"):
            return admin_pb2.RebalancePartitionsResponse(error=response.error)
        return response.rebalance_partitions

    def counts(self) -> tuple[list[int], list[int]]:
        """Replicas and preferred leaders of each node."""
        replicas = Counter(node for each in self.image.partitions.values() for node in each.wanted)
        leaders = Counter(each.wanted[0] for each in self.image.partitions.values())
        return [replicas[node] for node in self.image.brokers], [leaders[node] for node in self.image.brokers]


def spread(counts: list[int]) -> int:
    return max(counts) - min(counts)


def test_a_new_node_gets_its_share_and_no_more_moves_than_that() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", *[((1, 2, 3), (2, 3, 1), (3, 1, 2))[number % 3] for number in range(12)])
    plan = cluster.rebalance()
    replicas, leaders = cluster.counts()
    assert (spread(replicas), spread(leaders)) == (0, 0)
    copied = [move for move in plan.moves if set(move.wanted) != set(move.replicas)]
    assert len(copied) == 9, "a quarter of 36 replicas, and not one more"
    assert len(cluster.image.moves.groups()) == len(plan.moves)
    cluster.moved()
    assert cluster.rebalance().moves == []


def test_a_balanced_cluster_is_left_alone() -> None:
    cluster = Balanced(nodes=5, partitions=11)
    cluster.led()
    assert spread(cluster.counts()[0]) == 1
    assert cluster.rebalance().moves == []


def test_a_plan_changes_nothing() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 4)
    assert cluster.rebalance(validate_only=True).moves
    assert cluster.image.moves.groups() == []


def test_replicas_of_a_rack_are_parted_where_another_rack_has_none() -> None:
    cluster = Balanced(nodes=6, partitions=0, racks="aabbcc")
    cluster.assigned("crowded", *[(1, 2, 3), (3, 4, 5)] * 3)
    cluster.rebalance()
    for partition in cluster.image.partitions.values():
        assert len({cluster.image.brokers[node].rack for node in partition.wanted}) == 3


def test_no_balance_is_bought_with_a_rack() -> None:
    """Rebalancing keeps the spread over racks: the only node of a rack keeps a replica of every partition."""
    cluster = Balanced(nodes=5, partitions=0, racks="aabbc")
    cluster.assigned("one", *[(1, 3, 5), (2, 4, 5)] * 5)
    cluster.rebalance()
    for partition in cluster.image.partitions.values():
        assert len({cluster.image.brokers[node].rack for node in partition.wanted}) == 3


def test_nodes_come_to_have_as_many_bytes() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("large", *[(1,), (1,), (1,)])
    cluster.assigned("small", *[(node,) for node in (2, 2, 2, 3, 3, 3, 4, 4, 4)])
    groups = {partition.name: group for group, partition in cluster.image.partitions.items()}
    cluster.tell_sizes({group: (900 if name.startswith("large") else 10) * MIB for name, group in groups.items()})
    plan = cluster.rebalance()
    after = {load.node_id: load for load in plan.loads}
    assert spread([load.replicas_after for load in after.values()]) <= 1
    assert max(load.size_bytes_after for load in after.values()) <= 930 * MIB
    assert plan.all_bytes >= 2 * 900 * MIB


def test_leaders_are_evened_without_a_copy() -> None:
    cluster = Balanced(nodes=3, partitions=0)
    cluster.assigned("led", *[(1, 2, 3)] * 9)
    plan = cluster.rebalance()
    assert all(set(move.wanted) == set(move.replicas) for move in plan.moves)
    assert len(plan.moves) == 6
    assert plan.all_bytes == 0
    assert cluster.counts()[1] == [3, 3, 3]


def test_nodes_that_are_down_or_leave_get_nothing_and_what_has_no_leader_stays() -> None:
    cluster = Balanced(nodes=6, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    cluster.assigned("dead", (5,))
    cluster.alter(6, DRAIN)
    cluster.pass_time(without=(5,), seconds=4)
    plan = cluster.rebalance()
    assert plan.moves
    assert all(not {5, 6}.intersection(move.wanted) and move.topic != "dead" for move in plan.moves)


def test_no_replica_goes_to_a_node_that_has_the_witness() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", *[(1, 2)] * 12)
    witnesses = {each.number: each.witness for each in cluster.image.partitions.values()}
    plan = cluster.rebalance()
    assert plan.moves
    assert [move.partition for move in plan.moves if witnesses[move.partition] in move.wanted] == []


def test_no_replica_goes_to_another_rack_where_the_witness_is() -> None:
    cluster = Balanced(nodes=4, partitions=0, racks="aabc")
    cluster.assigned("load", *[(4,)] * 3)
    cluster.assigned("old", (1, 2))
    (partition,) = cluster.image.topics["old"].partitions
    assert partition.witness == 3
    moves = {partition.group: wanted for partition, wanted in Rebalancing(cluster.image, {}).moves()}
    assert 4 in moves[partition.group]
    assert 3 not in moves[partition.group]


def test_a_witness_is_neither_a_replica_nor_bytes() -> None:
    """Node 5 has a witness of each partition and a replica of none: it is as empty as a new one."""
    cluster = Balanced(nodes=5, partitions=0)
    cluster.assigned("load", *[(1, 2)] * 3, *[(3, 4)] * 3)
    partitions = list(cluster.image.partitions.values())
    sizes = {each.group: 100 * MIB for each in partitions}
    plan = Rebalancing(cluster.image, sizes)
    copies = Counter(node for each in partitions for node in each.replicas)
    assert any(each.witness for each in partitions)
    assert {node: load.replicas for node, load in plan.before.items()} == {node: copies[node] for node in range(1, 6)}
    assert {node: load.size_bytes for node, load in plan.before.items()} == {
        node: copies[node] * 100 * MIB for node in range(1, 6)
    }
    assert any(5 in wanted for _, wanted in plan.moves())


def test_a_node_for_witnesses_alone_gets_no_replica() -> None:
    cluster = Balanced(nodes=3, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 6)
    for node in (4, 5):
        cluster.ask(register_broker=registration(node, witness_only=node == 5))
    cluster.pass_time()
    plan = cluster.rebalance()
    assert any(4 in move.wanted for move in plan.moves)
    assert not any(5 in move.wanted for move in plan.moves)


def test_most_moves_is_kept() -> None:
    cluster = Balanced(nodes=6, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 20)
    assert len(cluster.rebalance(most_moves=5).moves) == 5


def test_a_plan_in_the_midst_of_moves_is_refused() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 4)
    cluster.rebalance()
    assert cluster.rebalance().error.code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    cluster.moved()
    cluster.alter(4, DRAIN)
    assert "node 4 is being drained" in cluster.rebalance().error.message


def test_a_throttle_goes_with_the_moves_and_ends_with_them() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", *[(1, 2, 3)] * 4)
    assert "is too slow" in cluster.rebalance(bytes_per_second=1_000).error.message
    cluster.rebalance(bytes_per_second=5 * MIB)
    moving = [cluster.image.partitions[group] for group in cluster.image.moves.groups()]
    assert {partition.throttle for partition in moving} == {5 * MIB}
    cluster.moved()
    assert {partition.throttle for partition in moving} == {0}


def test_a_throttle_of_a_drain_holds_for_what_is_under_way_and_for_what_comes() -> None:
    cluster = Leaving()
    cluster.alter(4, DRAIN, bytes_per_second=5 * MIB)
    cluster.pass_time()
    moving = [cluster.image.partitions[group] for group in cluster.image.moves.groups()]
    assert {partition.throttle for partition in moving} == {5 * MIB}
    cluster.alter(4, DRAIN, bytes_per_second=2 * MIB)
    assert {partition.throttle for partition in moving} == {2 * MIB}
    cluster.image = type(cluster.image).from_snapshot(cluster.image.to_snapshot())
    assert cluster.image.brokers[4].throttle == 2 * MIB
    assert {cluster.image.partitions[group].throttle for group in cluster.image.moves.groups()} == {2 * MIB}


def test_a_throttle_of_a_move_is_changed_by_the_same_wish_again() -> None:
    cluster = Balanced(nodes=4, partitions=0)
    cluster.assigned("old", (1, 2, 3))
    wanted = admin_pb2.Reassignment(topic="old", partition=0, replicas=[4, 2, 3])
    for rate in (3 * MIB, MIB, 0):
        request = admin_pb2.ReassignPartitionsRequest(reassignments=[wanted], bytes_per_second=rate)
        assert not cluster.ask(reassign_partitions=request).reassign_partitions.results[0].HasField("error")
        assert cluster.image.partitions[1000].throttle == rate


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_cluster_a_plan_makes_nothing_worse(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 9)
    cluster = Balanced(nodes=nodes, partitions=0, racks="".join(rng.choice("abc") for _ in range(9)))
    factor = rng.choice([size for size in (1, 3, 5) if size <= nodes])
    cluster.assigned("any", *[tuple(rng.sample(range(1, nodes + 1), factor)) for _ in range(rng.randint(1, 40))])
    sizes = {group: rng.choice((0, 1, 50, 400)) * MIB for group in cluster.image.partitions}
    racks = {node: broker.rack for node, broker in cluster.image.brokers.items()}
    plan = Rebalancing(cluster.image, sizes)
    replicas_before, leaders_before = cluster.counts()
    parted = False  # Racks are of different sizes: what is in all of them is not as many on each node.
    for partition, wanted in plan.moves():
        assert len(set(wanted)) == len(wanted) == len(partition.replicas)
        before = {racks[node] for node in partition.replicas}
        assert len({racks[node] for node in wanted}) >= len(before)
        parted = parted or len({racks[node] for node in wanted}) > len(before)
        cluster.commit_one(reassign_replicas={"group": partition.group, "replicas": wanted, "wishes": partition.wishes})
    replicas, leaders = cluster.counts()
    loads = plan.after
    assert [loads[node].replicas for node in cluster.image.brokers] == replicas
    assert [loads[node].leaders for node in cluster.image.brokers] == leaders
    if not parted:
        assert spread(replicas) <= max(1, spread(replicas_before))
        assert spread(leaders) <= max(2, spread(leaders_before) + 1)
