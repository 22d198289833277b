"""Finds where partitions begin, end, or pass a timestamp, at their leaders, following them around."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.errors import (
    STALE_LEADER_ERRORS,
    InvalidPartitionsError,
    QuorumlogError,
    UnknownServerError,
    error_from_proto,
)
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

#: What ``timestamp_ms`` means beside a timestamp.
EARLIEST = -2
LATEST = -1


class FoundOffset(NamedTuple):
    """An offset, -1 if there is none, with its record's timestamp for look-ups by time (else -1)."""

    offset: int
    timestamp_ms: int


async def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], limit_s: float
) -> dict[TopicPartition, FoundOffset]:
    """The offset of each partition at a timestamp in milliseconds, or at :data:`EARLIEST` or :data:`LATEST`.

    Linearizable: the end reported includes every record acknowledged before the call.

    Raises:
        InvalidPartitionsError: there is no such partition.
        UnknownTopicOrPartitionError: there is no such topic.
        RequestTimedOutError: not all leaders answered within ``limit_s``.
    """
    views = await cluster.ensure_topics(sorted({tp.topic for tp in wanted}), limit_s)
    for tp in wanted:
        if not 0 <= tp.partition < len(views[tp.topic].partitions):
            last = len(views[tp.topic].partitions) - 1
            raise InvalidPartitionsError(
                f"there is no partition {tp.partition} in topic {tp.topic!r}: it has 0 to {last}"
            )
    found: dict[TopicPartition, FoundOffset] = {}

    async def attempt() -> None:
        missing = {tp: timestamp for tp, timestamp in wanted.items() if tp not in found}
        if not missing:
            return
        by_node: dict[NodeConnection, dict[TopicPartition, int]] = {}
        for tp, timestamp in missing.items():
            _, node = await cluster.require_leader(*tp)
            by_node.setdefault(node, {})[tp] = timestamp
        # A silent leader must not use up all of the time: whether there is a new one is looked up between attempts.
        limit = min(limit_s, 2.0)
        outcomes = await asyncio.gather(
            *(_ask(cluster, node, part, found, limit) for node, part in by_node.items()), return_exceptions=True
        )
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, QuorumlogError) or not failure.retriable:
                raise failure
        if failures:
            if any(isinstance(failure, STALE_LEADER_ERRORS) for failure in failures):
                cluster.request_refresh()
            raise failures[0]

    await cluster.retrying(attempt, limit_s, "the offset look-up")
    return found


async def _ask(
    cluster: Cluster,
    node: NodeConnection,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset],
    limit_s: float,
) -> None:
    """Asks one leader, puts what it found into ``found``, and raises the first error."""
    request = data_plane_pb2.ListOffsetsRequest(timeout_ms=int(limit_s * 1000))
    for tp, timestamp in wanted.items():
        request.partitions.add(
            topic_id=cluster.metadata.topics[tp.topic].topic_id,
            partition=tp.partition,
            timestamp_ms=timestamp,
            leader_epoch=-1,
        )
    try:
        response = await node.call(node.data_plane.ListOffsets(request, timeout=limit_s))
    except QuorumlogError:
        cluster.request_refresh()
        raise
    if len(response.results) != len(wanted):
        raise UnknownServerError(
            f"{node.address} answered {len(response.results)} of {len(wanted)} look-ups", retriable=True
        )
    failure: QuorumlogError | None = None
    for tp, result in zip(wanted, response.results, strict=True):
        if result.HasField("error"):
            cluster.learn_from(tp.topic, tp.partition, result.error)
            failure = failure or error_from_proto(result.error)
        else:
            found[tp] = FoundOffset(result.offset, result.timestamp_ms)
    if failure is not None:
        raise failure
