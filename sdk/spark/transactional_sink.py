"""Exactly-once writes in a transaction with many writers: all rows of a micro-batch become visible at once, or none.

The transactional id is that of the query, and its work is the micro-batch. Spark does not pass the query to the
driver's half of a sink, so the tasks start the transaction: all tasks of one run have the number of the run, for
which the coordinator returns the same identity. Each task that has rows joins with a producer id of its own. The commit
is one decision that names the writers of the tasks that count; whatever others have written is aborted.
"""

from __future__ import annotations

import functools
import os
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quorumlog.sdk.errors import InvalidTransactionTimeoutError, QuorumlogError
from quorumlog.sdk.spark import sink
from quorumlog.sdk.spark.begun_work import begin_work, has_tasks, is_complete
from quorumlog.sdk.spark.errors import DeliveryError, plain_errors
from quorumlog.sdk.spark.nodes import Nodes, nodes_at
from quorumlog.sdk.spark.transaction_calls import end_transaction, init_transaction
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.sdk.types import TransactionToken

#: Feature level of clusters that have transactions.
_FEATURE_LEVEL = 3
#: Low bits of the number of a run: random, and even, because the number after that of a run means that it is over.
_RANDOM_BITS = 12
#: Work that was started longer ago may have been committed and forgotten: a transactional id expires after 365 days.
_FORGOTTEN_MS = 360 * 86_400_000


class Work(NamedTuple):
    """A micro-batch of a query, or a job of a series: its transactional id, and its number."""

    name: str
    number: int


