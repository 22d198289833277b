"""Partitions that are being moved to other nodes: a part of the metadata image, pure and identical on every node.

A move is requested here, carried out by the partition's leader (`broker/reassignments.py`), and finished here when the
leader reports it. No replica is destroyed before that: only the leader has the current voters.
"""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.records import ApplyResult, PartitionRecord
from quorumlog.server.metadata.replica_index import ReplicaIndex
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class PartitionMoves:
    """The moves in progress.

    Arguments:
        partitions: all partitions, by group.
        index: of the partitions on each node; kept up to date here.
    """

    def __init__(self, partitions: Mapping[int, PartitionRecord], index: ReplicaIndex) -> None:
        self._partitions = partitions
        self._index = index
        self._groups: set[int] = set()

    def restored(self) -> None:
        """Rebuilds the moves after the partitions were loaded from a snapshot."""
        self._groups = {group for group, partition in self._partitions.items() if partition.is_moving}

    def groups(self) -> list[int]:
        """Returns the groups that are being moved."""
        if not self._groups:
            return []
        # Groups of topics that were deleted in the meantime no longer exist.
        self._groups.intersection_update(self._partitions)
        return sorted(self._groups)

    def reassign(self, command: metadata_log_pb2.ReassignReplicas) -> ApplyResult:
        """Requests other replicas for a partition, or cancels the move. The latest request counts."""
        partition = self._partitions.get(command.group)
        wanted = tuple(command.replicas)
        witness = command.witness if command.HasField("witness") else NO_NODE
        problem = check_wish(partition, wanted, witness, goes_on=bool(command.returning))
        if partition is None or problem is not None:
            return ApplyResult(reassigned(partition, problem))
        if command.HasField("wishes") and command.wishes != partition.wishes:
            outdated = f"{partition.name} has been requested elsewhere in the meantime: read it again"
            return ApplyResult(reassigned(partition, error(ErrorCode.INVALID_UPDATE_VERSION, outdated)))
        # Some of these may vote by now; only the leader can tell.
        former = {*partition.former_targets, *partition.target}
        witnesses = partition.witness_hosts
        self._index.leave(partition)
        partition.wishes += 1
        partition.target_witness = witness_after(partition, wanted, witness)
        partition.target = wanted or partition.replicas
        partition.throttle = command.bytes_per_second
        if wanted:
            partition.returning = tuple(command.returning)
        elif set(partition.returning) <= set(partition.target):
            partition.returning = ()
        partition.former_targets = tuple(sorted(former - {*partition.replicas, *partition.target}))
        partition.former_witnesses = tuple(sorted(witnesses - {partition.witness, partition.target_witness}))
        self._index.enter(partition)
        self._groups.add(partition.group)
        return ApplyResult(reassigned(partition, None), changed_groups={partition.group})

    def check_moved(self, moved: peer_pb2.ReplicasMoved) -> errors_pb2.Error | None:
        """Returns the error for an invalid report that a partition has moved, or None.

        A compare-and-set on the leader epoch and the number of the request. The target nodes are not enough: a delayed
        report would be taken for the end of a later request for the same nodes, while the leader has different voters
        by then; they would be destroyed although they vote.
        """
        partition = self._partitions.get(moved.group)
        if partition is None:
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition with group {moved.group}")
        if (moved.node_id, moved.leader_epoch) != (partition.leader, partition.leader_epoch):
            return error(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"node {partition.leader} leads {partition.name} in epoch {partition.leader_epoch}, not node"
                f" {moved.node_id} in {moved.leader_epoch}",
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
            )
        witness = moved.witness if moved.HasField("witness") else NO_NODE
        there = tuple(moved.replicas) == partition.wanted and witness == partition.wanted_witness
        fulfilled = moved.wish == partition.wishes and there
        if partition.is_moving and fulfilled:
            return None
        return error(ErrorCode.INVALID_UPDATE_VERSION, _outdated(partition, moved))

    def finish(self, moved: peer_pb2.ReplicasMoved) -> ApplyResult:
        """Finishes a move: the target nodes become the partition's only replicas."""
        problem = self.check_moved(moved)
        result = ApplyResult(peer_pb2.ControllerResponse(partition_changes=peer_pb2.PartitionChangesResponse()))
        partition = self._partitions.get(moved.group)
        if partition is not None and problem is None:
            self._index.leave(partition)
            partition.replicas, partition.witness = partition.wanted, partition.wanted_witness
            partition.target = partition.former_targets = partition.former_witnesses = ()
            partition.target_witness = NO_NODE
            partition.throttle = 0
            self._index.enter(partition)
            partition.isr = partition.ordered(partition.isr)
            partition.moved_index = max(partition.moved_index, moved.log_index)
            partition.partition_epoch += 1
            self._groups.discard(partition.group)
            result.changed_groups.add(partition.group)
        epoch = partition.partition_epoch if partition is not None else 0
        result.response.partition_changes.results.add(group=moved.group, error=problem, partition_epoch=epoch)
        return result


