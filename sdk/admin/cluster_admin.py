"""What operators change about the cluster itself: its nodes, their disks, who votes on the metadata, its features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from quorumlog.sdk.admin.node_admin import NodeAdmin
from quorumlog.sdk.admin.quorum_admin import QuorumAdmin
from quorumlog.sdk.arguments import checked_node, checked_nodes, checked_throttle
from quorumlog.sdk.types import NodePlan


class ClusterAdmin(ABC):
    """The part of :class:`AsyncAdmin` that changes nodes, the metadata quorum and the feature level.

    Attributes:
        _quorum, _nodes: what asks the controller.
    """

    _quorum: QuorumAdmin
    _nodes: NodeAdmin

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def alter_quorum(
        self, *, add: Iterable[int] = (), remove: Iterable[int] = (), validate_only: bool = False
    ) -> tuple[int, ...]:
        """Changes who votes in the metadata quorum, and returns once that has been taken on (KIP-853).

        The voters change once all that are new have caught up; ``describe_quorum`` shows ``wanted_voters`` until then.
        An odd number of voters is best: four survive no more than three.

        Arguments:
            add: node ids of registered nodes that are to vote.
            remove: node ids of voters that are not to vote any more.
            validate_only: check only, change nothing.

        Returns:
            Node ids of those who are to vote from now on.

        Raises:
            InvalidRequestError: a node is not registered or is down, one to be removed is no voter, or too few of the
                voters would be up.
        """
        self._check_usable()
        added, removed = checked_nodes(add, "add"), checked_nodes(remove, "remove")
        return await self._quorum.alter(added, removed, validate_only=bool(validate_only))

    async def upgrade_features(self, *, validate_only: bool = False) -> int:
        """Raises the cluster's feature level to the highest that all nodes support, where it does not rise by itself
        (the setting ``feature_upgrade``; KIP-584). There is no way back to the former version from then on.

        Arguments:
            validate_only: check only, change nothing.

        Returns:
            The level, which may be what it was.

        Raises:
            UnsupportedVersionError: some nodes are of the former version yet; the message names them.
        """
        self._check_usable()
        return await self._nodes.upgrade_features(validate_only=bool(validate_only))

    async def drain_node(
        self,
        node_id: int,
        *,
        to: int | None = None,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Has all replicas of a node moved to others, and returns once that has been taken on.

        The node may be down. Until ``undrain_node`` it gets no new replicas. The cluster goes on with it whatever
        restarts; ``describe_topics`` and ``list_partition_reassignments`` say how far it is.

        Arguments:
            to: the node that takes over, with the vote in the metadata quorum if it has one. By default each replica
                goes to the node with the fewest, if possible in a rack without another one, and the vote stays.
            throttle_bytes_per_second: as in ``reassign_partitions``; another one holds for what is under way, too.
            validate_only: check and plan only, change nothing.

        Raises:
            InvalidRequestError: there is no such node, or ``to`` can take over nothing.
            InvalidReplicaAssignmentError: a replica has nowhere to go: there are too few other nodes.
        """
        self._check_usable()
        return await self._nodes.drain(
            checked_node(node_id),
            None if to is None else checked_node(to, "to"),
            checked_throttle(throttle_bytes_per_second),
            validate_only=bool(validate_only),
        )

    async def undrain_node(self, node_id: int) -> None:
        """Lets a node stay that is being drained. Moves under way go back; what has left it stays where it is."""
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
        """Gives up the disk of a node that is down, for good, and lets the node return with an empty one under its id.

        What the node had is taken from it first, its vote in the metadata quorum included. Once nothing names it any
        more, it may start with an empty data directory, and gets all of that back, as copies of the others. Until that,
        ``undrain_node`` calls it off. The cluster goes on with it whatever restarts; ``lost`` and ``returning`` of
        ``describe_cluster`` say how far it is.

        Arguments:
            directory_id: the data directory that is lost, as in ``BrokerDescription``; None: the one it has now.
            throttle_bytes_per_second: as in ``reassign_partitions``.
            validate_only: check and plan only, change nothing.

        Returns:
            Of each partition the nodes that have a copy, and those that are to have one in the end.

        Raises:
            InvalidRequestError: no such node, it is up, or a majority of the metadata quorum or a partition is lost.
        """
        self._check_usable()
        throttle = checked_throttle(throttle_bytes_per_second)
        return await self._nodes.replace_disk(
            checked_node(node_id), directory_id, throttle, validate_only=bool(validate_only)
        )

    async def remove_node(self, node_id: int, *, validate_only: bool = False) -> None:
        """Strikes a node off, for good: its id can never be used again. It is down and empty, and votes on nothing.

        Raises:
            InvalidRequestError: there is no such node, it is up, has replicas, or votes in the metadata quorum.
        """
        self._check_usable()
        await self._nodes.remove(checked_node(node_id), validate_only=bool(validate_only))
