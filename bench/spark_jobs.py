"""Jobs at which Spark is timed: whole queries that read, or write, so many rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Looks at every row: a null or lost value, or one of another length, shows.
_LOOK = ("count(value) AS rows", "sum(length(value)) AS bytes")
_LIMIT_S = 300


@dataclass(slots=True, frozen=True)
class Count:
    """Number of measurements, and of practice runs before them: the JVM has code to learn."""

    counted: int
    practice: int


class WrongRowsError(Exception):
    """A query did not give, or write, the rows that it should have."""


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """A format with its options."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


def batch_read(spark: SparkSession, source: SparkFormat, rows: int, size: int) -> float:
    """Seconds of a batch query that counts rows and adds up the lengths of their values."""
    frame = spark.read.format(source.format).options(**source.options).load()
    began = time.perf_counter()
    _check(frame, rows, size)
    return time.perf_counter() - began


def stream_read(spark: SparkSession, source: SparkFormat, rows: int, size: int) -> float:
    """Seconds of a streaming query under Trigger.AvailableNow that does the same with its one micro-batch."""
    frame = spark.readStream.format(source.format).options(**source.options).load()
    seen: list[int] = []

    def look(batch: DataFrame, number: int) -> None:
        _check(batch, rows, size)
        seen.append(number)

    with tempfile.TemporaryDirectory() as checkpoint:
        began = time.perf_counter()
        writer = frame.writeStream.foreachBatch(look).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_LIMIT_S) or seen != [0]:
            raise WrongRowsError(f"{source.format}: micro-batches {seen} instead of one")
        return time.perf_counter() - began


def _check(frame: DataFrame, rows: int, size: int) -> None:
    (found,) = frame.selectExpr(*_LOOK).collect()
    if (found["rows"], found["bytes"]) != (rows, rows * size):
        raise WrongRowsError(f"{found['rows']} rows with {found['bytes']} bytes instead of {rows} of {size}")


def _values(number: str, size: int) -> str:
    return f"CAST(rpad(CAST({number} AS STRING), {size}, 'x') AS BINARY) AS value"


def batch_write(spark: SparkSession, sink: SparkFormat, rows: int, size: int, tasks: int) -> float:
    """Seconds of a batch query that makes rows in the JVM and writes them."""
    frame = spark.range(0, rows, 1, tasks).selectExpr(_values("id", size))
    writer = frame.write.format(sink.format).options(**sink.options).mode("append")
    began = time.perf_counter()
    writer.save()
    return time.perf_counter() - began


def stream_write(spark: SparkSession, sink: SparkFormat, rows: int, size: int, tasks: int) -> float:
    """Seconds of a streaming query that does so in one micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks)
    frame = source.load().selectExpr(_values("value", size))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(sink.format).options(**sink.options).option("checkpointLocation", checkpoint)
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_LIMIT_S):
            raise WrongRowsError(f"{sink.format} did not end")
        return time.perf_counter() - began
