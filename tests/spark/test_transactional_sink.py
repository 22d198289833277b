"""Micro-batches in transactions, on real Spark and real nodes: each appears exactly once and whole."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.errors import InvalidProducerEpochError
from quorumlog.sdk.spark import sink
from quorumlog.sdk.spark import transactional_sink as new
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.write_options import WriteOptions
from tests.support.pipeline_records import values_in
from tests.support.stream_queries import MOST_STARTS, is_slow_start

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(300)]

_numbers = count()
Plan = Callable[[DataFrame], DataFrame]


def create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 3 if len(cluster.node_ids) > 1 else 1)])


@pytest.fixture
def options(quorumlog_cluster: LocalCluster) -> WriteOptions:
    topic = f"in-transactions-{next(_numbers)}"
    create(quorumlog_cluster, topic, 3)
    return WriteOptions(quorumlog_cluster.bootstrap_servers, topic, None, "none", transactional=True)


def work() -> new.Work:
    return new.Work(f"work-{time.time_ns()}-{next(_numbers)}", 3)


def batch(*values: bytes) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"value": list(values)})]


def values(options: WriteOptions) -> Counter[bytes]:
    assert options.topic is not None
    return values_in(options.bootstrap_servers, options.topic)


def test_only_the_tasks_that_count_are_committed(options: WriteOptions) -> None:
    this, run = work(), new.new_run()
    tasks = [new.write_in_transaction(options, this, run, task, batch(b"%d" % task)) for task in (0, 1)]
    new.write_in_transaction(options, this, run, 1, batch(b"1"))
    tasks.append(new.write_in_transaction(options, this, run, 2, []))
    assert not values(options)
    new.commit(options, [*tasks, None])
    assert values(options) == Counter([b"0", b"1"])
    new.commit(options, tasks)
    again = new.write_in_transaction(options, this, new.new_run(), 0, batch(b"0", b"1"))
    assert again.token is None
    new.commit(options, [again])
    assert values(options) == Counter([b"0", b"1"])


def test_a_later_run_fences_the_one_before_it(options: WriteOptions) -> None:
    this, old = work(), new.new_run()
    lost = [new.write_in_transaction(options, this, old, task, batch(b"old")) for task in range(3)]
    run = new.new_run()
    done = new.write_in_transaction(options, this, run, 0, batch(b"new"))
    with pytest.raises(InvalidProducerEpochError, match="later instance"):
        new.write_in_transaction(options, this, old, 4, batch(b"old"))
    with pytest.raises(DeliveryError, match="is not committed"):
        new.commit(options, lost)
    new.commit(options, [done])
    new.commit(options, lost)
    assert values(options) == Counter([b"new"])


def test_what_a_run_has_aborted_is_not_visible_and_the_next_run_starts_again(options: WriteOptions) -> None:
    this = work()
    new.abort(options, [new.write_in_transaction(options, this, new.new_run(), 0, batch(b"1")), None])
    new.commit(options, [new.write_in_transaction(options, this, new.new_run(), 0, batch(b"2"))])
    assert values(options) == Counter([b"2"])


def test_each_sink_recognizes_the_work_of_the_other(options: WriteOptions) -> None:
    this = work()
    name = runs.Name(this.name, this.number, 0)
    old = sink.write_once(options, name, batch(b"3"))
    with pytest.raises(DeliveryError, match="transactional=false until it is done"):
        new.write_in_transaction(options, this, new.new_run(), 0, batch(b"3"))
    sink.end(options, [old])
    assert new.write_in_transaction(options, this, new.new_run(), 0, batch(b"3")).token is None
    following = this._replace(number=4)
    new.commit(options, [new.write_in_transaction(options, following, new.new_run(), 0, batch(b"4"))])
    with pytest.raises(DeliveryError, match="transactional=true until it is done"):
        sink.write_once(options, name._replace(epoch=4), batch(b"4"))
    sink.end(options, [sink.write_once(options, name._replace(epoch=5), batch(b"5"))])
    assert values(options) == Counter([b"3", b"4", b"5"])


class Copy:
    """A query between two topics that writes in transactions."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, source: str, topic: str) -> None:
        self._spark, self._servers = spark, {"quorumlog.bootstrap.servers": cluster.bootstrap_servers}
        self._source, self._topic = source, topic

    def drain(self, checkpoint: Path, plan: Plan) -> None:
        """Runs until all present records have been written."""
        for attempt in range(1, MOST_STARTS + 1):
            reader = self._spark.readStream.format("quorumlog").options(**self._servers)
            rows = reader.options(subscribe=self._source, startingOffsets="earliest", maxOffsetsPerTrigger="200").load()
            writer = plan(rows).writeStream.format("quorumlog").options(**self._servers, transactional="true")
            query = writer.options(topic=self._topic, checkpointLocation=str(checkpoint))
            try:
                assert query.trigger(availableNow=True).start().awaitTermination(100)
                return
            except StreamingQueryException as error:
                if attempt == MOST_STARTS or not is_slow_start(error):
                    raise


def fill(cluster: LocalCluster, topic: str, numbers: range) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))


def forget_last_batch(checkpoint: Path) -> None:
    """As after a crash between the commit of a micro-batch and Spark's note that it is done."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)


def test_any_number_of_tasks_a_copied_checkpoint_and_the_death_of_a_leader(spark: SparkSession, tmp_path: Path) -> None:
    fails = "if(spark_partition_id() = 5, cast(raise_error('it breaks off') AS binary), value) AS value"
    with LocalCluster(nodes=3) as cluster:
        create(cluster, "in", 3)
        create(cluster, "out", 4)
        fill(cluster, "in", range(300))
        copy, checkpoint = Copy(spark, cluster, "in", "out"), tmp_path / "checkpoint"
        with pytest.raises(StreamingQueryException, match="it breaks off"):
            copy.drain(checkpoint, lambda rows: rows.repartition(6).selectExpr("key", fails))
        assert not values_in(cluster.bootstrap_servers, "out")
        copy.drain(checkpoint, lambda rows: rows.select("key", "value").coalesce(1))
        forget_last_batch(checkpoint)
        shutil.copytree(checkpoint, tmp_path / "copy")
        cluster.kill(cluster.leader("out", 0) or 1)
        copy.drain(checkpoint, lambda rows: rows.select("key", "value").repartition(5))
        copy.drain(tmp_path / "copy", lambda rows: rows.select("key", "value").repartition(2))
        fill(cluster, "in", range(300, 400))
        copy.drain(checkpoint, lambda rows: rows.select("key", "value"))
        assert values_in(cluster.bootstrap_servers, "out") == Counter(b"%d" % number for number in range(400))


def test_a_job_with_a_transaction_id_is_written_once(spark: SparkSession, quorumlog_cluster: LocalCluster) -> None:
    create(quorumlog_cluster, "job", 2)
    for tasks in (3, 1):
        rows = spark.range(0, 100, 1, tasks).selectExpr("CAST(id AS STRING) AS value")
        job = rows.write.format("quorumlog").option("quorumlog.bootstrap.servers", quorumlog_cluster.bootstrap_servers)
        job.options(topic="job", transactionId="nightly", transactional="true").mode("append").save()
    assert values_in(quorumlog_cluster.bootstrap_servers, "job") == Counter(b"%d" % number for number in range(100))
