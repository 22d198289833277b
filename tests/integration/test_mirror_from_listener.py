"""``quorumlog mirror`` from a cluster of this project: its listener for Kafka's clients is a source like any other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0


def run_mirror(source: LocalCluster, target: LocalCluster, *options: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [
        Path(sys.executable).with_name("quorumlog"),
        "mirror",
        "--bootstrap-servers",
        target.bootstrap_servers,
    ]
    command += ["--from", f"kafka://{source.kafka_bootstrap_servers}", "--output", "json"]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)


def mirror(source: LocalCluster, target: LocalCluster) -> dict[str, int]:
    done = run_mirror(source, target)
    assert done.returncode == 0, done.stderr
    reported: dict[str, int] = json.loads(done.stdout)
    return reported


def records(cluster: LocalCluster, topic: str, count: int) -> list[tuple[object, object]]:
    """So many of partition 0, as our own consumer reads them."""
    consumer = quorumlog.Consumer(bootstrap_servers=cluster.bootstrap_servers)
    try:
        place = quorumlog.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[tuple[object, object]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=200).values():
                found += [(each.key, each.value) for each in batch]
        return found
    finally:
        consumer.close()


def test_topics_records_and_groups_are_copied_once_and_the_same_command_goes_on() -> None:
    with LocalCluster(nodes=1, kafka=True) as source, LocalCluster(nodes=1) as target:
        servers = {"bootstrap.servers": source.kafka_bootstrap_servers, "log_level": 0}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(DEADLINE_S)
        theirs = Producer({**servers, "compression.type": "lz4"})
        for number in range(100):
            theirs.produce("orders", b"theirs %d" % number, b"key")
        assert theirs.flush(DEADLINE_S) == 0
        member = Consumer({**servers, "group.id": "readers"})
        member.commit(offsets=[TopicPartition("orders", 0, 60)], asynchronous=False)
        member.close()
        expected: list[tuple[object, object]] = [(b"key", b"theirs %d" % number) for number in range(100)]

        reported = mirror(source, target)
        assert (reported["records"], reported["groups"]) == (100, 1)
        assert records(target, "orders", 100) == expected

        with quorumlog.Producer(bootstrap_servers=source.bootstrap_servers) as ours:
            for number in range(10):
                ours.send("orders", b"ours %d" % number, key=b"key")
        expected += [(b"key", b"ours %d" % number) for number in range(10)]
        assert mirror(source, target)["records"] == 10
        assert records(target, "orders", 110) == expected

        # A mistaken command leaves the name to the mirror that has it.
        mistaken = run_mirror(source, target, "--rename", "*=copy.*")
        assert mistaken.returncode != 0
        assert "give another --name" in mistaken.stderr
        assert mirror(source, target)["records"] == 0
