"""Administration of nodes: drain, undrain, disk replacement, removal, upgrade of the feature level."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quorumlog.sdk.admin.descriptions import node_description, planned_moves
from quorumlog.sdk.admin.lost_answers import change_once
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.sdk.types import NodeDescription, NodePlan
from quorumlog.v1 import admin_pb2, data_plane_pb2


class NodeAdmin:
    """Node administration of one client.

    Arguments:
        limit_s: time limit of one call, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s

    async def drain(
        self, node_id: int, successor: int | None, together: Sequence[int], throttle: int, *, validate_only: bool
    ) -> NodePlan:
        """Starts to drain a node, or several together, and returns the plan."""
        request = self._request(node_id, admin_pb2.NODE_ACTION_DRAIN, validate_only)
        request.bytes_per_second = throttle
        request.together.extend(together)
        if successor is not None:
            request.successor = successor

        async def find_done() -> admin_pb2.AlterNodeResponse | None:
            brokers = [await self._find(each) for each in (node_id, *together)]
            is_done = all(broker is not None and broker.leaving for broker in brokers)
            return admin_pb2.AlterNodeResponse() if is_done else None

        response = await self._alter(request, find_done, "drain_node")
        return _plan(response)

    async def replace_disk(
        self, node_id: int, directory_id: str | None, throttle: int, *, validate_only: bool
    ) -> NodePlan:
        """Gives up the disk of a node, and returns the plan."""
        request = self._request(node_id, admin_pb2.NODE_ACTION_REPLACE_DISK, validate_only)
        request.bytes_per_second = throttle
        request.directory_id = await self._directory_of(node_id) if directory_id is None else directory_id

        async def find_done() -> admin_pb2.AlterNodeResponse | None:
            broker = await self._find(node_id)
            given_up = broker is not None and (broker.lost or broker.directory_id != request.directory_id)
            return admin_pb2.AlterNodeResponse() if given_up else None

        return _plan(await self._alter(request, find_done, "replace_disk"))

    async def undrain(self, node_id: int) -> None:
        """Cancels the drain of a node."""

        async def find_done() -> admin_pb2.AlterNodeResponse | None:
            broker = await self._find(node_id)
            return admin_pb2.AlterNodeResponse() if broker is not None and not broker.leaving else None

        request = self._request(node_id, admin_pb2.NODE_ACTION_UNDRAIN, False)
        await self._alter(request, find_done, "undrain_node")

    async def remove(self, node_id: int, *, validate_only: bool) -> None:
        """Removes a node from the cluster."""

        async def find_done() -> admin_pb2.AlterNodeResponse | None:
            return admin_pb2.AlterNodeResponse() if await self._find(node_id) is None else None

        request = self._request(node_id, admin_pb2.NODE_ACTION_REMOVE, validate_only)
        await self._alter(request, find_done, "remove_node")

    async def upgrade_features(self, *, validate_only: bool) -> int:
        """Raises the feature level; repeating the request has no further effect."""
        request = admin_pb2.UpgradeFeaturesRequest(validate_only=validate_only, timeout_ms=int(self._limit_s * 1000))

        async def ask() -> int:
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.UpgradeFeatures(request, timeout=limit)
            )
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return response.feature_level

        return await self._cluster.retrying(ask, self._limit_s, "upgrade_features")

    async def describe_all(self) -> list[NodeDescription | QuorumlogError]:
        """Returns the description that every node in the metadata gives of itself, or its error, by node id."""

        async def ask(node_id: int) -> NodeDescription | QuorumlogError:
            node = self._cluster.node(node_id)
            assert node is not None
            request = admin_pb2.DescribeNodeRequest()
            try:
                reply = await node.call(node.admin.DescribeNode(request, timeout=min(2.0, self._limit_s)))
            except QuorumlogError as error:
                return error
            return node_description(reply)

        return list(await asyncio.gather(*(ask(node_id) for node_id in sorted(self._cluster.metadata.addresses))))

    async def describe(self, address: str) -> NodeDescription:
        """Returns the description that the node at an address gives of itself."""
        (place,) = parse_bootstrap_servers(address)
        node = self._cluster.connection(place)
        reply = await node.call(node.admin.DescribeNode(admin_pb2.DescribeNodeRequest(), timeout=self._limit_s))
        return node_description(reply)

    def _request(
        self, node_id: int, action: admin_pb2.NodeAction.ValueType, validate_only: bool
    ) -> admin_pb2.AlterNodeRequest:
        return admin_pb2.AlterNodeRequest(
            node_id=node_id, action=action, validate_only=validate_only, timeout_ms=int(self._limit_s * 1000)
        )

    async def _alter(
        self,
        request: admin_pb2.AlterNodeRequest,
        find_done: Callable[[], Awaitable[admin_pb2.AlterNodeResponse | None]],
        what: str,
    ) -> admin_pb2.AlterNodeResponse:
        async def ask() -> admin_pb2.AlterNodeResponse:
            response = await self._cluster.ask_any(lambda node, limit: node.admin.AlterNode(request, timeout=limit))
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return response

        return await change_once(self._cluster, ask, find_done, self._limit_s, what)

    async def _find(self, node_id: int) -> data_plane_pb2.BrokerMetadata | None:
        response = await self._cluster.ask_metadata([], all_topics=False, linearizable=True)
        return next((broker for broker in response.brokers if broker.node_id == node_id), None)

    async def _directory_of(self, node_id: int) -> str:
        """Returns the data directory with which a node is registered; empty if it is not."""
        response = await self._cluster.retrying(
            lambda: self._cluster.ask_metadata([], all_topics=False, linearizable=True), self._limit_s, "replace_disk"
        )
        return next((broker.directory_id for broker in response.brokers if broker.node_id == node_id), "")


def _plan(response: admin_pb2.AlterNodeResponse) -> NodePlan:
    return NodePlan(planned_moves(response.moves), response.all_moves, tuple(response.voters), response.all_bytes)
