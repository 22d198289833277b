"""Spark reads one partition from all of its replicas: each row once, with the bytes spread, also when a node dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from tests.support.racks import TOPIC, VALUE, Racks, racks_with

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]

RECORDS = 30_000


@pytest.fixture(scope="module")
def racks() -> Iterator[Racks]:
    with racks_with(RECORDS) as made:
        yield made


def keys(spark: SparkSession, racks: Racks, **options: str) -> list[int]:
    """Reads the topic with three tasks; returns the keys in order."""
    reader = spark.read.format("quorumlog").option("quorumlog.bootstrap.servers", racks.cluster.bootstrap_servers)
    frame = reader.options(subscribe=TOPIC, minPartitions="3", **options).load()
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.select(col("key").cast("string").cast("int").alias("key"), "value").collect()
    assert all(row.value == VALUE for row in rows)
    return sorted(row.key for row in rows)


def test_tasks_are_spread_over_replicas(spark: SparkSession, racks: Racks) -> None:
    """Each node serves a third of the bytes; without the option, the leader serves all."""
    leader = racks.leader
    for options, most in (({}, 1.0), ({"readFrom": "replicas"}, 0.5)):
        before = racks.served()
        assert keys(spark, racks, **options) == list(range(RECORDS))
        after = racks.served()
        read = {node: after[node] - before[node] for node in after}
        share = read[leader] / sum(read.values())
        print(options, read)
        assert share <= most
        assert (share == 1.0) is not bool(options)
        if options:
            assert min(read.values()) > sum(read.values()) / 6


def test_dead_replica_is_replaced_by_the_leader(spark: SparkSession, racks: Racks) -> None:
    """A task whose replica is down reads from the leader."""
    leader = racks.leader
    racks.cluster.kill(next(node for node in racks.cluster.node_ids if node != leader))
    assert keys(spark, racks, readFrom="replicas") == list(range(RECORDS))
