"""Choice of the nodes that take over replicas, without a scan of all partitions of the cluster."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from test_controller import SECOND, new_topic
from test_node_decisions import DRAIN, Leaving

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller import node_drain as evacuation
from quorumlog.server.controller.node_drain import NodeDrain
from quorumlog.server.controller.replacement_placement import ReplacementPlacement, rack_of
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.v1 import metadata_log_pb2 as log


class CountedPartitions(dict[int, PartitionRecord]):
    """Partitions by group; counts how many are looked at."""

    looks = 0

    def __getitem__(self, group: int) -> PartitionRecord:
        self.looks += 1
        return super().__getitem__(group)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


@pytest.mark.parametrize("racks", ["", "aaabbbccc", "aaaaaaabc"])
def test_an_heir_is_chosen_as_if_all_nodes_were_compared(racks: str) -> None:
    """The heir is the node with the fewest replicas in the racks that have the fewest replicas of the partition."""
    rng = random.Random(racks)
    for _ in range(30):
        cluster = Leaving(nodes=9, partitions=0, racks=racks)
        brokers = cluster.image.brokers
        carried = {node: rng.randint(0, 5) for node in brokers}
        able = [broker for node, broker in brokers.items() if node != 9 and rng.random() < 0.8]
        heirs = ReplacementPlacement(able, brokers, carried, 5)
        for _ in range(12):
            wanted = [9, *rng.sample(range(1, 9), 2)]
            racks_used = Counter(rack_of(brokers[node]) for node in wanted[1:])
            barred = frozenset(rng.sample(range(1, 9), rng.randint(0, 3)))
            taken = barred.union(wanted)
            free = [each.node_id for each in able if each.node_id not in taken and carried[each.node_id] < 5]
            best = min(
                free, key=lambda node: (racks_used[rack_of(brokers[node])], carried[node], node), default=NO_NODE
            )
            assert heirs.take(wanted, 9, barred=barred) == best
            if best != NO_NODE:
                carried[best] += 1


def test_a_look_at_a_node_that_is_empty_and_one_that_leaves_cost_what_is_on_them() -> None:
    """The cost of a look is proportional to what is on these nodes, not to the cluster: looks are frequent, and delay
    all other work of the node."""
    cluster = Leaving(nodes=8, partitions=0)
    for number in range(10):
        cluster.create(new_topic(f"t{number}", partitions=50))
    drained = cluster.alter(8, DRAIN)
    assert drained.all_moves > 100
    counting = CountedPartitions(cluster.image.partitions)
    evacuated = NodeDrain(cluster.image, lambda: (1, 2, 3), TopicLimits(), 3 * SECOND)
    cluster.image.partitions = counting
    planned = evacuated.due(cluster.now + SECOND, 1)
    assert len(planned) == evacuation.MOVES_AT_ONCE
    assert counting.looks <= 2 * drained.all_moves
    counting.looks = 0
    cluster.image.brokers[7].leaving, cluster.image.brokers[8].leaving = False, True
    for group in list(cluster.image.replica_index.on(8)):
        cluster.commit_one(reassign_replicas=log.ReassignReplicas(group=group, replicas=[1, 2, 3]))
    cluster.moved()
    counting.looks = 0
    assert evacuated.due(cluster.now + 9 * SECOND, 1) == []
    assert counting.looks == 0


def test_a_drained_witness_goes_where_no_replica_is_also_none_of_a_move_that_was_called_off() -> None:
    """A drained witness is not moved to a former target: the move would be refused and chosen again at the next look,
    and the drain would never end."""
    cluster = Leaving(nodes=5, partitions=0)
    cluster.create(new_topic("t", partitions=1, factor=2))
    cluster.led()
    (partition,) = cluster.image.partitions.values()
    before, witness = partition.replicas, partition.witness
    for free in sorted({1, 2, 3, 4, 5} - {*before, witness}):
        for wanted in ((before[0], free), before):
            request = log.ReassignReplicas(group=partition.group, replicas=wanted, wishes=partition.wishes)
            cluster.commit_one(reassign_replicas=request)
        (partition,) = cluster.image.partitions.values()
        assert free in partition.former_targets
        if len(partition.former_targets) == 1:
            drained = cluster.alter(witness, DRAIN)
            (move,) = drained.moves
            assert set(move.wanted).isdisjoint(partition.former_targets)
            cluster.pass_time()
            (partition,) = cluster.image.partitions.values()
            assert partition.wanted_witness == move.wanted[-1] != witness
            return
    raise AssertionError("no move was called off")
