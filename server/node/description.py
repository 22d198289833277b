"""DescribeNode: a node's description of itself."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.node.replica_services import ReplicaServices
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.v1.admin_pb2 import DescribeNodeRequest, DescribeNodeResponse, ReplicaCopy


class NodeDescriptionRequests:
    """Serves DescribeNode on a member of a cluster."""

    def __init__(self, resources: NodeResources, cluster_id: str, replicas: ReplicaServices) -> None:
        self._resources = resources
        self._cluster_id = cluster_id
        self._replicas = replicas

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(DescribeNodeRequest, self.describe)

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeNodeRequest) -> None:
        self._resources.replies.reply(asked.request_id, self.take())

    def take(self) -> DescribeNodeResponse:
        """Returns the description."""
        not_ready, copies = self._replicas.broker.not_ready(), self._replicas.log_sizes.copies()
        return describe_node(self._resources, not_ready, self._cluster_id, copies)


def describe_node(
    resources: NodeResources, not_ready: str, cluster_id: str = "", copies: Iterable[ReplicaCopy] = ()
) -> DescribeNodeResponse:
    """Returns the description of a node, which need not belong to a cluster yet.

    Arguments:
        not_ready: why the node does not serve yet; empty if it does.
        copies: replicas that are being added on other nodes.
    """
    refusal = resources.space.refusal()
    return DescribeNodeResponse(
        node_id=resources.options.node_id,
        directory_id=resources.directory_id,
        cluster_id=cluster_id,
        version=resources.options.version,
        ready=not not_ready,
        reason=not_ready or (refusal.message if refusal is not None else ""),
        storage_used_bytes=resources.space.last.used_bytes,
        storage_free_bytes=resources.space.last.free_bytes,
        groups=len(resources.host.replicas),
        groups_led=sum(1 for _ in resources.host.led()),
        copies=copies,
        last_scrubbed_ms=resources.scrub.last_finished_ms,
        damaged_entries=len(resources.mender),
    )
