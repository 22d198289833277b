"""Requests from Spark to nodes are split if they exceed the limit of a request."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from quorumlog.sdk.cluster.metadata import PartitionView
from quorumlog.sdk.errors import RequestTimedOutError
from quorumlog.sdk.spark import cluster_catalog, group_mirror
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.nodes import Patience
from quorumlog.sdk.spark.planning import Bounds, TopicShape
from quorumlog.v1 import data_plane_pb2, groups_pb2
from quorumlog.wire.request_limits import MAX_ITEMS

TOPIC_ID = b"0123456789abcdef"
MANY = MAX_ITEMS + 7


class OneLeader:
    """Stands for ``Nodes``, and for the stub of the only one, which answers each question with its partition."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ListOffsets = self

    def leader(self, topic: str, topic_id: bytes, partition: int, **_: Any) -> tuple[PartitionView, str]:
        return PartitionView(partition, 1, 1, (1,)), "node:1"

    def stub(self, address: str) -> OneLeader:
        return self

    def channel(self, address: str) -> OneLeader:
        return self

    def future(self, request: data_plane_pb2.ListOffsetsRequest, timeout: float) -> Future[Any]:
        self.sizes.append(len(request.partitions))
        response = data_plane_pb2.ListOffsetsResponse()
        for part in request.partitions:
            response.results.add(partition=part.partition, offset=part.partition + part.timestamp_ms + 2)
        answer: Future[Any] = Future()
        answer.set_result(response)
        return answer


def test_where_more_partitions_begin_and_end_than_one_request_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = OneLeader()
    monkeypatch.setattr(cluster_catalog, "nodes_at", lambda servers: nodes)
    catalog = ClusterCatalog("node:1", newest=False)
    count = MAX_ITEMS // 2 + 1
    bounds = catalog.bounds({"t": TopicShape(TOPIC_ID, count)}, [("t", number) for number in range(count)])
    assert sorted(nodes.sizes) == [2, MAX_ITEMS]
    assert bounds == {("t", number): Bounds(number, number + 1) for number in range(count)}


class StalledLeader(OneLeader):
    """Never finishes a search, after some steps that advance it.

    Arguments:
        steps: answers that rule records out.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def look_again(self, topics: object) -> None:
        """Finds the same leader."""

    def future(self, request: data_plane_pb2.ListOffsetsRequest, timeout: float) -> Future[Any]:
        self.sizes.append(len(request.partitions))
        (part,) = request.partitions
        offset = part.first_offset + (len(self.sizes) <= self.steps)
        response = data_plane_pb2.ListOffsetsResponse()
        response.results.add(partition=part.partition, unfinished=True, offset=offset)
        answer: Future[Any] = Future()
        answer.set_result(response)
        return answer


@pytest.mark.timeout(60)
def test_searches_that_never_advance_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that advance, however slowly, continue."""
    nodes = StalledLeader(steps=500)
    monkeypatch.setattr(cluster_catalog, "nodes_at", lambda servers: nodes)
    monkeypatch.setattr(cluster_catalog, "Patience", lambda: Patience(0.2))
    catalog = ClusterCatalog("node:1", newest=False)
    with pytest.raises(RequestTimedOutError, match="the leader of t-0 does not advance in its search"):
        catalog.offsets_at({"t": TopicShape(TOPIC_ID, 1)}, {("t", 0): 5})
    assert 500 < len(nodes.sizes) < 600


def test_progress_of_more_partitions_than_one_request_takes_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Stub:
        def __init__(self, channel: object) -> None:
            self.channel = channel

        def CommitOffsets(self, request: Any, timeout: float) -> groups_pb2.CommitOffsetsResponse:
            sizes.append(len(request.offsets))
            return groups_pb2.CommitOffsetsResponse()

    monkeypatch.setattr(group_mirror, "_coordinator", lambda nodes, group_id: "node:1")
    monkeypatch.setattr(group_mirror.groups_pb2_grpc, "GroupsStub", Stub)
    places = {(TOPIC_ID, number): number for number in range(MANY)}
    group_mirror.commit_offsets(OneLeader(), "g", places)  # type: ignore[arg-type]
    assert sizes == [MAX_ITEMS, 7]
