"""Faust, Debezium and kafka_exporter, unchanged, while a node is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import leader_of
from conftest import AGAINST
from connect_worker import asked, kafka_connect, until
from frameworks import DEBEZIUM_JARS, FAUST
from matrix_clients import BUILD, _python

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition, UnknownTopicOrPartitionError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
]

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
EXPORTER = os.environ.get("KAFKA_EXPORTER") or shutil.which("kafka_exporter")
KEYS = 7
RECORDS = 2_100
ROWS = 500


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as nodes:
        yield nodes


def records_in(cluster: LocalCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of all records of a topic; none if it does not exist."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        try:
            partitions = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        except UnknownTopicOrPartitionError:
            return []
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[tuple[bytes | None, bytes | None]] = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            rows = consumer.poll_arrow(timeout_ms=500).select(["key", "value"]).to_pylist()
            found += [(row["key"], row["value"]) for row in rows]
    return found


def kill_leader(cluster: LocalCluster, topic: str) -> int:
    """Kills the node that leads the first partition of a topic; returns its id."""
    node = leader_of(cluster, topic)
    cluster.kill(node)
    return node


@contextmanager
def running(name: str, command: Sequence[str | Path], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that logs to ``build/kafka-clients/NAME.log``."""
    with (BUILD / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=subprocess.STDOUT, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_faust_counts_while_a_node_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    """The topic of the results is created when Faust first sends to it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("faust-in", 3, 3)])
    command = [*_python("faust_app", *FAUST), cluster.kafka_bootstrap_servers, tmp_path]
    with running("faust", command), Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for part in range(3):
            for number in range(part * RECORDS // 3, (part + 1) * RECORDS // 3):
                producer.send("faust-in", b"%d" % number, key=b"%d" % (number % KEYS))
            producer.flush()
            done = (part + 1) * RECORDS // 3 // KEYS
            until(lambda done=done: len(_counted(cluster, done)) == KEYS, f"each key is counted {done} times")  # type: ignore[misc]
            if part == 0:
                killed = kill_leader(cluster, "faust-out")
            elif part == 1:
                cluster.start(killed)
    counts = records_in(cluster, "faust-out")
    found = {key: Counter(int(value or b"") for each, value in counts if each == key) for key, _ in counts}
    print(f"Faust: {len(counts)} results for {RECORDS} records, highest per key {_highest(found)}")
    assert all(set(values) >= set(range(1, RECORDS // KEYS + 1)) for values in found.values())


def _counted(cluster: LocalCluster, done: int) -> set[bytes | None]:
    return {key for key, value in records_in(cluster, "faust-out") if int(value or b"0") >= done}


def _highest(found: dict[bytes | None, Counter[int]]) -> list[int]:
    return sorted(max(values) for values in found.values())


class Postgres(NamedTuple):
    """A PostgreSQL server with logical decoding."""

    port: int
    run_as: str | None

    def query(self, statement: str) -> str:
        """Runs a statement with psql."""
        assert POSTGRES is not None
        command = [POSTGRES / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-Atqc", statement]
        return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, timeout=60).stdout


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of its own; as root, it runs as the user ``postgres``, because it refuses root.

    Its folder is not pytest's: another run of pytest closes that to other users.
    """
    assert POSTGRES is not None
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as data, closing(ReservedPorts(1)) as reserved:
        if user is not None:
            shutil.chown(data, user)
        init = [POSTGRES / "initdb", "-D", data, "-U", "postgres", "--auth=trust"]
        subprocess.run([*map(str, init)], check=True, capture_output=True, user=user, timeout=120)
        [port] = reserved.ports
        server = Postgres(port, user)
        command = [POSTGRES / "postgres", "-D", data, "-p", str(port), "-k", data, "-c", "wal_level=logical"]
        with running("postgres", [*command, "-c", "listen_addresses=127.0.0.1"], user=user):

            def answers() -> bool:
                with contextlib.suppress(subprocess.CalledProcessError):
                    return server.query("select 1").strip() == "1"
                return False

            until(answers, "PostgreSQL answers")
            yield server


@pytest.mark.skipif(POSTGRES is None, reason="needs PostgreSQL: as root, apt-get install postgresql")
def test_debezium_with_heartbeats_survives_kills(cluster: LocalCluster, tmp_path: Path) -> None:
    """Connect starts while a node is down; another is killed while rows are inserted."""
    if DEBEZIUM_JARS.missing():
        DEBEZIUM_JARS.download()
    cluster.kill(3)
    with postgres() as database:
        database.query("create table orders (id int primary key, item text)")
        database.query("insert into orders select n, 'item ' || n from generate_series(1, 100) n")
        with kafka_connect(cluster.kafka_bootstrap_servers, tmp_path, [DEBEZIUM_JARS]) as address:
            config = _debezium(database.port)
            until(lambda: asked(address, "PUT", "/connectors/shop/config", config) is not None, "the connector")
            until(lambda: len(_ids(cluster)) == 100, "a snapshot of 100 rows")
            until(lambda: bool(records_in(cluster, "__debezium-heartbeat.shop")), "heartbeats")
            cluster.start(3)
            cluster.wait_ready()
            killed = kill_leader(cluster, "shop.public.orders")
            for first in range(101, ROWS, 100):
                database.query(f"insert into orders select n, 'item' from generate_series({first}, {first + 99}) n")
            until(lambda: len(_ids(cluster)) == ROWS, f"{ROWS} rows")
            cluster.start(killed)
            beats = len(records_in(cluster, "__debezium-heartbeat.shop"))
            until(lambda: len(records_in(cluster, "__debezium-heartbeat.shop")) > beats, "more heartbeats")
            status = asked(address, "GET", "/connectors/shop/status")
            states = [status["connector"]["state"], *(each["state"] for each in status["tasks"])]
            print(f"Debezium: {len(_ids(cluster))} of {ROWS} rows, more than {beats} heartbeats, states {states}")
            assert states == ["RUNNING", "RUNNING"]
            assert _ids(cluster) == set(range(1, ROWS + 1))


def _ids(cluster: LocalCluster) -> set[int]:
    values = [value for _, value in records_in(cluster, "shop.public.orders") if value]
    return {json.loads(value)["after"]["id"] for value in values}


def _debezium(port: int) -> dict[str, str]:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "postgres",
        "database.password": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "table.include.list": "public.orders",
        "heartbeat.interval.ms": "500",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.default.partitions": "1",
        "key.converter": converter,
        "key.converter.schemas.enable": "false",
        "value.converter": converter,
        "value.converter.schemas.enable": "false",
    }


