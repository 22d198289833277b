"""A node whose disk gave other bytes back than it was given: no one is served them, and they are mended."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.storage.inspection import EntryRow, Inspection
from quorumlog.wire.entry import EnvelopeKind

pytestmark = pytest.mark.cluster

TOPIC = "orders"
DEADLINE_S = 60
#: More than the checks at opening look at.
BATCHES = 120


def values() -> list[bytes]:
    return [b"%d-" % number + bytes([number]) * 5000 for number in range(BATCHES)]


def produce(cluster: LocalCluster) -> None:
    """One batch per value, all of them acknowledged."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, compression_type=None) as producer:
        for value in values():
            producer.send(TOPIC, value=value).result(timeout=DEADLINE_S)


def consume(cluster: LocalCluster, *, ends: Callable[[], bool]) -> list[bytes]:
    """Returns the records that can be read from the start, in order, until ``ends``."""
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", request_timeout_ms=2_000
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while len(found) < BATCHES and not ends():
            assert time.monotonic() < deadline, f"{len(found)} of {BATCHES} records"
            with contextlib.suppress(QuorumlogError):
                for records in consumer.poll(timeout_ms=200).values():
                    found += [record.value for record in records]
    return found


def batches(data_dir: Path) -> list[EntryRow]:
    """The topic's batches on a node's disk; none unless all exist."""
    with Inspection(data_dir) as inspection:
        for group in inspection.groups():
            rows = [row for row in inspection.entries(group.group) if row.kind is EnvelopeKind.BATCH]
            if len(rows) >= BATCHES:
                return rows
    return []


def stopped_with_all(cluster: LocalCluster, node: int) -> list[EntryRow]:
    """Stops a node that has all batches of the topic on its disk, and returns them. What was acknowledged is on two of
    three nodes: the third may have to fetch some yet."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        cluster.stop(node)
        if rows := batches(cluster.data_dir(node)):
            return rows
        assert time.monotonic() < deadline, f"node {node} does not get them"
        cluster.start(node)
        cluster.wait_ready()


def flip_a_bit_of(data_dir: Path, row: EntryRow, value: bytes) -> None:
    """Damages the record with ``value`` in that entry: its beginning, for an entry may be cut into rows, and wherever
    it is, for pages that have been freed keep what was in them."""
    data_file = data_dir / "data.mdb"
    whole = data_file.read_bytes()
    places = [found.start() + 200 for found in re.finditer(re.escape(value[:400]), whole)]
    assert places
    with data_file.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(bytes([whole[place] ^ 1]))


def until(said: str, log_path: Path) -> None:
    """Waits until a node's log has a line with these words."""
    deadline = time.monotonic() + DEADLINE_S
    while not any(said in line for line in log_path.read_text().splitlines()):
        assert time.monotonic() < deadline, f"no {said!r} in {log_path.read_text()[-2_000:]}"
        time.sleep(0.05)


def create_topic(cluster: LocalCluster, factor: int) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=factor)])


def test_a_replica_with_a_damaged_end_is_set_aside_and_begins_anew_by_itself(tmp_path: Path) -> None:
    """Its node starts, and says so; the replica gets everything from its leader."""
    with LocalCluster(nodes=3, data_dir=tmp_path) as cluster:
        create_topic(cluster, 3)
        produce(cluster)
        last = stopped_with_all(cluster, 2)[-1]
        flip_a_bit_of(cluster.data_dir(2), last, values()[-1])

        verified = subprocess.run(
            [sys.executable, "-m", "quorumlog.cli.main", "log", "verify", "--data-dir", str(cluster.data_dir(2))],
            check=False,
            capture_output=True,
            text=True,
        )
        assert verified.returncode != 0
        assert str(last.index) in verified.stdout + verified.stderr
        assert "Traceback" not in verified.stderr

        cluster.start(2)
        log_path = cluster.log_path(2)
        until("replica_set_aside", log_path)
        assert f"entry {last.index} of group {last.group} in {cluster.data_dir(2)} is damaged" in log_path.read_text()
        until("replica_begins_anew", log_path)
        assert consume(cluster, ends=lambda: False) == values()
        # While it starts again it may never have been out of sync for the others: what counts is what is on its disk.
        deadline = time.monotonic() + DEADLINE_S
        cluster.stop(2)
        while [row.problem for row in batches(cluster.data_dir(2))] != [None] * BATCHES:
            assert time.monotonic() < deadline
            cluster.start(2)
            cluster.wait_ready()
            cluster.stop(2)
        assert "Traceback" not in log_path.read_text()


def test_storage_that_cannot_be_opened_is_moved_aside_only_where_somebody_says_so(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        create_topic(cluster, 1)
        produce(cluster)
        cluster.stop(1)
        data_file = cluster.data_dir(1) / "data.mdb"
        os.truncate(data_file, data_file.stat().st_size // 2)
        damaged = data_file.read_bytes()
        with pytest.raises(ClusterError, match=r"it was truncated.*QUORUMLOG_DAMAGED_STORAGE=move-aside"):
            cluster.start(1)
        assert data_file.read_bytes() == damaged
        # Its ports stay reserved until it is left.
        cluster.shutdown()
        with LocalCluster(nodes=1, data_dir=tmp_path, settings={"damaged_storage": "move-aside"}) as again:
            assert "moved to" in again.log_path(1).read_text()
            assert (again.data_dir(1) / "damaged-1" / "data.mdb").read_bytes() == damaged


def test_entries_damaged_on_two_replicas_are_found_by_the_scrub_and_mended_while_all_goes_on(tmp_path: Path) -> None:
    settings = {"scrub_bytes_per_second": 64 << 20, "scrub_interval_ms": 500}
    with LocalCluster(nodes=3, data_dir=tmp_path, settings=settings) as cluster:
        create_topic(cluster, 3)
        produce(cluster)
        struck = {2: range(3, 50, 4), 3: range(5, 110, 7)}
        for node, numbers in struck.items():
            rows = stopped_with_all(cluster, node)
            for number in numbers:
                flip_a_bit_of(cluster.data_dir(node), rows[number], values()[number])
        for node in struck:
            cluster.start(node)
        assert consume(cluster, ends=lambda: False) == values()
        for node, numbers in struck.items():
            deadline = time.monotonic() + DEADLINE_S
            while cluster.log_path(node).read_text().count("damage_mended") < len(numbers):
                assert time.monotonic() < deadline, cluster.log_path(node).read_text()[-2_000:]
                time.sleep(0.1)
            cluster.stop(node)
            assert "Traceback" not in cluster.log_path(node).read_text()
            assert [row.problem for row in batches(cluster.data_dir(node))] == [None] * BATCHES
            cluster.start(node)


def test_a_damaged_entry_is_never_served(tmp_path: Path) -> None:
    """The only replica has it damaged: what comes before is served, then nothing, and the node's log says why."""
    with LocalCluster(nodes=1, data_dir=tmp_path) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        produce(cluster)
        cluster.stop(1)
        row = batches(cluster.data_dir(1))[30]
        flip_a_bit_of(cluster.data_dir(1), row, values()[30])
        cluster.start(1)

        log_path = cluster.log_path(1)
        said = f"entry {row.index} of group {row.group} in {cluster.data_dir(1)} is damaged"
        found = consume(cluster, ends=lambda: said in log_path.read_text())
        assert found == values()[: len(found)]
        assert len(found) <= 30
        assert "Traceback" not in log_path.read_text()
