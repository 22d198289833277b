"""Questions that go to the leaders of partitions."""

from __future__ import annotations

import asyncio

import pytest
from hand_driven_cluster import HandDrivenCluster, turn

from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.cluster.offset_search import LATEST
from quorumlog.sdk.errors import ClusterNotFormedError, QuorumlogError, UnknownTopicOrPartitionError
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2, errors_pb2


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartitionError),
        (errors_pb2.CLUSTER_NOT_FORMED, ClusterNotFormedError),
    ],
)
async def test_who_hears_that_a_topic_is_not_there_asks_who_leads_it_before_the_next_call(
    code: errors_pb2.ErrorCode.ValueType, error: type[QuorumlogError]
) -> None:
    cluster = HandDrivenCluster()
    cluster.show(1)
    asking = asyncio.ensure_future(find_offsets(cluster, {TopicPartition("t", 0): LATEST}, 5))
    await turn()
    [question] = cluster.nodes[1].data_plane.asked("ListOffsets")
    before = cluster.refreshes
    response = data_plane_pb2.ListOffsetsResponse()
    # The answer of a node that has lost its disk: it has no topic, and no further attempt will help.
    response.results.add().error.CopyFrom(errors_pb2.Error(code=code, message="unknown", retriable=False))
    question.answer.set_result(response)
    with pytest.raises(error):
        await asking
    assert cluster.refreshes > before


async def test_searches_that_never_advance_back_off() -> None:
    """Otherwise a client would send requests as fast as a broken leader answers them."""
    cluster = HandDrivenCluster()
    cluster.show(1)
    answered = 0
    search = asyncio.ensure_future(find_offsets(cluster, {TopicPartition("t", 0): 5}, 60.0))
    try:
        async with asyncio.timeout(60):
            for _ in range(40):
                await turn()
                for question in list(cluster.nodes[1].data_plane.asked("ListOffsets")):
                    answered += 1
                    stalled = data_plane_pb2.ListOffsetsResult(unfinished=True, offset=0)
                    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[stalled]))
    finally:
        search.cancel()
    assert answered < 20, "it waits before it asks again"
