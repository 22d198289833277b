"""DescribeTopicPartitions: pages of topics, ordered by name, with a limit on partitions (KIP-966)."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.server.kafka.codec.topic_partition_requests import DescribeTopicPartitionsRequest, PageBegin
from quorumlog.server.kafka.codec.topic_partition_responses import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    NextPageBegin,
)
from quorumlog.server.kafka.handlers.cluster import shown_leader
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, KafkaClusterView, Steps, ask
from quorumlog.server.kafka.handlers.topic_names import kafka_epoch
from quorumlog.v1 import data_plane_pb2

#: Maximum number of partitions of a page, whatever the request says: Kafka's ``max.request.partition.size.limit``.
MOST_PARTITIONS = 2_000
#: Topics that are requested from the node at a time.
TOPICS_AT_ONCE = 500


def describe_topic_partitions(
    call: KafkaCall[DescribeTopicPartitionsRequest],
) -> Steps[DescribeTopicPartitionsResponse]:
    """Answers DescribeTopicPartitions. Without names it describes all topics that the client may see."""
    request, cursor = call.message, call.message.cursor
    everything = not request.topics
    if cursor is not None and cursor.partition_index < 0:
        refused = [
            DescribeTopicPartitionsResponseTopic(KafkaError.INVALID_REQUEST, each.name) for each in request.topics
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    names = set(call.cluster.topic_names() if everything else (each.name for each in request.topics))
    page = _Page(call.cluster, cursor, max(1, min(request.response_partition_limit, MOST_PARTITIONS)))
    waiting = sorted(name for name in names if cursor is None or name >= cursor.topic_name)
    while waiting and page.next_begin is None:
        part = _part(call.cluster, waiting, page.left)
        del waiting[: len(part)]
        question = data_plane_pb2.MetadataRequest(topics=part, allowed_operations=True)
        reply = yield from ask(question, data_plane_pb2.MetadataResponse)
        alive = {each.node_id for each in reply.brokers if not each.fenced}
        for topic in reply.topics:
            # Skip a topic that was deleted, or hidden from this client, since its name was read.
            if page.next_begin is None and not (everything and topic.HasField("error")):
                page.add(topic, alive)
    return DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.next_begin)


def _part(cluster: KafkaClusterView, names: Sequence[str], left: int) -> list[str]:
    """Returns the topics that fill the rest of a page, but no more than a node describes in a moment."""
    part: list[str] = []
    for name in names[:TOPICS_AT_ONCE]:
        if part and left <= 0:
            break
        part.append(name)
        left -= cluster.partition_count(name)
    return part


class _Page:
    """A page that is being filled.

    Attributes:
        next_begin: start of the next page, once this one is full and more partitions follow.
        left: number of partitions that it may still have.
    """

    def __init__(self, cluster: KafkaClusterView, begin: PageBegin | None, left: int) -> None:
        self._cluster = cluster
        self._begin = begin
        self.left = left
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_begin: NextPageBegin | None = None

    def add(self, topic: data_plane_pb2.TopicMetadata, alive: set[int]) -> None:
        """Appends the next topic, with as many partitions as fit."""
        if self.left <= 0:
            self.next_begin = NextPageBegin(topic.name, 0)
            return
        if topic.HasField("error"):
            self.topics.append(DescribeTopicPartitionsResponseTopic(kafka_code(topic.error), topic.name))
            return
        is_continued = self._begin is not None and self._begin.topic_name == topic.name
        first = self._begin.partition_index if self._begin is not None and is_continued else 0
        shown = topic.partitions[first : first + self.left]
        self.left -= len(shown)
        if first + len(shown) < len(topic.partitions):
            self.next_begin = NextPageBegin(topic.name, first + len(shown))
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                KafkaError.NONE,
                topic.name,
                topic.topic_id,
                topic.internal,
                [self._partition(each, alive) for each in shown],
                topic.allowed_operations,
            )
        )

    def _partition(
        self, partition: data_plane_pb2.PartitionMetadata, alive: set[int]
    ) -> DescribeTopicPartitionsResponsePartition:
        code, leader = shown_leader(self._cluster, partition)
        return DescribeTopicPartitionsResponsePartition(
            code,
            partition.partition,
            leader,
            kafka_epoch(partition.leader_epoch),
            list(partition.replicas),
            list(partition.isr),
            # A candidate with a majority of votes has every acknowledged record: Raft has no such sets.
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=[node for node in partition.replicas if node not in alive],
        )
