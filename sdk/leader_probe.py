"""Asks a node whom it knows as the leader of partitions: replicas know of an election before the controller does."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.offset_lookup import EARLIEST
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2


async def probe_leaders(
    cluster: Cluster, node_id: int, node: NodeConnection, partitions: Sequence[TopicPartition], limit_s: float
) -> bool:
    """Looks up an offset of each partition, for the sake of the answer: a node that does not lead names who does.

    Returns:
        whether any of it was news; it has been taken into the cluster's metadata.
    """
    request = data_plane_pb2.ListOffsetsRequest(timeout_ms=int(limit_s * 1000))
    for tp in partitions:
        topic_id = cluster.metadata.topics[tp.topic].topic_id
        request.partitions.add(topic_id=topic_id, partition=tp.partition, timestamp_ms=EARLIEST, leader_epoch=-1)
    try:
        response = await node.call(node.data_plane.ListOffsets(request, timeout=limit_s))
    except QuorumlogError:
        return False  # It does not know either.
    news = False
    for tp, result in zip(partitions, response.results, strict=False):
        if result.HasField("error"):
            news |= cluster.learn_from(tp.topic, tp.partition, result.error)
        else:
            news |= cluster.metadata.learn_leader(tp.topic, tp.partition, node_id, result.leader_epoch)
    return news
