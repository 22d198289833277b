"""``quorumlog mirror`` on a source whose topics are deleted, created again and unreadable."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.backup.commands import restore_backup
from quorumlog.sdk.backup.manifest import MANIFEST, Manifest, PartitionBackup, TopicBackup
from quorumlog.sdk.backup.segments import SegmentBuilder, checked_batch
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.sdk.errors import UnknownTopicOrPartitionError
from tests.support.child_process import ChildProcess
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry
from tests.support.unreadable_batches import COUNT, unreadable_entry

pytestmark = pytest.mark.cluster

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, kafka=True) as made:
        yield made


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as made:
        yield made


def command(source: LocalCluster, target: LocalCluster, *options: str) -> list[str | Path]:
    program: list[str | Path] = [Path(sys.executable).with_name("quorumlog"), "mirror"]
    servers = ["--from", f"kafka://{source.kafka_bootstrap_servers}", "--bootstrap-servers", target.bootstrap_servers]
    return [*program, *servers, *options]


def write(cluster: LocalCluster, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def read(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    place = TopicPartition(topic, 0)
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for records in consumer.poll(200).values():
                found += [record.value for record in records]
    return found


def until(holds: Callable[[], bool], log: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            if holds():
                return
        except UnknownTopicOrPartitionError:
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_deleted_topics_do_not_stop_the_others(source: LocalCluster, target: LocalCluster, tmp_path: Path) -> None:
    """A deleted topic stays in the target; one that is created again is set aside, with a line that says what to do."""
    path = tmp_path / "mirror.log"
    admin = Admin(bootstrap_servers=source.bootstrap_servers)
    admin.create_topics([NewTopic(name, 1, 1) for name in ("gone", "again", "stays")])
    for name in ("gone", "again", "stays"):
        write(source, name, b"1", b"2")
    options = ("--topic", "gone", "--topic", "again", "--topic", "stays", "--follow", "--refresh-seconds", "0.5")
    with path.open("wb") as log, ChildProcess(command(source, target, *options), stderr=log) as mirror:
        for name in ("gone", "again", "stays"):
            until(lambda: read(target, name) == [b"1", b"2"], path)  # noqa: B023
        admin.delete_topics(["gone", "again"])
        until(lambda: path.read_text().count("was deleted in the source") == 2, path)
        admin.create_topics([NewTopic("again", 1, 1)])
        write(source, "again", b"3")
        write(source, "stays", b"3")
        until(lambda: read(target, "stays") == [b"1", b"2", b"3"], path)
        until(lambda: "again-0 ends at offset 1 in the source" in path.read_text(), path)
        assert mirror.poll() is None
        mirror.terminate()
        assert mirror.wait(DEADLINE_S) == 0
    admin.close()
    assert read(target, "gone") == read(target, "again") == [b"1", b"2"]
    lines = path.read_text()
    for name in ("gone", "again"):
        assert lines.count(f"topic {name} was deleted in the source: it stays here, and is no longer copied") == 1
    assert "Traceback" not in lines


def write_backup(place: Path) -> None:
    """Writes a backup of a topic with an unreadable batch between two readable ones."""
    now_ms = time.time_ns() // 1_000_000
    store, builder = DirectoryStore(place), SegmentBuilder()
    behind = 1 + COUNT
    builder.add(checked_batch(stored_kafka_entry(kafka_batch([(b"k", b"before", now_ms, [])]), 0)))
    builder.add(checked_batch(unreadable_entry("not Arrow", 1, timestamp_ms=now_ms)))
    builder.add(checked_batch(stored_kafka_entry(kafka_batch([(b"k", b"behind", now_ms, [])]), behind)))
    segment, content = builder.build("topics/damaged/0", 1)
    store.write(segment.file.name, content)
    partition = PartitionBackup(0, 0, behind + 1, 0, (segment,), None, 0)
    topic = TopicBackup("damaged", "00" * 15 + "01", 1, {"retention.ms": "-1"}, (partition,))
    store.write(MANIFEST, Manifest(1, "older", 1, now_ms, (topic,)).encode())


def test_unreadable_batches_stop_or_are_skipped(tmp_path: Path, target: LocalCluster) -> None:
    """One line names the place and the option; with the option the mirror continues behind the batch."""
    write_backup(tmp_path)
    with LocalCluster(nodes=1, kafka=True) as damaged:
        restore_backup(str(tmp_path), bootstrap_servers=damaged.bootstrap_servers)

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            words = command(damaged, target, "--name", "damaged", *options)
            return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

        stopped = run()
        assert stopped.returncode == 1
        (line,) = [line for line in stopped.stderr.splitlines() if "cannot be read" in line]
        assert "damaged, partition 0: the batch at offset 1" in line
        assert "--skip-to damaged-0:OFFSET" in line
        done = run("--skip-to", f"damaged-0:{1 + COUNT}")
        assert done.returncode == 0, done.stderr
        assert f"skipped offsets 1 to {COUNT} of damaged-0" in done.stderr
        assert read(target, "damaged") == [b"before", b"behind"]
        assert run("--skip-to", f"damaged-0:{1 + COUNT}").returncode == 0
        assert read(target, "damaged") == [b"before", b"behind"]
