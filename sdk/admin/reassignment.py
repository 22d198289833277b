"""Moves partitions to other nodes: asked of any node, tried again where that is safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.itemised_change import ItemResult, change_each
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    QuorumlogError,
    ReassignmentInProgressError,
    error_from_proto,
)
from quorumlog.sdk.types import PartitionReassignment, TopicPartition
from quorumlog.v1 import admin_pb2


async def reassign_partitions(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None], limit_s: float, *, validate_only: bool
) -> None:
    """Asks that partitions be moved (None: that they stay), until each wish has been taken on.

    Raises:
        QuorumlogError: the first that could not be taken on; others may have been.
    """
    wishes = {tp: _replicas(tp, nodes) for tp, nodes in wanted.items()}

    async def ask(node: NodeConnection, part: list[TopicPartition]) -> list[tuple[TopicPartition, ItemResult]]:
        request = admin_pb2.ReassignPartitionsRequest(timeout_ms=int(limit_s * 1000), validate_only=validate_only)
        for tp in part:
            request.reassignments.add(topic=tp.topic, partition=tp.partition, replicas=wishes[tp])
        response = await node.call(node.admin.ReassignPartitions(request, timeout=limit_s))
        return [(TopicPartition(result.topic, result.partition), result) for result in response.results]

    def is_cancelled(tp: TopicPartition, refusal: QuorumlogError) -> bool:
        return isinstance(refusal, ReassignmentInProgressError) and not wishes[tp]

    await change_each(cluster, wishes, ask, is_cancelled, limit_s, "reassign_partitions")


async def list_reassignments(cluster: Cluster, limit_s: float) -> dict[TopicPartition, PartitionReassignment]:
    """The partitions that are being moved, as of now."""
    request = admin_pb2.ListReassignmentsRequest(timeout_ms=int(limit_s * 1000))

    async def attempt() -> dict[TopicPartition, PartitionReassignment]:
        response = await cluster.ask_any(lambda node, limit: node.admin.ListReassignments(request, timeout=limit))
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return {
            TopicPartition(each.topic, each.partition): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding), tuple(each.removing)
            )
            for each in response.reassignments
        }

    return await cluster.retrying(attempt, limit_s, "list_partition_reassignments")


def _replicas(tp: TopicPartition, nodes: Sequence[int] | None) -> tuple[int, ...]:
    if nodes is None:
        return ()
    if isinstance(nodes, str) or not nodes or not all(type(node) is int and 0 <= node < 2**31 for node in nodes):
        raise IllegalArgumentError(
            f"{tp.topic}-{tp.partition} is to be moved to {nodes!r}: give a list of node ids, or None to cancel"
        )
    return tuple(nodes)
