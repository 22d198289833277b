"""What Kafka's clients are told of nodes and topics: Metadata and DescribeCluster."""

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
#: The leader epoch of a partition that is new.
_NEVER_LED = 0
#: Up to this version a request for no topics asks for all of them.
_NONE_MEANS_ALL = 0
#: From this version on an error about a topic that was named by its id leaves the name out.
_LEAVES_NAME_OUT = 12
#: Of a topic that is created because it was mentioned.
_CREATION_TIMEOUT_MS = 10_000
_BROKERS = 1
#: A client asks who leads as soon as its connection to the leader breaks, and a node hears of that a few milliseconds
#: after the client. Named once more, a leader that is gone costs librdkafka a second.
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
        # Any node takes changes.
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
            error_code=KafkaError.UNSUPPORTED_VERSION, error_message="only brokers are told of", endpoint_type=_BROKERS
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
    """The cluster once topics that were mentioned are created. One that cannot be is as unknown as before."""
    topics = [
        admin_pb2.NewTopic(name=name, num_partitions=1, replication_factor=call.cluster.default_replicas)
        for name in missing
    ]
    yield from ask(
        admin_pb2.CreateTopicsRequest(topics=topics, timeout_ms=_CREATION_TIMEOUT_MS), admin_pb2.CreateTopicsResponse
    )
    # Until this node knows of them.
    certain = data_plane_pb2.MetadataRequest(linearizable=True, timeout_ms=_CREATION_TIMEOUT_MS)
    yield from ask(certain, data_plane_pb2.MetadataResponse)
    return (yield from ask(question, data_plane_pb2.MetadataResponse))


def _no_name(call: KafkaCall[MetadataRequest]) -> str | None:
    """The name of a topic that has none, from the version on that may leave it out."""
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
            # Who asked by id is not told a name by an error.
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
    """Who leads a partition, as far as Kafka's clients can go there; or that nobody does."""
    leader = partition.leader
    if leader == _NOBODY and partition.leader_epoch == _NEVER_LED and partition.replicas:
        # Who has just created a topic would come back after a pause only. It is elected in a moment.
        leader = partition.replicas[0]
    elif partition.leader_lost:
        # Kafka's clients take a leader that is named for one that leads, and ask no more until they have failed at it.
        # librdkafka then waits for up to a second. Of one that is not available it asks again after 0.1 s.
        leader = _NOBODY
    if leader == _NOBODY or cluster.kafka_address(leader) is None:
        return KafkaError.LEADER_NOT_AVAILABLE, _NOBODY
    return KafkaError.NONE, leader
