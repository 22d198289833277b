"""Creation of coordinators: the internal topic whose partitions they are.

It is created once, when a client first looks for a coordinator. Before that every voter of the metadata quorum must
have registered: the number of replicas never changes afterwards, and a group whose coordinator has one replica because
two nodes started late would be lost with that node.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from quorumlog.server.controller.placement import count_machines, place
from quorumlog.server.controller.replica_assignment import (
    Placement,
    TopicLimits,
    candidates,
    check_room,
    refuse_minority,
)
from quorumlog.server.controller.topic_plans import check_partitions, new_topic_id
from quorumlog.server.controller.witness_placement import replica_sets, voters_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL, THIRD_FEATURE_LEVEL
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC, TRANSACTIONS_TOPIC

#: Replicas of a coordinator if there are enough nodes for them.
REPLICAS = 3


@dataclass(slots=True, frozen=True)
class CoordinatorPlan:
    """Number of coordinators of one kind in a cluster, and of their replicas.

    Arguments:
        coordinators: partitions of the internal topic.
        factor: replicas of each; 0 means three in a cluster of three nodes and more, otherwise one.
        topic: the internal topic.
    """

    coordinators: int = 16
    factor: int = 0
    topic: str = GROUPS_TOPIC

    def of(self, topic: str) -> CoordinatorPlan:
        """Returns the plan for coordinators of another kind: as many, with as many replicas."""
        return replace(self, topic=topic or GROUPS_TOPIC)


def plan_coordinators(
    image: MetadataImage,
    under_way: Sequence[Placement],
    plan: CoordinatorPlan,
    voters: Collection[int],
    rng: random.Random,
    limits: TopicLimits,
) -> metadata_log_pb2.CreateTopic | errors_pb2.Error:
    """Returns the command that creates the coordinators, or the error if they cannot be created, or not yet.

    Arguments:
        under_way: replicas that are proposed and not yet applied; they count as load.
        voters: current voters of the metadata quorum.
    """
    if plan.topic == TRANSACTIONS_TOPIC and image.feature_level < THIRD_FEATURE_LEVEL:
        # An older node would take such a partition for one of records.
        return _not_yet(plan, f"they need feature level {THIRD_FEATURE_LEVEL}")
    registered = len(image.brokers)
    factor = plan.factor or _usual_factor(image, voters)
    needed = max(len(voters), factor)
    if registered < needed:
        return _not_yet(plan, f"{registered} of {needed} nodes have registered")
    # They are placed permanently, so nodes that are being drained must be used if the others are too few.
    nodes = candidates(image, under_way, factor, drained=True)
    if count_machines(nodes) < factor:
        able = f"{len(nodes)} nodes" if count_machines(nodes) == len(nodes) else f"{count_machines(nodes)} machines"
        return _not_yet(plan, f"{able} can have one, and each coordinator needs {factor} replicas")
    refused = check_partitions(plan.coordinators, limits) or image.topic_table.check_new(plan.topic)
    if refused is not None:
        return refused
    if factor % 2 == 0 and image.feature_level < SECOND_FEATURE_LEVEL:
        return _not_yet(
            plan, f"{factor} replicas need a witness, and a witness needs feature level {SECOND_FEATURE_LEVEL}"
        )
    sets = replica_sets(image, under_way, place(plan.coordinators, factor, nodes))
    if isinstance(sets, errors_pb2.Error):
        return _not_yet(plan, f"{factor} replicas need a witness on another node")
    minority = refuse_minority(image, voters_of(sets))
    if minority is not None:
        return _not_yet(plan, minority.message)
    refused = check_room(image, under_way, voters_of(sets), limits)
    if refused is not None:
        return refused
    return metadata_log_pb2.CreateTopic(
        name=plan.topic,
        topic_id=new_topic_id(image, rng),
        partitions=sets,
    )


def _usual_factor(image: MetadataImage, voters: Collection[int]) -> int:
    """Returns three if there are enough machines; two, and a witness, if one of three accepts witnesses only. A voter
    that has not registered counts as a machine: it must be waited for, and may be one."""
    brokers = image.brokers.values()
    absent = sum(node not in image.brokers for node in voters)
    if absent + len({broker.machine for broker in brokers}) < REPLICAS:
        return 1
    return max(1, min(REPLICAS, absent + len({broker.machine for broker in brokers if not broker.witness_only})))


def _not_yet(plan: CoordinatorPlan, why: str) -> errors_pb2.Error:
    kept = plan.topic.removeprefix("__")
    return error(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinators of {kept} cannot be created yet: {why}; try again"
    )
