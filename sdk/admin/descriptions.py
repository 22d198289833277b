"""Converts responses of nodes into values for users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quorumlog.sdk.types import (
    BrokerDescription,
    ClusterDescription,
    NodeDescription,
    PartitionDescription,
    PlannedMove,
    ReplicaCopy,
    TopicDescription,
)
from quorumlog.v1 import admin_pb2, data_plane_pb2

#: The age that a node reports for its image while it has no bound.
_UNKNOWN_AGE_MS = (1 << 64) - 1


def planned_moves(moves: Iterable[admin_pb2.PlannedMove]) -> tuple[PlannedMove, ...]:
    """Returns the moves of a plan."""
    return tuple(
        PlannedMove(each.topic, each.partition, tuple(each.replicas), tuple(each.wanted), each.size_bytes)
        for each in moves
    )


class TopicDescriptions:
    """Describes topics, never with older state of a partition than before.

    Requests go to different nodes in turn, and a node that has just restarted answers from an older image. Otherwise a
    caller that waits for an ISR to grow would see it grow and shrink again.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[bytes, int], dict[int, PartitionDescription]] = {}

    def topic(self, topic: data_plane_pb2.TopicMetadata) -> TopicDescription:
        """Returns the description of a topic, from a node's response."""
        # A topic restored from a backup has its former id, but other groups.
        groups = min((each.group_id for each in topic.partitions), default=0)
        seen = self._newest.setdefault((topic.topic_id, groups), {})
        for heard in _partition_descriptions(topic):
            known = seen.get(heard.partition)
            seen[heard.partition] = heard if known is None else newer_of(known, heard)
        partitions = tuple(seen[number] for number in sorted(seen))
        return TopicDescription(topic.name, topic.topic_id.hex(), partitions, dict(topic.configs), topic.internal)


def topic_description(topic: data_plane_pb2.TopicMetadata) -> TopicDescription:
    """Returns the description of a topic from one response alone."""
    partitions = tuple(sorted(_partition_descriptions(topic), key=lambda each: each.partition))
    return TopicDescription(topic.name, topic.topic_id.hex(), partitions, dict(topic.configs), topic.internal)


def newer_of(known: PartitionDescription, heard: PartitionDescription) -> PartitionDescription:
    """Returns the newer parts of two descriptions of a partition.

    The leader is that of the higher leader epoch, replicas and ISR those of the higher partition epoch.
    """
    newest = heard if heard.partition_epoch >= known.partition_epoch else known
    of_leader = max((known, heard), key=lambda each: each.leader_epoch)
    if known.leader_epoch == heard.leader_epoch:
        of_leader = newest
    return replace(newest, leader=of_leader.leader, leader_epoch=of_leader.leader_epoch)


def _partition_descriptions(topic: data_plane_pb2.TopicMetadata) -> list[PartitionDescription]:
    return [
        PartitionDescription(
            partition=p.partition,
            leader=p.leader if p.leader >= 0 else None,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replicas),
            isr=tuple(p.isr),
            partition_epoch=p.partition_epoch,
            group_id=p.group_id,
            witness=p.witness if p.HasField("witness") else None,
        )
        for p in topic.partitions
    ]


def node_description(reply: admin_pb2.DescribeNodeResponse) -> NodeDescription:
    """Returns a node's description of itself."""
    return NodeDescription(
        node_id=reply.node_id,
        directory_id=reply.directory_id,
        cluster_id=reply.cluster_id,
        version=reply.version,
        ready=reply.ready,
        reason=reply.reason,
        storage_used_bytes=reply.storage_used_bytes,
        storage_free_bytes=reply.storage_free_bytes,
        groups=reply.groups,
        groups_led=reply.groups_led,
        last_scrubbed_ms=reply.last_scrubbed_ms,
        damaged_entries=reply.damaged_entries,
        copies=tuple(
            ReplicaCopy(each.topic, each.partition, each.node_id, each.size_bytes, each.left_bytes)
            for each in reply.copies
        ),
    )


def cluster_description(response: data_plane_pb2.MetadataResponse) -> ClusterDescription:
    """Returns the cluster as a node sees it."""
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers=tuple(
            BrokerDescription(
                node_id=b.node_id,
                host=b.host,
                port=b.port,
                rack=b.rack or None,
                fenced=b.fenced,
                broker_epoch=b.broker_epoch,
                version=b.version,
                leaving=b.leaving,
                feature_level=b.feature_level,
                lost=b.lost,
                directory_id=b.directory_id,
                returning=b.returning,
                witness_only=b.witness_only,
                machine=b.machine or None,
            )
            for b in sorted(response.brokers, key=lambda broker: broker.node_id)
        ),
        image_age_ms=response.image_age_ms if response.image_age_ms < _UNKNOWN_AGE_MS else None,
        feature_level=response.feature_level,
    )
