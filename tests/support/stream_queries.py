"""Streaming queries of tests: each keeps every micro-batch by its number, so that a repeated one must repeat itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

Row = dict[str, Any]
Place = tuple[str, int, int]
_Result = TypeVar("_Result")


#: A machine that is busy with other things is given so many tries.
MOST_STARTS = 5
#: What Spark says where a Python process has not started within ten seconds, which no setting changes.
SLOW_START = "failed to connect back"


def is_slow_start(error: StreamingQueryException) -> bool:
    """True if Spark has not waited for Python to start."""
    return SLOW_START in str(error)


def past_slow_starts(run: Callable[[], _Result]) -> _Result:
    """Returns the result of a run, or raises its error, after runs for which Spark has not waited."""
    for attempt in itertools.count(1):
        try:
            return run()
        except StreamingQueryException as error:
            if attempt == MOST_STARTS or not is_slow_start(error):
                raise
    raise AssertionError("unreachable")


class InjectedError(Exception):
    """Error with which a test makes a micro-batch fail."""


class StreamedTopic:
    """A query over topics with one checkpoint, run as often as a test likes.

    Arguments:
        checkpoint: the folder of its checkpoint.
        options: of the source.
    """

    def __init__(self, spark: SparkSession, bootstrap_servers: str, checkpoint: Path, **options: str) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.tasks: list[int] = []
        self.failing: set[int] = set()
        self._spark = spark
        self._checkpoint = checkpoint
        self._options = {"quorumlog.bootstrap.servers": bootstrap_servers, **options}

    def start(self, schema: str | None = None, *, until_now: bool = False, **options: str) -> StreamingQuery:
        """Starts, or continues at the checkpoint, with further options."""
        reader = self._spark.readStream.format("quorumlog").options(**(self._options | options))
        frame = (reader if schema is None else reader.schema(schema)).load()
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if until_now else writer).start()

    def drain(self, schema: str | None = None, **options: str) -> StreamingQuery:
        """Runs with Trigger.AvailableNow until all is read."""
        for attempt in itertools.count(1):
            query = self.start(schema, until_now=True, **options)
            try:
                assert query.awaitTermination(120)
                return query
            except StreamingQueryException as error:
                if attempt == MOST_STARTS or not is_slow_start(error):
                    raise
        raise AssertionError

    def _keep(self, frame: DataFrame, number: int) -> None:
        rows = frame.toArrow().to_pylist()
        self.tasks.append(frame.rdd.getNumPartitions())
        if number in self.batches:
            assert self.batches[number] == rows, f"micro-batch {number} is another when it is repeated"
        self.batches[number] = rows
        if number in self.failing:
            self.failing.discard(number)
            raise InjectedError(f"micro-batch {number} fails after its work is done")

    @property
    def places(self) -> list[Place]:
        """Topic, partition and offset of every row, by micro-batch."""
        return [
            (row["topic"], row["partition"], row["offset"])
            for number in sorted(self.batches)
            for row in self.batches[number]
        ]

    def sizes(self) -> list[int]:
        """Rows of each micro-batch."""
        return [len(self.batches[number]) for number in sorted(self.batches)]

    def checkpoint(self) -> dict[str, Any]:
        """The newest offset in the checkpoint."""
        newest = max((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        offset: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        return offset
