"""Partitions that are being moved to other nodes: a part of the metadata image, pure and the same on every node.

A move is wished for here, carried out by the partition's leader (`broker/reassignments.py`), and ends here when the
leader says so. Until then nobody destroys a replica: only the leader knows who votes by now.
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
    """The moves under way.

    Arguments:
        partitions: all there are, by group.
        index: of where they are, kept up to date.
    """

    def __init__(self, partitions: Mapping[int, PartitionRecord], index: ReplicaIndex) -> None:
        self._partitions = partitions
        self._index = index
        self._groups: set[int] = set()

    def restored(self) -> None:
        """The partitions come from a snapshot."""
        self._groups = {group for group, partition in self._partitions.items() if partition.is_moving}

    def groups(self) -> list[int]:
        """The groups that are being moved."""
        if not self._groups:
            return []
        # Those of topics that were deleted meanwhile are gone.
        self._groups.intersection_update(self._partitions)
        return sorted(self._groups)

    def reassign(self, command: metadata_log_pb2.ReassignReplicas) -> ApplyResult:
        """A partition is to have other replicas, or to stay where it was. The latest wish counts."""
        partition = self._partitions.get(command.group)
        wanted = tuple(command.replicas)
        witness = command.witness if command.HasField("witness") else NO_NODE
        problem = check_wish(partition, wanted, witness, goes_on=bool(command.returning))
        if partition is None or problem is not None:
            return ApplyResult(reassigned(partition, problem))
        if command.HasField("wishes") and command.wishes != partition.wishes:
            outdated = f"{partition.name} was wished elsewhere meanwhile: look again"
            return ApplyResult(reassigned(partition, error(ErrorCode.INVALID_UPDATE_VERSION, outdated)))
        # Some of these may vote by now, and only the leader knows.
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
        """Why a leader's word that a partition has moved does not hold, or None: a compare-and-set on the leader epoch
        and on the wish. (Not on where it is to be: a word that was long on its way would be taken for the end of a
        later wish for the same nodes, while the leader has others by then; they would be destroyed with a vote.)"""
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
        """A partition has moved: its replicas are where they were to be, and nowhere else."""
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
    """What a word says that is none of the wish under way: both may be for the same nodes."""
    nodes = list(partition.wanted)
    if not partition.is_moving:
        return f"{partition.name} is not being moved any more: it is on nodes {nodes}"
    late = f"wish {moved.wish} for {list(moved.replicas)}"
    return f"{partition.name} is being moved: its wish {partition.wishes} is for nodes {nodes}, not {late}"


def witness_after(partition: PartitionRecord, wanted: tuple[int, ...], witness: int) -> int:
    """Where a partition's witness is to be after a wish; NO_NODE: nowhere.

    Arguments:
        wanted: where its replicas are to be; none: the move under way is cancelled.
        witness: the wish for it; NO_NODE: where it is to be anyway.
    """
    if not wanted:
        return partition.witness
    if len(wanted) % 2:
        return NO_NODE
    return witness if witness != NO_NODE else partition.wanted_witness


def check_wish(
    partition: PartitionRecord | None, wanted: tuple[int, ...], witness: int = NO_NODE, *, goes_on: bool = False
) -> errors_pb2.Error | None:
    """Why a partition cannot be wished elsewhere, or None. No nodes: the move under way is cancelled.

    Arguments:
        goes_on: it only goes on with what is left until a lost disk is replaced: an even number needs no witness.
    """
    if partition is None:
        return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition has just been deleted")
    if not wanted and not partition.is_moving:
        problem = f"{partition.name} is not being moved: there is nothing to cancel"
        return error(ErrorCode.REASSIGNMENT_IN_PROGRESS, problem)
    return _check_kinds(partition, wanted, witness, goes_on)


def _check_kinds(
    partition: PartitionRecord, wanted: tuple[int, ...], witness: int, goes_on: bool
) -> errors_pb2.Error | None:
    """A witness has no records to go on with, and a replica would throw its own away: a node that is to be the other
    must have left the partition before."""
    after = witness_after(partition, wanted, witness)
    if wanted and len(wanted) % 2 == 0 and after == NO_NODE and not goes_on:
        problem = f"{partition.name} on {len(wanted)} nodes needs a witness on another node, and there is none"
        return error(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
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
    """The answer to one wish."""
    result = admin_pb2.ReassignmentResult(error=problem)
    if partition is not None:
        result.topic, result.partition = partition.topic.name, partition.number
    return peer_pb2.ControllerResponse(reassign_partitions=admin_pb2.ReassignPartitionsResponse(results=[result]))
