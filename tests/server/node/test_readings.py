"""Topic counters of a node, as its replicas leave and topics are deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.node.readings import PartitionReadings
from quorumlog.v1 import metadata_log_pb2 as log

COUNTERS = ("topic_appended_bytes", "topic_appended_records", "topic_read_bytes")


def replica(topic: str, appended_bytes: int, appended_records: int, read_bytes: int) -> Any:
    """Returns a replica that has counted something, and no longer leads."""
    return SimpleNamespace(
        identity=SimpleNamespace(topic=topic),
        group=0,
        leads=False,
        appended_bytes=appended_bytes,
        appended_records=appended_records,
        read_bytes=read_bytes,
    )


def image_with(*topics: str) -> MetadataImage:
    image = MetadataImage()
    for number, name in enumerate(topics):
        body = log.CreateTopic(name=name, topic_id=bytes([number + 1]) * 16, partitions=[log.ReplicaSet(replicas=[1])])
        image.apply(image.applied_index + 1, log.MetadataCommand(create_topic=body))
    return image


def test_topic_counters_never_decrease() -> None:
    """Topic counters keep the counts of replicas that leave the node."""
    replicas = {
        1: replica("t", 100, 10, 7),
        2: replica("t", 20, 2, 5),
        3: replica("t", 3, 1, 1),
        4: replica("u", 9, 9, 9),
    }
    readings = PartitionReadings(
        1, cast(Any, SimpleNamespace(led=lambda: [])), cast(Any, SimpleNamespace(logs=replicas)), cast(Any, None)
    )
    image = image_with("t", "u")

    def counted(topic: str) -> tuple[object, ...]:
        taken = cast(dict[str, dict[tuple[str], int]], readings.take(image))
        return tuple(taken[name][(topic,)] for name in COUNTERS)

    for group in (1, 2, 3):
        assert (counted("t"), counted("u")) == ((123, 13, 13), (9, 9, 9))
        readings.replica_ended(replicas.pop(group))
    assert (counted("t"), counted("u")) == ((123, 13, 13), (9, 9, 9))
    replicas[5] = replica("t", 1, 1, 1)
    assert counted("t") == (124, 14, 14), "one that returns counts from zero"
    readings.replica_ended(replicas.pop(5))
    assert counted("t") == (124, 14, 14)


def test_a_deleted_topic_is_forgotten() -> None:
    """The counters of a deleted topic are dropped: a new topic of the same name starts from zero."""
    replicas = {1: replica("t", 100, 10, 7)}
    readings = PartitionReadings(
        1, cast(Any, SimpleNamespace(led=lambda: [])), cast(Any, SimpleNamespace(logs=replicas)), cast(Any, None)
    )
    readings.replica_ended(replicas.pop(1))
    assert readings.take(image_with("u"))["topic_appended_bytes"] == {}
    replicas[2] = replica("t", 1, 1, 1)
    assert readings.take(image_with("t"))["topic_appended_bytes"] == {("t",): 1}
