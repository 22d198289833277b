"""Administration of single partitions: elect leaders, move replicas, delete records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from quorumlog.sdk.admin.descriptions import planned_moves
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.itemised_change import ItemResult, change_each, one_node
from quorumlog.sdk.cluster.leader_calls import ask_leaders
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.cluster.topic_ids import require_topic_ids, topic_ids_of
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    QuorumlogError,
    ReassignmentInProgressError,
    error_from_proto,
)
from quorumlog.sdk.types import NodeLoad, PartitionReassignment, RebalancePlan, TopicPartition
from quorumlog.v1 import admin_pb2
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS

#: A silent leader must not use up all of the time: a new one is looked up between attempts.
LEADER_ATTEMPT_S = 5.0


class PartitionAdmin:
    """Partition administration of one client. Requests go to any node, and are repeated if that is safe.

    Arguments:
        limit_s: time limit of one call, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s
        self._timeout_ms = int(limit_s * 1000)

    async def elect_leaders(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, QuorumlogError | None]:
        """Moves partitions (None: all) to their preferred leaders.

        Returns:
            For each of them None once its preferred leader leads, otherwise the error.
        """
        if partitions is None:
            return await self._elect(admin_pb2.ElectLeadersRequest(timeout_ms=self._timeout_ms))
        ids = await topic_ids_of(self._cluster, (tp.topic for tp in partitions), self._limit_s)
        outcomes: dict[TopicPartition, QuorumlogError | None] = {}
        for part in in_parts(partitions):
            request = admin_pb2.ElectLeadersRequest(timeout_ms=self._timeout_ms)
            for topic, partition in part:
                request.partitions.add(topic=topic, partition=partition, topic_id=ids[topic])
            outcomes |= await self._elect(request)
        return outcomes

    async def _elect(self, request: admin_pb2.ElectLeadersRequest) -> dict[TopicPartition, QuorumlogError | None]:
        async def attempt() -> admin_pb2.ElectLeadersResponse:
            node = await one_node(self._cluster)
            return await node.call(node.admin.ElectLeaders(request, timeout=self._limit_s))

        response = await self._cluster.retrying(attempt, self._limit_s, "elect_leaders")
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return {
            TopicPartition(result.topic, result.partition): error_from_proto(result.error)
            if result.HasField("error")
            else None
            for result in response.results
        }

    # --- moves of replicas ---------------------------------------------------------------------------------------

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], throttle: int, *, validate_only: bool
    ) -> None:
        """Requests moves of partitions (None: cancel the move), until each was accepted.

        Raises:
            QuorumlogError: the first that was refused; others may have been accepted.
        """
        wishes = {tp: _replicas(tp, nodes) for tp, nodes in wanted.items()}
        ids = await topic_ids_of(self._cluster, (tp.topic for tp in wishes), self._limit_s)

        async def ask(node: NodeConnection, part: list[TopicPartition]) -> list[tuple[TopicPartition, ItemResult]]:
            request = admin_pb2.ReassignPartitionsRequest(
                timeout_ms=self._timeout_ms, validate_only=validate_only, bytes_per_second=throttle
            )
            for tp in part:
                request.reassignments.add(
                    topic=tp.topic, partition=tp.partition, replicas=wishes[tp], topic_id=ids[tp.topic]
                )
            response = await node.call(node.admin.ReassignPartitions(request, timeout=self._limit_s))
            return [(TopicPartition(result.topic, result.partition), result) for result in response.results]

        def is_cancelled(tp: TopicPartition, refusal: QuorumlogError) -> bool:
            return isinstance(refusal, ReassignmentInProgressError) and not wishes[tp]

        what = "reassign_partitions"
        await change_each(self._cluster, wishes, ask, is_cancelled, self._limit_s, what, most=MAX_CHANGE_TARGETS)

    async def reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the partitions that are being moved now."""
        request = admin_pb2.ListReassignmentsRequest(timeout_ms=self._timeout_ms)

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.ListReassignments(request, timeout=limit)
            )
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return {
                TopicPartition(each.topic, each.partition): PartitionReassignment(
                    tuple(each.replicas), tuple(each.adding), tuple(each.removing), each.bytes_per_second
                )
                for each in response.reassignments
            }

        return await self._cluster.retrying(attempt, self._limit_s, "list_partition_reassignments")

    async def rebalance(self, most_moves: int, throttle: int, *, validate_only: bool) -> RebalancePlan:
        """Starts to balance replicas and leaderships; a repeated request finds less to do."""
        request = admin_pb2.RebalancePartitionsRequest(
            most_moves=most_moves, bytes_per_second=throttle, validate_only=validate_only, timeout_ms=self._timeout_ms
        )

        async def ask() -> RebalancePlan:
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.RebalancePartitions(request, timeout=limit)
            )
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return RebalancePlan(
                planned_moves(response.moves),
                tuple(
                    NodeLoad(
                        each.node_id, each.replicas, each.leaders, each.size_bytes,
                        each.replicas_after, each.leaders_after, each.size_bytes_after,
                    )
                    for each in response.loads
                ),
                response.all_bytes,
            )  # fmt: skip

        return await self._cluster.retrying(ask, self._limit_s, "rebalance_partitions")

    # --- deletion of records -------------------------------------------------------------------------------------

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the records before an offset in each partition (-1: all), and returns the new log starts.

        Requests go to the leader of each partition, and follow a leadership that moves.

        Raises:
            QuorumlogError: the first that failed; others may have succeeded.
        """
        ids = await require_topic_ids(self._cluster, (tp.topic for tp in before), self._limit_s)
        await self._cluster.require_partitions(before, self._limit_s)
        starts: dict[TopicPartition, int] = {}
        attempt_s = min(self._limit_s, LEADER_ATTEMPT_S)

        async def ask(node: NodeConnection, part: list[TopicPartition]) -> Sequence[admin_pb2.DeleteRecordsResult]:
            request = admin_pb2.DeleteRecordsRequest(timeout_ms=int(attempt_s * 1000))
            for tp in part:
                request.partitions.add(topic_id=ids[tp.topic], partition=tp.partition, before_offset=before[tp])
            response = await node.call(node.admin.DeleteRecords(request, timeout=attempt_s + 1))
            return response.results

        def take_start(tp: TopicPartition, result: admin_pb2.DeleteRecordsResult) -> None:
            starts[tp] = result.log_start_offset

        uncertain = False

        async def attempt() -> None:
            nonlocal uncertain
            try:
                await ask_leaders(self._cluster, before.keys() - starts.keys(), ask, take_start)
            except QuorumlogError as error:
                uncertain |= not error.definite
                raise

        try:
            await self._cluster.retrying(attempt, self._limit_s, "the deletion of records")
        except (
            QuorumlogError
        ) as error:  # The topic may be deleted by now, and an earlier attempt may have taken effect.
            raise (error.as_indefinite() if uncertain else error) from None
        return {tp: starts[tp] for tp in before}


def _replicas(tp: TopicPartition, nodes: Sequence[int] | None) -> tuple[int, ...]:
    if nodes is None:
        return ()
    if isinstance(nodes, str) or not nodes or not all(type(node) is int and 0 <= node < 2**31 for node in nodes):
        raise IllegalArgumentError(
            f"{tp.topic}-{tp.partition} cannot be moved to {nodes!r}: give a list of node ids, or None to cancel"
        )
    return tuple(nodes)
