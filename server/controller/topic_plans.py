"""Checks before a topic is created or gains partitions, and the placement of its replicas."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence

from quorumlog.server.controller.feature_levels import refuse_below, refuse_below_second
from quorumlog.server.controller.placement import count_machines, place
from quorumlog.server.controller.replica_assignment import (
    Placement,
    TopicLimits,
    candidates,
    check_assignments,
    check_room,
    nodes_apart,
    refuse_minority,
    registered_nodes,
    witness_candidates,
)
from quorumlog.server.controller.witness_placement import replica_sets, too_few_nodes, voters_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import NO_TOPIC_ID, THIRD_FEATURE_LEVEL, Topic
from quorumlog.server.metadata.topic_config import (
    InvalidTopicConfigError,
    check_consistency,
    checked_configs,
    needs_third_level,
    parse_topic_config,
)
from quorumlog.server.metadata.topic_table import refuse_spelling
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import is_reserved


def plan_topic(
    image: MetadataImage,
    under_way: Sequence[Placement],
    topic: admin_pb2.NewTopic,
    rng: random.Random,
    limits: TopicLimits,
) -> metadata_log_pb2.CreateTopic | errors_pb2.Error:
    """Returns the command that creates a topic, or the error if it cannot be created.

    Arguments:
        under_way: replicas that are proposed and not yet applied; they count as load.
    """
    refused = _check_name(topic.name) or image.topic_table.check_new(topic.name) or _check_id(image, topic)
    if refused is not None:
        return refused
    placement = (
        _assigned(image, topic, limits) if topic.replica_assignments else _placed(image, under_way, topic, limits)
    )
    if isinstance(placement, errors_pb2.Error):
        return placement
    sets = replica_sets(image, under_way, placement)
    if isinstance(sets, errors_pb2.Error):
        return sets
    refused = (
        _check_configs(image, topic, len(placement[0]))
        or refuse_minority(image, voters_of(sets))
        or check_room(image, under_way, voters_of(sets), limits)
    )
    if refused is not None:
        return refused
    return metadata_log_pb2.CreateTopic(
        name=topic.name,
        topic_id=topic.topic_id or new_topic_id(image, rng),
        configs=_configs(topic),
        partitions=sets,
    )


def _check_id(image: MetadataImage, topic: admin_pb2.NewTopic) -> errors_pb2.Error | None:
    """Returns the error if a topic cannot have the id that a restore requests; None if it can."""
    if not topic.topic_id:
        return None
    if len(topic.topic_id) != len(NO_TOPIC_ID) or topic.topic_id == NO_TOPIC_ID:
        return error(ErrorCode.INVALID_REQUEST, f"the id of topic {topic.name} is not one of {len(NO_TOPIC_ID)} bytes")
    if topic.topic_id in image.topics_by_id:
        problem = f"topic {image.topics_by_id[topic.topic_id].name} already has the id requested for topic {topic.name}"
        return error(ErrorCode.TOPIC_ALREADY_EXISTS, problem)
    return refuse_below_second(image, "topics are restored with their ids")


def _assigned(image: MetadataImage, topic: admin_pb2.NewTopic, limits: TopicLimits) -> Placement | errors_pb2.Error:
    """Returns the replicas that the request assigns, or the error."""
    placement = [tuple(assignment.replicas) for assignment in topic.replica_assignments]
    for what, requested, assigned in (
        ("partitions", topic.num_partitions, len(placement)),
        ("replicas of each partition", topic.replication_factor, len(placement[0])),
    ):
        if requested not in (-1, assigned):
            return error(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{requested} {what} are requested, but {assigned} are assigned: omit the number or make it fit",
            )
    refused = check_partitions(len(placement), limits) or check_assignments(image, placement)
    if refused is None and len(placement[0]) % 2 == 0:
        refused = refuse_even_below_second(image)
    return refused or placement


def _placed(
    image: MetadataImage, under_way: Sequence[Placement], topic: admin_pb2.NewTopic, limits: TopicLimits
) -> Placement | errors_pb2.Error:
    """Returns the replicas that the controller places, or the error."""
    refused = check_partitions(topic.num_partitions, limits) or _check_factor(image, topic.replication_factor)
    if refused is not None:
        return refused
    nodes = candidates(image, under_way, topic.replication_factor)
    return place(topic.num_partitions, topic.replication_factor, nodes)


def plan_partitions(
    image: MetadataImage,
    under_way: Sequence[Placement],
    topic: Topic,
    wanted: admin_pb2.NewPartitions,
    limits: TopicLimits,
) -> metadata_log_pb2.AddPartitions | errors_pb2.Error:
    """Returns the command that adds partitions to a topic, or the error if there cannot be that many.

    Arguments:
        under_way: replicas that are proposed and not yet applied; they count as load.
    """
    first = len(topic.partitions)
    more = wanted.total_count - first
    if more <= 0:
        return error(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {first} partitions, {wanted.total_count} are requested: request more than it has",
        )
    factor = len(topic.partitions[0].replicas)
    refused = check_partitions(wanted.total_count, limits)
    if refused is None and wanted.replica_assignments:
        placement = [tuple(assignment.replicas) for assignment in wanted.replica_assignments]
        refused = _check_assigned(len(placement), more) or check_assignments(image, placement, factor, first)
    elif refused is None:
        nodes = candidates(image, under_way, factor)
        if count_machines(nodes) < factor:
            needed, present = nodes_apart(factor, nodes), registered_nodes(image, nodes, factor)
            problem = f"topic {topic.name} needs {needed}, its replication factor, and {present}: start more nodes"
            return error(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        placement = place(more, factor, nodes)
    if refused is not None:
        return refused
    sets = replica_sets(image, under_way, placement)
    if isinstance(sets, errors_pb2.Error):
        return sets
    voters = voters_of(sets)
    refused = refuse_minority(image, voters) or check_room(image, under_way, voters, limits)
    if refused is not None:
        return refused
    return metadata_log_pb2.AddPartitions(
        topic_id=topic.topic_id,
        first_number=first,
        partitions=sets,
    )


def _check_assigned(assigned: int, more: int) -> errors_pb2.Error | None:
    if assigned == more:
        return None
    return error(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{more} partitions are added, but replicas are assigned to {assigned}: assign all of them, or none",
    )


def _check_name(name: str) -> errors_pb2.Error | None:
    if is_reserved(name):
        problem = f"topic name {name!a} is reserved for the cluster itself and for Kafka's tools: choose another name"
        return error(ErrorCode.INVALID_TOPIC, problem)
    return refuse_spelling(name)


def check_partitions(partitions: int, limits: TopicLimits) -> errors_pb2.Error | None:
    """Returns the error if a topic cannot have that many partitions; None if it can."""
    if 1 <= partitions <= limits.topic_partitions:
        return None
    return error(
        ErrorCode.INVALID_PARTITIONS,
        f"a topic cannot have {partitions} partitions: 1 to {limits.topic_partitions} are allowed",
    )


def _check_factor(image: MetadataImage, factor: int) -> errors_pb2.Error | None:
    nodes = candidates(image, (), factor)
    if factor < 1:
        problem = f"replication factor {factor} is not possible: use 3, or 1 where a loss does not matter"
    elif factor % 2 == 0 and factor + 1 > count_machines(witness_candidates(image, ())):
        return too_few_nodes(image, factor)
    elif factor > count_machines(nodes):
        needed, present = nodes_apart(factor, nodes), registered_nodes(image, nodes, factor)
        problem = f"replication factor {factor} needs {needed}, and {present}: start more nodes or use a smaller factor"
    elif factor % 2 == 0:
        return refuse_even_below_second(image)
    else:
        return None
    return error(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def refuse_even_below_second(image: MetadataImage) -> errors_pb2.Error | None:
    """Returns the error if even numbers of replicas are not possible yet; None if they are."""
    return refuse_below_second(image, "even replication factors, which need a witness, are possible")


def _check_configs(image: MetadataImage, topic: admin_pb2.NewTopic, factor: int) -> errors_pb2.Error | None:
    try:
        configs = _configs(topic)
        check_consistency(parse_topic_config(configs), factor)
    except InvalidTopicConfigError as problem:
        return error(ErrorCode.INVALID_CONFIG, str(problem))
    return refuse_newer_configs(image, configs)


def refuse_newer_configs(image: MetadataImage, values: Mapping[str, str]) -> errors_pb2.Error | None:
    """Returns the error if older nodes would stop at the settings of a topic; None if every node can read them.

    Arguments:
        values: settings in normal form.
    """
    newer = needs_third_level(values)
    return refuse_below(image, THIRD_FEATURE_LEVEL, f"{newer} is possible") if newer else None


def _configs(topic: admin_pb2.NewTopic) -> dict[str, str]:
    # A backup of an older version has values as they were typed.
    return checked_configs(topic.configs, is_restored=bool(topic.topic_id))


def new_topic_id(image: MetadataImage, rng: random.Random) -> bytes:
    """Returns an id that no topic has."""
    while True:
        topic_id = uuid.UUID(int=rng.getrandbits(128), version=4).bytes
        if topic_id not in image.topics_by_id:
            return topic_id
