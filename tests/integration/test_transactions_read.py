"""Our own readers on real nodes where Kafka's transactional producers write: the SDK, Spark, backups, the CLI."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import cli
from confluent_kafka import Producer

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.backup.commands import create_backup, restore_backup, verify_backup
from quorumlog.sdk.mirror.source import KafkaSource
from quorumlog.sdk.spark import log_access
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.options import parse_batch_options
from quorumlog.sdk.spark.planning import OffsetRange, plan
from quorumlog.sdk.spark.ranges import exact
from quorumlog.sdk.spark.tasks import split

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
#: What the topic of ``written`` has for readers of committed records, and its offsets: a marker follows each
#: transaction, and the aborted one has two records.
COMMITTED = {0: b"a1", 1: b"a2", 6: b"plain", 7: b"c1"}
ALL = COMMITTED | {3: b"b1", 4: b"b2"}
END = 9
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as running:
        yield running
        for node in running.node_ids:
            assert "fault=failed" not in running.log_path(node).read_text()


def producer_of(cluster: LocalCluster, name: str = "") -> Producer:
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0}
    producer = Producer(settings | ({"transactional.id": name} if name else {}))
    if name:
        producer.init_transactions(DEADLINE_S)
    return producer


def send(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


@pytest.fixture(scope="module")
def written(cluster: LocalCluster) -> str:
    """A topic with committed, aborted and other records."""
    topic = f"written-{next(_numbers)}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, "a1", "a2")
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    send(producer, topic, "b1", "b2")
    producer.abort_transaction(DEADLINE_S)
    send(producer_of(cluster), topic, "plain")
    producer.begin_transaction()
    send(producer, topic, "c1")
    producer.commit_transaction(DEADLINE_S)
    return topic


def read(consumer: Consumer, tp: TopicPartition, end: int) -> dict[int, bytes | None]:
    """Returns the values up to an offset that the position reaches."""
    found: dict[int, bytes | None] = {}
    while consumer.position(tp) < end:
        for record in consumer.poll(timeout_ms=500).get(tp, ()):
            found[record.offset] = record.value
    return found


def test_consumers_read_committed_records(cluster: LocalCluster, written: str) -> None:
    tp = TopicPartition(written, 0)
    with Consumer(written, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets([tp]) == {tp: END}
        assert read(consumer, tp, END) == COMMITTED
        assert consumer.position(tp) == END
    options = {"bootstrap_servers": cluster.bootstrap_servers, "isolation_level": "read_uncommitted"}
    with Consumer(written, **options) as consumer:  # type: ignore[arg-type]
        assert read(consumer, tp, END) == ALL
    with Consumer(written, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        for start in range(END):
            consumer.assign([tp])
            consumer.seek(tp, start)
            assert read(consumer, tp, END) == {at: value for at, value in COMMITTED.items() if at >= start}


def test_asynchronous_consumers_read_committed_tables(cluster: LocalCluster, written: str) -> None:
    tp = TopicPartition(written, 0)

    async def values() -> list[bytes]:
        found: list[bytes] = []
        async with AsyncConsumer(written, bootstrap_servers=cluster.bootstrap_servers) as consumer:
            while await consumer.position(tp) < END:
                found += (await consumer.poll_arrow(timeout_ms=500)).column("value").to_pylist()
        return found

    assert asyncio.run(values()) == list(COMMITTED.values())


def test_open_transactions_hold_readers_back(cluster: LocalCluster) -> None:
    topic = f"open-{next(_numbers)}"
    tp = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    send(producer_of(cluster), topic, "before")
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    send(producer, topic, "open")
    send(producer_of(cluster), topic, "after")
    with (
        Consumer(topic, bootstrap_servers=cluster.bootstrap_servers) as consumer,
        KafkaSource(f"kafka://{cluster.kafka_bootstrap_servers}") as source,
    ):
        assert read(consumer, tp, 1) == {0: b"before"}
        assert (consumer.end_offsets([tp]), consumer.poll(timeout_ms=200)) == ({tp: 1}, {})
        assert source.bounds(tp) == (0, 1), "a mirror must not take what is open for unreadable"
        producer.commit_transaction(DEADLINE_S)
        assert read(consumer, tp, 4) == {1: b"open", 2: b"after"}
        assert source.bounds(tp) == (0, 4)


def test_spark_reads_committed_records(cluster: LocalCluster, written: str) -> None:
    """However the range is cut into tasks."""
    servers = cluster.bootstrap_servers
    options = parse_batch_options({"quorumlog.bootstrap.servers": servers, "subscribe": written})
    [whole] = plan(ClusterCatalog(servers, newest=True), options)
    assert (whole.start, whole.end) == (0, END)

    def rows(wanted: OffsetRange) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for piece in exact(log_access.stored_rows(servers, wanted, True), wanted, True):
            found.update(enumerate(piece.columns.column("value").to_pylist(), piece.offset))
        return found

    assert rows(whole) == COMMITTED
    pieces = [rows(piece) for piece in split([whole], END, None)]
    assert len(pieces) == END
    assert {at: value for piece in pieces for at, value in piece.items()} == COMMITTED


def test_commands_end_where_the_log_does(cluster: LocalCluster, written: str) -> None:
    printed = cli(cluster, "consume", written, "--from-beginning", "--until-end", "--output", "json")
    assert [json.loads(line)["offset"] for line in printed.stdout.splitlines()] == list(COMMITTED), printed
    [place] = json.loads(cli(cluster, "topics", "offsets", written, "--output", "json").stdout)
    assert place["offset"] == END


def test_backups_have_committed_records(cluster: LocalCluster, written: str, tmp_path: Path) -> None:
    """A restored log has the same offsets, and no transactions."""
    place, tp = str(tmp_path / "backup"), TopicPartition(written, 0)
    for _ in range(2):
        create_backup(place, bootstrap_servers=cluster.bootstrap_servers, topics=[written])
    assert verify_backup(place).problems == ()
    with LocalCluster(nodes=3) as fresh:
        restore_backup(place, bootstrap_servers=fresh.bootstrap_servers)
        options = {"bootstrap_servers": fresh.bootstrap_servers, "isolation_level": "read_uncommitted"}
        with Consumer(written, **options) as consumer:  # type: ignore[arg-type]
            assert consumer.end_offsets([tp]) == {tp: END}
            assert read(consumer, tp, END) == COMMITTED
