"""Looks up the first, end or timestamp offsets of partitions at their leaders, which are followed when they move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.leader_calls import ask_leaders
from quorumlog.sdk.cluster.offset_search import FoundOffset, OffsetSearch, RequestedPartition
from quorumlog.sdk.isolation import IsolationLevel
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

#: A silent leader must not use up all of the time: a new one is looked up between attempts.
ATTEMPT_S = 2.0


async def find_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    limit_s: float,
    isolation_level: IsolationLevel = "read_committed",
) -> dict[TopicPartition, FoundOffset]:
    """Returns the offset of each partition at a timestamp in milliseconds, or at EARLIEST or LATEST.

    Linearizable: the end reported includes every record acknowledged before the call; with ``read_committed`` it is the
    last stable offset, before the first record of a transaction that is open.

    Raises:
        InvalidPartitionsError: a partition does not exist.
        UnknownTopicOrPartitionError: a topic does not exist.
        RequestTimedOutError: not all leaders answered within ``limit_s``.
    """
    await cluster.require_partitions(wanted, limit_s)
    search = OffsetSearch(wanted, isolation_level)

    async def ask(node: NodeConnection, part: list[TopicPartition]) -> Sequence[data_plane_pb2.ListOffsetsResult]:
        timeout_s = min(limit_s, ATTEMPT_S)
        request = search.questions(((tp, _place(cluster, tp)) for tp in part), int(timeout_s * 1000))
        response = await node.call(node.data_plane.ListOffsets(request, timeout=timeout_s))
        return response.results

    async def attempt() -> None:
        while search.missing:
            before = search.steps
            await ask_leaders(cluster, search.missing, ask, search.take_answer)
            if search.steps == before:
                raise search.stalled()

    await cluster.retrying(attempt, limit_s, "the offset look-up")
    return search.found


def _place(cluster: Cluster, tp: TopicPartition) -> RequestedPartition:
    view = cluster.metadata.partition(*tp)
    return RequestedPartition(cluster.metadata.topics[tp.topic].topic_id, -1 if view is None else view.leader_epoch)
