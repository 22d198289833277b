"""Settings of a node as Kafka's administrators read them: those that have a name in Kafka."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec.config_requests import DescribeConfigsRequest, DescribeConfigsResource
from quorumlog.server.kafka.codec.config_responses import DescribeConfigsResponse, DescribeConfigsResult
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.restricted_cluster import Restricted

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
BOOLEAN, INT, LIST = 1, 3, 7
STATIC_BROKER_CONFIG = 4


@pytest.fixture(scope="module")
def nodes() -> KafkaNodes:
    return KafkaNodes()


def asked(*names: str, keys: list[str] | None = None, more: bool = False) -> DescribeConfigsRequest:
    """A request about nodes.

    Arguments:
        keys: which of them; None: all.
        more: with documentation and where values come from.
    """
    resources = [DescribeConfigsResource(BROKER, name, keys) for name in names]
    return DescribeConfigsRequest(resources, include_synonyms=more, include_documentation=more)


def described(nodes: KafkaNodes, request: DescribeConfigsRequest, node: int = 1) -> list[DescribeConfigsResult]:
    return list(nodes.ask(request, DescribeConfigsResponse, node).results)


def test_a_node_tells_where_it_is_and_what_new_topics_are(nodes: KafkaNodes) -> None:
    for node in (1, 2):
        (result,) = described(nodes, asked(str(node)), node)
        assert (result.error_code, result.resource_type, result.resource_name) == (KafkaError.NONE, BROKER, str(node))
        assert all(each.read_only and not each.is_sensitive for each in result.configs)
        assert {each.config_source for each in result.configs} == {STATIC_BROKER_CONFIG}
        assert not any(each.synonyms or each.documentation for each in result.configs)
        told = {each.name: (each.value, each.config_type) for each in result.configs}
        assert told == {
            "node.id": (str(node), INT),
            "broker.id": (str(node), INT),
            "advertised.listeners": (f"KAFKA://node-{node}:9092", LIST),
            "auto.create.topics.enable": ("false", BOOLEAN),
            "delete.topic.enable": ("true", BOOLEAN),
            "unclean.leader.election.enable": ("false", BOOLEAN),
            "num.partitions": ("1", INT),
            "default.replication.factor": ("3", INT),
        }


def test_a_node_tells_whether_topics_are_created_when_they_are_mentioned() -> None:
    nodes = KafkaNodes()
    link = SimKafkaLink("creator", nodes.cluster, 1, nodes.scheduler, creates_topics=True)
    request = asked("1", keys=["auto.create.topics.enable", "no.such.key"], more=True)
    (result,) = ask_through(nodes, link, request, DescribeConfigsResponse).results
    (told,) = result.configs
    assert (told.name, told.value) == ("auto.create.topics.enable", "true")
    assert told.documentation
    assert [(each.name, each.value, each.source) for each in told.synonyms] == [
        ("auto.create.topics.enable", "true", STATIC_BROKER_CONFIG)
    ]


def test_a_node_answers_for_itself_alone_and_for_all_nothing_is_set(nodes: KafkaNodes) -> None:
    other, nobody, every, twice = described(nodes, asked("2", "one", "", ""))
    assert [other.error_code, nobody.error_code] == [KafkaError.INVALID_REQUEST] * 2
    assert other.error_message == "this is node 1, which describes only itself: send the request to each node"
    assert (every.error_code, list(every.configs)) == (KafkaError.NONE, [])
    assert twice.error_code == KafkaError.INVALID_REQUEST
    (logger,) = described(nodes, DescribeConfigsRequest([DescribeConfigsResource(BROKER_LOGGER, "1", None)]))
    assert (logger.error_code, list(logger.configs)) == (KafkaError.NONE, [])


def test_topics_and_nodes_are_described_in_one_answer(nodes: KafkaNodes) -> None:
    resources = [DescribeConfigsResource(TOPIC, "t", None), DescribeConfigsResource(BROKER, "1", None)]
    topic, node = described(nodes, DescribeConfigsRequest(resources))
    assert "retention.ms" in {each.name for each in topic.configs}
    assert "node.id" in {each.name for each in node.configs}


def test_who_may_not_describe_the_cluster_is_told_no_settings() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)
    (result,) = ask_through(cluster, link, asked("1"), DescribeConfigsResponse).results
    assert (result.error_code, list(result.configs)) == (KafkaError.CLUSTER_AUTHORIZATION_FAILED, [])
