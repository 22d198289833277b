"""Writes rows at least once, and what exactly-once writes (:mod:`quorumlog.sdk.spark.transactional_sink`) share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quorumlog.sdk.errors import NoBrokersAvailableError
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.spark import rows_to_records
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import DeliveryError, plain_errors
from quorumlog.sdk.spark.nodes import Patience
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import Spread, TargetPartition
from quorumlog.sdk.spark.sending import BatchSender, Piece
from quorumlog.sdk.spark.servers import security_of
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.sdk.types import TransactionToken

#: Rows are sent in portions of this size: enough for whole batches of several partitions.
_PORTION_BYTES = 8 << 20
#: Buffer of a producer.
_BUFFER_BYTES = 64 << 20
#: Size of a batch of a producer.
_BATCH_BYTES = 1 << 20
#: A node's limit of a row: the topic's limit is lower or equal.
_LARGEST_ROW_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of one task: the number of records that it has written."""

    records: int


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches at least once: rows are visible before their micro-batch is complete."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task of a micro-batch."""
        return _write_task(self._options, iterator)


class LogWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query at least once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        return _write_task(self._options, iterator)


def _write_task(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    with plain_errors():
        return write_through(options, task.partitionId(), batches)


def write_through(options: WriteOptions, task: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes rows as they arrive. A repeated task writes them again.

    Raises:
        DeliveryError: rows cannot be written; the message names the topic and the reason.
    """
    with producer_of(options) as producer:
        return Written(send_rows(options, producer, batches, task, time.time_ns() // 1_000_000))


def send_rows(
    options: WriteOptions, producer: Producer, batches: Iterable[pa.RecordBatch], turn: int, timestamp_ms: int
) -> int:
    """Sends rows while Spark produces the next ones, and waits until all are written; returns their number.

    Arguments:
        turn: number that makes tasks start with different partitions where nothing else decides.
        timestamp_ms: of rows without one.

    Raises:
        DeliveryError: rows cannot be written; the message names the topic and the reason.
    """
    records = 0
    shapes: dict[str, TopicShape] = {}
    sender = BatchSender(producer)
    for rows in _portions(options, batches):
        topics = rows_to_records.topics_of(rows) if options.topic is None else [options.topic]
        new = [topic for topic in topics if topic not in shapes]
        if new:
            shapes |= _shapes_in_time(options, new)
        here = {topic: shapes[topic] for topic in topics}
        sender.send(_pieces_of(rows, Spread(here, timestamp_ms, turn, records)))
        records += rows.num_rows
    sender.finish()
    return records


def _portions(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields Spark's batches, combined: small ones would become small batches in the log."""
    gathered: list[pa.Table] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(rows_to_records.rows_of(batch, options.topic))
            size_bytes += batch.nbytes
        if size_bytes >= _PORTION_BYTES:
            yield pa.concat_tables(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield pa.concat_tables(gathered)


def _shapes_in_time(options: WriteOptions, topics: list[str]) -> dict[str, TopicShape]:
    """Returns the present topics. A running query survives nodes that do not answer for some time.

    Raises:
        DeliveryError: one does not exist.
    """
    patience = Patience()
    while True:
        try:
            shapes = ClusterCatalog(options.bootstrap_servers, newest=False).describe(topics)
            break
        except NoBrokersAvailableError as error:
            patience.pause(error)
    missing = [topic for topic in topics if topic not in shapes]
    if missing:
        raise DeliveryError(
            f"topic {missing[0]!r} does not exist: create it first, because a write does not create topics"
        )
    return {topic: shapes[topic] for topic in topics}


def producer_of(options: WriteOptions, joins: TransactionToken | None = None) -> Producer:
    """Returns a producer for one task.

    Arguments:
        joins: the transaction to write in.
    """
    return Producer(
        bootstrap_servers=options.bootstrap_servers,
        **asdict(security_of(options.bootstrap_servers)),
        client_id="quorumlog-spark",
        compression_type=options.compression,
        batch_size=_BATCH_BYTES,
        max_request_size=_LARGEST_ROW_BYTES,
        buffer_memory=_BUFFER_BYTES,
        joins=joins,
    )


def _pieces_of(rows: pa.Table, how: Spread) -> Iterator[Piece]:
    """Yields rows as batches, with partitions in turn: their leaders work in parallel."""
    for turn in zip_longest(*(_cut(target, records, how) for target, records in rows_to_records.spread(rows, how))):
        yield from (piece for piece in turn if piece is not None)


def _cut(target: TargetPartition, records: pa.Table, how: Spread) -> Iterator[Piece]:
    for batch in rows_to_records.cut(records, how.shapes[target.topic].max_message_bytes):
        yield target, batch
