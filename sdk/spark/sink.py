"""The writing half of the data source: what Spark's API calls in a task, and how rows are written once.

A task of a streaming query has a name that survives it: the query, its number, and the micro-batch as the epoch. A task
that is run again, because it failed or because the query was restarted, claims the same epoch, reads back what runs
before it have written, and adds the rest. So rows are in the log once, whatever order a shuffle brings them in. The
design is docs/spark.md's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quorumlog.sdk.delivery import ArrowFuture
from quorumlog.sdk.errors import DuplicateSequenceMismatchError, QuorumlogError
from quorumlog.sdk.producer import Producer
from quorumlog.sdk.spark import outgoing, runs
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import DeliveryError, plain_errors
from quorumlog.sdk.spark.nodes import nodes_at
from quorumlog.sdk.spark.outgoing import Spread, Target
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.sdk.spark.written import written_before

#: Rows of one task are in memory until they are known to be written. More of them are for more tasks.
MAX_TASK_BYTES = 1 << 30
#: Rows are sent by so many bytes: enough for whole batches of several partitions.
_PORTION_BYTES = 8 << 20
#: What a producer may have under way.
_BUFFER_BYTES = 64 << 20
_BATCH_BYTES = 1 << 20
#: What a node takes at most: how large a row may be is the topic's to say.
_LARGEST_ROW_BYTES = 8 << 20
#: A task of the same name that was given up may still be writing: what it adds meanwhile is read back again.
_ATTEMPTS = 5

Piece = tuple[Target, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task has written."""

    records: int


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task of a micro-batch."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        assert query is not None and batch is not None, "Spark names the query and the micro-batch of a task"
        number = task.partitionId()
        with plain_errors():
            return write_once(self._options, runs.Name(f"spark-{query}-{number}", int(batch), number), iterator)


class LogWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query: at least once, or once under a ``transactionId``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        number, transaction_id = task.partitionId(), self._options.transaction_id
        with plain_errors():
            if transaction_id is None:
                return write_through(self._options, number, iterator)
            name = runs.Name(f"{transaction_id}-{number}", self._options.transaction_epoch, number)
            return write_once(self._options, name, iterator)


