"""Settings and loggers of a node as Kafka's administrators read and change them (KIP-226, KIP-412)."""

from __future__ import annotations

import pytest

from quorumlog.server.kafka.codec.config_requests import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorumlog.server.kafka.codec.config_requests import AlterConfigsRequestAlterableConfig as ReplacedConfig
from quorumlog.server.kafka.codec.config_requests import AlterConfigsRequestAlterConfigsResource as ReplacedResource
from quorumlog.server.kafka.codec.config_requests import (
    IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig,
)
from quorumlog.server.kafka.codec.config_requests import (
    IncrementalAlterConfigsRequestAlterConfigsResource as IncrementalResource,
)
from quorumlog.server.kafka.codec.config_responses import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.restricted_cluster import Restricted

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
BOOLEAN, INT, LIST = 1, 3, 7
DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG = 2, 3, 4
DYNAMIC_BROKER_LOGGER_CONFIG = 6
SET, DELETE = 0, 1


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
        reported = {each.name: (each.value, each.config_type) for each in result.configs}
        assert reported == {
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
    (reported,) = result.configs
    assert (reported.name, reported.value) == ("auto.create.topics.enable", "true")
    assert reported.documentation
    assert [(each.name, each.value, each.source) for each in reported.synonyms] == [
        ("auto.create.topics.enable", "true", STATIC_BROKER_CONFIG)
    ]


def test_a_node_describes_only_itself(nodes: KafkaNodes) -> None:
    other, nobody, twice, again = described(nodes, asked("2", "one", "1", "1"))
    assert [other.error_code, nobody.error_code] == [KafkaError.INVALID_REQUEST] * 2
    assert other.error_message == "this is node 1, which describes only itself: send the request to each node"
    assert (twice.error_code, again.error_code) == (KafkaError.NONE, KafkaError.INVALID_REQUEST)
    resources = [DescribeConfigsResource(BROKER_LOGGER, name, None) for name in ("2", "")]
    assert {each.error_code for each in described(nodes, DescribeConfigsRequest(resources))} == {
        KafkaError.INVALID_REQUEST
    }


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


# -- changes ----------------------------------------------------------------------------------------------------------


def incremented(
    nodes: KafkaNodes,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    at: int = 1,
) -> tuple[int, str | None]:
    """Changes keys of a node with an operation each; the error code and the message."""
    configs = [AlterableConfig(key, operation, value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest([IncrementalResource(kind, name, configs)], validate_only)
    (result,) = nodes.ask(request, IncrementalAlterConfigsResponse, at).responses
    return result.error_code, result.error_message


def replaced(nodes: KafkaNodes, kind: int, name: str, **values: str) -> tuple[int, str | None]:
    """Replaces the configuration of a node; the error code and the message."""
    configs = [ReplacedConfig(key, value) for key, value in values.items()]
    request = AlterConfigsRequest([ReplacedResource(kind, name, configs)], False)
    (result,) = nodes.ask(request, AlterConfigsResponse).responses
    return result.error_code, result.error_message


def sources(nodes: KafkaNodes, name: str, kind: int = BROKER, node: int = 1) -> dict[str, tuple[str | None, int]]:
    """Returns values with their sources, of keys that are not static."""
    resource = DescribeConfigsResource(kind, name, None)
    (result,) = described(nodes, DescribeConfigsRequest([resource], include_synonyms=True), node)
    assert result.error_code == KafkaError.NONE, result
    return {
        each.name: (each.value, each.config_source)
        for each in result.configs
        if each.config_source != STATIC_BROKER_CONFIG
    }


@pytest.fixture
def fresh() -> KafkaNodes:
    return KafkaNodes(2)


def test_records_have_kafkas_sources(fresh: KafkaNodes) -> None:
    assert incremented(fresh, BROKER, "", ("max.connections.per.ip", SET, "50"))[0] == KafkaError.NONE
    changes = (("scrub_bytes_per_second", SET, "0"), ("kafka_max_connections_per_ip", SET, "40"))
    assert incremented(fresh, BROKER, "1", *changes)[0] == KafkaError.NONE
    assert sources(fresh, "1") == {
        "max.connections.per.ip": ("40", DYNAMIC_BROKER_CONFIG), "scrub_bytes_per_second": ("0", DYNAMIC_BROKER_CONFIG)
    }  # fmt: skip
    assert sources(fresh, "") == {"max.connections.per.ip": ("50", DYNAMIC_DEFAULT_BROKER_CONFIG)}
    fresh.run(0.5)
    assert sources(fresh, "2", node=2) == {"max.connections.per.ip": ("50", DYNAMIC_DEFAULT_BROKER_CONFIG)}
    (result,) = described(fresh, asked("1", keys=["max.connections.per.ip"], more=True))
    (shown,) = result.configs
    assert not shown.read_only and shown.documentation
    assert [(each.value, each.source) for each in shown.synonyms or ()] == [
        ("40", DYNAMIC_BROKER_CONFIG), ("50", DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]  # fmt: skip
    assert incremented(fresh, BROKER, "1", ("max.connections.per.ip", DELETE, None))[0] == KafkaError.NONE
    assert sources(fresh, "1")["max.connections.per.ip"] == ("50", DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_a_replacement_removes_what_it_does_not_name(fresh: KafkaNodes) -> None:
    """Levels of loggers are another resource in Kafka, and stay."""
    incremented(fresh, BROKER, "1", ("scrub_bytes_per_second", SET, "0"), ("offsets_retention_ms", SET, "5000"))
    incremented(fresh, BROKER_LOGGER, "1", ("server.groups", SET, "DEBUG"))
    assert replaced(fresh, BROKER, "1", scrub_bytes_per_second="7") == (KafkaError.NONE, None)
    assert fresh.image.node_settings.records == {1: {"scrub_bytes_per_second": "7", "log_level.server.groups": "debug"}}
    assert replaced(fresh, BROKER, "1") == (KafkaError.NONE, None)
    assert fresh.image.node_settings.records == {1: {"log_level.server.groups": "debug"}}
    assert replaced(fresh, BROKER_LOGGER, "1", root="INFO")[0] == KafkaError.INVALID_REQUEST


def test_levels_of_loggers_are_changed(fresh: KafkaNodes) -> None:
    before = sources(fresh, "1", BROKER_LOGGER)
    assert before["root"] == before["server.groups"] == ("INFO", DYNAMIC_BROKER_LOGGER_CONFIG)
    changes = (("root", SET, "WARN"), ("server.groups", SET, "TRACE"), ("server", SET, "fatal"))
    assert incremented(fresh, BROKER_LOGGER, "1", *changes) == (KafkaError.NONE, None)
    after = {name: level for name, (level, _) in sources(fresh, "1", BROKER_LOGGER).items()}
    assert (after["root"], after["server.groups"], after["server.partition"]) == ("WARN", "DEBUG", "ERROR")
    assert incremented(fresh, BROKER_LOGGER, "1", ("server.groups", DELETE, None), ("server", DELETE, None))[0] == 0
    after = {name: level for name, (level, _) in sources(fresh, "1", BROKER_LOGGER).items()}
    assert set(after.values()) == {"WARN"}


@pytest.mark.parametrize(
    ("kind", "name", "change", "code", "said"),
    [
        (BROKER, "1", ("num.partitions", 0, "4"), KafkaError.INVALID_CONFIG, "unknown setting 'num.partitions'"),
        (BROKER, "1", ("max_connections", 0, "4"), KafkaError.INVALID_CONFIG, "set it in the node's file and restart"),
        (
            BROKER,
            "1",
            ("leader.replication.throttled.rate", 0, "4"),
            KafkaError.INVALID_CONFIG,
            "set replica_copy_bytes",
        ),
        (BROKER, "1", ("scrub_bytes_per_second", 0, "x"), KafkaError.INVALID_CONFIG, "wrong value 'x'"),
        (BROKER, "1", ("scrub_bytes_per_second", 0, None), KafkaError.INVALID_REQUEST, "has no value"),
        (BROKER, "1", ("scrub_bytes_per_second", 2, "1"), KafkaError.INVALID_REQUEST, "is not a list"),
        (BROKER, "9", ("scrub_bytes_per_second", 0, "1"), KafkaError.INVALID_REQUEST, "node 9 is not registered"),
        (
            BROKER,
            "one",
            ("scrub_bytes_per_second", 0, "1"),
            KafkaError.INVALID_REQUEST,
            "'one' is not the id of a node",
        ),
        (BROKER, "9" * 300, ("scrub_bytes_per_second", 0, "1"), KafkaError.INVALID_REQUEST, "is not the id of a node"),
        (BROKER_LOGGER, "", ("root", 0, "INFO"), KafkaError.INVALID_REQUEST, "is not the id of a node"),
        (BROKER_LOGGER, "1", ("kafka.server", 0, "INFO"), KafkaError.INVALID_CONFIG, "unknown logger 'kafka.server'"),
        (BROKER_LOGGER, "1", ("root", 0, "LOUD"), KafkaError.INVALID_CONFIG, "'LOUD' is not a log level"),
    ],
)
def test_wrong_changes_of_nodes_are_refused(
    nodes: KafkaNodes, kind: int, name: str, change: tuple[str, int, str | None], code: int, said: str
) -> None:
    found, message = incremented(nodes, kind, name, change)
    assert (found, said in (message or "")) == (code, True), message
    assert nodes.image.node_settings.records == {}


def test_validation_and_unknown_deletions_change_nothing(nodes: KafkaNodes) -> None:
    """Kafka's own tool clears limits of nodes after each move, whether it has set any or not."""
    assert incremented(nodes, BROKER, "1", ("scrub_bytes_per_second", SET, "5"), validate_only=True)[0] == 0
    assert incremented(nodes, BROKER, "1", ("leader.replication.throttled.rate", DELETE, None)) == (0, None)
    assert incremented(nodes, BROKER, "1") == (0, None)
    assert nodes.image.node_settings.records == {}


def test_strangers_change_no_settings() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)
    for kind, key, value in ((BROKER, "audit_log", "off"), (BROKER_LOGGER, "root", "ERROR")):
        resource = IncrementalResource(kind, "1", [AlterableConfig(key, SET, value)])
        request = IncrementalAlterConfigsRequest([resource], False)
        (result,) = ask_through(cluster, link, request, IncrementalAlterConfigsResponse).responses
        assert result.error_code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    request_all = AlterConfigsRequest([ReplacedResource(BROKER, "1", [])], False)
    (result_all,) = ask_through(cluster, link, request_all, AlterConfigsResponse).responses
    assert result_all.error_code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
