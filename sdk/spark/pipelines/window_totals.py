"""Counts and sums a topic's records per key and event-time window, and writes the results to a topic, exactly once.

Sums are decimals, which are the same in whatever order a shuffle returns the numbers: a repeated micro-batch must have
the same results, because the sink could not distinguish them from others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.pipelines import checkpoints, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "window_totals"
_COLUMNS = "key binary, value binary, timestamp timestamp"
#: Options that cannot change for a checkpoint: other values would mix results of different kinds.
_FOR_GOOD = ("to", "field", "window", "output_mode")
#: Digits of a number, and number of decimals among them. Sums have ten digits more.
_DIGITS, _DECIMALS = 28, 6


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parsed = _parser().parse_args(arguments)
    return job.run(NAME, lambda: _run(parsed))


def _parser() -> job.Parser:
    parser = job.Parser(
        NAME,
        "Counts a topic's records per key and window of time, sums their numbers, and writes the figures to another"
        " topic, exactly once.\nA record of the result has the group's key, and as its value JSON such as\n"
        '  {"start":"2026-01-31T12:00:00.000Z","end":"2026-01-31T12:01:00.000Z","count":3,"numbers":2,"sum":7.500000}',
        "python -m quorumlog.sdk.spark.pipelines.window_totals --bootstrap-servers 127.0.0.1:19092 --from orders"
        " \\\n    --to order-totals --field amount --window '1 minute' --watermark '10 seconds' --checkpoint totals",
    )
    parser.add_stream_options()
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic of the results; has to exist")
    parser.add_argument(
        "--field",
        metavar="NAME",
        help="JSON field with the number, or a path such as $.order.amount; without it, the value is the number",
    )
    parser.add_argument(
        "--window", type=job.length, default="1 minute", metavar="TIME", help="length of a window (default: 1 minute)"
    )
    parser.add_argument(
        "--watermark", type=job.duration, default="10 seconds", metavar="TIME",
        help="how late a record may be, by its timestamp beside the newest one's (default: 10 seconds)",
    )  # fmt: skip
    parser.add_argument(
        "--output-mode", choices=("append", "update"), default="append",
        help="append: a window once, when no record can change it; update: whenever it has changed",
    )  # fmt: skip
    return parser


def _run(given: argparse.Namespace) -> str:
    options = job.stream_options(given)
    job.require_sources(given)
    job.require_topics(given, given.to)
    spark = job.session(NAME, given)
    totals = window_totals(job.read_stream(spark, options, _COLUMNS), given.field, given.window, given.watermark)
    target, writer = {**job.servers(given), "topic": given.to}, totals.writeStream.outputMode(given.output_mode)
    if given.output_mode == "update":
        writer = writer.foreachBatch(_updates_to(target))
    else:
        writer = writer.format("quorumlog").options(**target)
    bound = {f"--{name.replace('_', '-')}": getattr(given, name) for name in _FOR_GOOD}
    is_new = checkpoints.claim(spark, given.checkpoint, NAME, bound)
    return job.run_stream(NAME, spark, writer, given, is_new=is_new)


def _updates_to(target: dict[str, str]) -> Callable[[DataFrame, int], None]:
    """Returns a function that writes each micro-batch as a batch job, under the query's name and with its own number.

    Spark refuses output mode update for sinks in Python.
    """

    def write(updates: DataFrame, batch: int) -> None:
        query = updates.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None, "Spark names the query that calls"
        target_once = target | {"transactionId": f"spark-{query}", "transactionEpoch": str(batch)}
        updates.write.format("quorumlog").options(**target_once).mode("append").save()

    return write


def window_totals(rows: DataFrame, field: str | None, window: str, watermark: str) -> DataFrame:
    """Returns the plan: rows with key, value and timestamp to rows with key, value and timestamp.

    Arguments:
        field: JSON field or path of the number; None if the whole value is a number.
        window: length of the tumbling windows, in Spark's format.
        watermark: how late a record may be.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import DecimalType

    text = f.col("value").cast("string")
    if field is not None:
        text = f.get_json_object(text, field if field.startswith("$") else f"$.{field}")
    numbered = rows.withColumn("number", text.try_cast(DecimalType(_DIGITS, _DECIMALS)))
    groups = numbered.withWatermark("timestamp", watermark).groupBy("key", f.window("timestamp", window))
    figures = groups.agg(
        f.count("*").alias("count"),
        f.count("number").alias("numbers"),
        f.sum("number").alias("sum"),
        f.max("timestamp").alias("newest"),
    )
    result = f.struct("window.start", "window.end", "count", "numbers", "sum")
    return figures.select(
        "key", f.to_json(result, {"ignoreNullFields": "false"}).alias("value"), f.col("newest").alias("timestamp")
    )


if __name__ == "__main__":
    sys.exit(main())
