"""Java's consumer with ``group.protocol=consumer``: a group of its own, and one with a member by our own client."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from child_process import ChildProcess
from conftest import AGAINST, Servers
from exchange import Line
from matrix_clients import CLIENTS, MatrixClient

from quorumlog.sdk import Admin, Consumer, NewTopic

PARTITIONS, RECORDS = 4, 400
DONE_WITHIN_S = 90
JAVA = next(client for client in CLIENTS if client.name.startswith("Java 4"))

pytestmark = pytest.mark.skipif(AGAINST != "quorumlog", reason="our own client is in the group")


def written(servers: Servers, topic: str) -> None:
    with Admin(bootstrap_servers=servers.own) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
    now_ms = int(time.time() * 1000)  # Older records fall to retention.
    lines = [Line(number % PARTITIONS, -1, now_ms, b"k", b"%d" % number, []) for number in range(RECORDS)]
    JAVA.write(servers.kafka, topic, "none", lines)


def command(client: MatrixClient, *arguments: str) -> Sequence[str | Path]:
    return [*map(str, client.command()), *arguments]


def test_java_alone_and_beside_our_own_member(servers: Servers) -> None:
    topic, group = "consumer-protocol", "java-and-ours"
    written(servers, topic)
    read = command(JAVA, "read", servers.kafka, topic, "java-alone", str(RECORDS), "consumer")
    alone = subprocess.run(read, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=True)
    assert len(alone.stdout.splitlines()) == RECORDS
    ours: list[int] = []
    with Consumer(topic, bootstrap_servers=servers.own, group_id=group, enable_auto_commit=False) as consumer:
        while len(consumer.assignment()) < PARTITIONS:
            consumer.poll(timeout_ms=50, max_records=1)
        consumer.pause(*consumer.assignment())
        share = command(JAVA, "read", servers.kafka, topic, group, str(RECORDS // 2), "consumer")
        with ChildProcess(share, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as java:
            while java.poll() is None:
                consumer.poll(timeout_ms=50)
                ours.append(len(consumer.assignment()))
            assert java.stdout is not None
            lines = java.stdout.read().splitlines()
    assert java.returncode == 0
    assert len(lines) == RECORDS // 2, "its half of the partitions"
    assert min(ours) == PARTITIONS // 2
