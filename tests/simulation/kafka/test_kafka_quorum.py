"""The metadata quorum as administrators with Kafka's clients see it, asked by hand of simulated nodes."""

from __future__ import annotations

import pytest

from quorumlog.raft.types import NO_NODE
from quorumlog.server.kafka.codec.administration.quorum_requests import (
    DescribeQuorumRequest,
    NamedQuorumPartition,
    NamedQuorumTopic,
)
from quorumlog.server.kafka.codec.administration.quorum_responses import DescribeQuorumResponse, QuorumPartition
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.request_context import Listener
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_PATTERN_LITERAL,
    ACL_PERMISSION_ALLOW,
    ACL_RESOURCE_CLUSTER,
    Acl,
)
from quorumlog.wire.topic_names import METADATA_TOPIC
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.quiet_cluster import TOPIC
from tests.support.restricted_cluster import Restricted

NEVER = -1


def question(*places: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest([NamedQuorumTopic(topic, [NamedQuorumPartition(number)]) for topic, number in places])


METADATA = question((METADATA_TOPIC, 0))


@pytest.fixture
def nodes() -> KafkaNodes:
    return KafkaNodes()


def wall_ms(nodes: KafkaNodes) -> int:
    """Returns the wall-clock time, which is the same on all nodes."""
    return nodes.cluster.processes[1].wall_ms


def quorum(nodes: KafkaNodes, node: int = 1) -> QuorumPartition:
    answer = nodes.ask(METADATA, DescribeQuorumResponse, node)
    assert answer.error_code == KafkaError.NONE
    ((partition,),) = (topic.partitions for topic in answer.topics)
    return partition


def test_who_asks_many_times_in_one_request_is_told_once(nodes: KafkaNodes) -> None:
    answer = nodes.ask(question(*[(METADATA_TOPIC, 0)] * 3), DescribeQuorumResponse, 1)
    reported, *others = (partition for topic in answer.topics for partition in topic.partitions)
    assert len(reported.current_voters) == 3
    assert [(each.error_code, each.current_voters) for each in others] == [(KafkaError.INVALID_REQUEST, [])] * 2


@pytest.mark.parametrize("node", [1, 2, 3])
def test_any_node_tells_who_votes_who_leads_and_how_far_each_is(nodes: KafkaNodes, node: int) -> None:
    leader = nodes.led_by(METADATA_GROUP)
    asked_at_ms = wall_ms(nodes)
    reported = quorum(nodes, node)
    assert (reported.error_code, reported.leader_id) == (KafkaError.NONE, leader)
    assert reported.leader_epoch > 0
    assert sorted(each.replica_id for each in reported.current_voters) == [1, 2, 3]
    assert not reported.observers
    by_node = {each.replica_id: each for each in reported.current_voters}
    assert len({each.replica_directory_id for each in reported.current_voters} - {bytes(16)}) == 3
    assert {each.log_end_offset for each in reported.current_voters} == {reported.high_watermark}
    own = by_node.pop(leader)
    assert own.last_fetch_timestamp == NEVER, "it does not fetch from itself"
    assert asked_at_ms <= own.last_caught_up_timestamp <= wall_ms(nodes)
    for each in by_node.values():
        assert asked_at_ms - 2_000 <= each.last_fetch_timestamp <= wall_ms(nodes)
        assert each.last_caught_up_timestamp == each.last_fetch_timestamp


def test_nodes_are_told_with_their_addresses_for_kafkas_clients(nodes: KafkaNodes) -> None:
    answer = nodes.ask(METADATA, DescribeQuorumResponse)
    reported = {each.node_id: [(one.name, one.host, one.port) for one in each.listeners] for each in answer.nodes}
    registered = {node: broker.endpoint(Listener.KAFKA) for node, broker in nodes.image.brokers.items()}
    assert reported == {node: [("KAFKA", host, port)] for node, (host, port) in registered.items()}
    assert set(reported) == {1, 2, 3}


def test_a_voter_that_falls_behind_is_not_told_to_have_caught_up(nodes: KafkaNodes) -> None:
    leader = nodes.led_by(METADATA_GROUP)
    victim = next(node for node in (1, 2, 3) if node != leader)
    nodes.cluster.processes[victim].pause()
    nodes.create("one-more", 1)
    nodes.run(0.2)
    reported = quorum(nodes, leader)
    behind = next(each for each in reported.current_voters if each.replica_id == victim)
    assert behind.log_end_offset < reported.high_watermark
    assert behind.last_caught_up_timestamp == NEVER
    assert 0 < behind.last_fetch_timestamp < wall_ms(nodes)


def test_a_quorum_without_a_leader_is_not_available(nodes: KafkaNodes) -> None:
    for node in (2, 3):
        nodes.cluster.processes[node].die(silent=False)
    nodes.until(lambda: nodes.led_by(METADATA_GROUP) in (None, NO_NODE), 20)
    reported = quorum(nodes)
    assert (reported.error_code, reported.leader_id) == (KafkaError.LEADER_NOT_AVAILABLE, NO_NODE)
    assert not reported.current_voters


def test_only_the_metadata_have_a_quorum(nodes: KafkaNodes) -> None:
    answer = nodes.ask(question((TOPIC, 0), (METADATA_TOPIC, 1), (METADATA_TOPIC, 0)), DescribeQuorumResponse)
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    assert codes == [unknown, unknown, KafkaError.NONE]
    nothing = nodes.ask(question(), DescribeQuorumResponse)
    assert (nothing.error_code, nothing.topics, nothing.nodes) == (KafkaError.NONE, [], [])


def test_who_may_not_describe_the_cluster_is_told_so() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)
    refused = ask_through(cluster, link, METADATA, DescribeQuorumResponse)
    assert (refused.error_code, refused.topics) == (KafkaError.CLUSTER_AUTHORIZATION_FAILED, [])
    cluster.allow(
        Acl(
            principal="User:ANONYMOUS",
            operation=ACL_OPERATION_DESCRIBE,
            permission=ACL_PERMISSION_ALLOW,
            resource_type=ACL_RESOURCE_CLUSTER,
            resource_name="kafka-cluster",
            pattern_type=ACL_PATTERN_LITERAL,
        )
    )
    reported = ask_through(cluster, link, METADATA, DescribeQuorumResponse)
    assert reported.error_code == KafkaError.NONE
    assert reported.topics[0].partitions[0].leader_id in (1, 2, 3)
