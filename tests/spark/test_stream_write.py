"""Streams and batches that are written to topics, on real Spark: exactly what was read, once, in order per key."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from tests.support.pipeline_records import table_of, values_in
from tests.support.stream_queries import MOST_STARTS, is_slow_start, past_slow_starts

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]

ROUNDS = 10
KEYS = 12


def create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        factor = 3 if len(cluster.node_ids) > 1 else 1
        # Retention would take what a test dates back.
        admin.create_topics([NewTopic(topic, partitions, factor, topic_configs={"retention.ms": -1})])


def write(cluster: LocalCluster, topic: str, first: int, count: int) -> None:
    """Numbered records, keyed."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % KEYS))


class Copy:
    """A query from one topic to another, with one checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: LocalCluster,
        source: str,
        sink: str,
        checkpoint: Path,
        plan: Callable[[DataFrame], DataFrame],
        **options: str,
    ) -> None:
        self._spark, self._servers = spark, {"quorumlog.bootstrap.servers": cluster.bootstrap_servers}
        self._source, self._sink, self._checkpoint, self._plan = source, sink, checkpoint, plan
        self._options = options

    def drain(self) -> None:
        """Runs until all present records have been written."""
        for attempt in range(1, MOST_STARTS + 1):
            reader = self._spark.readStream.format("quorumlog").options(**self._servers)
            rows = reader.options(subscribe=self._source, startingOffsets="earliest", maxOffsetsPerTrigger="300").load()
            writer = self._plan(rows).writeStream.format("quorumlog").options(**self._servers)
            query = writer.options(topic=self._sink, checkpointLocation=str(self._checkpoint), **self._options)
            try:
                assert query.trigger(availableNow=True).start().awaitTermination(100)
                return
            except StreamingQueryException as error:
                if attempt == MOST_STARTS or not is_slow_start(error):
                    raise

    def forget_last_batch(self) -> None:
        """As after a crash between the writing of a micro-batch and Spark's note that it is done."""
        commits = self._checkpoint / "commits"
        newest = max((path for path in commits.glob("[0-9]*")), key=lambda path: int(path.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_stream_from_topic_to_topic_survives_restarts_and_the_death_of_nodes(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalCluster(nodes=3) as cluster:
        create(cluster, "in", 3)
        create(cluster, "out", 4)
        copy = Copy(
            spark, cluster, "in", "out", tmp_path / "checkpoint", lambda rows: rows.select("key", "value", "timestamp")
        )
        for turn in range(ROUNDS):
            write(cluster, "in", turn * 100, 100)
            if turn == 3:
                cluster.kill(cluster.leader("out", 0) or 1)
                down = next(node for node in cluster.node_ids if not cluster.is_running(node))
            if turn == 6:
                cluster.start(down)
            copy.drain()
            copy.forget_last_batch()
        copy.drain()
        copied = table_of(cluster.bootstrap_servers, "out")
        by_key: dict[bytes, list[int]] = {}
        for row in copied.select(["key", "value"]).to_pylist():
            by_key.setdefault(row["key"], []).append(int(row["value"]))
        assert by_key == {b"%d" % key: list(range(key, ROUNDS * 100, KEYS)) for key in range(KEYS)}


def test_a_plan_that_shuffles_is_written_once_too(
    spark: SparkSession, quorumlog_cluster: LocalCluster, tmp_path: Path
) -> None:
    create(quorumlog_cluster, "unshuffled", 2)
    create(quorumlog_cluster, "shuffled", 3)
    copy = Copy(
        spark,
        quorumlog_cluster,
        "unshuffled",
        "shuffled",
        tmp_path / "checkpoint",
        lambda rows: rows.selectExpr("CAST(key AS STRING) AS key", "value").repartition(2, "key"),
    )
    write(quorumlog_cluster, "unshuffled", 0, 400)
    copy.drain()
    copy.forget_last_batch()
    write(quorumlog_cluster, "unshuffled", 400, 50)
    copy.drain()
    values: Any = table_of(quorumlog_cluster.bootstrap_servers, "shuffled").column("value").to_pylist()
    assert sorted(map(int, values)) == list(range(450))


def test_a_micro_batch_appears_as_a_whole_with_any_number_of_tasks_and_from_a_copied_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    fails = "if(spark_partition_id() = 5, cast(raise_error('it breaks off') AS binary), value) AS value"
    with LocalCluster(nodes=3) as cluster:
        create(cluster, "many-tasks", 3)
        create(cluster, "few-tasks", 4)
        write(cluster, "many-tasks", 0, 300)
        first, second = tmp_path / "checkpoint", tmp_path / "copy"

        def copy(plan: Callable[[DataFrame], DataFrame], checkpoint: Path = first) -> Copy:
            return Copy(spark, cluster, "many-tasks", "few-tasks", checkpoint, plan)

        with pytest.raises(StreamingQueryException, match="it breaks off"):
            copy(lambda rows: rows.repartition(6).selectExpr("key", fails)).drain()
        assert not values_in(cluster.bootstrap_servers, "few-tasks")
        assert values_in(cluster.bootstrap_servers, "few-tasks", "read_uncommitted"), "no task has written"
        alone = copy(lambda rows: rows.select("key", "value").coalesce(1))
        alone.drain()
        alone.forget_last_batch()
        shutil.copytree(first, second)
        cluster.kill(cluster.leader("few-tasks", 0) or 1)
        copy(lambda rows: rows.select("key", "value").repartition(5)).drain()
        copy(lambda rows: rows.select("key", "value").repartition(2), second).drain()
        write(cluster, "many-tasks", 300, 100)
        copy(lambda rows: rows.select("key", "value")).drain()
        assert values_in(cluster.bootstrap_servers, "few-tasks") == Counter(b"%d" % number for number in range(400))


def test_a_stream_may_be_written_at_least_once(
    spark: SparkSession, quorumlog_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Then its rows are visible before the others of their micro-batch."""
    create(quorumlog_cluster, "origin", 2)
    create(quorumlog_cluster, "early", 2)
    write(quorumlog_cluster, "origin", 0, 300)

    def copy(plan: Callable[[DataFrame], DataFrame]) -> Copy:
        return Copy(spark, quorumlog_cluster, "origin", "early", tmp_path / "checkpoint", plan, transactional="false")

    fails = "if(spark_partition_id() = 1, cast(raise_error('it breaks off') AS binary), value) AS value"
    with pytest.raises(StreamingQueryException, match="it breaks off"):
        copy(lambda rows: rows.repartition(2).selectExpr("key", fails)).drain()
    copy(lambda rows: rows.select("key", "value")).drain()
    expected = Counter(b"%d" % number for number in range(300))
    found = values_in(quorumlog_cluster.bootstrap_servers, "early")
    assert found >= expected and set(found) == set(expected)


def test_a_batch_job_under_a_transaction_id_adds_nothing_when_it_is_run_again(
    spark: SparkSession, quorumlog_cluster: LocalCluster
) -> None:
    create(quorumlog_cluster, "job", 3)
    rows = spark.range(200).selectExpr(
        "CAST(id % 7 AS STRING) AS key",
        "IF(id % 10 = 0, NULL, CAST(id AS STRING)) AS value",
        "CAST(IF(id % 3 = 0, id % 2, NULL) AS INT) AS partition",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "IF(id % 2 = 0, array(struct('h' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)), NULL) AS headers",
    )
    job = rows.write.format("quorumlog").option("quorumlog.bootstrap.servers", quorumlog_cluster.bootstrap_servers)
    for _ in range(2):
        job.option("topic", "job").option("transactionId", "nightly-7").mode("append").save()
    written = table_of(quorumlog_cluster.bootstrap_servers, "job").sort_by("timestamp").to_pylist()
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) - 1_700_000_000_000 for row in written] == list(range(200))
    for number, row in enumerate(written):
        assert row["value"] == (None if number % 10 == 0 else b"%d" % number)
        assert row["key"] == b"%d" % (number % 7)
        assert number % 3 or row["partition"] == number % 2
        assert row["headers"] == (None if number % 2 else [{"key": "h", "value": b"%d" % number}])


def test_jobs_under_one_transaction_id_go_by_their_epochs(spark: SparkSession, quorumlog_cluster: LocalCluster) -> None:
    create(quorumlog_cluster, "jobs", 2)

    def save(epoch: int, first: int) -> None:
        job = spark.range(first, first + 100, 1, 2).selectExpr("CAST(id AS STRING) AS value").write.format("quorumlog")
        job.options(topic="jobs", transactionId="nightly", transactionEpoch=epoch).mode("append").option(
            "quorumlog.bootstrap.servers", quorumlog_cluster.bootstrap_servers
        ).save()

    for epoch, first in ((0, 0), (0, 0), (7, 100), (7, 100)):
        save(epoch, first)
    with pytest.raises(Exception, match="was claimed with epoch 7; epoch 6 is fenced"):
        save(6, 200)
    values: Any = table_of(quorumlog_cluster.bootstrap_servers, "jobs").column("value").to_pylist()
    assert sorted(map(int, values)) == list(range(200))


@pytest.mark.parametrize(
    ("columns", "options", "line"),
    [
        (["id AS v"], {"topic": "t"}, "column 'v' cannot be written"),
        (["id AS value"], {"topic": "t"}, "column 'value' is bigint: cast it to binary or string"),
        (["'k' AS key"], {"topic": "t"}, "there is no column 'value'"),
        (["'v' AS value"], {}, "neither option topic nor a column 'topic'"),
        (["'v' AS value", "'t' AS topic"], {"topic": "t"}, "option topic ('t') and a column 'topic' are given"),
        (["'v' AS value"], {"topic": "t", "compression": "gzip"}, "option compression is 'gzip'"),
        (["'v' AS value"], {"topic": "t", "subscribe": "t"}, "option subscribe ('t') is for a read"),
        (["'v' AS value"], {"topic": "t", "transactional": "true"}, "for jobs with a transactionId: give that too"),
        (
            ["'v' AS value"],
            {"topic": "t", "transactional": "false", "transactionId": "i"},
            "leave one of them out",
        ),
        (["'v' AS value"], {"topic": "t", "transactionTimeout": "1m"}, "and jobs with a transactionId"),
        (["'v' AS value"], {"topic": "t", "transactionTimeout": "2h", "transactionId": "i"}, "give 1s to 1h"),
        (["'v' AS value"], {"topic": "t", "transactionEpoch": "1"}, "under a transactionId: give that too"),
        (["'v' AS value"], {"topic": "t", "transactionEpoch": "x", "transactionId": "i"}, "a number from 0"),
    ],
)
def test_what_cannot_be_written_is_one_clear_line(
    spark: SparkSession, quorumlog_cluster: LocalCluster, columns: list[str], options: dict[str, str], line: str
) -> None:
    job = spark.range(1).selectExpr(*columns).write.format("quorumlog").mode("append")
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark has several classes for what Python raises
        job.option("quorumlog.bootstrap.servers", quorumlog_cluster.bootstrap_servers).options(**options).save()
    assert line in str(refused.value)


def test_a_stream_in_complete_mode_is_refused(
    spark: SparkSession, quorumlog_cluster: LocalCluster, tmp_path: Path
) -> None:
    create(quorumlog_cluster, "counted", 1)
    servers = {"quorumlog.bootstrap.servers": quorumlog_cluster.bootstrap_servers}
    rows = spark.readStream.format("quorumlog").options(**servers, subscribe="counted").load()
    counts = rows.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    writer = counts.writeStream.format("quorumlog").outputMode("complete").options(**servers, topic="counted")
    copy = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(Exception, match="output mode complete has no meaning for a log"):
        past_slow_starts(lambda: copy.start().awaitTermination(100))