def write_through(options: WriteOptions, task: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes rows as they come. A task that is run again writes them again.

    Raises:
        DeliveryError: rows cannot be written; names the topic and the reason.
    """
    records = 0
    counts: dict[str, int] = {}
    with _producer(options) as producer:
        sender = _Sender(producer)
        for rows in _portions(options, batches):
            topics = _topics_of(options, rows)
            new = [topic for topic in topics if topic not in counts]
            if new:
                shapes = _shapes(_catalog(options), new)
                counts |= {topic: shapes[topic].partition_count for topic in new}
            here = {topic: counts[topic] for topic in topics}
            sender.send(_pieces(rows, Spread(here, time.time_ns() // 1_000_000, task, records)))
            records += rows.num_rows
        sender.finish()
    return Written(records)


def write_once(options: WriteOptions, name: runs.Name, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes rows that no run under this name has written yet.

    Raises:
        DeliveryError: rows cannot be written, or are others than those of an earlier run; names the topic and the
            reason.
    """
    coming = _limited(_portions(options, batches))
    # The topics are claimed before anything is written: a column of them has to be known as a whole.
    come = list(islice(coming, None if options.topic is None else 1))
    topics = _topics_of(options, pa.concat_tables(come)) if come else []
    run = runs.begin(nodes_at(options.bootstrap_servers), name, topics, lambda: first_look(options, topics))
    how = Spread(run.note.partition_counts, run.note.timestamp_ms, name.task)
    if run.is_repeated or not _write_first(options, name, how, come, coming):
        rows = pa.concat_tables([*come, *coming]) if come else outgoing.no_rows()
        _write_rest(options, name, run, how, rows)
        return Written(rows.num_rows)
    return Written(sum(rows.num_rows for rows in come))


def _write_first(
    options: WriteOptions, name: runs.Name, how: Spread, come: list[pa.Table], coming: Iterator[pa.Table]
) -> bool:
    """Writes the rows of a first run while Spark makes the next ones.

    Arguments:
        come: the first rows; the others join them, for who has to compare all of them with the log.

    Returns:
        False where another run of the same name turns out to write at the same time.
    """
    records = 0
    try:
        with _producer(options, name) as producer:
            sender = _Sender(producer)
            for rows in chain(tuple(come), _kept(coming, come)):
                sender.send(_pieces(rows, replace(how, rows_before=records)))
                records += rows.num_rows
            sender.finish()
            producer.end_epoch()
    except DuplicateSequenceMismatchError:
        return False
    return True


def _kept(coming: Iterator[pa.Table], come: list[pa.Table]) -> Iterator[pa.Table]:
    for rows in coming:
        come.append(rows)
        yield rows


def _write_rest(options: WriteOptions, name: runs.Name, run: runs.Run, how: Spread, rows: pa.Table) -> None:
    """Writes what of the rows earlier runs have not written."""
    for attempt in range(1, _ATTEMPTS + 1):
        stored = written_before(options.bootstrap_servers, name, run)
        rest = outgoing.rest_of(rows, stored, how) if stored else rows
        again = [(target, batch) for target, found in stored.items() for batch in found]
        try:
            with _producer(options, name) as producer:
                sender = _Sender(producer)
                sender.send(again)
                sender.send(_pieces(rest, how))
                sender.finish()
                producer.end_epoch()
            return
        except DuplicateSequenceMismatchError as error:
            if attempt == _ATTEMPTS:
                raise DeliveryError(
                    f"what earlier runs of {name.producer} wrote cannot be read back as a whole ({error.message}): if"
                    " retention has removed some of it, start the query anew with another checkpoint"
                ) from None


def _portions(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's batches, several together: what is stored is not to depend on how small they are."""
    gathered: list[pa.Table] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(outgoing.rows_of(batch, options.topic))
            size_bytes += batch.nbytes
        if size_bytes >= _PORTION_BYTES:
            yield pa.concat_tables(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield pa.concat_tables(gathered)


def _limited(portions: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same, as long as they have room together."""
    size_bytes = 0
    for rows in portions:
        size_bytes += rows.nbytes
        if size_bytes > MAX_TASK_BYTES:
            raise DeliveryError(
                f"one task has more than {MAX_TASK_BYTES >> 20} MiB to write: repartition into more tasks, or limit"
                " what a micro-batch reads (maxOffsetsPerTrigger)"
            )
        yield rows


def _topics_of(options: WriteOptions, rows: pa.Table) -> list[str]:
    return outgoing.topics_of(rows) if options.topic is None else [options.topic]


def first_look(options: WriteOptions, topics: list[str]) -> runs.Note:
    """What a first run leaves for those after it.

    Raises:
        DeliveryError: a topic does not exist.
    """
    catalog = _catalog(options)
    shapes = _shapes(catalog, topics)
    partitions = [(topic, number) for topic in topics for number in range(shapes[topic].partition_count)]
    bounds = catalog.bounds(shapes, partitions)
    counts = {topic: shapes[topic].partition_count for topic in topics}
    ends = {Target(*partition): bounds[partition].high_watermark for partition in partitions}
    return runs.Note(time.time_ns() // 1_000_000, counts, ends, secrets.token_hex(4))


def _catalog(options: WriteOptions) -> ClusterCatalog:
    return ClusterCatalog(options.bootstrap_servers, newest=False)


def _shapes(catalog: ClusterCatalog, topics: list[str]) -> Mapping[str, TopicShape]:
    """The topics, all of which have to exist."""
    shapes = catalog.describe(topics)
    missing = sorted(set(topics) - set(shapes))
    if missing:
        raise DeliveryError(
            f"topic {missing[0]!r} does not exist: create it first, topics do not come to be by being written to"
        )
    return shapes


def _producer(options: WriteOptions, name: runs.Name | None = None) -> Producer:
    return Producer(
        bootstrap_servers=options.bootstrap_servers,
        client_id="quorumlog-spark",
        compression_type=options.compression,
        batch_size=_BATCH_BYTES,
        max_request_size=_LARGEST_ROW_BYTES,
        buffer_memory=_BUFFER_BYTES,
        producer_name=None if name is None else name.producer,
        producer_epoch=None if name is None else name.epoch,
    )


def _pieces(rows: pa.Table, how: Spread) -> Iterator[Piece]:
    """Rows as batches, partitions in turn: their leaders work side by side."""
    by_target = [[(target, batch) for batch in outgoing.cut(records)] for target, records in outgoing.spread(rows, how)]
    for turn in zip_longest(*by_target):
        yield from (piece for piece in turn if piece is not None)


class _Sender:
    """Sends batches, and waits for all of them at the end."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._sent: list[tuple[Target, ArrowFuture]] = []

    def send(self, pieces: Iterable[Piece]) -> None:
        """Hands batches to the producer; waits while it has as many as it may."""
        for target, batch in pieces:
            try:
                sent = self._producer.send_arrow(target.topic, batch, partition=target.partition)
            except QuorumlogError as error:
                raise _failed(target, error) from None
            self._sent.append((target, sent))

    def finish(self) -> None:
        """Waits until everything is written.

        Raises:
            DuplicateSequenceMismatchError: the log has other records under the name.
            DeliveryError: something else went wrong.
        """
        self._producer.flush()
        for target, sent in self._sent:
            try:
                sent.result()
            except QuorumlogError as error:
                raise _failed(target, error) from None


def _failed(target: Target, error: QuorumlogError) -> QuorumlogError:
    """The error of a batch, unless it is that the log has other records under the name."""
    if isinstance(error, DuplicateSequenceMismatchError):
        return error
    return DeliveryError(f"{target} cannot be written to: {error.message}")
