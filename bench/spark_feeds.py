"""Spark data sources and sinks with nothing behind them: the ceilings of reading and writing a log from Spark.

``bench-feed`` gives as many rows as requested, with the columns of the source: out of the Python worker's memory,
or with option ``address`` as the bytes that :mod:`bench.arrow_feed` streams. ``bench-discard`` takes rows and throws
them away.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bench.arrow_feed import COUNT, MESSAGE_RECORDS, SERVICE, random_values
from bench.bare_node import unchanged
from quorumlog.sdk.spark.nodes import CHANNEL_OPTIONS
from quorumlog.sdk.spark.schema import ddl
from quorumlog.wire.payload import LOG_SCHEMA

_TOPIC = "feed"


class Share(InputPartition):
    """One task's rows."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class QueryFeed:
    """Rows that a query receives.

    Arguments:
        address: of the server; empty for the worker's memory.
        rows, size: how many in a micro-batch, and bytes of a value.
        tasks: that share them.
    """

    address: str
    rows: int
    size: int
    tasks: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> QueryFeed:
        """As the options say."""
        return cls(options.get("address", ""), int(options["rows"]), int(options["size"]), int(options["tasks"]))

    def shares(self) -> list[InputPartition]:
        """The tasks."""
        edges = [self.rows * number // self.tasks for number in range(self.tasks + 1)]
        return [Share(edges[number + 1] - edges[number]) for number in range(self.tasks)]

    def batches(self, share: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """One task's rows."""
        assert isinstance(share, Share)
        left = share.rows
        held = _held(self.size, schema)
        source = _streamed(self.address, left, held) if self.address else _repeated(left, held)
        for batch in source:
            yield batch.slice(0, left) if batch.num_rows > left else batch
            left -= batch.num_rows


@functools.cache
def _held(size: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in the memory of this process."""
    count = MESSAGE_RECORDS
    columns: dict[str, Any] = {
        "key": pa.nulls(count, pa.binary()),
        "value": random_values(count, size),
        "topic": pa.repeat(_TOPIC, count),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(1_700_000_000_000_000, pa.timestamp("us", "UTC")), count),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _repeated(rows: int, held: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for _ in range(-(-rows // held.num_rows)):
        yield held


def _streamed(address: str, rows: int, held: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields batches whose columns of the log come over the stream."""
    call = _channel(os.getpid(), address).unary_stream(f"/{SERVICE}/Read", unchanged, unchanged)
    stored = [(held.schema.get_field_index(name), LOG_SCHEMA.get_field_index(name)) for name in LOG_SCHEMA.names[:3]]
    for message in call(COUNT.pack(-(-rows // held.num_rows))):
        columns = held.columns
        came = pa.ipc.read_record_batch(pa.py_buffer(message), LOG_SCHEMA)
        for place, origin in stored:
            columns[place] = came.column(origin)
        yield pa.RecordBatch.from_arrays(columns, schema=held.schema)


@functools.cache
def _channel(process: int, address: str) -> grpc.Channel:
    """Keyed by process: a connection that was made before a fork hangs in the child."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


class FeedSource(DataSource):
    """Format ``bench-feed``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bench-feed"

    def schema(self) -> str:
        """The columns of a log."""
        return ddl(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        """All rows, once."""
        return FeedReader(QueryFeed.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """All rows in every micro-batch."""
        return FeedStreamReader(QueryFeed.of(self.options), schema)


class FeedReader(DataSourceReader):
    """A batch read."""

    def __init__(self, feed: QueryFeed, columns: StructType) -> None:
        self._feed = feed
        self._schema = to_arrow_schema(columns, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        return self._feed.shares()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        return self._feed.batches(partition, self._schema)


class FeedStreamReader(DataSourceStreamReader):
    """A streaming read that always has one more micro-batch; under Trigger.AvailableNow there is one in all."""

    def __init__(self, feed: QueryFeed, columns: StructType) -> None:
        self._feed = feed
        self._schema = to_arrow_schema(columns, timezone="UTC")

    def initialOffset(self) -> dict[str, int]:
        """No micro-batch yet."""
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """One more."""
        return {"batches": start["batches"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The tasks."""
        return self._feed.shares()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        return self._feed.batches(partition, self._schema)


class DiscardSink(DataSource):
    """Format ``bench-discard``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bench-discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Returns the writer of a batch query."""
        return Discard()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Returns the writer of a streaming query."""
        return StreamDiscard()


class Discard(DataSourceArrowWriter):
    """Takes rows as Arrow batches, and looks at none."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task."""
        for _ in iterator:
            continue
        return WriterCommitMessage()


class StreamDiscard(DataSourceStreamArrowWriter):
    """The same in a stream."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task of a micro-batch."""
        for _ in iterator:
            continue
        return WriterCommitMessage()
