"""Elections, moves and disks as administrators with Kafka's clients see them, asked by hand of simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from quorumlog.server.kafka.codec.administration.log_dir_requests import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from quorumlog.server.kafka.codec.administration.log_dir_responses import DescribeLogDirsResponse
from quorumlog.server.kafka.codec.administration.placement_requests import (
    AlterPartitionReassignmentsRequest,
    ElectableTopic,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from quorumlog.server.kafka.codec.administration.placement_responses import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.requests import log_dirs
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1 import admin_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALTER,
    ACL_OPERATION_DESCRIBE,
    ACL_PATTERN_LITERAL,
    ACL_PERMISSION_ALLOW,
    ACL_RESOURCE_CLUSTER,
    Acl,
    AclOperation,
)
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.quiet_cluster import TOPIC
from tests.support.restricted_cluster import Restricted

PREFERRED, UNCLEAN = 0, 1


def election_of(*places: tuple[str, Sequence[int]], kind: int = PREFERRED) -> ElectLeadersRequest:
    return ElectLeadersRequest(kind, [ElectableTopic(topic, numbers) for topic, numbers in places], 10_000)


def outcomes_of(answer: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


def move_of(
    topic: str, replicas: Sequence[int] | None, partition: int = 0, *, changes_factor: bool = True
) -> AlterPartitionReassignmentsRequest:
    place = ReassignablePartition(partition, replicas)
    return AlterPartitionReassignmentsRequest(10_000, changes_factor, [ReassignableTopic(topic, [place])])


def moved(nodes: KafkaNodes, request: AlterPartitionReassignmentsRequest, node: int = 1) -> list[int]:
    answer = nodes.ask(request, AlterPartitionReassignmentsResponse, node)
    assert answer.error_code == KafkaError.NONE
    return [each.error_code for topic in answer.responses for each in topic.partitions]


def displaced(nodes: KafkaNodes, topic: str) -> None:
    """Creates a topic that node 1 leads, though node 2 should."""
    nodes.create_on(topic, [1, 2, 3])
    assert moved(nodes, move_of(topic, [2, 3, 1])) == [KafkaError.NONE]
    nodes.until(lambda: nodes.record(topic).replicas == (2, 3, 1), 20)
    nodes.until(lambda: set(nodes.record(topic).isr) == {1, 2, 3}, 20)
    nodes.run(0.5)  # All nodes have applied that.
    assert nodes.led_by(nodes.record(topic).group) == 1


@pytest.fixture(scope="module")
def nodes() -> KafkaNodes:
    """One cluster for all tests that leave others' topics alone."""
    return KafkaNodes()


# -- elections ----------------------------------------------------------------------------------------------------


