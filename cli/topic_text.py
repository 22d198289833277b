"""Topics in the format of ``kafka-topics --describe``, so that habits and scripts carry over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from quorumlog.cli.rendering import node_list

if TYPE_CHECKING:
    from quorumlog.sdk import PartitionDescription, TopicDescription

    PartitionFilter = Callable[[TopicDescription, PartitionDescription], bool]


def topic_lines(topic: TopicDescription) -> Iterator[str]:
    """Yields one line for the topic and one for each partition, separated by tabs like Kafka's."""
    configs = ",".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
    yield "\t".join(
        (
            f"Topic: {topic.name}",
            f"TopicId: {topic.topic_id}",
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {replication_factor(topic)}",
            f"Configs: {configs}",
        )
    )
    for partition in topic.partitions:
        yield partition_line(topic, partition)


def partition_line(topic: TopicDescription, partition: PartitionDescription) -> str:
    """Formats one partition as a line; ``Leader: none`` without one."""
    leader = "none" if partition.leader is None else partition.leader
    return "\t".join(
        (
            "",
            f"Topic: {topic.name}",
            f"Partition: {partition.partition}",
            f"Leader: {leader}",
            f"Replicas: {node_list(partition.replicas)}",
            f"Isr: {node_list(partition.isr)}",
            *(() if partition.witness is None else (f"Witness: {partition.witness}",)),
        )
    )


def topic_json(topic: TopicDescription) -> dict[str, object]:
    """Returns a topic for JSON output."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "replication_factor": replication_factor(topic),
        "configs": dict(topic.configs),
        "partitions": [partition_json(partition) for partition in topic.partitions],
    }


def partition_json(partition: PartitionDescription) -> dict[str, object]:
    """Returns a partition for JSON output."""
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "witness": partition.witness,
        "partition_epoch": partition.partition_epoch,
        "group": partition.group_id,
    }


def replication_factor(topic: TopicDescription) -> int:
    """Returns the number of replicas per partition."""
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def is_under_replicated(_topic: TopicDescription, partition: PartitionDescription) -> bool:
    """True if a replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)


def shares_machine(
    machines: Mapping[int, str | None], _topic: TopicDescription, partition: PartitionDescription
) -> bool:
    """True if two replicas, or one and the witness, are on the same machine.

    Arguments:
        machines: the machine of each node; None: it is a machine of its own.
    """
    nodes = [*partition.replicas, *([] if partition.witness is None else [partition.witness])]
    return len({machines.get(node) or node for node in nodes}) < len(nodes)


def is_under_min_isr(topic: TopicDescription, partition: PartitionDescription) -> bool:
    """True if fewer replicas are in sync than acks=all needs: min.insync.replicas, and always a majority of the
    replicas, or half of them beside a witness.
    """
    data_quorum = (
        (len(partition.replicas) + 1) // 2 if partition.witness is not None else len(partition.replicas) // 2 + 1
    )
    return len(partition.isr) < max(int(topic.configs.get("min.insync.replicas", "1")), data_quorum)


def is_unavailable(_topic: TopicDescription, partition: PartitionDescription) -> bool:
    """True if the partition has no leader."""
    return partition.leader is None
