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
    # As a node says that has lost its disk: it knows of no topic, and that no further attempt will help.
    response.results.add().error.CopyFrom(errors_pb2.Error(code=code, message="unknown", retriable=False))
    question.answer.set_result(response)
    with pytest.raises(error):
        await asking
    assert cluster.refreshes > before
