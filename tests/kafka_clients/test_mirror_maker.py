"""MirrorMaker 2, unchanged: it copies one cluster to another while nodes of both are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import AGAINST
from connect_worker import until
from frameworks import MIRROR_JARS
from test_frameworks import kill_leader, records_in, running

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.spark.java import find_java_home

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]

RECORDS, READ = 1_000, 200
TOPIC, COPY = "orders", "west.orders"


def properties(west: LocalCluster, east: LocalCluster) -> dict[str, str]:
    """The settings of MirrorMaker: from west to east, with offsets of groups."""
    return {
        "clusters": "west, east",
        "west.bootstrap.servers": west.kafka_bootstrap_servers,
        "east.bootstrap.servers": east.kafka_bootstrap_servers,
        "west->east.enabled": "true",
        "east->west.enabled": "false",
        "west->east.topics": TOPIC,
        "west->east.groups": "billing",
        "replication.factor": "3",
        "checkpoints.topic.replication.factor": "3",
        "heartbeats.topic.replication.factor": "3",
        "offset-syncs.topic.replication.factor": "3",
        "offset.storage.replication.factor": "3",
        "status.storage.replication.factor": "3",
        "config.storage.replication.factor": "3",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "2",
        "offset.lag.max": "0",
        "dedicated.mode.enable.internal.rest": "false",
    }


def send(cluster: LocalCluster, first: int, end: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(first, end):
            producer.send(TOPIC, b"%d" % number, key=b"%d" % (number % 7))


def read_and_commit(cluster: LocalCluster) -> dict[TopicPartition, int]:
    """A group reads some records and commits; returns its positions."""
    with Consumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=READ,
    ) as consumer:
        until(lambda: bool(consumer.poll(timeout_ms=500)), "records of the group")
        consumer.commit()
        return {each: consumer.position(each) for each in consumer.assignment()}


def committed(cluster: LocalCluster, topic: str) -> dict[int, int]:
    """The offsets of the group ``billing``, by partition."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets("billing")
    return {place.partition: at.offset for place, at in offsets.items() if place.topic == topic}


def test_mirror_maker_copies_through_kills(tmp_path: Path) -> None:
    """Every record is copied, once unless a fault made MirrorMaker repeat it, and the group's offsets follow."""
    if MIRROR_JARS.missing():
        MIRROR_JARS.download()
    with LocalCluster(nodes=3, kafka=True) as west, LocalCluster(nodes=3, kafka=True) as east:
        with Admin(bootstrap_servers=west.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 3, 3)])
        send(west, 0, RECORDS // 2)
        read_and_commit(west)
        file = tmp_path / "mirror.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties(west, east).items()))
        java = [find_java_home() / "bin" / "java", "-Xmx512m", "-cp", f"{MIRROR_JARS.folder}/*"]
        with running("mirror-maker", [*java, "org.apache.kafka.connect.mirror.MirrorMaker", file]):
            until(lambda: len(values(east)) >= RECORDS // 2, "the first half is copied")
            kill_leader(west, TOPIC)
            kill_leader(east, COPY)
            send(west, RECORDS // 2, RECORDS)
            until(lambda: values(east) == set(range(RECORDS)), "the second half is copied")
            wanted = committed(west, TOPIC)
            until(lambda: committed(east, COPY) == wanted, f"the offsets of the group are {wanted}")
        repeated = len(records_in(east, COPY)) - RECORDS
        print(f"MirrorMaker 2 {MIRROR_JARS.version}: {RECORDS} records, {repeated} repeated, offsets {wanted}")


def values(cluster: LocalCluster) -> set[int]:
    return {int(value or b"") for _, value in records_in(cluster, COPY)}
