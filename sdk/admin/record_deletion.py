"""Moves the log start of partitions up, at their leaders, following them around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.leader_calls import ask_leaders
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2

#: A silent leader must not use up all of the time: whether there is a new one is looked up between attempts.
ATTEMPT_S = 5.0


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], limit_s: float
) -> dict[TopicPartition, int]:
    """Deletes the records before an offset in each partition (-1: all), and returns where each log starts now.

    Raises:
        QuorumlogError: the first that could not be done; others may have been.
    """
    await cluster.require_partitions(before, limit_s)
    starts: dict[TopicPartition, int] = {}
    attempt_s = min(limit_s, ATTEMPT_S)

    async def ask(node: NodeConnection, part: list[TopicPartition]) -> Sequence[admin_pb2.DeleteRecordsResult]:
        request = admin_pb2.DeleteRecordsRequest(timeout_ms=int(attempt_s * 1000))
        for tp in part:
            topic_id = cluster.metadata.topics[tp.topic].topic_id
            request.partitions.add(topic_id=topic_id, partition=tp.partition, before_offset=before[tp])
        response = await node.call(node.admin.DeleteRecords(request, timeout=attempt_s + 1))
        return response.results

    def take(tp: TopicPartition, result: admin_pb2.DeleteRecordsResult) -> None:
        starts[tp] = result.log_start_offset

    async def attempt() -> None:
        await ask_leaders(cluster, before.keys() - starts.keys(), ask, take)

    await cluster.retrying(attempt, limit_s, "the deletion of records")
    return {tp: starts[tp] for tp in before}
