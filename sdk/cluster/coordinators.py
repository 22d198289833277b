"""Coordinators of groups and transactional ids: looked up at any node, cached, updated from coordinators' responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import (
    ClusterNotFormedError,
    CoordinatorNotAvailableError,
    NetworkError,
    NotCoordinatorError,
    QuorumlogError,
    RequestTimedOutError,
    UnknownServerError,
    error_from_proto,
)
from quorumlog.v1 import errors_pb2, groups_pb2, transaction_admin_pb2, transactions_pb2
from quorumlog.v1.groups_pb2 import COORDINATOR_TYPE_GROUP, CoordinatorType
from quorumlog.wire.topic_names import GROUPS_TOPIC, TRANSACTIONS_TOPIC

#: A response about one group, or one transactional id.
GroupReply = TypeVar(
    "GroupReply",
    groups_pb2.CommitOffsetsResponse,
    groups_pb2.FetchOffsetsResponse,
    groups_pb2.DeleteOffsetsResponse,
    transactions_pb2.InitTransactionsResponse,
    transactions_pb2.JoinTransactionResponse,
    transactions_pb2.AddToTransactionResponse,
    transactions_pb2.EndTransactionResponse,
    transaction_admin_pb2.DescribeTransactionResponse,
    transaction_admin_pb2.AbortTransactionResponse,
)
#: One group's part of a response.
GroupResult = TypeVar("GroupResult", groups_pb2.GroupDescription, groups_pb2.GroupOutcome)

#: A silent coordinator must not use up all of a call's time: a new one is looked up between attempts.
ATTEMPT_S = 3.0
#: A node is given this much more time than the request states, so that its own time-out error arrives.
GRACE_S = 0.5
#: Limit of cached groups; beyond it the cache is cleared.
MAX_REMEMBERED = 10_000
#: Errors after which the coordinator must be looked up again.
STALE_COORDINATOR_ERRORS = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    NetworkError,
    RequestTimedOutError,
    ClusterNotFormedError,  # The node has lost its disk.
)


class _Leader(NamedTuple):
    node_id: int
    leader_epoch: int


class CoordinatorCache:
    """A client's cache of coordinators, on its cluster's event loop.

    A group permanently belongs to one partition of ``__groups``; the leader of the partition changes. So a hint for one
    group applies to all groups of its partition. The same is true of transactional ids and ``__transactions``; what is
    called a group below may be one.

    Arguments:
        kind: coordinators of groups, or of transactional ids.
    """

    def __init__(self, cluster: Cluster, kind: CoordinatorType.ValueType = COORDINATOR_TYPE_GROUP) -> None:
        self._cluster = cluster
        self._kind = kind
        is_group = kind == COORDINATOR_TYPE_GROUP
        self._noun = "group" if is_group else "transactional id"
        self._topic = GROUPS_TOPIC if is_group else TRANSACTIONS_TOPIC
        self._partitions: dict[str, int] = {}
        self._leaders: dict[int, _Leader] = {}

    # --- what is known -------------------------------------------------------------------------------------------

    def known(self, group_id: str) -> NodeConnection | None:
        """Returns the last known coordinator of a group, if any."""
        partition = self._partitions.get(group_id)
        return None if partition is None else self._leader(partition)

    def _leader(self, partition: int) -> NodeConnection | None:
        leader = self._leaders.get(partition)
        return None if leader is None else self._cluster.node(leader.node_id)

    def forget(self, group_id: str) -> None:
        """Forgets the coordinator of a group, which did not answer: the next call looks it up again."""
        self._leaders.pop(self._partitions.get(group_id, -1), None)

    def learn_from(self, group_id: str, error: errors_pb2.Error) -> QuorumlogError:
        """Applies a hint in a response's error; returns the error as an exception."""
        failure = error_from_proto(error)
        if isinstance(failure, STALE_COORDINATOR_ERRORS):
            self._take_hint(group_id, error)
        return failure

    def _take_hint(self, group_id: str, error: errors_pb2.Error) -> None:
        partition = self._partitions.get(group_id)
        if partition is None:
            return
        known = self._leaders.pop(partition, None)
        if not error.HasField("leader") or error.leader.node_id < 0:
            return
        hint = _Leader(error.leader.node_id, error.leader.leader_epoch)
        # A hint that is not newer than the known leader would lead here again.
        if known is None or hint.leader_epoch > known.leader_epoch:
            self._leaders[partition] = hint

    # --- asking who coordinates ----------------------------------------------------------------------------------

    async def require(self, group_id: str) -> NodeConnection:
        """Returns the coordinator of a group, looked up if unknown; see :meth:`require_each`."""
        return (await self.require_each([group_id]))[group_id]

    async def require_each(self, group_ids: Collection[str]) -> dict[str, NodeConnection]:
        """Returns the coordinators of groups. Requests unknown ones, once for all tasks that wait for them. One
        attempt.

        Raises:
            InvalidGroupIdError: a group id is not allowed.
            CoordinatorNotAvailableError: one has no leader at the moment, or is being created (retriable).
        """
        nodes = {group_id: self.known(group_id) for group_id in group_ids}
        unknown = [group_id for group_id, node in nodes.items() if node is None]
        if unknown:
            key = ("coordinators", self._kind, frozenset(unknown))
            nodes |= await self._cluster.shared.share(key, lambda: self._look_up(unknown))
        missing = [group_id for group_id, node in nodes.items() if node is None]
        if missing:
            raise CoordinatorNotAvailableError(
                f"{self._noun} {missing[0]!r} has no coordinator at the moment: try again"
            )
        return {group_id: node for group_id, node in nodes.items() if node is not None}

    async def _look_up(self, group_ids: Sequence[str]) -> dict[str, NodeConnection | None]:
        nodes = dict[str, NodeConnection | None]()
        for part in in_parts(group_ids):
            for found in await self._find(groups_pb2.FindCoordinatorsRequest(group_ids=part, type=self._kind)):
                if len(self._partitions) >= MAX_REMEMBERED:
                    self._partitions.clear()
                self._partitions[found.group_id] = found.partition
                nodes[found.group_id] = self._take(found)
        return nodes

    async def require_all(self) -> dict[int, NodeConnection]:
        """Returns the leader of each coordinator, by its number, by a request. One attempt.

        Raises:
            CoordinatorNotAvailableError: one has no leader at the moment, or they are being created (retriable).
        """
        leading: dict[int, NodeConnection] = {}
        for found in await self._find(groups_pb2.FindCoordinatorsRequest(all=True, type=self._kind)):
            node = self._take(found)
            if node is None:
                raise self.no_leader(found.partition)
            leading[found.partition] = node
        return leading

    def no_leader(self, number: int) -> CoordinatorNotAvailableError:
        """Returns the error for a coordinator that has no leader."""
        return CoordinatorNotAvailableError(f"{self._topic}-{number} has no leader at the moment: try again")

    async def _find(self, request: groups_pb2.FindCoordinatorsRequest) -> Sequence[groups_pb2.GroupCoordinator]:
        response = await self._cluster.ask_any(lambda node, limit: node.groups.FindCoordinators(request, timeout=limit))
        if response.HasField("error"):
            raise error_from_proto(response.error)
        if not request.all and [found.group_id for found in response.coordinators] != list(request.group_ids):
            raise UnknownServerError("a node named coordinators of other groups than requested", retriable=True)
        failures = [error_from_proto(found.error) for found in response.coordinators if found.HasField("error")]
        if failures:
            raise next((failure for failure in failures if not failure.retriable), failures[0])
        return response.coordinators

    def _take(self, found: groups_pb2.GroupCoordinator) -> NodeConnection | None:
        """Applies the leader of a partition, unless a newer one is known."""
        known = self._leaders.get(found.partition)
        if found.node_id >= 0 and (known is None or found.leader_epoch >= known.leader_epoch):
            self._cluster.metadata.learn_address(found.node_id, found.host, found.port, found.broker_epoch)
            self._leaders[found.partition] = _Leader(found.node_id, found.leader_epoch)
        return self._leader(found.partition)

    # --- asking coordinators -------------------------------------------------------------------------------------

    async def ask(
        self, group_id: str, call: Callable[[NodeConnection], Awaitable[GroupReply]], limit_s: float, what: str
    ) -> GroupReply:
        """Sends a request to the coordinator of one group; retries after temporary failures and follows the
        coordinator.

        Arguments:
            call: makes the call of one attempt, which should take no longer than :data:`ATTEMPT_S`.
            limit_s: time limit of all attempts together.
            what: name of the operation, for the message of a time-out.

        Raises:
            QuorumlogError: the response's error that is not retriable, or the last one when the time was over.
        """
        return await self._cluster.retrying(lambda: self.ask_once(group_id, call), limit_s, what)

    async def ask_once(self, group_id: str, call: Callable[[NodeConnection], Awaitable[GroupReply]]) -> GroupReply:
        """Makes one attempt of :meth:`ask`."""
        node = await self.require(group_id)
        try:
            reply = await node.call(call(node))
        except QuorumlogError:
            self.forget(group_id)
            raise
        if reply.HasField("error"):
            raise self.learn_from(group_id, reply.error)
        return reply

    async def ask_each(
        self,
        group_ids: Collection[str],
        call: Callable[[NodeConnection, list[str]], Awaitable[Sequence[GroupResult]]],
        take_result: Callable[[str, GroupResult], None],
    ) -> None:
        """Sends one request to each coordinator of several groups, for the groups that it coordinates.

        Arguments:
            call: sends a request for some groups to one node; returns one result for each, in order.
            take_result: called with each result that is not an error.

        Raises:
            QuorumlogError: the first failure, permanent ones first. Other groups' results have been taken.
        """
        by_node: dict[NodeConnection, list[str]] = {}
        for group_id, node in (await self.require_each(group_ids)).items():
            by_node.setdefault(node, []).append(group_id)
        failures: list[QuorumlogError] = []
        for node, coordinated in by_node.items():
            for part in in_parts(coordinated):
                failures += await self._ask_one(node, part, call, take_result)
        if failures:
            raise next((failure for failure in failures if not failure.retriable), failures[0])

    async def _ask_one(
        self,
        node: NodeConnection,
        group_ids: list[str],
        call: Callable[[NodeConnection, list[str]], Awaitable[Sequence[GroupResult]]],
        take_result: Callable[[str, GroupResult], None],
    ) -> list[QuorumlogError]:
        try:
            results = await call(node, group_ids)
        except QuorumlogError as failure:
            for group_id in group_ids:
                self.forget(group_id)
            return [failure]
        if [result.group_id for result in results] != group_ids:
            return [UnknownServerError(f"{node.address} answered for other groups than requested", retriable=True)]
        failures: list[QuorumlogError] = []
        for group_id, result in zip(group_ids, results, strict=True):
            if result.HasField("error"):
                failures.append(self.learn_from(group_id, result.error))
            else:
                take_result(group_id, result)
        return failures
