"""Creation of topics while nodes are down: placement of replicas, leaders, and requests that are still refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_controller import Cluster, new_topic, registration

from quorumlog.server.controller.placement import Candidate, place
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode


def down(cluster: Cluster, *nodes: int) -> Cluster:
    cluster.beat(*nodes, stopping=True)
    assert set(nodes) <= set(cluster.fenced())
    return cluster


def created(cluster: Cluster, topic: admin_pb2.NewTopic) -> errors_pb2.Error:
    return cluster.create(topic)[0].error


def grown(cluster: Cluster, total: int, *replicas: tuple[int, ...]) -> errors_pb2.Error:
    wanted = admin_pb2.NewPartitions(name="orders", total_count=total)
    wanted.replica_assignments.extend(admin_pb2.ReplicaAssignment(replicas=nodes) for nodes in replicas)
    request = admin_pb2.CreatePartitionsRequest(topics=[wanted])
    return cluster.ask(create_partitions=request).create_partitions.results[0].error


def assigned(cluster: Cluster, *replicas: int) -> errors_pb2.Error:
    topic = admin_pb2.NewTopic(name="orders", num_partitions=-1, replication_factor=-1)
    topic.replica_assignments.add(replicas=replicas)
    return created(cluster, topic)


def test_three_replicas_while_one_node_is_down() -> None:
    """The absent replica is not in the ISR and never the preferred leader, as in KRaft."""
    cluster = down(Cluster(), 2)
    assert created(cluster, new_topic(partitions=6)).code == ErrorCode.NONE
    partitions = cluster.image.topics["orders"].partitions
    assert all(sorted(each.replicas) == [1, 2, 3] for each in partitions)
    assert all(sorted(each.isr) == [1, 3] for each in partitions)
    assert all(each.replicas[-1] == 2 for each in partitions)
    assert Counter(each.replicas[0] for each in partitions) == {1: 3, 3: 3}


def test_partitions_are_added_while_one_node_is_down() -> None:
    cluster = Cluster()
    assert created(cluster, new_topic()).code == ErrorCode.NONE
    down(cluster, 1)
    assert grown(cluster, 5).code == ErrorCode.NONE
    for partition in cluster.image.topics["orders"].partitions[3:]:
        assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [2, 3])
        assert partition.replicas[-1] == 1


def test_nodes_that_are_up_come_first() -> None:
    """A node that is down gets replicas only where the others are too few."""
    cluster = down(Cluster(nodes=4), 2)
    assert created(cluster, new_topic(partitions=8)).code == ErrorCode.NONE
    assert {node for each in cluster.image.topics["orders"].partitions for node in each.replicas} == {1, 3, 4}
    assert created(cluster, new_topic("wide", partitions=2, factor=4)).code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_unregistered_nodes_do_not_count() -> None:
    cluster = Cluster(nodes=2)
    problem = created(cluster, new_topic())
    assert problem.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replication factor 3 needs 3 nodes, and 2 are registered" in problem.message
    assert created(cluster, new_topic(factor=1)).code == ErrorCode.NONE
    assert "\n" not in problem.message


def test_a_minority_creates_nothing() -> None:
    cluster = down(Cluster(), 1, 3)
    for problem in (created(cluster, new_topic()), assigned(cluster, 2, 1, 3)):
        assert problem.code in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert "needs 2 of them alive to elect a leader, and 1 are" in created(cluster, new_topic()).message
    assert created(cluster, new_topic("single", factor=1)).code == ErrorCode.NONE
    assert cluster.image.topics["single"].partitions[0].replicas == (2,)


def test_named_replicas_may_be_down() -> None:
    cluster = down(Cluster(), 3)
    assert assigned(cluster, 1, 3, 2).code == ErrorCode.NONE
    partition = cluster.image.topics["orders"].partitions[0]
    assert (partition.replicas, partition.isr) == ((1, 3, 2), (1, 2))
    assert grown(cluster, 2, (2, 3, 1)).code == ErrorCode.NONE
    assert cluster.image.topics["orders"].partitions[1].isr == (2, 1)


def test_two_copies_while_one_of_three_is_down() -> None:
    """The copies go to the nodes that are up; the witness is created when the third node returns."""
    cluster = down(Cluster(), 2)
    assert created(cluster, new_topic(factor=2)).code == ErrorCode.NONE
    for partition in cluster.image.topics["orders"].partitions:
        assert (sorted(partition.replicas), partition.witness) == ([1, 3], 2)
    cluster = down(Cluster(nodes=4), 2)
    assert created(cluster, new_topic(factor=2)).code == ErrorCode.NONE
    assert all(2 not in (*each.replicas, each.witness) for each in cluster.image.topics["orders"].partitions)


def test_a_witness_makes_the_majority() -> None:
    """A topic is created with one replica up if a witness completes the majority."""
    cluster = Cluster(nodes=2)
    cluster.ask(register_broker=registration(3, witness_only=True))
    cluster.beat(1, 2, 3)
    assert created(down(cluster, 2), new_topic(factor=2)).code == ErrorCode.NONE
    for partition in cluster.image.topics["orders"].partitions:
        assert (partition.replicas, partition.witness, partition.isr) == ((1, 2), 3, (1,))
    assert grown(down(cluster, 3), 4).code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_witness_only_nodes_get_no_copies() -> None:
    cluster = Cluster(nodes=2)
    cluster.ask(register_broker=registration(3, witness_only=True))
    cluster.beat(1, 2, 3)
    problem = created(down(cluster, 2), new_topic())
    assert problem.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 of the 3 registered can be used (1 for witnesses only)" in problem.message


def lose_disk(cluster: Cluster, node: int) -> None:
    directory = cluster.image.brokers[node].registration.directory_id
    cluster.commit_one(
        replace_disk=log.ReplaceDisk(node_id=node, directory_id=directory, state=log.DISK_STATE_LOST),
    )
    assert cluster.image.brokers[node].is_lost


def test_a_disk_being_replaced_waits_for_no_witness() -> None:
    """No witnessed partition is placed on a disk that is being replaced: it is not moved off a lost disk automatically,
    and would delay the replacement."""
    cluster = down(Cluster(), 2)
    lose_disk(cluster, 2)
    problem = created(cluster, new_topic(factor=2))
    assert problem.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "2 of the 3 registered can be used (1 whose disk is being replaced)" in problem.message
    assert "is being replaced" in assigned(cluster, 1, 2).message
    assert created(cluster, new_topic("odd")).code == ErrorCode.NONE


def test_a_lost_disk_comes_after_other_nodes() -> None:
    cluster = down(Cluster(nodes=4), 2, 3)
    lose_disk(cluster, 2)
    assert created(cluster, new_topic(partitions=4)).code == ErrorCode.NONE
    assert all(sorted(each.replicas) == [1, 3, 4] for each in cluster.image.topics["orders"].partitions)


@st.composite
def partly_up(draw: st.DrawFn) -> tuple[int, int, list[Candidate]]:
    """Partitions, replication factor, and nodes of which too few are up."""
    nodes = draw(st.integers(2, 9))
    up = draw(st.integers(1, nodes - 1))
    candidates = [
        Candidate(node, draw(st.sampled_from(["", "a", "b"])), draw(st.integers(0, 9)), tier=2 * (node > up))
        for node in range(1, nodes + 1)
    ]
    return draw(st.integers(1, 20)), draw(st.integers(up + 1, nodes)), candidates


@given(partly_up())
@settings(max_examples=200, deadline=None)
def test_absent_replicas_are_last(cluster: tuple[int, int, list[Candidate]]) -> None:
    """Every node that is up is used before any that is not, and leads before it."""
    partitions, factor, candidates = cluster
    tier = {each.node_id: each.tier for each in candidates}
    up = [node for node, its in tier.items() if not its]
    placed = place(partitions, factor, candidates)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(up) < set(replicas)
        assert [tier[node] for node in replicas] == sorted(tier[node] for node in replicas)
    led = Counter(replicas[0] for replicas in placed)
    assert max(led[node] for node in up) - min(led[node] for node in up) <= 1


def test_absent_replicas_are_spread() -> None:
    """Replicas placed on absent nodes are spread over all of them, so that not all wait for the same node."""
    candidates = [Candidate(node, tier=2 * (node > 3)) for node in range(1, 7)]
    placed = place(9, 5, candidates)
    counts = Counter(node for replicas in placed for node in replicas)
    assert {counts[node] for node in (4, 5, 6)} == {6}


@pytest.mark.parametrize("rack", ["a", "b"])
def test_absent_replicas_prefer_another_rack(rack: str) -> None:
    candidates = [Candidate(1, "a"), Candidate(2, "b"), Candidate(3, rack, tier=2), Candidate(4, "c", 9, tier=2)]
    assert all(set(replicas) == {1, 2, 4} for replicas in place(3, 3, candidates))
