"""Sends requests to the leaders of several partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import STALE_LEADER_ERRORS, QuorumlogError, UnknownServerError, error_from_proto
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2, data_plane_pb2

#: One partition's part of a response.
Result = TypeVar("Result", data_plane_pb2.ListOffsetsResult, admin_pb2.DeleteRecordsResult)


async def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    ask: Callable[[NodeConnection, list[TopicPartition]], Awaitable[Sequence[Result]]],
    take_result: Callable[[TopicPartition, Result], None],
) -> None:
    """Sends one request to every leader, for its partitions.

    Arguments:
        ask: sends a request for some partitions to one node; returns one result for each, in order.
        take_result: called with each result that is not an error.

    Raises:
        QuorumlogError: the first failure, permanent ones first. Other partitions' results have been taken.
    """
    by_node: dict[NodeConnection, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        _, node = await cluster.require_leader(*tp)
        by_node.setdefault(node, []).append(tp)
    outcomes = await asyncio.gather(
        *(_ask_one(cluster, node, part, ask, take_result) for node, led in by_node.items() for part in in_parts(led)),
        return_exceptions=True,
    )
    failures = [outcome for outcome in outcomes if outcome is not None]
    # Also if this call makes no further attempt: otherwise the next call would contact the same node, indefinitely.
    if any(isinstance(failure, STALE_LEADER_ERRORS) for failure in failures):
        cluster.request_refresh()
    for failure in failures:
        if not isinstance(failure, QuorumlogError) or not failure.retriable:
            raise failure
    if failures:
        raise failures[0]


async def _ask_one(
    cluster: Cluster,
    node: NodeConnection,
    partitions: list[TopicPartition],
    ask: Callable[[NodeConnection, list[TopicPartition]], Awaitable[Sequence[Result]]],
    take_result: Callable[[TopicPartition, Result], None],
) -> None:
    try:
        results = await ask(node, partitions)
    except QuorumlogError:
        cluster.request_refresh()
        raise
    if len(results) != len(partitions):
        raise UnknownServerError(
            f"{node.address} answered for {len(results)} of {len(partitions)} partitions", retriable=True
        )
    failures: list[QuorumlogError] = []
    for tp, result in zip(partitions, results, strict=True):
        if result.HasField("error"):
            cluster.learn_from(tp.topic, result.topic_id, tp.partition, result.error)
            failures.append(error_from_proto(result.error))
        else:
            take_result(tp, result)
    if failures:
        raise next((failure for failure in failures if not failure.retriable), failures[0])
