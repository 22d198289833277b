"""Finds where partitions begin, end, or pass a timestamp, at their leaders, following them around.

Servers do not read payloads: for a timestamp set by producers they name the batch, and the record is found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.errors import (
    STALE_LEADER_ERRORS,
    QuorumlogError,
    UnknownServerError,
    error_from_proto,
)
from quorumlog.sdk.fetched import FetchedRows
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

#: What ``timestamp_ms`` means beside a timestamp.
EARLIEST = -2
LATEST = -1
#: A silent leader must not use up all of the time: whether there is a new one is looked up between attempts.
ATTEMPT_S = 2.0


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
    await cluster.require_partitions(wanted, limit_s)
    search = _Search(wanted)

    async def attempt() -> None:
        while search.missing:
            await _ask_leaders(cluster, search, min(limit_s, ATTEMPT_S))

    await cluster.retrying(attempt, limit_s, "the offset look-up")
    return search.found


class _Search:
    """What has been found, and from where each search by time goes on."""

    def __init__(self, wanted: Mapping[TopicPartition, int]) -> None:
        self.wanted = wanted
        self.found: dict[TopicPartition, FoundOffset] = {}
        self.missing = set(wanted)
        self._first_offsets: dict[TopicPartition, int] = {}

    def first_offset(self, tp: TopicPartition) -> int:
        """Records before it have been ruled out."""
        return self._first_offsets.get(tp, 0)

    def take(self, tp: TopicPartition, result: data_plane_pb2.ListOffsetsResult) -> None:
        """Takes in what a leader has found."""
        if result.unfinished:
            self._first_offsets[tp] = result.offset
        elif result.entry:
            rows = FetchedRows.of_entry(tp, result.entry)
            place = rows.first_at_time(self.wanted[tp], result.offset)
            if place is not None:
                self._set(tp, FoundOffset(*place))
            else:  # The log begins behind the only such records of the batch.
                self._first_offsets[tp] = rows.header.last_offset + 1
        else:
            self._set(tp, FoundOffset(result.offset, result.timestamp_ms))

    def _set(self, tp: TopicPartition, found: FoundOffset) -> None:
        self.found[tp] = found
        self.missing.discard(tp)


async def _ask_leaders(cluster: Cluster, search: _Search, limit_s: float) -> None:
    """Asks every leader once for what is missing.

    Raises:
        QuorumlogError: the first failure, a final one before others.
    """
    by_node: dict[NodeConnection, list[TopicPartition]] = {}
    for tp in search.missing:
        _, node = await cluster.require_leader(*tp)
        by_node.setdefault(node, []).append(tp)
    outcomes = await asyncio.gather(
        *(_ask(cluster, node, part, search, limit_s) for node, part in by_node.items()), return_exceptions=True
    )
    failures = [outcome for outcome in outcomes if outcome is not None]
    for failure in failures:
        if not isinstance(failure, QuorumlogError) or not failure.retriable:
            raise failure
    if failures:
        if any(isinstance(failure, STALE_LEADER_ERRORS) for failure in failures):
            cluster.request_refresh()
        raise failures[0]


async def _ask(
    cluster: Cluster,
    node: NodeConnection,
    wanted: list[TopicPartition],
    search: _Search,
    limit_s: float,
) -> None:
    """Asks one leader, gives what it found to ``search``, and raises the first error."""
    request = data_plane_pb2.ListOffsetsRequest(timeout_ms=int(limit_s * 1000))
    for tp in wanted:
        view = cluster.metadata.partition(*tp)
        request.partitions.add(
            topic_id=cluster.metadata.topics[tp.topic].topic_id,
            partition=tp.partition,
            timestamp_ms=search.wanted[tp],
            leader_epoch=-1 if view is None else view.leader_epoch,
            first_offset=search.first_offset(tp),
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
            search.take(tp, result)
    if failure is not None:
        raise failure
