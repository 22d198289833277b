"""A log with batches that cannot be read: every command keeps working, names their offsets, and continues.

The log comes from a backup, as an older cluster may have left it: nodes reject such batches of Kafka's clients when
they are produced.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorumlog.console.records.conditions import parse_filter
from quorumlog.console.records.search import Stretch, TopicSearch
from quorumlog.local import LocalCluster
from quorumlog.sdk import Consumer, TopicPartition, UnreadableBatchError
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer
from quorumlog.sdk.backup.commands import create_backup, restore_backup, verify_backup
from quorumlog.sdk.backup.manifest import MANIFEST, Manifest, PartitionBackup, TopicBackup
from quorumlog.sdk.backup.segments import SegmentBuilder, checked_batch
from quorumlog.sdk.backup.store import DirectoryStore
from tests.support.command_line import cli
from tests.support.kafka_batches import kafka_batch, stored_kafka_entry
from tests.support.stored_batches import stored_batch
from tests.support.unreadable_batches import COUNT, UNREADABLE, unreadable_entry

pytestmark = pytest.mark.cluster

TOPIC = "mixed"
TP = TopicPartition(TOPIC, 0)


class Content:
    """Readable batches of both formats, and an unreadable one of every kind between them.

    Attributes:
        entries: in offset order.
        values: of the readable records, by offset.
        gaps: first and last offset of each unreadable batch.
    """

    def __init__(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.entries: list[bytes] = []
        self.values: dict[int, bytes] = {}
        self.gaps: list[tuple[int, int]] = []
        end = 0
        for kind in UNREADABLE:
            values = [b"%d" % offset for offset in range(end, end + 2)]
            batch = kafka_batch([(b"k", value, now_ms, []) for value in values])
            self.entries += [stored_kafka_entry(batch, end), stored_batch(end + 2, 1)]
            self.entries.append(unreadable_entry(kind, end + 3, timestamp_ms=now_ms))
            self.values |= {offset: b"%d" % offset for offset in range(end, end + 3)}
            self.gaps.append((end + 3, end + 2 + COUNT))
            end += 3 + COUNT
        self.end = end


CONTENT = Content()


def write_backup(place: Path) -> None:
    """Writes a backup of one topic with ``CONTENT``."""
    store = DirectoryStore(place)
    builder = SegmentBuilder()
    for entry in CONTENT.entries:
        builder.add(checked_batch(entry))
    segment, content = builder.build("topics/mixed/0", 1)
    store.write(segment.file.name, content)
    partition = PartitionBackup(0, 0, CONTENT.end, 0, (segment,), None, 0)
    configs = {"retention.ms": "-1"}
    topic = TopicBackup(TOPIC, "00" * 15 + "01", 1, configs, (partition,))
    store.write(MANIFEST, Manifest(1, "older", 1, time.time_ns() // 1_000_000, (topic,)).encode())


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("backup")
    write_backup(place)
    return place


@pytest.fixture(scope="module")
def cluster(backup: Path) -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, kafka=True) as made:
        restore_backup(str(backup), bootstrap_servers=made.bootstrap_servers)
        yield made


def named(gap: tuple[int, int]) -> str:
    return f"{TOPIC}-0: offsets {gap[0]} to {gap[1]}"


def test_consumers_raise_or_skip(cluster: LocalCluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, on_corrupt="skip") as consumer:
        consumer.assign([TP])
        seen: dict[int, bytes | None] = {}
        deadline_s = time.monotonic() + 30
        while consumer.position(TP) < CONTENT.end and time.monotonic() < deadline_s:
            for records in consumer.poll(200).values():
                seen |= {record.offset: record.value for record in records}
    assert seen == CONTENT.values
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, consumer_timeout_ms=500) as consumer:
        consumer.assign([TP])
        gaps: list[tuple[int, int]] = []
        while len(gaps) < len(CONTENT.gaps):
            with pytest.raises(UnreadableBatchError) as raised:
                list(consumer)
            gaps.append((raised.value.first_offset, raised.value.last_offset))
            consumer.seek(raised.value.partition, raised.value.next_offset)
    assert gaps == CONTENT.gaps


def test_consume_names_what_it_skips(cluster: LocalCluster) -> None:
    everything = ("consume", TOPIC, "--from-beginning", "--until-end", "--format", "{offset}")
    done = cli(cluster, *everything)
    assert done.returncode == 0, done.stderr
    assert [int(line) for line in done.stdout.split()] == list(CONTENT.values)
    for gap in CONTENT.gaps:
        assert done.stderr.count(f"warning: {named(gap)} cannot be read and were skipped") == 1, done.stderr
    grouped = ("consume", TOPIC, "--from-beginning", "--group", "g", "--timeout", "5", "--format", "{offset}")
    assert [int(line) for line in cli(cluster, *grouped).stdout.split()] == list(CONTENT.values)
    [row] = json.loads(cli(cluster, "groups", "describe", "g", "--output", "json").stdout)
    assert row["lag"] <= COUNT, "the group has reached the end, except for an unreadable batch"
    stopped = cli(cluster, *everything, "--on-corrupt", "raise")
    assert stopped.returncode == 1
    assert [int(line) for line in stopped.stdout.split()] == [0, 1, 2]
    assert f"{named(CONTENT.gaps[0])} cannot be read" in stopped.stderr
    assert "seek to offset 6" in stopped.stderr and "Traceback" not in stopped.stderr


def test_a_search_on_the_console_continues(cluster: LocalCluster) -> None:
    async def search() -> tuple[list[int], list[tuple[int, int]], str]:
        found: list[int] = []
        gaps: list[tuple[int, int]] = []
        why = ""
        servers = cluster.bootstrap_servers
        async with AsyncConsumer(bootstrap_servers=servers) as consumer, AsyncAdmin(bootstrap_servers=servers) as admin:
            async for event in TopicSearch(consumer, admin, TOPIC, Stretch(limit=500), parse_filter("")).events():
                found += [int(row["offset"]) for row in event.get("rows", ())]
                gaps += [(int(each["first"]), int(each["last"])) for each in event.get("unreadable", ())]
                why = event.get("why", why)
        return found, gaps, why

    assert asyncio.run(search()) == (list(CONTENT.values), CONTENT.gaps, "everything")


def test_backups_keep_and_name_them(cluster: LocalCluster, backup: Path, tmp_path: Path) -> None:
    create_backup(str(tmp_path), bootstrap_servers=cluster.bootstrap_servers)
    for place in (backup, tmp_path):
        report = verify_backup(str(place))
        assert report.problems == ()
        assert report.unreadable_batches == len(CONTENT.gaps)
        assert [line.partition(": the ")[0] for line in report.unreadable] == [named(gap) for gap in CONTENT.gaps]
    command = [sys.executable, "-m", "quorumlog.cli.main", "backup", "verify", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for gap in CONTENT.gaps:
        assert named(gap) in done.stdout


def test_a_dump_names_them(backup: Path) -> None:
    with LocalCluster(nodes=1) as stopped:
        restore_backup(str(backup), bootstrap_servers=stopped.bootstrap_servers)
        described = cli(stopped, "topics", "describe", TOPIC, "--output", "json")
        group = json.loads(described.stdout)[0]["partitions"][0]["group"]
        stopped.stop(1)
        command = [sys.executable, "-m", "quorumlog.cli.main", "log", "dump", "--data-dir", str(stopped.data_dir(1))]
        command += ["--group", str(group)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        as_json = subprocess.run(
            [*command, "--output", "json"], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "UNREADABLE" in line]
    assert [f"{first} to {last} " in line for line, (first, last) in zip(lines, CONTENT.gaps, strict=True)]
    assert "DAMAGED" not in done.stdout
    batches = [row["batch"] for row in map(json.loads, as_json.stdout.splitlines()) if "batch" in row]
    assert [batch["base_offset"] for batch in batches if batch["unreadable"]] == [first for first, _ in CONTENT.gaps]
