"""Administration of nodes: emptied, kept, struck off, and all of them upgraded."""

from __future__ import annotations

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import InvalidRequestError, QuorumlogError, error_from_proto
from quorumlog.sdk.types import NodePlan, PlannedMove
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
        response = await self._alter(request, "drain_node")
        moves = tuple(
            PlannedMove(each.topic, each.partition, tuple(each.replicas), tuple(each.wanted)) for each in response.moves
        )
        return NodePlan(moves, response.all_moves, tuple(response.voters))

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

    async def upgrade_features(self, *, validate_only: bool) -> int:
        """Raises the feature level; asked twice, it is done once."""
        request = admin_pb2.UpgradeFeaturesRequest(validate_only=validate_only, timeout_ms=int(self._limit_s * 1000))

        async def ask() -> int:
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.UpgradeFeatures(request, timeout=limit)
            )
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return response.feature_level

        return await self._cluster.retrying(ask, self._limit_s, "upgrade_features")

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

    async def _is_registered(self, node_id: int) -> bool:
        response = await self._cluster.ask_metadata([], all_topics=False, linearizable=True)
        return any(broker.node_id == node_id for broker in response.brokers)
