"""Asks replicas for the new leader of partitions whose leader is silent: they learn of it before the controller
does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.offset_search import EARLIEST
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

_PROBE_TIMEOUT_S = 0.5


class LeaderProbes:
    """Requests to replicas, one to each node at a time.

    Arguments:
        on_news: called when a response named a new leader, which is in the cluster's metadata then.
    """

    def __init__(self, cluster: Cluster, on_news: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_news = on_news
        self._running: dict[int, asyncio.Task[None]] = {}

    def ask_about(self, silent: Iterable[TopicPartition]) -> None:
        """Asks the replicas of partitions, except their leaders."""
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in silent:
            view = self._cluster.metadata.partition(*tp)
            if view is not None:
                for replica in view.replicas:
                    if replica != view.leader:
                        by_node.setdefault(replica, []).append(tp)
        for node_id, partitions in by_node.items():
            node = self._cluster.node(node_id)
            if node is not None and node_id not in self._running:
                self._running[node_id] = self._cluster.in_background(self._ask(node_id, node, partitions))

    async def _ask(self, node_id: int, node: NodeConnection, partitions: Sequence[TopicPartition]) -> None:
        """Looks up offsets only to get a response: a node that does not lead names the leader."""
        try:
            for part in in_parts(partitions):
                await self._ask_part(node_id, node, part)
        except QuorumlogError:
            return  # It does not have the leader either.
        finally:
            del self._running[node_id]

    async def _ask_part(self, node_id: int, node: NodeConnection, partitions: Sequence[TopicPartition]) -> None:
        request = data_plane_pb2.ListOffsetsRequest(timeout_ms=int(_PROBE_TIMEOUT_S * 1000))
        metadata = self._cluster.metadata
        for tp in partitions:
            topic_id = metadata.topics[tp.topic].topic_id
            request.partitions.add(topic_id=topic_id, partition=tp.partition, timestamp_ms=EARLIEST, leader_epoch=-1)
        response = await node.call(node.data_plane.ListOffsets(request, timeout=_PROBE_TIMEOUT_S))
        news = False
        for tp, result in zip(partitions, response.results, strict=False):
            if result.HasField("error"):
                news |= self._cluster.learn_from(tp.topic, result.topic_id, tp.partition, result.error)
            else:
                news |= metadata.learn_leader(tp.topic, result.topic_id, tp.partition, node_id, result.leader_epoch)
        if news:
            self._on_news()

    def close(self) -> None:
        """Cancels requests in flight."""
        for task in list(self._running.values()):
            task.cancel()
