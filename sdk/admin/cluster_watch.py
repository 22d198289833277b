"""Changes of a cluster, as one of its nodes reports them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from quorumlog.sdk.admin.descriptions import cluster_description, topic_description
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.types import ClusterDescription, TopicDescription, TopicPartition
from quorumlog.v1 import admin_pb2

#: How long a node may wait for changes. It then answers without any, so that a silent node is detected.
_WAIT_S = 5.0


@dataclass(slots=True, frozen=True)
class LogDescription:
    """A partition's log, as its leader reports it. The last commits may be missing.

    Arguments:
        leader_epoch: of the reporting leader.
        high_watermark: the offset after the last committed record.
        log_start_offset: the first offset that is kept.
        size_bytes: approximate size of the log; None: not looked up yet.
    """

    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    size_bytes: int | None


@dataclass(slots=True, frozen=True)
class ClusterChange:
    """Changes of a cluster, as a node sees it.

    Arguments:
        is_whole: the change describes the whole cluster; anything that it omits does not exist.
        cluster: nodes and controller; None: unchanged.
        topics: new and changed topics, each complete; internal ones included.
        gone_topics: names of deleted topics.
        logs: of partitions that this node leads.
    """

    is_whole: bool
    cluster: ClusterDescription | None = None
    topics: tuple[TopicDescription, ...] = ()
    gone_topics: tuple[str, ...] = ()
    logs: Mapping[TopicPartition, LogDescription] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.is_whole or self.cluster is not None or bool(self.topics or self.gone_topics or self.logs)


async def watch(cluster: Cluster, address: str, limit_s: float) -> AsyncIterator[ClusterChange]:
    """Yields the node's view of the cluster, then its changes, as long as the node answers.

    Arguments:
        address: of the node.
        limit_s: time limit of a response, in addition to the time that the node may wait.

    Raises:
        QuorumlogError: it does not answer, or refuses.
    """
    node = cluster.connection(address)
    request = admin_pb2.WatchClusterRequest(timeout_ms=int(_WAIT_S * 1000))
    while True:
        response = await node.call(node.admin.WatchCluster(request, timeout=_WAIT_S + limit_s))
        request.run, request.version = response.run, response.version
        change = _change(response)
        if change:
            yield change


def checked_address(address: str) -> str:
    """Returns the address of one node.

    Raises:
        IllegalArgumentError: it is not an address, or several.
    """
    places = parse_bootstrap_servers(address)
    if len(places) != 1:
        raise IllegalArgumentError(f"address is {address!r}: give that of one node, such as '127.0.0.1:19092'")
    return places[0]


async def next_change(changes: AsyncIterator[ClusterChange]) -> ClusterChange | None:
    """Returns the next change, for a caller on another thread; None if the watch has failed before."""
    return await anext(changes, None)


def _change(response: admin_pb2.WatchClusterResponse) -> ClusterChange:
    topics = sorted(response.topics, key=lambda topic: topic.name)
    return ClusterChange(
        is_whole=response.whole,
        cluster=cluster_description(response.cluster) if response.HasField("cluster") else None,
        topics=tuple(topic_description(topic) for topic in topics if not topic.HasField("error")),
        gone_topics=tuple(response.gone_topics),
        logs={
            TopicPartition(each.topic, each.partition): LogDescription(
                each.leader_epoch,
                each.high_watermark,
                each.log_start_offset,
                each.size_bytes if each.HasField("size_bytes") else None,
            )
            for each in response.logs
        },
    )