def test_a_leadership_goes_to_the_preferred_leader_when_it_is_asked_for(nodes: KafkaNodes) -> None:
    displaced(nodes, "elected")
    request = election_of(("elected", [0, 7]), ("nowhere", [0]))
    answer = nodes.ask(request, ElectLeadersResponse, node=3)
    assert answer.error_code == KafkaError.NONE
    assert outcomes_of(answer) == {
        ("elected", 0): KafkaError.NONE,
        ("elected", 7): KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert nodes.led_by(nodes.record("elected").group) == 2
    again = nodes.ask(election_of(("elected", [0, 0])), ElectLeadersResponse)
    assert outcomes_of(again) == {("elected", 0): KafkaError.ELECTION_NOT_NEEDED}
    assert [len(each.partition_result) for each in again.replica_election_results] == [1]


def test_null_means_all_partitions_and_those_that_need_nothing_are_not_told(nodes: KafkaNodes) -> None:
    displaced(nodes, "among-all")
    answer = nodes.ask(ElectLeadersRequest(PREFERRED, None, 10_000), ElectLeadersResponse)
    assert outcomes_of(answer) == {("among-all", 0): KafkaError.NONE}
    nothing = nodes.ask(ElectLeadersRequest(PREFERRED, None, 10_000), ElectLeadersResponse)
    assert (nothing.error_code, outcomes_of(nothing)) == (KafkaError.NONE, {})


def test_no_partitions_mean_none_and_not_all(nodes: KafkaNodes) -> None:
    displaced(nodes, "left-alone")
    answer = nodes.ask(ElectLeadersRequest(PREFERRED, [], 10_000), ElectLeadersResponse)
    assert (answer.error_code, outcomes_of(answer)) == (KafkaError.NONE, {})
    nodes.run(1)
    assert nodes.led_by(nodes.record("left-alone").group) == 1


def test_an_unclean_election_is_refused_and_changes_nothing(nodes: KafkaNodes) -> None:
    displaced(nodes, "clean")
    answer = nodes.ask(election_of(("clean", [0]), kind=UNCLEAN), ElectLeadersResponse)
    assert outcomes_of(answer) == {("clean", 0): KafkaError.INVALID_REQUEST}
    everywhere = nodes.ask(ElectLeadersRequest(UNCLEAN, None, 10_000), ElectLeadersResponse)
    assert (everywhere.error_code, outcomes_of(everywhere)) == (KafkaError.INVALID_REQUEST, {})
    nodes.run(1)
    assert nodes.led_by(nodes.record("clean").group) == 1


def test_a_preferred_leader_that_is_down_is_not_available() -> None:
    nodes = KafkaNodes(seed=2)
    displaced(nodes, "orphaned")
    nodes.cluster.processes[2].die(silent=False)
    nodes.until(lambda: nodes.image.is_fenced(2), 20)
    answer = nodes.ask(election_of(("orphaned", [0])), ElectLeadersResponse)
    assert outcomes_of(answer) == {("orphaned", 0): KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}


def made_where_nobody_leads(nodes: KafkaNodes, topic: str, replicas: Sequence[int]) -> None:
    """Creates a topic whose preferred leader is stalled, so that it is not led for a while."""
    nodes.cluster.processes[replicas[0]].pause()
    placed = [admin_pb2.ReplicaAssignment(replicas=replicas)]
    request = admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name=topic, num_partitions=-1, replication_factor=-1, replica_assignments=placed)],
        timeout_ms=5_000,
    )
    nodes.cluster.request("admin", 1, request, lambda answer: None)
    nodes.until(lambda: topic in nodes.image.topics, 5)
    assert nodes.record(topic).leader == -1


def test_a_new_topic_whose_leader_is_just_elected_needs_no_election() -> None:
    nodes = KafkaNodes(seed=3)
    made_where_nobody_leads(nodes, "new", [2, 3, 1])
    answer = nodes.ask(election_of(("new", [0])), ElectLeadersResponse)
    assert outcomes_of(answer) == {("new", 0): KafkaError.ELECTION_NOT_NEEDED}
    everywhere = nodes.ask(ElectLeadersRequest(PREFERRED, None, 10_000), ElectLeadersResponse)
    assert nodes.record("new").leader == -1, "it has a leader by now"
    assert (everywhere.error_code, outcomes_of(everywhere)) == (KafkaError.NONE, {})


def test_a_new_topic_that_waits_for_a_node_that_is_gone_has_no_leader() -> None:
    nodes = KafkaNodes(seed=4)
    made_where_nobody_leads(nodes, "lonely", [2])
    nodes.until(lambda: nodes.image.is_fenced(2), 30)
    answer = nodes.ask(election_of(("lonely", [0])), ElectLeadersResponse)
    assert outcomes_of(answer) == {("lonely", 0): KafkaError.LEADER_NOT_AVAILABLE}


# -- moves --------------------------------------------------------------------------------------------------------


