"""Two clusters that mirror each other: nodes and mirrors are killed, and each record is on both exactly once."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError
from tests.support.child_process import ChildProcess
from tests.support.free_ports import free_base_port

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]

DEADLINE_S = 120.0
TOPIC, PARTITIONS = "orders", 2
#: Records that each cluster gets between two faults, of which each partition has half.
ROUND = 60


class Mirror:
    """A mirror process that can be killed and started again.

    Arguments:
        name: of the mirror, and of its log.
        port: where it serves metrics.
    """

    def __init__(self, name: str, source: LocalCluster, target: LocalCluster, folder: Path, port: int) -> None:
        self.metrics_port = port
        self.log = folder / f"{name}.log"
        self._command: list[str | Path] = [
            Path(sys.executable).with_name("quorumlog"), "mirror", "--from", f"kafka://{source.kafka_bootstrap_servers}",
            "--bootstrap-servers", target.bootstrap_servers, "--name", name, "--bidirectional", "--follow",
            "--refresh-seconds", "1", "--topic", "*", "--metrics-listen", f"127.0.0.1:{self.metrics_port}",
        ]  # fmt: skip
        self._process: ChildProcess[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = ChildProcess(self._command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def ensure_running(self) -> None:
        """Starts it again if it has ended, as systemd does."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()

    def lag(self) -> float:
        """The largest lag of a partition, as Prometheus sees it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        lags = [line.split()[-1] for line in lines if line.startswith("quorumlog_mirror_partition_records_lag{")]
        return max(map(float, lags))


@contextmanager
def mirrors(one: LocalCluster, other: LocalCluster, folder: Path) -> Iterator[tuple[Mirror, Mirror]]:
    port = free_base_port(2)
    pair = Mirror("east", one, other, folder, port), Mirror("west", other, one, folder, port + 1)
    with ExitStack() as stack:
        for each in pair:
            each.start()
            stack.callback(each.kill)
        yield pair


def until(what: str, holds: Callable[[], bool], mirrors: tuple[Mirror, ...]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            if holds():
                return
        except (QuorumlogError, OSError):
            pass
        for each in mirrors:
            each.ensure_running()
        time.sleep(0.2)
    logs = "\n".join(each.log.read_text() for each in mirrors)
    raise AssertionError(f"not within {DEADLINE_S:g} s: {what}\n{logs}")


def write(cluster: LocalCluster, marks: list[str]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = [
            producer.send(TOPIC, mark.encode(), key=b"k", headers=[("mark", mark.encode())], partition=at % PARTITIONS)
            for at, mark in enumerate(marks)
        ]
        for future in sent:
            future.result(DEADLINE_S)


def read(cluster: LocalCluster) -> dict[int, list[str]]:
    """The marks of each partition, in the order of their offsets."""
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(500).items():
                found[place.partition] += [(record.value or b"").decode() for record in records]
    return found


def check_once(cluster: LocalCluster, written: dict[int, dict[str, list[str]]]) -> None:
    """Each record is there once, and the records of one cluster are in their order."""
    for number, marks in read(cluster).items():
        doubled = {mark: count for mark, count in Counter(marks).items() if count > 1}
        assert not doubled, f"partition {number} has records more than once: {doubled}"
        for name, expected in written[number].items():
            assert [mark for mark in marks if mark.startswith(name)] == expected


def test_each_record_is_on_both_clusters_once(tmp_path: Path) -> None:
    """Nodes of each cluster are killed in turn, then both mirrors. A topic that is created later arrives with its
    settings, and so does a change of these. Groups can continue in the other cluster."""
    written: dict[int, dict[str, list[str]]] = {number: {"east-": [], "west-": []} for number in range(PARTITIONS)}
    count = 0

    def write_round() -> None:
        nonlocal count
        for name, cluster in (("east-", east), ("west-", west)):
            marks = [f"{name}{number}" for number in range(count, count + ROUND)]
            write(cluster, marks)
            for at, mark in enumerate(marks):
                written[at % PARTITIONS][name].append(mark)
        count += ROUND

    with LocalCluster(kafka=True) as east, LocalCluster(kafka=True) as west:
        for cluster in (east, west):
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        with mirrors(east, west, tmp_path) as both:
            write_round()
            for cluster in (east, west):
                for node in cluster.node_ids:
                    cluster.kill(node)
                    write_round()
                    cluster.start(node)
                    cluster.wait_ready()
            for each in both:
                each.kill()
                write_round()
                each.start()
                write_round()
            total = 2 * count

            def complete() -> bool:
                return all(sum(map(len, read(cluster).values())) >= total for cluster in (east, west))

            until("all records on both clusters", complete, both)
            for cluster in (east, west):
                check_once(cluster, written)
            until("no lag", lambda: all(each.lag() == 0 for each in both), both)

            configs = {"retention.ms": "7200000", "cleanup.policy": "delete"}
            with Admin(bootstrap_servers=east.bootstrap_servers) as admin:
                admin.create_topics([NewTopic("later", 3, 3, topic_configs=configs)])
            with Admin(bootstrap_servers=west.bootstrap_servers) as admin:
                until("the later topic", lambda: "later" in admin.list_topics(), both)
                assert len(admin.describe_topics(["later"])[0].partitions) == 3
                assert admin.describe_configs(["later"])["later"]["retention.ms"].value == "7200000"
                # A change in the cluster that got the topic goes the other way.
                until("its settings are known", lambda: settings_copied(both), both)
                admin.alter_configs({"later": {"retention.ms": "3600000"}})
            with Admin(bootstrap_servers=east.bootstrap_servers) as admin:
                until(
                    "the changed setting",
                    lambda: admin.describe_configs(["later"])["later"]["retention.ms"].value == "3600000",
                    both,
                )
            for one, other in ((east, west), (west, east)):
                check_group(one, other, both)
            for cluster in (east, west):
                check_once(cluster, written)


def check_group(one: LocalCluster, other: LocalCluster, both: tuple[Mirror, ...]) -> None:
    """A group that has read everything in one cluster has nothing left to read in the other one."""
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    group = f"readers of {one.bootstrap_servers}"
    for cluster in (one, other):
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            ends = consumer.end_offsets(places)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            if cluster is one:
                admin.alter_group_offsets(group, ends)
                continue
            until(
                "the group's offsets",
                lambda: {place: at.offset for place, at in admin.list_group_offsets(group).items()} == ends,  # noqa: B023
                both,
            )


def settings_copied(both: tuple[Mirror, ...]) -> bool:
    return "topic later is new" in both[1].log.read_text()
