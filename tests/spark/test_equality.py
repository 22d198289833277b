"""Records that the SDK writes and Spark reads, and the other way round, are identical in every column.

20,000 records by default; ``QUORUMLOG_EQUALITY_RECORDS=1000000`` has the full million.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from random import Random, SystemRandom

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk import Consumer, TopicPartition
from tests.support.written_topics import Topic, create, fill, of_partition

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(3_600)]

RECORDS = int(os.environ.get("QUORUMLOG_EQUALITY_RECORDS", "20000"))
SEED = int(os.environ.get("QUORUMLOG_TEST_SEED", SystemRandom().randrange(1 << 32)))
#: Offsets of each partition that Spark hands over at a time: the driver has them in memory.
SLICE = 25_000
DEADLINE_S = 600.0
BY_PLACE = [("partition", "ascending"), ("offset", "ascending")]
#: What share of the records goes where.
TOPICS = {
    Topic("everything", 4, "zstd"): 0.7,
    Topic("compacted", 2, "lz4", is_compacted=True): 0.2,
    Topic("stamped", 2, "none", is_compacted=True, is_stamped=True): 0.1,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Nodes that compact all the time."""
    with LocalCluster(nodes=3, settings={"compaction_interval_ms": 200}) as nodes:
        create(nodes, *TOPICS)
        yield nodes


def read(cluster: LocalCluster, topic: Topic) -> pa.Table:
    """All that the SDK reads from a topic, by partition and offset."""
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        tables = [consumer.poll_arrow()]
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            tables.append(consumer.poll_arrow(timeout_ms=1_000))
    return pa.concat_tables(tables).sort_by(BY_PLACE)


def read_compacted(cluster: LocalCluster, topic: Topic, written: pa.Table) -> pa.Table:
    """The same, once there are gaps in every partition."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = read(cluster, topic)
        sizes = [(of_partition(rows, n).num_rows, of_partition(written, n).num_rows) for n in range(topic.partitions)]
        if all(left < before for left, before in sizes):
            return rows
        assert time.monotonic() < deadline, f"{topic.name} is not compacted: {sizes}"


def kept(written: pa.Table, rows: pa.Table) -> pa.Table:
    """The records written that ``rows`` has, by partition and offset; the last of each key is among them."""
    pieces = []
    for partition in pc.unique(written.column("partition")).to_pylist():
        mine, there = of_partition(written, partition), of_partition(rows, partition).column("offset")
        newest = mine.group_by("key").aggregate([("offset", "max")]).column("offset_max")
        assert pc.all(pc.is_in(newest, there.combine_chunks())).as_py(), "the last record of each key is kept"
        pieces.append(mine.take(there))
    return pa.concat_tables(pieces)


def slices(written: pa.Table) -> Iterator[dict[int, range]]:
    """Offsets of each partition, a slice of all at a time."""
    partitions: list[int] = pc.unique(written["partition"]).to_pylist()
    ends = {partition: of_partition(written, partition).num_rows for partition in partitions}
    for first in range(0, max(ends.values()), SLICE):
        yield {partition: range(min(first, end), min(first + SLICE, end)) for partition, end in ends.items()}


def read_by_spark(spark: SparkSession, options: dict[str, str], topic: Topic, written: pa.Table) -> pa.Table:
    """All that Spark reads from a topic, by partition and offset."""
    tables = []
    for offsets in slices(written):
        starts = json.dumps({topic.name: {number: wanted.start for number, wanted in offsets.items()}})
        ends = json.dumps({topic.name: {number: wanted.stop for number, wanted in offsets.items()}})
        reader = spark.read.format("quorumlog").options(**options, startingOffsets=starts, endingOffsets=ends)
        tables.append(reader.load().toArrow())
    return pa.concat_tables(tables).sort_by(BY_PLACE)


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Every column of ``expected`` is the same in ``found``, row by row, to the last bit."""
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        mine, theirs = found.column(name), expected.column(name)
        if mine.cast(theirs.type).equals(theirs):
            continue
        pairs = zip(mine.to_pylist(), theirs.to_pylist(), strict=True)
        row, (found_one, expected_one) = next((row, pair) for row, pair in enumerate(pairs) if pair[0] != pair[1])
        pytest.fail(f"column {name} is {found_one!r:.200} in row {row}, expected {expected_one!r:.200}")


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_spark_reads_what_the_sdk_wrote_and_the_sdk_what_spark_wrote(
    spark: SparkSession, cluster: LocalCluster, topic: Topic
) -> None:
    print(f"QUORUMLOG_TEST_SEED={SEED} QUORUMLOG_EQUALITY_RECORDS={RECORDS}")
    written = fill(cluster, topic, int(RECORDS * TOPICS[topic]), Random(SEED))
    servers = {"quorumlog.bootstrap.servers": cluster.bootstrap_servers}
    options = {**servers, "subscribe": topic.name, "includeHeaders": "true"}
    deadline = time.monotonic() + DEADLINE_S
    for attempt in itertools.count():
        consumed = read_compacted(cluster, topic, written) if topic.is_compacted else read(cluster, topic)
        found = read_by_spark(spark, options, topic, written)
        again = topic._replace(name=f"{topic.name}-{attempt}", is_compacted=False, is_stamped=False)
        create(cluster, again)
        rows = spark.read.format("quorumlog").options(**options).load()
        records = rows.select("key", "value", "headers", "timestamp", "partition")
        back = records.write.format("quorumlog").options(**servers, topic=again.name, transactionId=again.name)
        back.options(compression=topic.codec).mode("append").save()
        if read(cluster, topic).num_rows == consumed.num_rows:
            break
        assert time.monotonic() < deadline, "compaction comes to no end"

    expected = kept(written, consumed) if topic.is_compacted else written
    assert_same(consumed, expected)
    kind = pa.repeat(pa.scalar(int(topic.is_stamped), pa.int32()), expected.num_rows)
    complete = expected.append_column("timestampType", kind)
    assert set(found.column_names) == set(complete.column_names)
    assert_same(found, complete)
    assert_same(read(cluster, again), expected.select(["partition", "key", "value", "headers", "timestamp"]))
    print(f"{expected.num_rows} of {written.num_rows} records of {topic.name} are the same: {expected.nbytes:,} bytes")
