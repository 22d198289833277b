"""Finds where partitions begin, end, or pass a timestamp, at their leaders, following them around.

Servers do not read payloads: for a timestamp set by producers they name the batch, and the record is found here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.leader_calls import ask_leaders
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

    async def ask(node: NodeConnection, part: list[TopicPartition]) -> Sequence[data_plane_pb2.ListOffsetsResult]:
        return await _ask(cluster, node, part, search, min(limit_s, ATTEMPT_S))

    async def attempt() -> None:
        while search.missing:
            await ask_leaders(cluster, search.missing, ask, search.take)

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
            from quorumlog.sdk.fetched import FetchedRows  # Loads Arrow, which only a search by time needs.

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


async def _ask(
    cluster: Cluster, node: NodeConnection, wanted: list[TopicPartition], search: _Search, limit_s: float
) -> Sequence[data_plane_pb2.ListOffsetsResult]:
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
    response = await node.call(node.data_plane.ListOffsets(request, timeout=limit_s))
    return response.results
