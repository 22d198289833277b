"""A query's filters bound what Spark reads from a real cluster, and never change its rows."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, NewTopic, Producer

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]

SETTING = "spark.sql.python.filterPushdown.enabled"
START_MS = 1_700_000_000_000
HOURS, BATCHES_AN_HOUR, BATCH = 24, 6, 10
#: Time from one record to the next of its partition.
STEP_MS = 3_600_000 // (BATCHES_AN_HOUR * BATCH)
#: How far records are out of order.
JITTER_MS = 20 * STEP_MS
LAST_HOUR = f"timestamp >= timestamp_millis({START_MS + (HOURS - 1) * 3_600_000})"
SECOND_HOUR = (
    f"timestamp > timestamp_millis({START_MS + 3_600_000}) AND timestamp <= timestamp_millis({START_MS + 7_200_000})"
)


class Node:
    """A node, and the bytes that it has sent to readers."""

    def __init__(self, cluster: LocalCluster, metrics: str) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self._metrics = metrics

    def sent_bytes(self) -> float:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        (line,) = (line for line in lines if line.startswith("quorumlog_fetch_bytes_total"))
        return float(line.split()[-1])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node with a day of records in topics day (2 partitions) and other."""
    ports = ReservedPorts(1)
    metrics = f"127.0.0.1:{ports.ports[0]}"
    with LocalCluster(nodes=1, node_settings={1: {"metrics_listen": metrics}}) as cluster:
        servers, rng = cluster.bootstrap_servers, random.Random(7)
        with Admin(bootstrap_servers=servers) as admin:
            # The records' times are made up, and old: retention would remove them.
            settings = {"retention.ms": "-1"}
            admin.create_topics([NewTopic("day", 2, 1, settings), NewTopic("other", 1, 1, settings)])
        with Producer(bootstrap_servers=servers, linger_ms=1_000) as producer:
            for index in range(HOURS * BATCHES_AN_HOUR * BATCH):
                time_ms = START_MS + index * STEP_MS
                for topic, partition in (("day", 0), ("day", 1), ("other", 0)):
                    late_ms = rng.randrange(JITTER_MS) if partition else 0
                    value = rng.randbytes(200)
                    producer.send(topic, value, partition=partition, timestamp_ms=time_ms - late_ms)
                if index % BATCH == BATCH - 1:
                    producer.flush()
        yield Node(cluster, metrics)
    ports.close()


RECENT = "timestamp >= current_timestamp() - INTERVAL 1 HOUR"


@pytest.fixture
def day(spark: SparkSession, node: Node) -> Iterator[DataFrame]:
    reader = spark.read.format("quorumlog").option("quorumlog.bootstrap.servers", node.bootstrap_servers)
    was = spark.conf.get(SETTING)
    spark.conf.set(SETTING, "true")
    yield reader.option("subscribe", "day,other").load()
    spark.conf.set(SETTING, was)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        (LAST_HOUR, None),
        (SECOND_HOUR, None),
        (f"timestamp = timestamp_millis({START_MS})", None),
        ("timestamp < timestamp'2001-01-01'", 0),
        (RECENT, 0),
        ("topic = 'other' AND offset < 100", 100),
        ("topic IN ('day', 'none') AND partition = 1 AND offset BETWEEN 200 AND 299", 100),
        ("partition > 0 OR offset = 3", 1442),
        ("offset IN (5, 1000, 99999)", 6),
        ("topic LIKE 'da%' AND NOT partition = 0 AND offset >= 1400", 40),
        ("offset >= 5000", 0),
        ("length(value) = 200 AND offset < 2", 6),
    ],
)
def test_rows_are_those_without_pushdown(day: DataFrame, condition: str, count: int | None) -> None:
    found = []
    for setting in ("true", "false"):
        day.sparkSession.conf.set(SETTING, setting)
        rows = day.where(condition).select("topic", "partition", "offset", "timestamp", "value").collect()
        found.append(sorted(rows))
    assert found[0] == found[1]
    assert count is None or len(found[0]) == count


@pytest.mark.parametrize(
    ("condition", "share"),
    [(LAST_HOUR, 15), ("offset >= 1400", 15), ("topic = 'day' AND partition = 0 AND offset >= 1400", 40)],
)
def test_a_part_of_the_log_is_read(day: DataFrame, node: Node, condition: str, share: int) -> None:
    """Records are out of order, and each filter still reads a small part of the day."""
    sent = [node.sent_bytes()]
    for frame in (day, day.where(condition)):
        assert frame.selectExpr("sum(length(value)) AS bytes").head()["bytes"]  # type: ignore[index]
        sent.append(node.sent_bytes())
    whole, part = sent[1] - sent[0], sent[2] - sent[1]
    assert 0 < part <= whole / share


def test_relative_times_are_pushed_down(day: DataFrame, node: Node) -> None:
    sent = node.sent_bytes()
    assert day.where(RECENT).count() == 0
    assert node.sent_bytes() == sent


def test_sessions_without_the_setting_read_as_before(day: DataFrame) -> None:
    """Spark refuses a reader that takes filters unless the setting is on."""
    day.sparkSession.conf.set(SETTING, "false")
    assert day.where("offset < 2").count() == 6
