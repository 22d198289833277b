"""What changes in a cluster, as one of its nodes hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from quorumlog.sdk.admin.descriptions import cluster_description, topic_description
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.types import ClusterDescription, TopicDescription, TopicPartition
from quorumlog.v1 import admin_pb2

#: How long a node may wait for news. It answers without any then, so that one which has fallen silent is noticed.
_WAIT_S = 5.0


@dataclass(slots=True, frozen=True)
class LogDescription:
    """A partition's log, as the node that leads it knows it. It may be behind by as much as has just been committed.

    Arguments:
        leader_epoch: in which it leads.
        high_watermark: the offset after the last committed record.
        log_start_offset: the first offset that is kept.
        size_bytes: of what is kept, about; None: not looked up yet.
    """

    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    size_bytes: int | None


@dataclass(slots=True, frozen=True)
class ClusterChange:
    """What is new in a cluster, as a node sees it.

    Arguments:
        is_whole: this is everything; what is not here does not exist.
        cluster: the nodes and who leads the metadata; None: as they were.
        topics: those that are new, or of which something has changed, each as a whole; internal ones as well.
        gone_topics: the names of those that are deleted.
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
    """Everything that a node knows, then what changes, for as long as it answers.

    Arguments:
        address: of the node.
        limit_s: how much longer than it may wait an answer may take.

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
    """The address of one node, as it was given.

    Raises:
        IllegalArgumentError: it is none, or several.
    """
    places = parse_bootstrap_servers(address)
    if len(places) != 1:
        raise IllegalArgumentError(f"address is {address!r}: give that of one node, such as '127.0.0.1:19092'")
    return places[0]


async def next_change(changes: AsyncIterator[ClusterChange]) -> ClusterChange | None:
    """The next one, for who waits for it on another thread; None where the watch has failed before."""
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
