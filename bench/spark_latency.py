"""Duration of a micro-batch with a handful of rows, and of a record from topic to topic through Spark."""

from __future__ import annotations

import itertools
import random
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.spark_jobs import Count, SparkFormat, WrongRowsError
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LIMIT_S = 120.0
#: Between records of the trickle: a micro-batch always finds some.
_TRICKLE_S = 0.01
_NODES = 3
_SENT = struct.Struct("<q")
#: What a micro-batch's time goes into, by Spark's names.
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@dataclass(slots=True, frozen=True)
class BatchLatency:
    """Micro-batches of one query, in milliseconds.

    Arguments:
        parts: medians by Spark's names.
    """

    what: str
    batches: int
    median_ms: float
    p95_ms: float
    parts: dict[str, float]


@dataclass(slots=True, frozen=True)
class PassageLatency:
    """Records that passed from topic to topic: from ``send`` until a consumer had the copy, in milliseconds."""

    records: int
    median_ms: float
    p95_ms: float


def feed_latency(spark: SparkSession, tasks: int, batches: Count) -> BatchLatency:
    """Measures micro-batches of a source that is all in the process."""
    options = {"rows": str(max(10, tasks)), "size": "100", "tasks": str(tasks)}
    return _micro_batches(
        spark, f"in-process source, {_many(tasks, 'task')}", SparkFormat("bench-feed", options), batches
    )


def log_latency(spark: SparkSession, bootstrap: str, partitions: int, batches: Count) -> BatchLatency:
    """Measures micro-batches of a topic that receives a few records at a time."""
    topic = f"bench-trickle-{partitions}"
    _create(bootstrap, topic, partitions)
    source = SparkFormat("quorumlog", {"quorumlog.bootstrap.servers": bootstrap, "subscribe": topic})
    with _trickle(bootstrap, topic, partitions):
        return _micro_batches(spark, f"quorumlog, {_many(partitions, 'partition')}", source, batches)


def passage(spark: SparkSession, bootstrap: str, records: Count) -> PassageLatency:
    """Single records, through a query that copies one topic to another."""
    origin, copy = "bench-origin", "bench-copy"
    _create(bootstrap, origin, 1)
    _create(bootstrap, copy, 1)
    servers = {"quorumlog.bootstrap.servers": bootstrap}
    rows = spark.readStream.format("quorumlog").options(**servers, subscribe=origin).load().select("key", "value")
    rng = random.Random(1)
    taken: list[float] = []
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer,
        Consumer(copy, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        writer = rows.writeStream.format("quorumlog").options(**servers, topic=copy, checkpointLocation=checkpoint)
        query = writer.start()
        try:
            _await_first(query)
            for _ in range(records.practice + records.counted):
                producer.send(origin, _SENT.pack(time.monotonic_ns()))
                sent_ns = _next(consumer)
                taken.append((time.monotonic_ns() - sent_ns) / 1e6)
                # A query that copies is idle when the next record comes, and the next comes at any moment of its wait.
                time.sleep(rng.uniform(0.1, 0.4))
        finally:
            query.stop()
    counted = taken[records.practice :]
    return PassageLatency(len(counted), statistics.median(counted), _p95(counted))


def _await_first(query: StreamingQuery) -> None:
    """Until a query has looked at its source: it starts at what is latest then."""
    deadline_s = time.monotonic() + _LIMIT_S
    while query.lastProgress is None:
        if not query.isActive or time.monotonic() > deadline_s:
            raise WrongRowsError("the copying query did not start")
        time.sleep(0.02)


def _next(consumer: Consumer) -> int:
    deadline_s = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline_s:
        for records in consumer.poll(timeout_ms=1_000, max_records=1).values():
            (sent_ns,) = _SENT.unpack(records[0].value or b"")
            return int(sent_ns)
    raise WrongRowsError("a record did not pass through the query")


def _micro_batches(spark: SparkSession, what: str, source: SparkFormat, batches: Count) -> BatchLatency:
    frame = spark.readStream.format(source.format).options(**source.options).load()
    seen: dict[int, dict[str, float]] = {}
    wanted = batches.practice + batches.counted
    with tempfile.TemporaryDirectory() as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        deadline_s = time.monotonic() + _LIMIT_S
        try:
            while len(seen) < wanted:
                if not query.isActive or time.monotonic() > deadline_s:
                    raise WrongRowsError(f"{what}: {len(seen)} micro-batches instead of {wanted}")
                for progress in query.recentProgress:
                    if progress["numInputRows"]:
                        seen[progress["batchId"]] = progress["durationMs"]
                time.sleep(0.2)
        finally:
            query.stop()
    durations = [seen[number] for number in sorted(seen)][batches.practice :]
    whole = [one["triggerExecution"] for one in durations]
    parts = {part: statistics.median(one.get(part, 0) for one in durations) for part in PARTS}
    return BatchLatency(what, len(whole), statistics.median(whole), _p95(whole), parts)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _p95(values: list[float]) -> float:
    return sorted(values)[len(values) * 95 // 100]


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, _NODES)])


@contextmanager
def _trickle(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """Records in turn to every partition, as long as the context lasts."""
    ended = threading.Event()

    def send() -> None:
        with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for number in itertools.count():
                producer.send(topic, b"x" * 100, partition=number % partitions)
                if ended.wait(_TRICKLE_S):
                    return

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
