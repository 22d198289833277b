"""What nodes answer, as an administrator reads it."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.sdk.types import NodeDescription, PartitionDescription, PlannedMove, ReplicaCopy
from quorumlog.v1 import admin_pb2, data_plane_pb2


def planned_moves(moves: Iterable[admin_pb2.PlannedMove]) -> tuple[PlannedMove, ...]:
    """The moves of a plan."""
    return tuple(
        PlannedMove(each.topic, each.partition, tuple(each.replicas), tuple(each.wanted), each.size_bytes)
        for each in moves
    )


def partition_descriptions(topic: data_plane_pb2.TopicMetadata) -> list[PartitionDescription]:
    """The partitions of a topic."""
    return [
        PartitionDescription(
            partition=p.partition,
            leader=p.leader if p.leader >= 0 else None,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replicas),
            isr=tuple(p.isr),
            partition_epoch=p.partition_epoch,
            group_id=p.group_id,
        )
        for p in topic.partitions
    ]


def node_description(reply: admin_pb2.DescribeNodeResponse) -> NodeDescription:
    """A node about itself."""
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
        copies=tuple(
            ReplicaCopy(each.topic, each.partition, each.node_id, each.size_bytes, each.left_bytes)
            for each in reply.copies
        ),
    )
