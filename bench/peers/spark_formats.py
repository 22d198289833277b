"""``python -m bench peers --spark``: Spark's own Kafka source and sink beside ours, in one session and in turn.

Both clusters run all the time, with as many rows of 100 B. A batch query and a stream under AvailableNow count every
row and add up the lengths of its value; a batch write is checked by the offsets of its topic.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from rich.table import Table

from bench.peers import kafka, ours
from bench.peers.artifacts import JarSet
from bench.peers.client_process import run_client, run_load
from bench.peers.clients.target import Target
from bench.peers.server_processes import PeerError
from bench.printing import result_console
from bench.spark import rate_lines
from bench.spark_jobs import Count, SparkFormat, WrongRowsError, batch_read, batch_write, stream_read
from bench.spark_rates import OURS, PARTITIONS, VALUE_BYTES, WRITERS, QueryKind, Rates, fill_topic, timed_write
from quorumlog.local import ClusterError
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The newest that Maven has, which Spark 4.3 takes too; without what PySpark brings along.
JARS = JarSet(
    "spark-kafka",
    "org.apache.spark",
    "spark-sql-kafka-0-10_2.13",
    "4.2.0",
    excluded=(
        *("hadoop-client-api", "hadoop-client-runtime", "jsr305", "lz4-java", "scala-library", "snappy-java"),
        *("scala-parallel-collections_2.13", "slf4j-api", "spark-tags_2.13"),
    ),
)
KAFKA = "Spark's Kafka format"
READ_ROWS, WRITE_ROWS = 4_000_000, 1_000_000
_HEAD = ("rows of 100 B per second", OURS, "Kafka", "ratio (min-max)", "target")
_READ_TOPIC = "bench-read"
#: What the ratio to Kafka's ought to be at least.
_TARGET = 1.0


class FormatComparison:
    """Queries over both formats, each on a cluster of its own.

    Arguments:
        ours, theirs: ``host:port`` of every server.
        read_rows, write_rows: of one query.
    """

    def __init__(self, spark: SparkSession, ours: str, theirs: str, *, read_rows: int, write_rows: int) -> None:
        self._spark, self._ours, self._theirs = spark, ours, theirs
        self._read_rows, self._write_rows = read_rows, write_rows
        self._written = 0

    def measure(self, rounds: Count, say: Callable[[str], None]) -> list[Rates]:
        """Writes the data to read, and runs everything round by round."""
        say("writing the rows to read")
        fill_topic(self._ours, _READ_TOPIC, self._read_rows)
        target = Target(self._theirs, _READ_TOPIC, PARTITIONS)
        run_client("confluent", "create", target)
        # The client sends one record more, before it starts its clock.
        run_load("confluent", "produce", target, VALUE_BYTES, self._read_rows - 1)
        kinds = [
            self._reading("batch read", batch_read),
            self._reading("streaming read, AvailableNow", stream_read),
            QueryKind(
                Rates("batch write", self._write_rows, KAFKA, _TARGET),
                {KAFKA: self._written_to_kafka, OURS: self._written_to_ours},
            ),
        ]
        for number in range(1 - rounds.practice, rounds.counted + 1):
            say(f"round {number} of {rounds.counted}" if number > 0 else "a round for practice")
            for kind in kinds:
                kind.run(turned=number % 2 == 0, counts=number > 0)
        return [kind.rates for kind in kinds]

    def _reading(self, what: str, query: Callable[[SparkSession, SparkFormat, int, int], float]) -> QueryKind:
        options = {"subscribe": _READ_TOPIC, "startingOffsets": "earliest"}
        sources = {
            KAFKA: SparkFormat("kafka", {"kafka.bootstrap.servers": self._theirs, **options}),
            OURS: SparkFormat("quorumlog", {"quorumlog.bootstrap.servers": self._ours, **options}),
        }
        runs = {
            side: partial(query, self._spark, source, self._read_rows, VALUE_BYTES) for side, source in sources.items()
        }
        return QueryKind(Rates(what, self._read_rows, KAFKA, _TARGET), runs)

    def _write(self, sink: SparkFormat) -> float:
        return batch_write(self._spark, sink, self._write_rows, VALUE_BYTES, WRITERS)

    def _written_to_ours(self) -> float:
        topic = self._next_topic()
        sink = SparkFormat("quorumlog", {"quorumlog.bootstrap.servers": self._ours, "topic": topic})
        return timed_write(self._ours, topic, self._write_rows, partial(self._write, sink))

    def _written_to_kafka(self) -> float:
        target = Target(self._theirs, self._next_topic(), PARTITIONS)
        run_client("confluent", "create", target)
        seconds = self._write(SparkFormat("kafka", {"kafka.bootstrap.servers": self._theirs, "topic": target.topic}))
        found = run_client("confluent", "records", target)
        if found != self._write_rows:
            raise WrongRowsError(f"{found} rows are in Kafka's topic instead of {self._write_rows}")
        return seconds

    def _next_topic(self) -> str:
        self._written += 1
        return f"bench-write-{self._written}"


def main(given: argparse.Namespace, command: str) -> int:
    """Measures and reports; returns the exit status.

    Arguments:
        given: the options of ``bench peers``.
        command: as it was typed, for the report.
    """
    console = result_console()
    missing = "; ".join(want for want in (kafka.missing(), JARS.missing()) if want)
    if missing:
        print(f"bench: error: Spark's Kafka format is left out: install {missing}", file=sys.stderr)
        return 1
    load_average = os.getloadavg()[0]
    given.work_dir.mkdir(parents=True, exist_ok=True)
    rows = {name: max(1_000, int(count * given.scale)) for name, count in (("read", READ_ROWS), ("write", WRITE_ROWS))}
    jars = ",".join(str(jar) for jar in sorted(JARS.folder.glob("*.jar")))
    try:
        with tempfile.TemporaryDirectory(dir=given.work_dir) as directory:
            spark = local_session("quorumlog bench", log_level="off", spark__jars=jars)
            try:
                with (
                    ours.OURS.start(Path(directory)) as our_servers,
                    kafka.PEERS[0].start(Path(directory)) as their_servers,
                ):
                    comparison = FormatComparison(
                        spark,
                        our_servers.addresses,
                        their_servers.addresses,
                        read_rows=rows["read"],
                        write_rows=rows["write"],
                    )
                    rates = comparison.measure(Count(given.repetitions, practice=1), console.print)
            finally:
                spark.stop()
    except (ClusterError, PeerError, PySparkException, QuorumlogError, WrongRowsError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = rate_lines(rates)
    if given.markdown:
        print("\n".join(f"| {' | '.join(line)} |" for line in [list(_HEAD), ["---"] * len(_HEAD), *lines]))
    else:
        table = Table(title=f"medians of {given.repetitions}; load average before: {load_average:.1f}")
        for place, name in enumerate(_HEAD):
            table.add_column(name, justify="right" if place else "left", overflow="fold")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    console.print(f"{JARS.artifact} {JARS.version} and Kafka {kafka.JARS.version}: {kafka.PEERS[0].settings}")
    if given.json is not None:
        _write_json(given.json, command, load_average, rates)
    return 0


def _write_json(path: Path, command: str, load_average: float, rates: list[Rates]) -> None:
    report = {
        "command": command,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": load_average,
        "rows_per_second": {one.what: one.runs for one in rates},
        "ratios": {one.what: statistics.median(one.ratios(KAFKA)) for one in rates},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
