"""Rows per second that Spark reads from and writes to three nodes, beside what it could at most, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.arrow_feed import random_values
from bench.spark_jobs import Count, SparkFormat, WrongRowsError, batch_read, batch_write, stream_read, stream_write
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE_BYTES = 100
PARTITIONS = 4
NODES = 3
#: Tasks that write, one for each core of the machine that the targets are for.
WRITERS = 2
#: Rows of one table given to the producer that fills the topic to read.
_TABLE_ROWS = 25_000
_READ_TOPIC = "bench-read"

OURS = "quorumlog"
MEMORY = "in-process"
STREAM = "bare gRPC"
DISCARD = "discarded"
READ_TARGET = 0.7
WRITE_TARGET = 0.6

#: Runs a query; gives the seconds that it took.
Run = Callable[[], float]


@dataclass(slots=True)
class Rates:
    """One kind of query on every side: rows per second, the n-th of each from the n-th round.

    Arguments:
        limit: the side that the target is about.
        target: what the ratio to it ought to be at least.
    """

    what: str
    rows: int
    limit: str
    target: float
    runs: dict[str, list[float]] = field(default_factory=dict)

    def median(self, side: str) -> float:
        """Rows per second."""
        return statistics.median(self.runs[side])

    def ratios(self, side: str) -> list[float]:
        """Ours to another side's, round by round."""
        return [ours / theirs for ours, theirs in zip(self.runs[OURS], self.runs[side], strict=True)]

    @property
    def met(self) -> bool:
        """True if the target is met."""
        return statistics.median(self.ratios(self.limit)) >= self.target


@dataclass(slots=True, frozen=True)
class QueryKind:
    """A kind of query, and how each side runs it."""

    rates: Rates
    sides: dict[str, Run]

    def run(self, *, turned: bool, counts: bool) -> None:
        """Every side once, in this order or the other."""
        for side in reversed(self.sides) if turned else self.sides:
            seconds = self.sides[side]()
            if counts:
                self.rates.runs.setdefault(side, []).append(self.rates.rows / seconds)


class SparkRates:
    """Measures one cluster.

    Arguments:
        spark: with the formats of :mod:`bench.spark_feeds` registered.
        feed: address of a :class:`bench.arrow_feed.ArrowFeed` with values of ``VALUE_BYTES``.
        read_rows, write_rows: of one query.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, feed: str, *, read_rows: int, write_rows: int) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self._read_rows, self._write_rows = read_rows, write_rows
        self._written = 0
        options = {"rows": str(read_rows), "size": str(VALUE_BYTES), "tasks": str(PARTITIONS)}
        servers = {"quorumlog.bootstrap.servers": bootstrap}
        self._servers = servers
        self._sources = {
            MEMORY: SparkFormat("bench-feed", options),
            STREAM: SparkFormat("bench-feed", {**options, "address": feed}),
            OURS: SparkFormat("quorumlog", {**servers, "subscribe": _READ_TOPIC, "startingOffsets": "earliest"}),
        }

    def measure(self, rounds: Count, say: Callable[[str], None]) -> list[Rates]:
        """Writes the data to read, and runs everything round by round."""
        say("writing the rows to read")
        fill_topic(self._bootstrap, _READ_TOPIC, self._read_rows)
        kinds = [
            self._reading("batch read", batch_read),
            self._reading("streaming read, AvailableNow", stream_read),
            self._writing("batch write", batch_write),
            self._writing("streaming write", stream_write),
            self._writing("batch write, lz4", batch_write, "lz4"),
            self._writing("streaming write, lz4", stream_write, "lz4"),
        ]
        for number in range(1 - rounds.practice, rounds.counted + 1):
            say(f"round {number} of {rounds.counted}" if number > 0 else "a round for practice")
            for kind in kinds:
                kind.run(turned=number % 2 == 0, counts=number > 0)
        return [kind.rates for kind in kinds]

    def _reading(self, what: str, query: Callable[[SparkSession, SparkFormat, int, int], float]) -> QueryKind:
        sides: dict[str, Run] = {
            side: partial(query, self._spark, source, self._read_rows, VALUE_BYTES)
            for side, source in self._sources.items()
        }
        return QueryKind(Rates(what, self._read_rows, STREAM, READ_TARGET), sides)

    def _writing(
        self, what: str, query: Callable[[SparkSession, SparkFormat, int, int, int], float], compression: str = "none"
    ) -> QueryKind:
        rows, options = self._write_rows, {**self._servers, "compression": compression}

        def discarded() -> float:
            return query(self._spark, SparkFormat("bench-discard"), rows, VALUE_BYTES, WRITERS)

        def written() -> float:
            self._written += 1
            topic = f"bench-write-{self._written}"
            sink = SparkFormat("quorumlog", {**options, "topic": topic})
            write = partial(query, self._spark, sink, rows, VALUE_BYTES, WRITERS)
            return timed_write(self._bootstrap, topic, rows, write)

        return QueryKind(Rates(what, rows, DISCARD, WRITE_TARGET), {DISCARD: discarded, OURS: written})


def fill_topic(bootstrap: str, topic: str, rows: int) -> None:
    """Makes a topic of ours with ``rows`` random values, spread over its partitions."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, NODES)])
    table = pa.table({"value": random_values(min(_TABLE_ROWS, rows), VALUE_BYTES)})
    with Producer(bootstrap_servers=bootstrap) as producer:
        futures = [
            producer.send_arrow(topic, table.slice(0, rows - first), partition=first // table.num_rows % PARTITIONS)
            for first in range(0, rows, table.num_rows)
        ]
        for future in futures:
            future.result(timeout=60)


def timed_write(bootstrap: str, topic: str, rows: int, write: Run) -> float:
    """Seconds of a query that writes so many rows to a topic of ours, which is made for it and deleted afterwards.

    Raises:
        WrongRowsError: the topic does not end up with as many records.
    """
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, NODES)])
        seconds = write()
        found = _committed_records(bootstrap, topic)
        if found != rows:
            raise WrongRowsError(f"{found} rows are in the topic instead of {rows}")
        admin.delete_topics([topic])
    return seconds


def _committed_records(bootstrap: str, topic: str) -> int:
    """Number of committed records. Offsets say less: aborted records and markers have some."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends, records = consumer.end_offsets(places), 0
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += consumer.poll_arrow(timeout_ms=1_000).num_rows
    return records
