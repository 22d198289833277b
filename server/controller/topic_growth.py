"""What the controller checks before a topic gains partitions, and where their replicas go."""

from __future__ import annotations

from collections.abc import Sequence

from quorumlog.server.controller.placement import place
from quorumlog.server.controller.replica_assignment import (
    Placement,
    TopicLimits,
    candidates,
    check_assignments,
    check_room,
)
from quorumlog.server.controller.topic_creation import check_partitions
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import Topic
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


def plan_partitions(
    image: MetadataImage,
    under_way: Sequence[Placement],
    topic: Topic,
    wanted: admin_pb2.NewPartitions,
    limits: TopicLimits,
) -> metadata_log_pb2.AddPartitions | errors_pb2.Error:
    """The command that adds partitions to a topic, or why there cannot be so many.

    Arguments:
        under_way: replicas that are proposed and not yet applied; they count as load.
    """
    present = len(topic.partitions)
    more = wanted.total_count - present
    if more <= 0:
        return error(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {present} partitions, {wanted.total_count} are asked for: it can only gain some",
        )
    factor = len(topic.partitions[0].replicas)
    refused = check_partitions(wanted.total_count, limits)
    if refused is None and wanted.replica_assignments:
        placement = [tuple(assignment.replicas) for assignment in wanted.replica_assignments]
        refused = _check_count(len(placement), more) or check_assignments(image, placement, factor, present)
    elif refused is None:
        nodes = candidates(image, under_way)
        if len(nodes) < factor:
            return error(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"topic {topic.name} has replication factor {factor}, and {len(nodes)} nodes are alive: start more",
            )
        placement = place(more, factor, nodes)
    refused = refused or check_room(image, under_way, placement, limits)
    if refused is not None:
        return refused
    return metadata_log_pb2.AddPartitions(
        topic_id=topic.topic_id,
        first_number=present,
        partitions=[metadata_log_pb2.ReplicaSet(replicas=replicas) for replicas in placement],
    )


def _check_count(assigned: int, more: int) -> errors_pb2.Error | None:
    if assigned == more:
        return None
    return error(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{more} partitions are to be added, and replicas are assigned to {assigned}: assign all of them, or none",
    )
