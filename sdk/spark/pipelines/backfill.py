"""Writes Parquet files to a topic, once however often it is run, the records of a key in the order of their offsets."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.pipelines import job, parquet_input
from quorumlog.sdk.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import DataFrame, SparkSession

NAME = "backfill"
#: Columns of a record and the expressions for them, if the files have such a column.
_MAPPED = ("key", "value", "timestamp", "headers")
_ORDER = ("topic", "partition", "offset")
_POLL_S = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parsed = _parser().parse_args(arguments)
    return job.run(NAME, lambda: _run(parsed))


def _parser() -> job.Parser:
    parser = job.Parser(
        NAME,
        "Writes Parquet files to a topic, in one transaction: readers see all records or none. Run again under the same"
        " --transaction-id it starts again, or adds nothing if it was done.\nFiles with the columns topic, partition"
        " and offset, as archive writes them, are written in that order per key.\nOld records are kept for the topic's"
        " retention.ms after this job has written them: set retention.ms=-1 to keep them permanently.",
        "python -m quorumlog.sdk.spark.pipelines.backfill --bootstrap-servers 127.0.0.1:19092 --from archive/orders"
        " \\\n    --to orders-again --transaction-id orders-again-1",
    )
    parser.add_argument("--from", dest="source", required=True, metavar="PATH", help="directory or file of Parquet")
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic to write to; has to exist")
    parser.add_argument("--transaction-id", required=True, metavar="ID", help="permanent name of this job")
    parser.add_argument(
        "--tasks", type=int, default=16, metavar="N",
        help="tasks to write in (default: 16)",
    )  # fmt: skip
    parser.add_argument(
        "--transaction-timeout", default="1h", metavar="TIME",
        help="how long it may take to write, at most 1h (default: 1h); divide more with --where, under several ids",
    )  # fmt: skip
    parser.add_argument("--where", metavar="CONDITION", help="only these rows, such as \"date >= '2026-01-01'\" (SQL)")
    parser.add_argument("--keep-partitions", action="store_true", help="write each record to the partition it had")
    for name in _MAPPED:
        parser.add_argument(
            f"--{name}", metavar="SQL", help=f"column or expression of the record's {name} (default: column {name})"
        )
    return parser


def _run(given: argparse.Namespace) -> str:
    options = {**job.servers(given), "topic": given.to, "transactionId": given.transaction_id}
    options["transactionTimeout"] = given.transaction_timeout
    parse_write_options(options, streaming=False)
    if not 1 <= given.tasks <= 10_000:
        raise OptionError(f"--tasks is {given.tasks}: expected 1 to 10000")
    job.require_topics(given, given.to)
    spark = job.session(NAME, given)
    rows = _rows(spark, given)
    began, total = time.monotonic(), rows.count()
    job.say(f"{NAME}: {total:,} records in {given.tasks} tasks, under {given.transaction_id}")
    records = in_order(rows, given)
    with _told(spark):
        records.write.format("quorumlog").options(**options).mode("append").save()
    return f"{NAME}: done, {total:,} records are in {given.to}, {time.monotonic() - began:.1f} s"


def _rows(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    rows = parquet_input.read(spark, given.source)
    return rows if given.where is None else rows.where(given.where)


def in_order(rows: DataFrame, given: argparse.Namespace) -> DataFrame:
    """Returns the plan: records in tasks, in order within each.

    All records of a key are in one task, and so are, with ``--keep-partitions``, all of a partition.

    Raises:
        OptionError: the files lack a requested column, or a column for the value.
    """
    from pyspark.sql import functions as f

    mapped = {name: getattr(given, name) or (name if name in rows.columns else None) for name in _MAPPED}
    if mapped["value"] is None:
        raise OptionError(f"{given.source} has no column value: name the text to write with --value")
    order = [name for name in _ORDER if name in rows.columns]
    if given.keep_partitions and "partition" not in order:
        raise OptionError(f"{given.source} has no column partition: --keep-partitions has nothing to go by")
    chosen = {name: f.expr(text) for name, text in mapped.items() if text is not None}
    if given.keep_partitions:
        together = f.xxhash64(*[name for name in order if name != "offset"])
    else:
        rest = f.xxhash64(*([f.col(name) for name in order] or [chosen["value"]]))
        together = (
            f.when(chosen["key"].isNotNull(), f.xxhash64(chosen["key"])).otherwise(rest) if "key" in chosen else rest
        )
    # Columns of the record may have the names of ordering columns, so all are created before any is dropped.
    laid_out = rows.select(
        together.alias("together"),
        *([f.struct(*order).alias("place")] if order else []),
        *([f.col("partition")] if given.keep_partitions else []),
        *[column.alias(name) for name, column in chosen.items()],
    )
    tasks = laid_out.repartition(given.tasks, "together")
    return (tasks.sortWithinPartitions("place") if order else tasks).drop("together", "place")


@contextmanager
def _told(spark: SparkSession) -> Iterator[None]:
    """Prints a line for each change of progress inside the block.

    Raises:
        StoppedError: by a signal.
    """
    ended = threading.Event()
    # The job itself stays in this thread: in others Spark does not have the formats of the session.
    telling = threading.Thread(target=_tell_progress, args=(spark.sparkContext.statusTracker(), ended), daemon=True)
    telling.start()
    try:
        yield
    except KeyboardInterrupt:
        raise job.StoppedError("stopped: run it again under the same --transaction-id") from None
    finally:
        ended.set()
        telling.join(_POLL_S)


def _tell_progress(tracker: StatusTracker, ended: threading.Event) -> None:
    said = ""
    while not ended.wait(_POLL_S):
        stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
        line = ", ".join(
            f"stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks done"
            for stage in stages
            if stage is not None
        )
        if line and line != said:
            job.say(line)
            said = line


if __name__ == "__main__":
    sys.exit(main())
