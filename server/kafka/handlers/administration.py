"""DescribeQuorum and DescribeLogDirs.

DescribeQuorum reports the voters of the metadata quorum and how far each has replicated (KIP-595, KIP-836, KIP-853);
DescribeLogDirs reports the disk use of replicas in a node's only data directory.

To Kafka's clients, the metadata log is the only partition of an internal topic that no listing includes. Its entries
are numbered from 1, so the index of the last entry equals the log end offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.kafka.codec.administration.log_dir_requests import DescribeLogDirsRequest
from quorumlog.server.kafka.codec.administration.log_dir_responses import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from quorumlog.server.kafka.codec.administration.quorum_requests import DescribeQuorumRequest
from quorumlog.server.kafka.codec.administration.quorum_responses import (
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplicaState,
    QuorumTopic,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, KafkaClusterView, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import kafka_epoch
from quorumlog.v1 import admin_pb2
from quorumlog.wire.request_limits import MAX_ITEMS
from quorumlog.wire.topic_names import METADATA_TOPIC

METADATA_PARTITION = 0
#: Listener name in node addresses. Our own names of listeners are not exposed to Kafka's clients.
_LISTENER = "KAFKA"
_NOBODY = _NEVER = -1


def describe_quorum(call: KafkaCall[DescribeQuorumRequest]) -> Steps[DescribeQuorumResponse]:
    """Answers DescribeQuorum."""
    topics: list[QuorumTopic] = []
    metadata: QuorumPartition | None = None
    for topic in call.message.topics:
        partitions = []
        for each in topic.partitions:
            partition = _partition(each.partition_index)
            partitions.append(partition)
            if (topic.topic_name, each.partition_index) != (METADATA_TOPIC, METADATA_PARTITION):
                partition.error_code = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
                partition.error_message = f"only partition {METADATA_PARTITION} of {METADATA_TOPIC} has a quorum"
            elif metadata is not None:
                # A small request must not produce a large response: the replicas are described once.
                partition.error_code = KafkaError.INVALID_REQUEST
                partition.error_message = "the request names the partition twice"
            else:
                metadata = partition
        topics.append(QuorumTopic(topic.topic_name, partitions))
    response = DescribeQuorumResponse(error_message=None, topics=topics)
    if metadata is not None:
        reply = yield from ask(admin_pb2.DescribeQuorumRequest(), admin_pb2.DescribeQuorumResponse)
        if reply.HasField("error"):
            return DescribeQuorumResponse(kafka_code(reply.error), reply.error.message)
        _fill(metadata, reply)
        response.nodes = list(_nodes(call.cluster, (*reply.voters, *reply.observers)))
    return response


def _partition(number: int) -> QuorumPartition:
    return QuorumPartition(number, KafkaError.NONE, None, leader_id=_NOBODY, leader_epoch=_NEVER, high_watermark=_NEVER)


def _fill(partition: QuorumPartition, quorum: admin_pb2.DescribeQuorumResponse) -> None:
    if quorum.leader_id == _NOBODY:
        # Without a leader, a node's own knowledge of the others does not fit the response; clients retry.
        partition.error_code = KafkaError.LEADER_NOT_AVAILABLE
        partition.error_message = "the metadata quorum has no leader, or it does not respond"
        return
    partition.leader_id = quorum.leader_id
    partition.leader_epoch = kafka_epoch(quorum.leader_epoch)
    partition.high_watermark = quorum.high_watermark
    end = next((each.log_end_index for each in quorum.voters if each.node_id == quorum.leader_id), _NEVER)
    partition.current_voters, partition.observers = (
        [_state(each, quorum, end) for each in replicas] for replicas in (quorum.voters, quorum.observers)
    )


def _state(replica: admin_pb2.QuorumReplica, quorum: admin_pb2.DescribeQuorumResponse, end: int) -> QuorumReplicaState:
    """Describes a replica of the metadata.

    Arguments:
        end: log end index of the leader. The time of the last catch-up is known only of replicas that are caught up
            now.
    """
    leads = replica.node_id == quorum.leader_id
    heard_ms = quorum.described_at_ms - replica.last_contact_ms if replica.last_contact_ms >= 0 else _NEVER
    return QuorumReplicaState(
        replica.node_id,
        bytes.fromhex(replica.directory_id) if replica.directory_id else bytes(16),
        replica.log_end_index,
        _NEVER if leads else heard_ms,
        heard_ms if leads or replica.log_end_index >= end else _NEVER,
    )


def _nodes(cluster: KafkaClusterView, replicas: Iterable[admin_pb2.QuorumReplica]) -> Iterable[QuorumNode]:
    """Yields the Kafka addresses of the nodes that replicate the metadata; nodes without one are left out."""
    for node_id in dict.fromkeys(each.node_id for each in replicas):
        address = cluster.kafka_address(node_id)
        if address is not None:
            yield QuorumNode(node_id, [QuorumListener(_LISTENER, *address)])


def describe_log_dirs(call: KafkaCall[DescribeLogDirsRequest]) -> Steps[DescribeLogDirsResponse]:
    """Answers DescribeLogDirs page by page; the node serves other requests between two pages."""
    wanted = call.message.topics
    places = [
        admin_pb2.PartitionName(topic=name, partition=number)
        for name, number in dict.fromkeys((each.topic, number) for each in wanted or () for number in each.partitions)
    ]
    if len(places) > MAX_ITEMS:
        # Filtering all partitions is cheaper than asking in parts.
        places, chosen = [], {(each.topic, each.partition) for each in places}
    else:
        chosen = None
    question = admin_pb2.DescribeLogDirRequest(
        partitions=places, without_replicas=wanted is not None and not places and chosen is None
    )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    while True:
        reply = yield from ask(question, admin_pb2.DescribeLogDirResponse)
        if reply.HasField("error"):
            return DescribeLogDirsResponse(error_code=kafka_code(reply.error))
        for each in reply.replicas:
            if chosen is None or (each.topic, each.partition) in chosen:
                described = DescribeLogDirsPartition(
                    each.partition, each.size_bytes, each.offset_lag, is_future_key=False
                )
                topics.setdefault(each.topic, []).append(described)
        if not reply.more:
            break
        last = reply.replicas[-1]
        question.after.CopyFrom(admin_pb2.PartitionName(topic=last.topic, partition=last.partition))
    directory = DescribeLogDirsResult(
        KafkaError.NONE,
        reply.path,
        [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()],
        total_bytes=reply.total_bytes,
        usable_bytes=reply.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[directory])
