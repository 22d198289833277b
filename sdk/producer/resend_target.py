"""Where a partition's batches are sent again."""

from __future__ import annotations

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.producer.partition_pipeline import PartitionPipeline


def resend_target(cluster: Cluster, pipeline: PartitionPipeline) -> tuple[NodeConnection, bool] | None:
    """The node to send them to, and whether it is thought to lead; None if there is none to turn to.

    When the connection to the known leader has failed, the other replicas are asked in turn: they know of a new leader
    before the controller does, and name it.
    """
    found = cluster.leader(pipeline.topic, pipeline.partition)
    if found is not None and not found[1].suspect:
        pipeline.leader_epoch = found[0].leader_epoch
        return found[1], True
    view = cluster.metadata.partition(pipeline.topic, pipeline.partition)
    if view is None or not view.replicas:
        return None
    pipeline.leader_epoch = view.leader_epoch
    node = cluster.node(view.replicas[pipeline.failures % len(view.replicas)])
    return (node, False) if node is not None else None
