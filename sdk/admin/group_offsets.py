"""Committed offsets between the clients' values and the wire, where topics go by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorumlog.sdk.cluster.metadata import MetadataCache
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition
from quorumlog.v1 import groups_pb2


def to_wire(
    metadata: MetadataCache, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[groups_pb2.CommittedOffset]:
    """Offsets to commit, in their order; their topics are known."""
    return [
        groups_pb2.CommittedOffset(
            topic_id=metadata.topics[tp.topic].topic_id,
            partition=tp.partition,
            offset=committed.offset,
            leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
            metadata=committed.metadata,
        )
        for tp, committed in offsets.items()
    ]


def from_wire(offsets: Iterable[groups_pb2.CommittedOffset]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as a coordinator tells them, by partition."""
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(
            each.offset, each.metadata, each.leader_epoch if each.leader_epoch >= 0 else None
        )
        for each in sorted(offsets, key=lambda each: (each.topic, each.partition))
    }


def partitions_to_wire(
    metadata: MetadataCache, partitions: Iterable[TopicPartition]
) -> list[groups_pb2.TopicPartitions]:
    """Partitions by topic; the topics are known."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [
        groups_pb2.TopicPartitions(topic_id=metadata.topics[topic].topic_id, partitions=numbers)
        for topic, numbers in by_topic.items()
    ]
