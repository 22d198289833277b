"""Replicas of a topic that names no number: it survives a loss if the cluster is configured for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from quorumlog.sdk.admin.quorum_admin import QuorumAdmin
from quorumlog.sdk.admin.topic_changes import TopicChanges
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.types import QuorumDescription, QuorumReplicaDescription
from quorumlog.v1 import data_plane_pb2


class Nodes:
    """A cluster of which so many nodes are registered."""

    def __init__(self, registered: int) -> None:
        self.registered = registered

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], limit_s: float, what: str) -> Any:
        return await attempt()

    async def ask_metadata(self, topics: list[str]) -> data_plane_pb2.MetadataResponse:
        return data_plane_pb2.MetadataResponse(
            brokers=[data_plane_pb2.BrokerMetadata(node_id=number + 1) for number in range(self.registered)]
        )


@pytest.mark.parametrize(
    ("registered", "voters", "factor"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (3, 1, 3),
        (5, 3, 3),
        (1, 3, 3),  # It is starting: to give it one replica would be a silent loss of safety.
        (2, 3, 3),
        (0, 3, 3),  # It has not formed; the nodes report it.
    ],
)
async def test_it_is_three_unless_the_cluster_is_meant_to_be_smaller(
    registered: int, voters: int, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(self: QuorumAdmin) -> QuorumDescription:
        replicas = tuple(QuorumReplicaDescription(number + 1, "", 1, 0) for number in range(voters))
        return QuorumDescription(1, 1, 1, replicas, ())

    monkeypatch.setattr(QuorumAdmin, "describe", describe)
    assert await TopicChanges(cast(Cluster, Nodes(registered)), 1.0)._default_factor() == factor
