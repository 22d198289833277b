"""DescribeConfigs of nodes: the settings that have a name in Kafka. Clients can read them, but change none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from quorumlog.server.kafka.codec.config_requests import DescribeConfigsRequest, DescribeConfigsResource
from quorumlog.server.kafka.codec.config_responses import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.v1 import admin_pb2

#: Source and types of these values, by Kafka's numbers.
_NODE_CONFIG = 4
_BOOLEAN, _INT, _LIST = 1, 3, 7
#: Number of partitions of a topic whose creator does not specify it.
_PARTITIONS = 1


class _Setting(NamedTuple):
    name: str
    value: str
    kind: int
    documentation: str


def describe_node(
    call: KafkaCall[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> Steps[DescribeConfigsResult]:
    """Describes the settings of the node that serves the request. It has no settings of other nodes."""
    name = resource.resource_name
    result = DescribeConfigsResult(KafkaError.NONE, None, resource.resource_type, name, configs=())
    if not name:
        # Cluster-wide defaults: Kafka has them, here none exist.
        return result
    if name != str(call.cluster.node_id):
        result.error_code = KafkaError.INVALID_REQUEST
        result.error_message = (
            f"this is node {call.cluster.node_id}, which describes only itself: send the request to each node"
        )
        return result
    # Denied clients must not see the settings.
    reply = yield from ask(admin_pb2.DescribeNodeRequest(), admin_pb2.DescribeNodeResponse)
    if reply.HasField("error"):
        result.error_code, result.error_message = kafka_code(reply.error), reply.error.message
        return result
    keys = resource.configuration_keys
    result.configs = [_told(call.message, each) for each in _settings(call) if not keys or each.name in keys]
    return result


def _settings(call: KafkaCall[DescribeConfigsRequest]) -> Iterator[_Setting]:
    node_id = call.cluster.node_id
    yield _Setting("node.id", str(node_id), _INT, "The node's id.")
    yield _Setting("broker.id", str(node_id), _INT, "The node's id.")
    address = call.cluster.kafka_address(node_id)
    if address is not None:
        host, port = address
        shown = f"[{host}]" if ":" in host else host
        yield _Setting(
            "advertised.listeners", f"KAFKA://{shown}:{port}", _LIST, "Address of the node for Kafka's clients."
        )
    yield _Setting(
        "auto.create.topics.enable",
        _flag(call.creates_topics),
        _BOOLEAN,
        "Create a topic when a client mentions it.",
    )
    yield _Setting("delete.topic.enable", _flag(True), _BOOLEAN, "Allow the deletion of topics.")
    yield _Setting(
        "unclean.leader.election.enable", _flag(False), _BOOLEAN, "Allow a replica that lacks records to become leader."
    )
    yield _Setting(
        "num.partitions", str(_PARTITIONS), _INT, "Number of partitions of a topic whose creator does not specify it."
    )
    yield _Setting(
        "default.replication.factor",
        str(call.cluster.default_replicas),
        _INT,
        "Replication factor of a topic whose creator does not specify it.",
    )


def _flag(holds: bool) -> str:
    return "true" if holds else "false"


def _told(request: DescribeConfigsRequest, setting: _Setting) -> DescribeConfigsResourceResult:
    described = DescribeConfigsResourceResult(
        setting.name,
        setting.value,
        read_only=True,
        config_source=_NODE_CONFIG,
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        described.synonyms = [DescribeConfigsSynonym(setting.name, setting.value, _NODE_CONFIG)]
    return described