def listed(nodes: KafkaNodes, *topics: ListPartitionReassignmentsTopics) -> dict[tuple[str, int], tuple[object, ...]]:
    request = ListPartitionReassignmentsRequest(10_000, list(topics) or None)
    answer = nodes.ask(request, ListPartitionReassignmentsResponse, node=2)
    assert answer.error_code == KafkaError.NONE
    return {
        (topic.name, each.partition_index): (
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def test_a_partition_moves_and_is_listed_while_it_does() -> None:
    nodes = KafkaNodes(seed=3)
    nodes.create_on("moving", [1], [1])
    nodes.cluster.processes[3].pause()  # It copies nothing, so that the move lasts.
    assert moved(nodes, move_of("moving", [3], 1)) == [KafkaError.NONE]
    under_way = {("moving", 1): ((1, 3), (3,), (1,))}
    assert listed(nodes) == under_way
    assert listed(nodes, ListPartitionReassignmentsTopics("moving", [0, 1, 9])) == under_way
    assert listed(nodes, ListPartitionReassignmentsTopics("moving", [0])) == {}
    assert listed(nodes, ListPartitionReassignmentsTopics("nowhere", [0])) == {}
    nodes.cluster.processes[3].resume()
    nodes.until(lambda: nodes.record("moving", 1).replicas == (3,), 30)
    nodes.until(lambda: listed(nodes) == {}, 10)
    assert nodes.record("moving", 0).replicas == (1,)


def test_null_cancels_a_move_and_no_nodes_are_no_cancellation() -> None:
    nodes = KafkaNodes(seed=4)
    nodes.create_on("undecided", [1])
    assert moved(nodes, move_of("undecided", None)) == [KafkaError.NO_REASSIGNMENT_IN_PROGRESS]
    nodes.cluster.processes[3].pause()
    assert moved(nodes, move_of("undecided", [3])) == [KafkaError.NONE]
    assert moved(nodes, move_of("undecided", [])) == [KafkaError.INVALID_REPLICA_ASSIGNMENT]
    assert nodes.record("undecided").target == (3,), "the move continues"
    assert moved(nodes, move_of("undecided", None)) == [KafkaError.NONE]
    nodes.cluster.processes[3].resume()
    nodes.until(lambda: not nodes.record("undecided").is_moving, 30)
    assert nodes.record("undecided").replicas == (1,)


def test_a_witness_is_no_replica_of_a_move() -> None:
    nodes = KafkaNodes(seed=6, nodes=4)
    nodes.create_on("even", [1, 2])
    witness = nodes.record("even").witness
    (free,) = {3, 4} - {witness}
    nodes.cluster.processes[free].pause()
    assert moved(nodes, move_of("even", [1, free])) == [KafkaError.NONE]
    assert listed(nodes) == {("even", 0): ((1, 2, free), (free,), (2,))}


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (move_of("still", [9]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (move_of("still", [-1]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (move_of("still", [2, 2, 3]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (move_of("still", [2], 5), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (move_of("still", [2], -1), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (move_of("nowhere", [2]), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (move_of("still", [1, 2, 3], changes_factor=False), KafkaError.INVALID_REPLICATION_FACTOR),
    ],
    ids=["unknown node", "no node", "twice", "no such partition", "negative", "no such topic", "another factor"],
)
def test_a_wish_that_makes_no_sense_is_refused_in_kafkas_words(
    nodes: KafkaNodes, wish: AlterPartitionReassignmentsRequest, code: KafkaError
) -> None:
    if "still" not in nodes.image.topics:
        nodes.create_on("still", [1])
    assert moved(nodes, wish) == [code]
    assert not nodes.record("still").is_moving


def test_a_partition_that_is_named_twice_moves_nowhere(nodes: KafkaNodes) -> None:
    nodes.create_on("twice", [1])
    both = [ReassignablePartition(0, [2]), ReassignablePartition(0, [3])]
    request = AlterPartitionReassignmentsRequest(10_000, True, [ReassignableTopic("twice", both)])
    assert moved(nodes, request) == [KafkaError.INVALID_REQUEST] * 2
    assert not nodes.record("twice").is_moving


def test_the_factor_that_is_kept_is_that_of_the_move_under_way() -> None:
    nodes = KafkaNodes(seed=5)
    nodes.create_on("growing", [1])
    assert moved(nodes, move_of("growing", [2], changes_factor=False)) == [KafkaError.NONE]
    nodes.until(lambda: nodes.record("growing").replicas == (2,), 30)
    nodes.cluster.processes[3].pause()
    assert moved(nodes, move_of("growing", [1, 2, 3])) == [KafkaError.NONE]
    assert moved(nodes, move_of("growing", [2], changes_factor=False)) == [KafkaError.INVALID_REPLICATION_FACTOR]
    assert moved(nodes, move_of("growing", [3, 2, 1], changes_factor=False)) == [KafkaError.NONE]
    nodes.cluster.processes[3].resume()
    nodes.until(lambda: nodes.record("growing").replicas == (3, 2, 1), 30)


# -- disks --------------------------------------------------------------------------------------------------------


def disk_of(
    nodes: KafkaNodes, node: int, topics: Sequence[DescribableLogDirTopic] | None = None
) -> dict[tuple[str, int], int]:
    answer = nodes.ask(DescribeLogDirsRequest(topics), DescribeLogDirsResponse, node)
    assert answer.error_code == KafkaError.NONE
    (directory,) = answer.results
    assert directory.error_code == KafkaError.NONE
    assert 0 < directory.usable_bytes <= directory.total_bytes
    assert not any(each.is_future_key for topic in directory.topics for each in topic.partitions)
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
    }


def test_each_node_tells_of_the_replicas_on_its_own_disk(nodes: KafkaNodes) -> None:
    nodes.create_on("spread", [1], [2], [3])
    for node in (1, 2, 3):
        found = disk_of(nodes, node)
        assert {number for topic, number in found if topic == "spread"} == {node - 1}
        assert (TOPIC, 0) in found
    requests = [DescribableLogDirTopic("spread", [0, 1, 9]), DescribableLogDirTopic("nowhere", [0])]
    assert set(disk_of(nodes, 1, requests)) == {("spread", 0)}
    assert disk_of(nodes, 1, []) == {}, "no partitions are none, and not all"


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_is_told_of_while_new_replicas_have_nothing_on_it_yet(seed: int) -> None:
    nodes = KafkaNodes(seed)
    topic = admin_pb2.NewTopic(name="fresh", num_partitions=8, replication_factor=3)
    creation = admin_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
    nodes.cluster.request("admin", 1, creation, [].append)
    reported: list[object] = []
    for _ in range(400):
        nodes.run(0.001)
        for node in nodes.cluster.node_ids:
            nodes.cluster.request("admin", node, admin_pb2.DescribeLogDirRequest(), reported.append)
    nodes.run(1)
    assert len(reported) == 400 * 3
    sizes = [
        {each.partition: each.size_bytes for each in answer.replicas if each.topic == "fresh"}  # type: ignore[attr-defined]
        for answer in reported
    ]
    assert sizes[0] == {}
    assert sizes[-1] == dict.fromkeys(range(8), 0)


def test_a_disk_with_many_replicas_is_told_of_in_pages(nodes: KafkaNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.create_on("many", *([1] for _ in range(7)))
    whole = disk_of(nodes, 1)
    requests = [DescribableLogDirTopic("many", [6, 5, 4, 3])]
    some = disk_of(nodes, 1, requests)
    monkeypatch.setattr(log_dirs, "REPLICAS_PER_PAGE", 2)
    assert disk_of(nodes, 1) == whole
    assert disk_of(nodes, 1, requests) == some
    assert sorted(some) == [("many", number) for number in (3, 4, 5, 6)]


# -- permission ---------------------------------------------------------------------------------------------------


def test_who_may_not_is_told_so_and_nothing_happens() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)

    def codes() -> list[int]:
        return [
            ask_through(cluster, link, ElectLeadersRequest(PREFERRED, None, 5_000), ElectLeadersResponse).error_code,
            ask_through(cluster, link, election_of((TOPIC, [0])), ElectLeadersResponse).error_code,
            ask_through(cluster, link, move_of(TOPIC, None), AlterPartitionReassignmentsResponse).error_code,
            ask_through(
                cluster, link, ListPartitionReassignmentsRequest(5_000), ListPartitionReassignmentsResponse
            ).error_code,
            ask_through(cluster, link, DescribeLogDirsRequest(None), DescribeLogDirsResponse).error_code,
        ]

    assert codes() == [KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 5
    refused = ask_through(cluster, link, election_of((TOPIC, [0])), ElectLeadersResponse)
    assert outcomes_of(refused) == {(TOPIC, 0): KafkaError.CLUSTER_AUTHORIZATION_FAILED}
    cluster.allow(allowance(ACL_OPERATION_DESCRIBE))
    assert codes() == [*[KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 3, KafkaError.NONE, KafkaError.NONE]
    cluster.allow(allowance(ACL_OPERATION_ALTER))
    assert codes() == [KafkaError.NONE] * 5


def allowance(operation: AclOperation.ValueType) -> Acl:
    return Acl(
        principal="User:ANONYMOUS",
        operation=operation,
        permission=ACL_PERMISSION_ALLOW,
        resource_type=ACL_RESOURCE_CLUSTER,
        resource_name="kafka-cluster",
        pattern_type=ACL_PATTERN_LITERAL,
    )
