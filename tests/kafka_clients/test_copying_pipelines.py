"""Users of Kafka's Java client, unchanged, while a node is killed: Spark's own Kafka format, Kafka Connect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import AGAINST
from connect_worker import asked, kafka_connect, until
from test_frameworks import records_in

from bench.peers.spark_formats import JARS as SPARK_JARS
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.spark import local_session

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="it is quorumlog's nodes that are killed"),
]

PARTITIONS = 3
LINES = 20_000
STRETCHES = 8


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as nodes:
        yield nodes


def leader_of(admin: Admin, topic: str) -> int:
    [described] = admin.describe_topics([topic])
    leader = described.partitions[0].leader
    assert leader is not None
    return leader


def values_in(servers: str, topic: str) -> list[bytes]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    values: list[bytes] = []
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            values += consumer.poll_arrow(timeout_ms=200).column("value").to_pylist()
    return values


def test_sparks_own_kafka_format_copies_a_topic_while_a_node_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    if SPARK_JARS.missing():
        SPARK_JARS.download()
    spark = local_session("pipelines", spark__jars=",".join(map(str, SPARK_JARS.folder.glob("*.jar"))))
    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        admin.create_topics([NewTopic("from", PARTITIONS, 3), NewTopic("to", PARTITIONS, 3)])
        kafka = {"kafka.bootstrap.servers": cluster.kafka_bootstrap_servers}
        query = (
            spark.readStream.format("kafka")
            .options(**kafka, subscribe="from", startingOffsets="earliest")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**kafka, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            killed = leader_of(admin, "from")
            for stretch in range(STRETCHES):
                for number in range(stretch * LINES // STRETCHES, (stretch + 1) * LINES // STRETCHES):
                    producer.send("from", b"%d" % number, key=b"%d" % (number % 100))
                producer.flush()
                if stretch == STRETCHES // 3:
                    cluster.kill(killed)
                if stretch == 2 * STRETCHES // 3:
                    cluster.start(killed)
                time.sleep(0.5)
            wanted = {b"%d" % number for number in range(LINES)}
            until(lambda: set(values_in(cluster.bootstrap_servers, "to")) >= wanted, "every row is copied")
            assert query.exception() is None
        finally:
            query.stop()
        batch = spark.read.format("kafka").options(**kafka, subscribe="from").load()
        assert batch.count() == LINES
        assert set(values_in(cluster.bootstrap_servers, "to")) == wanted


@pytest.mark.parametrize("exactly_once", [False, True])
def test_kafka_connect_copies_a_file_through_a_topic_while_a_node_is_killed(
    cluster: LocalCluster, tmp_path: Path, exactly_once: bool
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.touch()
    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        kafka_connect(cluster.kafka_bootstrap_servers, tmp_path, exactly_once=exactly_once) as address,
    ):
        admin.create_topics([NewTopic("lines", PARTITIONS, 3)])
        package = "org.apache.kafka.connect.file"
        connectors = {
            "source": {
                "connector.class": f"{package}.FileStreamSourceConnector",
                "file": str(source),
                "topic": "lines",
            },
            "sink": {"connector.class": f"{package}.FileStreamSinkConnector", "file": str(sink), "topics": "lines"},
        }
        for name, config in connectors.items():
            until(lambda n=name, c=config: asked(address, "PUT", f"/connectors/{n}/config", c) is not None, name)  # type: ignore[misc]
        killed = leader_of(admin, "lines")
        for stretch in range(STRETCHES):
            with source.open("a") as out:
                for number in range(stretch * LINES // STRETCHES, (stretch + 1) * LINES // STRETCHES):
                    out.write(f"line {number}\n")
            if stretch == STRETCHES // 3:
                cluster.kill(killed)
            if stretch == 2 * STRETCHES // 3:
                cluster.start(killed)
            time.sleep(1)
        wanted = {f"line {number}" for number in range(LINES)}
        until(lambda: sink.exists() and set(sink.read_text().splitlines()) >= wanted, "every line has come through")
        assert set(sink.read_text().splitlines()) == wanted
        if exactly_once:
            copied = [value.decode() for _, value in records_in(cluster, "lines") if value is not None]
            assert sorted(copied) == sorted(wanted)
