"""Reading topics of a real cluster in a real Spark: every row and every column as it was produced."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.command_line import leader_of
from tests.support.kafka_batches import KafkaRow, kafka_batch, produce_kafka
from tests.support.secured_spark import more_sql_options

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
START_MS = 1_700_000_000_000
Row = dict[str, Any]
Read = Callable[..., DataFrame]

#: Key, value and headers of records that differ in everything that may be null, empty, repeated or not text.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (b"key", b"value", None),
    (None, b"no key", [("h", b"v")]),
    (b"tombstone", None, [("h", None)]),
    (b"", b"", [("", b"")]),
    (b"\x00\xff", bytes(range(256)), [("twice", b"1"), ("twice", b"2"), ("\u00fc", b"\xfe")]),
    (None, None, None),
    (b"long", b"x" * 50_000, None),
]


class Topics:
    """Topics as written, with the rows that Spark must show."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.rows: dict[str, list[Row]] = {}

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        # The records' times are made up, and old: retention would take them.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, partitions, 3, settings)])
        self.rows[name] = []

    def write_kafka(self, cluster: LocalCluster, topic: str, count: int, codec: KafkaCodec) -> None:
        """Writes a batch of so many records as a Kafka client does."""
        rows: list[KafkaRow] = []
        for index in range(count):
            key, value, headers = RECORDS[index % len(RECORDS)]
            rows.append((key, value, START_MS + index, headers or []))
        code, base_offset = produce_kafka(cluster, topic, kafka_batch(rows, codec))
        assert code == 0
        for place, (key, value, timestamp_ms, headers) in enumerate(rows):
            self.rows[topic].append(
                {
                    "key": key,
                    "value": value,
                    "topic": topic,
                    "partition": 0,
                    "offset": base_offset + place,
                    "timestamp": EPOCH + dt.timedelta(milliseconds=timestamp_ms),
                    "timestampType": 0,
                    "headers": [{"key": name, "value": text} for name, text in headers] or None,
                }
            )

    def write(self, topic: str, partitions: int, count: int, **producer: Any) -> None:
        """Writes ``count`` records to each partition, by turns through the list above."""
        with Producer(bootstrap_servers=self.bootstrap_servers, **producer) as writer:
            sent = []
            for index in range(count * partitions):
                key, value, headers = RECORDS[(index // partitions) % len(RECORDS)]
                timestamp_ms = START_MS + 1000 * index
                future = writer.send(
                    topic,
                    value=value,
                    key=key,
                    headers=headers,
                    partition=index % partitions,
                    timestamp_ms=timestamp_ms,
                )
                sent.append((key, value, headers, timestamp_ms, future))
            writer.flush()
            for key, value, headers, timestamp_ms, future in sent:
                at = future.result(timeout=60)
                self.rows[topic].append(
                    {
                        "key": key,
                        "value": value,
                        "topic": topic,
                        "partition": at.partition,
                        "offset": at.offset,
                        "timestamp": EPOCH + dt.timedelta(milliseconds=timestamp_ms),
                        "timestampType": 0,
                        "headers": headers and [{"key": name, "value": text} for name, text in headers],
                    }
                )


@pytest.fixture(scope="module")
def topics(quorumlog_cluster: LocalCluster) -> Topics:
    """orders (3 partitions), payments (2; lz4, then zstd), empty, stamped (append time), kafka."""
    written = Topics(quorumlog_cluster.bootstrap_servers)
    written.create("orders", 3)
    written.write("orders", 3, count=40)
    written.create("payments", 2)
    written.write("payments", 2, count=21, compression_type="lz4")
    written.write("payments", 2, count=21, compression_type="zstd", linger_ms=50)
    written.create("empty")
    written.create("kafka")
    for codec in KafkaCodec:
        written.write_kafka(quorumlog_cluster, "kafka", 100, codec)
        written.write_kafka(quorumlog_cluster, "kafka", 10, codec)
        written.write("kafka", 1, count=21)
    return written


@pytest.fixture(scope="module")
def read(spark: SparkSession, topics: Topics) -> Read:
    """Reads with options; ``schema`` projects."""

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("quorumlog").option("quorumlog.bootstrap.servers", topics.bootstrap_servers)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


def rows_of(frame: DataFrame) -> list[Row]:
    """A frame's rows by topic, partition and offset."""
    return sorted(frame.toArrow().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def expected(topics: Topics, *names: str, headers: bool = False) -> list[Row]:
    """Returns the rows that were written to topics, by topic, partition and offset."""
    rows = [row for name in names for row in topics.rows[name]]
    shown = [{name: value for name, value in row.items() if headers or name != "headers"} for row in rows]
    return sorted(shown, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_every_column_of_every_row_is_as_it_was_produced(read: Read, topics: Topics) -> None:
    frame = read(subscribe="orders", includeHeaders="true")
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int", True),
        ("offset", "bigint", True),
        ("timestamp", "timestamp", True),
        ("timestampType", "int", True),
        ("headers", "array<struct<key:string,value:binary>>", True),
    ]
    assert rows_of(frame) == expected(topics, "orders", headers=True)
    assert frame.count() == 120


def test_without_include_headers_there_is_no_such_column(read: Read, topics: Topics) -> None:
    frame = read(subscribe="orders")
    assert "headers" not in frame.columns
    assert rows_of(frame) == expected(topics, "orders")


def test_compressed_batches_of_both_codecs_and_several_topics(read: Read, topics: Topics) -> None:
    assert rows_of(read(subscribe="payments, orders")) == expected(topics, "orders", "payments")


def test_batches_of_kafkas_clients_are_rows_like_others(read: Read, topics: Topics) -> None:
    frame = read(subscribe="kafka", includeHeaders="true")
    assert rows_of(frame) == expected(topics, "kafka", headers=True)


def test_a_pattern_matches_whole_names(read: Read, topics: Topics) -> None:
    assert rows_of(read(subscribePattern="pay.*|order")) == expected(topics, "payments")
    assert read(subscribePattern="nothing").count() == 0


def test_assigned_partitions_only(read: Read, topics: Topics) -> None:
    frame = read(assign=json.dumps({"orders": [1], "payments": [0]}))
    wanted = {("orders", 1), ("payments", 0)}
    rows = [row for row in expected(topics, "orders", "payments") if (row["topic"], row["partition"]) in wanted]
    assert rows_of(frame) == rows


def test_offsets_bound_each_partition(read: Read, topics: Topics) -> None:
    starts, ends = {0: 10, 1: -2, 2: 39}, {0: 20, 1: 5, 2: -1}
    frame = read(
        subscribe="orders",
        startingOffsets=json.dumps({"orders": {str(number): offset for number, offset in starts.items()}}),
        endingOffsets=json.dumps({"orders": {str(number): offset for number, offset in ends.items()}}),
    )
    bounds = {0: range(10, 20), 1: range(5), 2: range(39, 40)}
    assert rows_of(frame) == [row for row in expected(topics, "orders") if row["offset"] in bounds[row["partition"]]]


def test_times_bound_each_partition(read: Read, topics: Topics) -> None:
    def between(partition: int, first_s: int, last_s: int) -> list[Row]:
        bounds = [EPOCH + dt.timedelta(milliseconds=START_MS, seconds=seconds) for seconds in (first_s, last_s)]
        rows = [row for row in expected(topics, "orders") if row["partition"] == partition]
        return [row for row in rows if bounds[0] <= row["timestamp"] < bounds[1]]

    def times(*seconds: int) -> str:
        return json.dumps({"orders": {str(p): START_MS + 1000 * each for p, each in enumerate(seconds)}})

    whole = read(subscribe="orders", startingTimestamp=str(START_MS + 20_500), endingTimestamp=str(START_MS + 60_000))
    assert rows_of(whole) == [row for partition in range(3) for row in between(partition, 21, 60)]
    late = {"startingOffsetsByTimestamp": times(100, 5_000, 90), "startingOffsetsByTimestampStrategy": "latest"}
    single = read(subscribe="orders", **late, endingOffsetsByTimestamp=times(110, 6_000, 5_000))
    assert rows_of(single) == [*between(0, 100, 110), *between(2, 90, 5_000)], "nothing is as late in partition 1"
    none = read(subscribe="orders", startingTimestamp=str(2 * START_MS), **late)
    assert none.count() == 0, "the time for all counts before those for each"


def test_an_empty_topic_and_an_empty_range_have_no_rows(read: Read) -> None:
    assert read(subscribe="empty").count() == 0
    same = json.dumps({"empty": {"0": 0}})
    assert read(subscribe="empty", startingOffsets=same, endingOffsets=same).count() == 0


def test_a_schema_of_one_s_own_picks_columns(read: Read, topics: Topics) -> None:
    frame = read(schema="value binary, offset bigint", subscribe="orders")
    pairs = sorted((row["offset"], row["value"] or b"") for row in frame.toArrow().to_pylist())
    assert pairs == sorted((row["offset"], row["value"] or b"") for row in topics.rows["orders"])
    assert read(schema="topic string", subscribe="orders").distinct().collect() == [("orders",)]


def test_another_default_of_timestamps_and_a_view_in_sql_change_nothing(
    read: Read, topics: Topics, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        assert rows_of(read(subscribe="orders")) == expected(topics, "orders")
    finally:
        spark.conf.unset("spark.sql.timestampType")
    spark.sql(
        "CREATE TEMPORARY VIEW some_orders USING quorumlog"
        f" OPTIONS (quorumlog.bootstrap.servers '{topics.bootstrap_servers}'{more_sql_options()},"
        " SUBSCRIBE 'orders', minPartitions 5)"
    )
    assert rows_of(spark.table("some_orders")) == expected(topics, "orders")


def test_ranges_can_be_cut_into_more_tasks(read: Read, topics: Topics) -> None:
    frame = read(subscribe="orders", minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    assert rows_of(frame) == expected(topics, "orders")
    assert read(subscribe="orders", maxRecordsPerPartition="10").rdd.getNumPartitions() == 12


def test_append_time_is_shown_as_such(read: Read, topics: Topics) -> None:
    topics.create("stamped", message_timestamp_type="LogAppendTime")
    before = dt.datetime.now(dt.UTC)
    topics.write("stamped", 1, count=5)
    rows = rows_of(read(subscribe="stamped"))
    assert [row["timestampType"] for row in rows] == [1] * 5
    assert all(abs(row["timestamp"] - before) < dt.timedelta(minutes=1) for row in rows)


def test_queries_on_one_data_frame_read_the_same_offsets(read: Read, topics: Topics) -> None:
    topics.create("growing")
    topics.write("growing", 1, count=3)
    first = read(subscribe="growing")
    assert first.count() == 3
    topics.write("growing", 1, count=2)
    assert (first.select("value").count(), read(subscribe="growing").count()) == (3, 5)


def test_a_million_bytes_in_bulk_are_counted_and_summed_by_spark(read: Read, topics: Topics) -> None:
    topics.create("bulk", 2)
    table = pa.table({"value": pa.array([b"%0100d" % number for number in range(50_000)], pa.binary())})
    with Producer(bootstrap_servers=topics.bootstrap_servers) as writer:
        for partition in range(2):
            writer.send_arrow("bulk", table, partition=partition).result(timeout=60)
    frame = read(subscribe="bulk").selectExpr(
        "count(1)", "sum(length(value))", "sum(offset)", "sum(cast(cast(value as string) as int))"
    )
    total = 50_000 * 49_999 // 2
    assert frame.collect() == [(100_000, 10_000_000, 2 * total, 2 * total)]


def test_a_killed_leader_does_not_stop_a_query(read: Read, topics: Topics, quorumlog_cluster: LocalCluster) -> None:
    frame = read(subscribe="orders")
    leader = leader_of(quorumlog_cluster, "orders")
    quorumlog_cluster.kill(leader)
    try:
        assert rows_of(frame) == expected(topics, "orders")
    finally:
        quorumlog_cluster.start(leader)
