"""Changes of the cluster itself: nodes, disks, voters of the metadata quorum, feature level."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from quorumlog.sdk.admin.node_admin import NodeAdmin
from quorumlog.sdk.admin.quorum_admin import QuorumAdmin
from quorumlog.sdk.admin.settings_admin import SettingsAdmin
from quorumlog.sdk.arguments import checked_node, checked_nodes, checked_throttle
from quorumlog.sdk.types import NodePlan


class ClusterAdmin(SettingsAdmin):
    """The part of :class:`AsyncAdmin` that changes nodes, their settings, the metadata quorum and the feature level.

    Attributes:
        _quorum, _nodes: send the requests to the controller.
    """

    _quorum: QuorumAdmin
    _nodes: NodeAdmin

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def alter_quorum(
        self, *, add: Iterable[int] = (), remove: Iterable[int] = (), validate_only: bool = False
    ) -> tuple[int, ...]:
        """Changes the voters of the metadata quorum; see :meth:`quorumlog.sdk.Admin.alter_quorum`."""
        self._check_usable()
        added, removed = checked_nodes(add, "add"), checked_nodes(remove, "remove")
        return await self._quorum.alter(added, removed, validate_only=bool(validate_only))

    async def upgrade_features(self, *, validate_only: bool = False) -> int:
        """Raises the feature level; see :meth:`quorumlog.sdk.Admin.upgrade_features`."""
        self._check_usable()
        return await self._nodes.upgrade_features(validate_only=bool(validate_only))

    async def drain_node(
        self,
        node_id: int,
        *,
        to: int | None = None,
        together: Iterable[int] = (),
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Moves all replicas of a node to other nodes; see :meth:`quorumlog.sdk.Admin.drain_node`."""
        self._check_usable()
        return await self._nodes.drain(
            checked_node(node_id),
            None if to is None else checked_node(to, "to"),
            checked_nodes(together, "together"),
            checked_throttle(throttle_bytes_per_second),
            validate_only=bool(validate_only),
        )

    async def undrain_node(self, node_id: int) -> None:
        """Cancels the drain of a node; see :meth:`quorumlog.sdk.Admin.undrain_node`."""
        self._check_usable()
        await self._nodes.undrain(checked_node(node_id))

    async def replace_disk(
        self,
        node_id: int,
        *,
        directory_id: str | None = None,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Lets a node that has lost its disk return with an empty one; see :meth:`quorumlog.sdk.Admin.replace_disk`."""
        self._check_usable()
        throttle = checked_throttle(throttle_bytes_per_second)
        return await self._nodes.replace_disk(
            checked_node(node_id), directory_id, throttle, validate_only=bool(validate_only)
        )

    async def remove_node(self, node_id: int, *, validate_only: bool = False) -> None:
        """Removes an empty node that is down; see :meth:`quorumlog.sdk.Admin.remove_node`."""
        self._check_usable()
        await self._nodes.remove(checked_node(node_id), validate_only=bool(validate_only))
