"""A node whose disk fills up refuses appends with a retriable error, serves reads, and recovers automatically."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import until

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, NodeDescription, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

pytestmark = pytest.mark.cluster

DISK_MIB = 64
TOPIC = "orders"
DEADLINE_S = 60
SETTINGS = {"storage_reserve_bytes": 4 << 20}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data directory for node 1 of a cluster in ``tmp_path``, on a disk of its own."""
    place = tmp_path / "node-1"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path) -> Path:
    """Takes all of a disk, and returns the file that does."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return ballast


def produce(cluster: LocalCluster, values: list[bytes], *, delivery_timeout_ms: int = 20_000) -> list[bytes]:
    """Sends records one by one; returns those that were acknowledged, and raises the first failure otherwise."""
    acknowledged = []
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=0,
        delivery_timeout_ms=delivery_timeout_ms,
        request_timeout_ms=delivery_timeout_ms // 2,
    ) as producer:
        for value in values:
            producer.send(TOPIC, value=value).result(timeout=DEADLINE_S)
            acknowledged.append(value)
    return acknowledged


def consume(cluster: LocalCluster) -> list[bytes]:
    """All records."""
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    partition = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        count = consumer.end_offsets([partition])[partition]
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for records in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in records]
    return found


def is_ready_and_full(admin: Admin) -> bool:
    (node,) = admin.describe_nodes()
    return isinstance(node, NodeDescription) and node.ready and "disk is nearly full" in node.reason


def values(name: str, count: int, size: int = 1000) -> list[bytes]:
    return [b"%s-%d-" % (name.encode(), number) + bytes(size) for number in range(count)]


def test_appends_are_refused_while_the_disk_is_full_and_reads_go_on(small_disk: Path, tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path, settings=SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        acknowledged = produce(cluster, values("before", 20))

        ballast = fill(small_disk)
        with pytest.raises(QuorumlogError) as refused:
            produce(cluster, values("during", 10_000, size=5_000), delivery_timeout_ms=2_000)
        assert refused.value.retriable, refused.value
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            # What is sent may have come to the end of its time before the node has looked at its disk.
            until(lambda: is_ready_and_full(admin), "it says so, and serves")
        assert "\n" not in str(refused.value)
        assert consume(cluster)[: len(acknowledged)] == acknowledged
        assert cluster.is_running(1)

        ballast.unlink()
        acknowledged += produce(cluster, values("after", 20))
        found = consume(cluster)
        assert len(set(found)) == len(found)
        assert [value for value in found if not value.startswith(b"during")] == acknowledged
        assert "Traceback" not in cluster.log_path(1).read_text()

        cluster.stop(1)
        cluster.start(1)
        assert consume(cluster) == found


def test_two_of_three_go_on_and_the_third_catches_up(small_disk: Path, tmp_path: Path) -> None:
    with LocalCluster(nodes=3, data_dir=tmp_path, settings=SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
            acknowledged = produce(cluster, values("before", 5))
            ballast = fill(small_disk)
            deadline = time.monotonic() + DEADLINE_S
            during: list[bytes] = []
            for attempt in itertools.count():
                # Where the full node leads, it refuses until a node with room does; a follower is simply not needed.
                assert time.monotonic() < deadline
                with contextlib.suppress(QuorumlogError):
                    # What a failed attempt has sent may be there all the same: each has values of its own.
                    during = produce(cluster, values(f"during{attempt}", 20, size=50_000), delivery_timeout_ms=5_000)
                    break
                if cluster.leader(TOPIC, 0) == 1:
                    ballast.unlink(missing_ok=True)
            ballast.unlink(missing_ok=True)
            acknowledged += during + produce(cluster, values("after", 5))
            isr: set[int] = set()
            deadline = time.monotonic() + DEADLINE_S
            while isr != {1, 2, 3}:
                assert time.monotonic() < deadline, isr
                isr = set(admin.describe_topics([TOPIC])[0].partitions[0].isr)
        found = consume(cluster)
        assert set(acknowledged) <= set(found)
        assert len(set(found)) == len(found)
        assert all(cluster.is_running(node) for node in (1, 2, 3))
