"""Copies topics into Parquet files, partitioned by the records' date, each record in exactly one file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.pipelines import checkpoints, files, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "archive"
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key:string,value:binary>>"
)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parsed = _parser().parse_args(arguments)
    return job.run(NAME, lambda: _run(parsed))


def _parser() -> job.Parser:
    parser = job.Parser(
        NAME,
        "Copies topics into Parquet files, in a folder per day (UTC) of the records' timestamps: date=2026-01-31."
        "\nEach record is in exactly one of the files that Spark lists for the directory.",
        "python -m quorumlog.sdk.spark.pipelines.archive --bootstrap-servers 127.0.0.1:19092 --from orders"
        " \\\n    --into archive/orders --checkpoint archive-checkpoint --trigger '1 minute'",
    )
    parser.add_stream_options()
    parser.add_argument("--into", required=True, metavar="DIR", help="where the files go")
    return parser


def _run(given: argparse.Namespace) -> str:
    from pyspark.sql import functions as f

    options = job.stream_options(given, includeHeaders="true")
    job.require_sources(given)
    spark = job.session(NAME, given)
    # Spark's default is a type without a time zone, which other readers interpret as local time.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    refuse_taken_directory(spark, given.into, given.checkpoint)
    is_new = checkpoints.claim(spark, given.checkpoint, NAME, {"--into": files.absolute(spark, given.into)})
    refuse_lost_directory(spark, given.into, given.checkpoint)
    rows = job.read_stream(spark, options, _COLUMNS).withColumn("date", f.to_date("timestamp"))
    writer = rows.writeStream.format("parquet").partitionBy("date").option("path", given.into)
    return job.run_stream(NAME, spark, writer, given, is_new=is_new)


def refuse_taken_directory(spark: SparkSession, into: str, checkpoint: str) -> None:
    """Refuses a directory of another checkpoint: Spark skips micro-batch numbers that the directory already has.

    Raises:
        OptionError: a new checkpoint would write to another one's directory, and its first micro-batches would be lost.
    """
    if files.exists(spark, into, "_spark_metadata") and not files.exists(spark, checkpoint, "metadata"):
        raise OptionError(f"{into} was written with another checkpoint, {checkpoint} is new: give it a new directory")


def refuse_lost_directory(spark: SparkSession, into: str, checkpoint: str) -> None:
    """Refuses a checkpoint whose files are gone: Spark would continue after the last micro-batch, without those before
    it.

    Raises:
        OptionError: the files of a query with results are gone.
    """
    if checkpoints.has_results(spark, checkpoint) and not files.exists(spark, into, "_spark_metadata"):
        raise OptionError(f"{into} has lost what {checkpoint} has written there: start again with another checkpoint")


if __name__ == "__main__":
    sys.exit(main())
