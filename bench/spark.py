"""``python -m bench spark``: Spark reading and writing a log on three nodes, beside what Spark could do at most.

Three ceilings, measured in the same run and in turn with it: reading as many rows of the same columns out of the Python
worker's memory; reading the same Arrow bytes over a bare gRPC stream; writing to a sink in Python that takes Arrow
batches and throws them away. Reading queries count every row and add up the lengths of its value; writing ones are
checked by the offsets of the topic. Then micro-batches of a trickle of records, beside those of a source in the
worker's memory, and single records from topic to topic.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from rich.console import Console
from rich.table import Table

from bench.arrow_feed import ArrowFeed, FeedError
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from bench.spark_jobs import Count, WrongRowsError
from bench.spark_latency import PARTS, BatchLatency, PassageLatency, feed_latency, log_latency, passage
from bench.spark_rates import NODES, OURS, VALUE_BYTES, Rates, SparkRates
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True, frozen=True)
class Amounts:
    """Amounts that are measured.

    Arguments:
        read_rows, write_rows: of each query.
        rounds: of queries over so many rows.
        partitions: of the topics whose micro-batches are looked at.
        batches: micro-batches of each.
        passages: records from topic to topic.
    """

    read_rows: int
    write_rows: int
    rounds: Count
    partitions: tuple[int, ...]
    batches: Count
    passages: Count


FULL = Amounts(
    4_000_000, 1_000_000, rounds=Count(5, 1), partitions=(1, 16), batches=Count(60, 10), passages=Count(30, 5)
)
QUICK = Amounts(1_000_000, 300_000, rounds=Count(3, 1), partitions=(1, 16), batches=Count(20, 5), passages=Count(10, 3))


@dataclass(slots=True)
class SparkFigures:
    """Everything that was measured."""

    load_average: float
    rates: list[Rates]
    batches: list[BatchLatency]
    passage: PassageLatency


def measure(spark: SparkSession, data_dir: Path, amounts: Amounts, say: Callable[[str], None]) -> SparkFigures:
    """Measures everything on a fresh cluster.

    Arguments:
        data_dir: where the nodes' logs go.
        say: takes a line about progress.
    """
    from bench.spark_feeds import DiscardSink, FeedSource

    load_average = os.getloadavg()[0]
    spark.dataSource.register(FeedSource)
    spark.dataSource.register(DiscardSink)
    with ArrowFeed(VALUE_BYTES) as feed, LocalCluster(nodes=NODES, data_dir=data_dir) as cluster:
        bootstrap = cluster.bootstrap_servers
        measured = SparkRates(
            spark, bootstrap, feed.address, read_rows=amounts.read_rows, write_rows=amounts.write_rows
        )
        rates = measured.measure(amounts.rounds, say)
        batches = []
        for count in amounts.partitions:
            say(f"micro-batches of {count}")
            batches.append(feed_latency(spark, count, amounts.batches))
            batches.append(log_latency(spark, bootstrap, count, amounts.batches))
        say("records from topic to topic")
        passed = passage(spark, bootstrap, amounts.passages)
    return SparkFigures(load_average, rates, batches, passed)


def rate_lines(rates: list[Rates]) -> list[list[str]]:
    """Cells of the table of rates, without its head: a line for each ceiling."""
    return [_rate_line(one, side) for one in rates for side in one.runs if side != OURS]


def _rate_line(one: Rates, ceiling: str) -> list[str]:
    ratios = one.ratios(ceiling)
    return [
        f"{one.what}, beside {ceiling}",
        f"{one.median(OURS) / 1e6:.2f} M",
        f"{one.median(ceiling) / 1e6:.2f} M",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
        f"≥ {one.target:g}" if ceiling == one.limit else "",
    ]


def latency_lines(figures: SparkFigures) -> list[list[str]]:
    """Cells of the table of latencies, without its head."""
    lines = [
        [one.what, f"{one.median_ms:.0f} / {one.p95_ms:.0f}", *(f"{one.parts[part]:.0f}" for part in PARTS)]
        for one in figures.batches
    ]
    whole = f"{figures.passage.median_ms:.0f} / {figures.passage.p95_ms:.0f}"
    return [*lines, ["a record from topic to topic, send to poll", whole, *("" for _ in PARTS)]]


RATE_HEAD = ("rows of 100 B per second", OURS, "ceiling", "ratio (min-max)", "target")
LATENCY_HEAD = ("micro-batch, ms", "median / p95", *PARTS)


def show(console: Console, figures: SparkFigures) -> None:
    """Prints both tables."""
    title = f"{NODES} nodes, medians; load average {figures.load_average:.1f}"
    for head, lines in ((RATE_HEAD, rate_lines(figures.rates)), (LATENCY_HEAD, latency_lines(figures))):
        table = Table(title=title, title_justify="left")
        for place, name in enumerate(head):
            table.add_column(name, justify="right" if place else "left", overflow="fold")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    for one in figures.rates:
        verdict = "met" if one.met else "missed"
        console.print(f"{one.what}: {one.target:g} of {one.limit} {verdict}", style="green" if one.met else "yellow")


def markdown(figures: SparkFigures) -> str:
    """Both tables as they are in the documentation."""
    tables = []
    for head, lines in ((RATE_HEAD, rate_lines(figures.rates)), (LATENCY_HEAD, latency_lines(figures))):
        rows = [head, ["---"] * len(head), *lines]
        tables.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(tables)


def _write_json(path: Path, command: str, figures: SparkFigures) -> None:
    report = {
        "command": command,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **dataclasses.asdict(figures),
        "met": {one.what: one.met for one in figures.rates},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds: about a minute and a half")
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"how often every query runs (default {FULL.rounds.counted}, quick {QUICK.rounds.counted})",
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    add_json(parser)
    add_work_dir(parser)
    parsed = parser.parse_args(arguments)
    amounts = QUICK if parsed.quick else FULL
    if parsed.rounds:
        amounts = dataclasses.replace(amounts, rounds=Count(parsed.rounds, practice=1))
    console = result_console()
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=parsed.work_dir) as data_dir:
            spark = local_session("quorumlog bench", log_level="off")
            try:
                figures = measure(spark, Path(data_dir), amounts, console.print)
            finally:
                spark.stop()
    except (ClusterError, FeedError, PySparkException, QuorumlogError, WrongRowsError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    if parsed.markdown:
        print(markdown(figures))
    else:
        show(console, figures)
    if parsed.json is not None:
        _write_json(parsed.json, shlex.join(["python", "-m", "bench", "spark", *arguments]), figures)
    return 0