def _outdated(partition: PartitionRecord, moved: peer_pb2.ReplicasMoved) -> str:
    """Describes the mismatch between a report and the request in progress; both may be for the same nodes."""
    nodes = list(partition.wanted)
    if not partition.is_moving:
        return f"{partition.name} is no longer being moved: it is on nodes {nodes}"
    late = f"request {moved.wish} for {list(moved.replicas)}"
    return f"{partition.name} is being moved: its request {partition.wishes} is for nodes {nodes}, not {late}"


def witness_after(partition: PartitionRecord, wanted: tuple[int, ...], witness: int) -> int:
    """Returns the node of a partition's witness after a request; NO_NODE: no witness.

    Arguments:
        wanted: the requested replicas; empty: the move in progress is cancelled.
        witness: the requested witness; NO_NODE: no change.
    """
    if not wanted:
        return partition.witness
    if len(wanted) % 2:
        return NO_NODE
    return witness if witness != NO_NODE else partition.wanted_witness


def check_wish(
    partition: PartitionRecord | None, wanted: tuple[int, ...], witness: int = NO_NODE, *, goes_on: bool = False
) -> errors_pb2.Error | None:
    """Returns the error for an invalid request to move a partition, or None. No nodes: the move in progress is
    cancelled.

    Arguments:
        goes_on: the partition only continues with the remaining replicas until a lost disk is replaced, so an even
            number needs no witness.
    """
    if partition is None:
        return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition has just been deleted")
    if not wanted and not partition.is_moving:
        problem = f"{partition.name} is not being moved: there is nothing to cancel"
        return error(ErrorCode.REASSIGNMENT_IN_PROGRESS, problem)
    return _check_kinds(partition, wanted, witness, goes_on)


def refuse_without_witness(partition: PartitionRecord, wanted: tuple[int, ...]) -> errors_pb2.Error:
    """Returns the error for a request for an even number of replicas if no node can have the witness."""
    problem = f"{partition.name} on {len(wanted)} nodes needs a witness on another node, and no node is available"
    return error(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _check_kinds(
    partition: PartitionRecord, wanted: tuple[int, ...], witness: int, goes_on: bool
) -> errors_pb2.Error | None:
    """Rejects a node that would have both kinds.

    A witness has no records to continue with, and a replica would discard its own: a node that changes from one to the
    other must have left the partition before.
    """
    after = witness_after(partition, wanted, witness)
    if wanted and len(wanted) % 2 == 0 and after == NO_NODE and not goes_on:
        return refuse_without_witness(partition, wanted)
    witnesses = partition.witness_hosts | ({after} - {NO_NODE})
    replicas = {*partition.replicas, *partition.target, *partition.former_targets, *wanted}
    both = sorted(witnesses & replicas)
    if not both:
        return None
    problem = (
        f"{partition.name}: node {both[0]} would have its witness and a replica, and neither becomes the other:"
        " name other nodes"
    )
    return error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def reassigned(partition: PartitionRecord | None, problem: errors_pb2.Error | None) -> peer_pb2.ControllerResponse:
    """Returns the response to one request."""
    result = admin_pb2.ReassignmentResult(error=problem)
    if partition is not None:
        result.topic, result.partition = partition.topic.name, partition.number
    return peer_pb2.ControllerResponse(reassign_partitions=admin_pb2.ReassignPartitionsResponse(results=[result]))
