"""Administration of nodes: emptied, kept, given a new disk, struck off."""

from __future__ import annotations

import asyncio

from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.errors import InvalidRequestError, QuorumlogError, error_from_proto
from quorumlog.sdk.types import NodeDescription, NodePlan, PlannedMove
from quorumlog.v1 import admin_pb2


class NodeAdmin:
    """Says what is to become of nodes.

    Arguments:
        limit_s: how long one call may take, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s

    async def drain(self, node_id: int, successor: int | None, *, validate_only: bool) -> NodePlan:
        """Has a node emptied, and returns what is going to happen."""
        request = self._request(node_id, admin_pb2.NODE_ACTION_DRAIN, validate_only)
        if successor is not None:
            request.successor = successor
        return _plan(await self._alter(request, "drain_node"))

    async def replace_disk(self, node_id: int, directory_id: str | None, *, validate_only: bool) -> NodePlan:
        """Gives up the disk of a node, and returns what is going to happen."""
        request = self._request(node_id, admin_pb2.NODE_ACTION_REPLACE_DISK, validate_only)
        request.directory_id = await self._directory_of(node_id) if directory_id is None else directory_id
        return _plan(await self._alter(request, "replace_disk"))

    async def undrain(self, node_id: int) -> None:
        """Lets a node stay after all."""
        await self._alter(self._request(node_id, admin_pb2.NODE_ACTION_UNDRAIN, False), "undrain_node")

    async def remove(self, node_id: int, *, validate_only: bool) -> None:
        """Strikes a node off."""
        request = self._request(node_id, admin_pb2.NODE_ACTION_REMOVE, validate_only)
        may_be_done = False

        async def ask() -> None:
            nonlocal may_be_done
            try:
                await self._once(request)
            except QuorumlogError as error:
                if may_be_done and isinstance(error, InvalidRequestError) and not await self._is_registered(node_id):
                    return  # Done by an earlier attempt, of which only the answer was lost.
                may_be_done = may_be_done or not error.definite
                raise

        await self._cluster.retrying(ask, self._limit_s, "remove_node")

    async def describe_all(self) -> list[NodeDescription | QuorumlogError]:
        """Every node that the metadata name about itself, or the error it failed with, by node id."""

        async def ask(node_id: int) -> NodeDescription | QuorumlogError:
            node = self._cluster.node(node_id)
            assert node is not None
            request = admin_pb2.DescribeNodeRequest()
            try:
                reply = await node.call(node.admin.DescribeNode(request, timeout=min(2.0, self._limit_s)))
            except QuorumlogError as error:
                return error
            return _node_description(reply)

        return list(await asyncio.gather(*(ask(node_id) for node_id in sorted(self._cluster.metadata.addresses))))

    async def describe(self, address: str) -> NodeDescription:
        """The node at an address about itself."""
        (place,) = parse_bootstrap_servers(address)
        node = self._cluster.connection(place)
        reply = await node.call(node.admin.DescribeNode(admin_pb2.DescribeNodeRequest(), timeout=self._limit_s))
        return _node_description(reply)

    def _request(
        self, node_id: int, action: admin_pb2.NodeAction.ValueType, validate_only: bool
    ) -> admin_pb2.AlterNodeRequest:
        return admin_pb2.AlterNodeRequest(
            node_id=node_id, action=action, validate_only=validate_only, timeout_ms=int(self._limit_s * 1000)
        )

    async def _alter(self, request: admin_pb2.AlterNodeRequest, what: str) -> admin_pb2.AlterNodeResponse:
        """Asks until it is answered: asked twice, it is done once."""
        return await self._cluster.retrying(lambda: self._once(request), self._limit_s, what)

    async def _once(self, request: admin_pb2.AlterNodeRequest) -> admin_pb2.AlterNodeResponse:
        response = await self._cluster.ask_any(lambda node, limit: node.admin.AlterNode(request, timeout=limit))
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return response

    async def _directory_of(self, node_id: int) -> str:
        """The data directory with which a node is registered; empty if it is not."""
        response = await self._cluster.retrying(
            lambda: self._cluster.ask_metadata([], all_topics=False, linearizable=True), self._limit_s, "replace_disk"
        )
        return next((broker.directory_id for broker in response.brokers if broker.node_id == node_id), "")

    async def _is_registered(self, node_id: int) -> bool:
        response = await self._cluster.ask_metadata([], all_topics=False, linearizable=True)
        return any(broker.node_id == node_id for broker in response.brokers)


def _plan(response: admin_pb2.AlterNodeResponse) -> NodePlan:
    moves = tuple(
        PlannedMove(each.topic, each.partition, tuple(each.replicas), tuple(each.wanted)) for each in response.moves
    )
    return NodePlan(moves, response.all_moves, tuple(response.voters))


def _node_description(reply: admin_pb2.DescribeNodeResponse) -> NodeDescription:
    return NodeDescription(
        node_id=reply.node_id,
        directory_id=reply.directory_id,
        cluster_id=reply.cluster_id,
        version=reply.version,
        ready=reply.ready,
        reason=reply.reason,
        storage_used_bytes=reply.storage_used_bytes,
        storage_free_bytes=reply.storage_free_bytes,
        groups=reply.groups,
        groups_led=reply.groups_led,
    )
