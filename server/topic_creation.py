"""What the controller checks before a topic comes to be, and where its replicas go."""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from quorumlog.server.metadata_image import MetadataImage
from quorumlog.server.placement import Candidate, place
from quorumlog.server.topic_config import InvalidTopicConfigError, check_against_replication, parse_topic_config
from quorumlog.server.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: As in Kafka: the name becomes a file name in many tools.
MAX_NAME_CHARACTERS = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


@dataclass(slots=True, frozen=True)
class TopicLimits:
    """Bounds on what one cluster and one request may ask for.

    Arguments:
        request_topics: topics in one request.
        topic_partitions: partitions of one topic. All of them come to be in one step of a node, which must not take as
            long as an election timeout.
        node_replicas: replicas on one node. Each is a Raft group with its memory, its share of every failover, and its
            own heartbeat: at this bound those take more than half a core.
    """

    request_topics: int = 100
    topic_partitions: int = 2_000
    node_replicas: int = 3_000


def plan_topic(
    image: MetadataImage,
    pending: Iterable[metadata_log_pb2.CreateTopic],
    topic: admin_pb2.NewTopic,
    rng: random.Random,
    limits: TopicLimits,
) -> metadata_log_pb2.CreateTopic | errors_pb2.Error:
    """The command that creates a topic, or why there cannot be one.

    Arguments:
        pending: creations that are proposed and not yet applied; their replicas count as load.
    """
    refused = (
        _check_name(topic.name) or image.check_new_topic(topic.name) or _check_partitions(topic.num_partitions, limits)
    )
    if refused is not None:
        return refused
    refused = _check_factor(image, topic.replication_factor) or _check_configs(topic)
    if refused is not None:
        return refused
    placement = place(topic.num_partitions, topic.replication_factor, _candidates(image, pending))
    refused = _check_room(image, pending, placement, limits)
    if refused is not None:
        return refused
    return metadata_log_pb2.CreateTopic(
        name=topic.name,
        topic_id=_new_topic_id(image, rng),
        configs={name: value.strip() for name, value in topic.configs.items()},
        partitions=[metadata_log_pb2.ReplicaSet(replicas=replicas) for replicas in placement],
    )


def _check_name(name: str) -> errors_pb2.Error | None:
    shown = ascii(name[:80])
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        problem = f"topic name {shown} has {len(name)} characters: 1 to {MAX_NAME_CHARACTERS} are allowed"
    elif name in (".", ".."):
        problem = f"topic name {shown} is not allowed: '.' and '..' are not names"
    elif not _NAME.match(name):
        problem = f"topic name {shown} is not allowed: use only letters a-z A-Z, digits, '.', '_' and '-'"
    elif name.startswith("__"):
        problem = f"topic name {shown} is reserved: names that begin with '__' belong to the cluster itself"
    else:
        return None
    return error(ErrorCode.INVALID_TOPIC, problem)


def _check_partitions(partitions: int, limits: TopicLimits) -> errors_pb2.Error | None:
    if 1 <= partitions <= limits.topic_partitions:
        return None
    return error(
        ErrorCode.INVALID_PARTITIONS,
        f"a topic cannot have {partitions} partitions: 1 to {limits.topic_partitions} are allowed",
    )


def _check_factor(image: MetadataImage, factor: int) -> errors_pb2.Error | None:
    present = [broker for broker in image.brokers.values() if not broker.fenced]
    if factor < 1:
        problem = f"replication factor {factor} is not possible: use 3, or 1 where a loss does not matter"
    elif factor % 2 == 0:
        problem = (
            f"replication factor {factor} is refused: an even number of replicas needs a witness, which this version"
            f" does not have; use {factor + 1} (or {factor - 1})"
        )
    elif factor > len(present):
        problem = (
            f"replication factor {factor} needs {factor} nodes alive, and {len(present)} of the {len(image.brokers)}"
            " registered are: start more nodes or use a smaller factor"
        )
    else:
        return None
    return error(ErrorCode.INVALID_REPLICATION_FACTOR, problem)


def _check_configs(topic: admin_pb2.NewTopic) -> errors_pb2.Error | None:
    try:
        check_against_replication(parse_topic_config(topic.configs), topic.replication_factor)
    except InvalidTopicConfigError as problem:
        return error(ErrorCode.INVALID_CONFIG, str(problem))
    return None


def _load(image: MetadataImage, pending: Iterable[metadata_log_pb2.CreateTopic]) -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaders per node, those of topics under way included."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    sets: list[Iterable[int]] = [partition.replicas for partition in image.partitions.values()]
    sets.extend(replica_set.replicas for command in pending for replica_set in command.partitions)
    for nodes in sets:
        members = tuple(nodes)
        replicas.update(members)
        leaders[members[0]] += 1
    return replicas, leaders


def _candidates(image: MetadataImage, pending: Iterable[metadata_log_pb2.CreateTopic]) -> list[Candidate]:
    replicas, leaders = _load(image, pending)
    return [
        Candidate(node_id, broker.rack, replicas[node_id], leaders[node_id])
        for node_id, broker in sorted(image.brokers.items())
        if not broker.fenced
    ]


def _check_room(
    image: MetadataImage,
    pending: Iterable[metadata_log_pb2.CreateTopic],
    placement: list[tuple[int, ...]],
    limits: TopicLimits,
) -> errors_pb2.Error | None:
    present, _ = _load(image, pending)
    wanted = Counter(node for replicas in placement for node in replicas)
    for node, more in sorted(wanted.items()):
        if present[node] + more > limits.node_replicas:
            return error(
                ErrorCode.INVALID_PARTITIONS,
                f"node {node} would hold {present[node] + more} replicas, at most {limits.node_replicas} are allowed:"
                " use fewer partitions or add nodes",
            )
    return None


def _new_topic_id(image: MetadataImage, rng: random.Random) -> bytes:
    while True:
        topic_id = uuid.UUID(int=rng.getrandbits(128), version=4).bytes
        if topic_id not in image.topics_by_id:
            return topic_id
