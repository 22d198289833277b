"""Metadata and DescribeCluster: nodes and topics as reported to Kafka's clients."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.codec.metadata_requests import DescribeClusterRequest, MetadataRequest
from quorumlog.server.kafka.codec.metadata_responses import (
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quorumlog.server.kafka.codec.primitives import NO_UUID
from quorumlog.server.kafka.handlers.allowed_operations import cluster_operations
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, KafkaClusterView, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import kafka_epoch
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

_NOBODY = -1
#: Leader epoch of a new partition that has had no leader.
_NEVER_LED = 0
#: Up to this version, a request for no topics asks for all of them.
_NONE_MEANS_ALL = 0
#: From this version on, an error about a topic requested by id omits the topic's name.
_LEAVES_NAME_OUT = 12
#: Timeout for creating a topic because it was mentioned.
_CREATION_TIMEOUT_MS = 10_000
_BROKERS = 1
#: A client requests metadata as soon as its connection to the leader breaks, and a node notices the failure a few
#: milliseconds after the client. If the failed leader is named again, librdkafka loses a second.
_SETTLE_MS = 20


def describe_topics(call: KafkaCall[MetadataRequest]) -> Steps[MetadataResponse]:
    """Answers Metadata."""
    wanted, by_id = call.message.topics, {}
    everything = wanted is None or (call.version <= _NONE_MEANS_ALL and not wanted)
    names: list[str] = []
    nameless: list[MetadataResponseTopic] = []
    for topic in wanted or ():
        if topic.name is not None and topic.topic_id == NO_UUID:
            names.append(topic.name)
            continue
        name = call.cluster.topic_name(topic.topic_id)
        if name is None:
            nameless.append(
                MetadataResponseTopic(KafkaError.UNKNOWN_TOPIC_ID, name=_no_name(call), topic_id=topic.topic_id)
            )
        else:
            names.append(name)
            by_id[name] = topic.topic_id
    question = data_plane_pb2.MetadataRequest(
        topics=dict.fromkeys(names),
        all_topics=everything,
        settle_ms=_SETTLE_MS if names or everything else 0,
        allowed_operations=call.message.include_topic_authorized_operations,
    )
    cluster = yield from ask(question, data_plane_pb2.MetadataResponse)
    if call.creates_topics and call.message.allow_auto_topic_creation:
        missing = [each.name for each in cluster.topics if _may_be_created(each) and each.name not in by_id]
        if missing:
            cluster = yield from _after_creation(call, question, missing)
    alive = {each.node_id for each in cluster.brokers if not each.fenced}
    topics = [_topic(call, each, alive, by_id) for each in cluster.topics]
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(each.node_id, each.host, each.port, each.rack or None)
            for each in cluster.brokers
            if each.host and (not each.fenced or each.fenced_lately)
        ],
        cluster_id=cluster.cluster_id or None,
        # Any node accepts topic changes.
        controller_id=call.cluster.node_id if cluster.brokers else _NOBODY,
        topics=[*topics, *nameless],
    )
    if call.message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = yield from cluster_operations()
    return response


def describe_nodes(call: KafkaCall[DescribeClusterRequest]) -> Steps[DescribeClusterResponse]:
    """Answers DescribeCluster."""
    if call.message.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=KafkaError.UNSUPPORTED_VERSION,
            error_message="only brokers are described: set endpoint_type to 1",
            endpoint_type=_BROKERS,
        )
    cluster = yield from ask(data_plane_pb2.MetadataRequest(), data_plane_pb2.MetadataResponse)
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=call.cluster.node_id if cluster.brokers else _NOBODY,
        brokers=[
            DescribeClusterBroker(each.node_id, each.host, each.port, each.rack or None, each.fenced)
            for each in cluster.brokers
            if each.host and (not each.fenced or call.message.include_fenced_brokers)
        ],
    )
    if call.message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = yield from cluster_operations()
    return response


def _may_be_created(topic: data_plane_pb2.TopicMetadata) -> bool:
    return topic.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _after_creation(
    call: KafkaCall[MetadataRequest], question: data_plane_pb2.MetadataRequest, missing: Iterable[str]
) -> Steps[data_plane_pb2.MetadataResponse]:
    """Creates topics that were mentioned and returns the metadata after that.

    A topic that cannot be created is reported as unknown, as before.
    """
    topics = [
        admin_pb2.NewTopic(name=name, num_partitions=1, replication_factor=call.cluster.default_replicas)
        for name in missing
    ]
    yield from ask(
        admin_pb2.CreateTopicsRequest(topics=topics, timeout_ms=_CREATION_TIMEOUT_MS), admin_pb2.CreateTopicsResponse
    )
    # Wait until this node has applied their creation.
    certain = data_plane_pb2.MetadataRequest(linearizable=True, timeout_ms=_CREATION_TIMEOUT_MS)
    yield from ask(certain, data_plane_pb2.MetadataResponse)
    return (yield from ask(question, data_plane_pb2.MetadataResponse))


def _no_name(call: KafkaCall[MetadataRequest]) -> str | None:
    """Returns the name of a topic that has none: null, in versions that allow it."""
    return None if call.version >= _LEAVES_NAME_OUT else ""


def _topic(
    call: KafkaCall[MetadataRequest],
    topic: data_plane_pb2.TopicMetadata,
    alive: set[int],
    by_id: dict[str, bytes],
) -> MetadataResponseTopic:
    if topic.HasField("error"):
        code, name = kafka_code(topic.error), topic.name
        if name in by_id:
            # A topic requested by id must not have its name revealed by an error.
            return MetadataResponseTopic(KafkaError.UNKNOWN_TOPIC_ID, name=_no_name(call), topic_id=by_id[name])
        return MetadataResponseTopic(code, name=name)
    partitions = []
    for each in topic.partitions:
        code, leader = shown_leader(call.cluster, each)
        partitions.append(
            MetadataResponsePartition(
                code,
                each.partition,
                leader,
                kafka_epoch(each.leader_epoch),
                list(each.replicas),
                list(each.isr),
                [node for node in each.replicas if node not in alive],
            )
        )
    described = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal, partitions=partitions
    )
    if call.message.include_topic_authorized_operations:
        described.topic_authorized_operations = topic.allowed_operations
    return described


def shown_leader(cluster: KafkaClusterView, partition: data_plane_pb2.PartitionMetadata) -> tuple[KafkaError, int]:
    """Returns the leader to report to Kafka's clients, or LEADER_NOT_AVAILABLE if they cannot reach one."""
    leader = partition.leader
    if leader == _NOBODY and partition.leader_epoch == _NEVER_LED and partition.replicas:
        # The client that has just created a topic would retry only after a pause, but the election takes a moment.
        leader = partition.replicas[0]
    elif partition.leader_lost:
        # Kafka's clients trust a reported leader, and do not refresh metadata until a request to it fails; librdkafka
        # then waits for up to a second. If the leader is not available, it refreshes after 0.1 s.
        leader = _NOBODY
    if leader == _NOBODY or cluster.kafka_address(leader) is None:
        return KafkaError.LEADER_NOT_AVAILABLE, _NOBODY
    return KafkaError.NONE, leader
