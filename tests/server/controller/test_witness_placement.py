"""Topics with an even number of replicas get a witness each, on a node and if possible in a rack without a replica."""

from __future__ import annotations

from collections import Counter

import pytest
from test_controller import Cluster, new_topic, registration

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.placement import Candidate, place
from quorumlog.server.controller.witness_placement import place_witnesses
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def test_witnesses_are_spread_over_the_nodes_without_a_replica() -> None:
    nodes = [Candidate(node) for node in (1, 2, 3)]
    placement = [(1, 2), (2, 3), (3, 1)]
    assert place_witnesses(placement, nodes) == [3, 1, 2]


@pytest.mark.parametrize("idle", [(), (7, 8)])
def test_many_witnesses_are_spread_evenly(idle: tuple[int, ...]) -> None:
    """No node has two witnesses more than another that could have had them; nodes for witnesses only share them."""
    nodes = [Candidate(node, witness_only=node in idle) for node in range(1, 7 + len(idle))]
    placement = place(60, 2, [node for node in nodes if not node.witness_only])
    counts = Counter(place_witnesses(placement, nodes))
    could_host = idle or tuple(range(1, 7))
    assert set(counts) == set(could_host)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_witness_goes_to_a_node_that_is_up() -> None:
    nodes = [Candidate(1), Candidate(2), Candidate(3, "far", tier=2), Candidate(4, replicas=50)]
    assert place_witnesses([(1, 2)], nodes) == [4]


def test_a_witness_goes_to_another_rack_before_it_goes_where_least_is() -> None:
    nodes = [Candidate(1, "a"), Candidate(2, "b"), Candidate(3, "a", replicas=0), Candidate(4, "c", replicas=50)]
    assert place_witnesses([(1, 2)], nodes) == [4]


def test_without_another_node_there_is_no_witness() -> None:
    assert place_witnesses([(1, 2)], [Candidate(1), Candidate(2)]) == [NO_NODE]


def test_two_copies_have_a_witness_on_the_third_node() -> None:
    cluster = Cluster()
    (result,) = cluster.create(new_topic(factor=2))
    assert result.error.code == ErrorCode.NONE, result.error.message
    for partition in cluster.image.topics["orders"].partitions:
        assert sorted((*partition.replicas, partition.witness)) == [1, 2, 3]
        assert partition.isr == partition.replicas


def test_new_partitions_of_such_a_topic_have_a_witness_too() -> None:
    cluster = Cluster()
    cluster.create(new_topic(partitions=1, factor=2))
    request = admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name="orders", total_count=3)])
    cluster.ask(create_partitions=request)
    partitions = cluster.image.topics["orders"].partitions
    assert [partition.witness in (1, 2, 3) for partition in partitions] == [True] * 3


def test_a_cluster_of_two_nodes_refuses_two_copies_in_one_line() -> None:
    cluster = Cluster(nodes=2)
    (result,) = cluster.create(new_topic(factor=2))
    assert result.error.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "needs 3 nodes, 2 for the copies" in result.error.message
    assert "\n" not in result.error.message


def test_older_nodes_hold_even_factors_up() -> None:
    cluster = Cluster()
    cluster.image.feature_level = 1
    cluster.ask(register_broker=registration(4, feature_level=1))
    (result,) = cluster.create(new_topic(factor=2))
    assert result.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert "feature level 2" in result.error.message


def test_a_snapshot_keeps_witnesses() -> None:
    cluster = Cluster()
    cluster.create(new_topic(factor=2))
    copy = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    assert [each.witness for each in copy.partitions.values()] == [
        each.witness for each in cluster.image.partitions.values()
    ]
    assert copy.to_snapshot() == cluster.image.to_snapshot()
