"""Kafka Streams counts in windows and sessions while nodes are killed; its changelogs are compacted with retention."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import AGAINST
from connect_worker import until
from frameworks import STREAMS_JARS
from matrix_clients import _java
from test_frameworks import kill_leader, records_in, running

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]

CHANGELOGS = ("counts-windows-changelog", "counts-sessions-changelog")
KEYS, MINUTES = 7, 20
#: The records of each key in each half, as many in each minute.
EACH = 160
MINUTE_MS = 60_000


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True, settings={"compaction_interval_ms": 300}) as nodes:
        yield nodes


def send_half(cluster: LocalCluster, base_ms: int) -> None:
    """Sends each key's records of the minutes 0 to 9 and 20 to 29: two windows, and two sessions."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(KEYS * EACH):
            step = number // KEYS % MINUTES
            minute = step if step < MINUTES // 2 else step + 10
            producer.send("clicks", b"v", key=b"%d" % (number % KEYS), timestamp_ms=base_ms + minute * MINUTE_MS)


def results(cluster: LocalCluster, topic: str) -> dict[bytes, int]:
    """The last count of each key and window, without those that were merged into others."""
    last = {key: value for key, value in records_in(cluster, topic) if key is not None}
    return {key: int(value) for key, value in last.items() if value is not None}


def expected(base_ms: int, count: int) -> dict[str, dict[bytes, int]]:
    """The results once each window has this count."""
    begins = (base_ms, base_ms + 20 * MINUTE_MS)
    return {
        "windows": {b"%d@%d-%d" % (key, at, at + 10 * MINUTE_MS): count for key in range(KEYS) for at in begins},
        "sessions": {b"%d@%d-%d" % (key, at, at + 9 * MINUTE_MS): count for key in range(KEYS) for at in begins},
    }


def is_compacted(cluster: LocalCluster, topic: str) -> bool:
    """True if some node has compacted the topic's first partition."""
    lines = (line for node in cluster.node_ids for line in cluster.log_path(node).read_text().splitlines())
    return any("partition_compacted" in line and f"{topic}-0" in line for line in lines)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_windowed_and_session_counts_are_exact(cluster: LocalCluster, tmp_path: Path, guarantee: str) -> None:
    """The leader of a changelog is killed; then the program starts without its state, restores it from the changelogs,
    and counts on from there."""
    program = _java(STREAMS_JARS, "StreamsCounts")
    base_ms = (time.time_ns() // 1_000_000 - 50 * MINUTE_MS) // (10 * MINUTE_MS) * 10 * MINUTE_MS
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 3) for name in ("clicks", "windows", "sessions")])
        for half in (1, 2):
            with running(
                f"streams-{half}", [*program, cluster.kafka_bootstrap_servers, tmp_path / str(half), guarantee]
            ):
                send_half(cluster, base_ms)
                if half == 1:
                    until(lambda: set(CHANGELOGS) <= set(admin.list_topics()), "the changelogs exist")
                    killed = kill_leader(cluster, CHANGELOGS[0])
                for topic, counts in expected(base_ms, half * EACH // 2).items():
                    until(lambda t=topic, c=counts: results(cluster, t) == c, f"{topic} in half {half}")  # type: ignore[misc]
            if half == 1:
                cluster.start(killed)
                cluster.wait_ready()
        for name, configs in admin.describe_configs(CHANGELOGS).items():
            assert set(configs["cleanup.policy"].value.split(",")) == {"compact", "delete"}
            until(lambda name=name: is_compacted(cluster, name), f"{name} is compacted")  # type: ignore[misc]
            print(f"{name}: {len(records_in(cluster, name))} records of {2 * KEYS * EACH} are left")
