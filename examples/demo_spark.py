"""The demo's last check: a Spark session that reads the topic through the data source `quorumlog`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

#: The number of characters of Spark's output shown after a failure.
TAIL_CHARACTERS = 2_000


@dataclass(slots=True, frozen=True)
class SparkCount:
    """The counts of Spark: rows, distinct values, and (partition, rows, distinct values, last offset) of each
    partition.
    """

    rows: int
    distinct: int
    partitions: list[tuple[int, int, int, int]]


def count_in_spark(bootstrap_servers: str, topic: str) -> SparkCount:
    """Counts a topic's records in a local Spark session.

    Raises:
        RuntimeError: Spark cannot run here, or the job failed; the message says why.
    """
    try:
        from quorumlog.sdk.spark.session import local_session
    except ImportError as error:
        raise RuntimeError(f"PySpark is not installed ({error}); run: pip install 'quorumlog[spark]'") from None
    with tempfile.TemporaryFile("w+") as noise:
        try:
            with _stderr_to(noise):
                return _count(local_session, bootstrap_servers, topic)
        except Exception as error:
            noise.seek(0)
            print(noise.read()[-TAIL_CHARACTERS:], file=sys.stderr)
            raise RuntimeError(f"Spark could not read the topic: {' '.join(str(error).split())[:500]}") from error


def _count(local_session: object, bootstrap_servers: str, topic: str) -> SparkCount:
    from pyspark.sql import functions as f

    spark = local_session("quorumlog demo")
    try:
        frame = (
            spark.read.format("quorumlog")
            .option("quorumlog.bootstrap.servers", bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        grouped = frame.groupBy("partition").agg(f.count("*"), f.count_distinct("value"), f.max("offset"))
        partitions = [tuple(row) for row in grouped.orderBy("partition").collect()]
        rows, distinct = frame.agg(f.count("*"), f.count_distinct("value")).first()
        return SparkCount(rows, distinct, partitions)
    finally:
        spark.stop()


@contextmanager
def _stderr_to(file: IO[str]) -> Iterator[None]:
    """Sends the stderr of this process, and of the Java process that it starts, to a file: Java's messages at its start
    would hide the output. A failure shows the end of the file."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