@pytest.mark.skipif(EXPORTER is None, reason="needs kafka_exporter: name its program in KAFKA_EXPORTER")
def test_kafka_exporter_reads_every_topic(cluster: LocalCluster) -> None:
    """Scrapes report the group's lag and log no error, also after a node was killed."""
    assert EXPORTER is not None
    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        Consumer("orders", bootstrap_servers=cluster.bootstrap_servers, group_id="shop") as consumer,
    ):
        admin.create_topics([NewTopic("orders", 3, 3)])
        for number in range(90):
            producer.send("orders", b"%d" % number)
        producer.flush()
        until(lambda: bool(consumer.poll(timeout_ms=500)), "records")
        consumer.commit()
    with closing(ReservedPorts(1)) as reserved:
        [port] = reserved.ports
        servers = [f"--kafka.server={each}" for each in cluster.kafka_bootstrap_servers.split(",")]
        options = [f"--web.listen-address=127.0.0.1:{port}", "--refresh.metadata=5s"]
        with running("kafka_exporter", [EXPORTER, *servers, *options]):
            until(lambda: "kafka_brokers 3" in _scrape(port), "three brokers")
            assert re.search(r'kafka_consumergroup_lag\{[^}]*consumergroup="shop"[^}]*topic="orders"', _scrape(port))
            errors = _errors()
            killed = kill_leader(cluster, "orders")
            until(lambda: leader_of(cluster, "orders") != killed, "another node leads")
            until(lambda: "kafka_brokers 2" in _scrape(port), "two brokers")
            cluster.start(killed)
            until(lambda: "kafka_brokers 3" in _scrape(port), "three brokers again")
            series = _scrape(port).count("\nkafka_")
    print(f"kafka_exporter: {series} series; errors before the kill: {len(errors)}, in all: {len(_errors())}")
    assert errors == []
    assert not [line for line in _errors() if "__groups" in line]


def _scrape(port: int) -> str:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())
    return ""


def _errors() -> list[str]:
    lines = (BUILD / "kafka_exporter.log").read_text().splitlines()
    return [line for line in lines if re.search(r"^E|rror|annot", line)]