class _Begun(NamedTuple):
    token: TransactionToken
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TransactionalRows(WriterCommitMessage):
    """The result of one task.

    Attributes:
        work: that the rows belong to.
        run: number of the run.
        token: the transaction; None if the work was committed before.
        writer: producer id of the task; None if it had no rows to write.
    """

    work: Work
    run: int
    token: TransactionToken | None
    writer: int | None


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in a transaction."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Spark creates a writer for each run of a micro-batch, and passes copies of it to the tasks.
        self._run = new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task of a micro-batch."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        assert query is not None and batch is not None, "Spark names the query and the micro-batch of a task"
        with plain_errors():
            work = Work(f"spark-{query}", int(batch))
            return write_in_transaction(self._options, work, self._run, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commits the micro-batch."""
        with plain_errors():
            commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Aborts what the tasks have written, so that readers need not wait for the timeout."""
        abort(self._options, messages)


class TransactionalWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query with a ``transactionId`` in a transaction."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        assert self._options.transaction_id is not None, "the options were checked"
        with plain_errors():
            work = Work(self._options.transaction_id, self._options.transaction_epoch)
            return write_in_transaction(self._options, work, self._run, task.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the job."""
        with plain_errors():
            commit(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts what the tasks have written, so that readers need not wait for the timeout."""
        if not abort(self._options, messages):
            assert self._options.transaction_id is not None, "the options were checked"
            abandon(self._options, Work(self._options.transaction_id, self._options.transaction_epoch), self._run)


def new_run() -> int:
    """Returns the number of a run, which is higher than those of earlier ones."""
    return (time.time_ns() // 1_000 << _RANDOM_BITS) | secrets.randbelow(1 << _RANDOM_BITS) & ~1


def write_in_transaction(
    options: WriteOptions, work: Work, run: int, task: int, batches: Iterable[pa.RecordBatch]
) -> TransactionalRows:
    """Writes the rows of one task, as Spark produces them. They become visible with :func:`commit`.

    Raises:
        DeliveryError: rows cannot be written; the message names the topic and the reason.
        InvalidProducerEpochError: a later run has started, or the transaction was open for too long.
    """
    try:
        begun = _begin_once(os.getpid(), options, work, run)
        if begun is None:
            return TransactionalRows(work, run, None, None)
        turn = zlib.crc32(work.name.encode()) + work.number + task
        with sink.producer_of(options, joins=begun.token) as producer:
            records = sink.send_rows(options, producer, batches, turn, begun.timestamp_ms)
            writer = producer.finish() if records else None
    except QuorumlogError as error:
        # The transaction may be over: a repeated task finds out.
        _begin_once.cache_clear()
        raise _with_time(error, options, run) from None
    return TransactionalRows(work, run, begun.token, writer)


def _with_time(error: QuorumlogError, options: WriteOptions, run: int) -> QuorumlogError:
    """Returns the error of a run, with what to do if the run takes longer than its transaction may be open."""
    age_ms = time.time_ns() // 1_000_000 - (run >> _RANDOM_BITS) // 1_000
    if age_ms <= options.transaction_timeout_ms:
        return error
    return DeliveryError(
        f"{error.message}. The transaction was started up to {age_ms // 1_000} s ago, and is aborted after"
        f" {options.transaction_timeout_ms // 1_000} s: raise option transactionTimeout (1h at most), or write less at"
        " once: limit what a micro-batch reads (maxOffsetsPerTrigger), or divide the job"
    )


@functools.lru_cache(maxsize=16)
def _begin_once(process: int, options: WriteOptions, work: Work, run: int) -> _Begun | None:
    """Returns the result of :func:`_begin`, which all tasks of a run share that this process executes."""
    return _begin(options, work, run)


def _begin(options: WriteOptions, work: Work, run: int) -> _Begun | None:
    """Starts the transaction of a run, or returns the one that another of its tasks has started; None if the work is
    committed."""
    nodes, now_ms = nodes_at(options.bootstrap_servers), time.time_ns() // 1_000_000
    _require_transactions(nodes)
    # Before the transaction: an instance that is behind is refused here, and aborts none of the one that is ahead.
    first = begin_work(nodes, work.name, work.number, run, now_ms)
    if not first.is_transactional:
        _require_complete(nodes, work)
        return None
    try:
        started = init_transaction(nodes, work.name, work.number, run, options.transaction_timeout_ms)
    except InvalidTransactionTimeoutError as error:
        raise DeliveryError(
            f"option transactionTimeout is more than the nodes accept (transaction_max_timeout_ms): {error.message}"
        ) from None
    if started.work_committed:
        return None
    if not started.HasField("committed_work"):
        if has_tasks(nodes, work.name, work.number):
            _require_complete(nodes, work)
            return None
        if now_ms - first.timestamp_ms > _FORGOTTEN_MS and not first.is_first:
            raise DeliveryError(
                f"number {work.number} of {work.name} was started more than 360 days ago, and the cluster has"
                " forgotten whether it was committed: see whether its rows are in the topic, and start a query with"
                " another checkpoint, or another transactionId"
            )
    token = TransactionToken(work.name, started.identity.producer_id, started.identity.producer_epoch)
    return _Begun(token, first.timestamp_ms)


def _require_transactions(nodes: Nodes) -> None:
    """Validates that the cluster has transactions, before anything is stored: until then, the work can be done with
    an earlier version."""
    level = nodes.feature_level(_FEATURE_LEVEL)
    if level < _FEATURE_LEVEL:
        raise DeliveryError(
            f"exactly-once writes are transactions, which need feature level {_FEATURE_LEVEL}, and the cluster is at"
            f" {level}: upgrade all nodes, then the features. Until then, write with quorumlog 0.2, or at least once:"
            " a stream with option transactional=false, a job without transactionId"
        )


def _require_complete(nodes: Nodes, work: Work) -> None:
    """Validates that an earlier version has written all rows of the work that it has started."""
    if not is_complete(nodes, work.name, work.number):
        raise DeliveryError(
            f"number {work.number} of {work.name} was started by quorumlog 0.2 or earlier, which did not write in"
            " transactions, and some of its rows may be visible: run it with that version until it is done, then"
            " continue with this one; or start a query with another checkpoint, or another transactionId"
        )


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commits the rows of the tasks that count, unless the work is committed already.

    Raises:
        DeliveryError: another run has fenced this one, or the transaction was open for too long.
        QuorumlogError: the outcome is unknown. A repeated run finds out.
    """
    done = [message for message in messages if isinstance(message, TransactionalRows)]
    written = [message for message in done if message.writer is not None]
    if not written or any(message.token is None for message in done):
        return
    first, nodes = written[0], nodes_at(options.bootstrap_servers)
    assert first.token is not None and all(each.token == first.token for each in written), "a run has one transaction"
    try:
        end_transaction(nodes, first.token, [each.writer for each in written if each.writer is not None], commit=True)
    except QuorumlogError as error:
        if error.definite and _is_committed(options, first):
            return
        outcome = "is not committed" if error.definite else "may be committed or not, which its next run will find out"
        told = DeliveryError(f"number {first.work.number} of {first.work.name} {outcome}: {error.message}")
        raise _with_time(told, options, first.run) from None


def _is_committed(options: WriteOptions, one: TransactionalRows) -> bool:
    """True if another run has committed the work."""
    nodes = nodes_at(options.bootstrap_servers)
    try:
        started = init_transaction(nodes, one.work.name, one.work.number, one.run, options.transaction_timeout_ms)
    except QuorumlogError:
        return False
    return started.work_committed


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Aborts the transaction of a run that has failed. Returns False if no message contains it."""
    tokens = {each.token for each in messages if isinstance(each, TransactionalRows) and each.token is not None}
    for token in tokens:
        try:
            end_transaction(nodes_at(options.bootstrap_servers), token, [], commit=False)
        except QuorumlogError:
            continue  # The next run, or the timeout, aborts it.
    return bool(tokens)


def abandon(options: WriteOptions, work: Work, run: int) -> None:
    """Aborts the transaction of a run of which no task is done. Its tasks may have written, and started it."""
    nodes = nodes_at(options.bootstrap_servers)
    try:
        _require_transactions(nodes)
        # Not without that: it would abort the transaction of an instance that is ahead.
        if begin_work(nodes, work.name, work.number, run, time.time_ns() // 1_000_000).is_transactional:
            init_transaction(nodes, work.name, work.number, run + 1, options.transaction_timeout_ms)
    except QuorumlogError:
        return  # The next run, or the timeout, aborts it.
