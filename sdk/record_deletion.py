"""Moves the log start of partitions up, at their leaders, following them around."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.errors import STALE_LEADER_ERRORS, QuorumlogError, UnknownServerError, error_from_proto
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

    async def attempt() -> None:
        by_node: dict[NodeConnection, list[TopicPartition]] = {}
        for tp in before.keys() - starts.keys():
            _, node = await cluster.require_leader(*tp)
            by_node.setdefault(node, []).append(tp)
        outcomes = await asyncio.gather(
            *(_ask(cluster, node, sorted(part), before, starts, min(limit_s, ATTEMPT_S))
              for node, part in by_node.items()),
            return_exceptions=True,
        )  # fmt: skip
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, QuorumlogError) or not failure.retriable:
                raise failure
        if failures:
            if any(isinstance(failure, STALE_LEADER_ERRORS) for failure in failures):
                cluster.request_refresh()
            raise failures[0]

    await cluster.retrying(attempt, limit_s, "the deletion of records")
    return {tp: starts[tp] for tp in before}


async def _ask(
    cluster: Cluster,
    node: NodeConnection,
    wanted: list[TopicPartition],
    before: Mapping[TopicPartition, int],
    starts: dict[TopicPartition, int],
    limit_s: float,
) -> None:
    """Asks one leader, puts what it did into ``starts``, and raises a final error or else the first."""
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=int(limit_s * 1000))
    for tp in wanted:
        topic_id = cluster.metadata.topics[tp.topic].topic_id
        request.partitions.add(topic_id=topic_id, partition=tp.partition, before_offset=before[tp])
    try:
        response = await node.call(node.admin.DeleteRecords(request, timeout=limit_s + 1))
    except QuorumlogError:
        cluster.request_refresh()
        raise
    if len(response.results) != len(wanted):
        raise UnknownServerError(
            f"{node.address} answered for {len(response.results)} of {len(wanted)} partitions", retriable=True
        )
    failures: list[QuorumlogError] = []
    for tp, result in zip(wanted, response.results, strict=True):
        if result.HasField("error"):
            cluster.learn_from(tp.topic, tp.partition, result.error)
            failures.append(error_from_proto(result.error))
        else:
            starts[tp] = result.log_start_offset
    if failures:
        raise next((failure for failure in failures if not failure.retriable), failures[0])
