"""The synchronous producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import pyarrow as pa

from quorumlog.sdk.arguments import check_wait, checked_topic
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.errors import QuorumlogError, RequestTimedOutError
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.metrics.figures import ClientFigures
from quorumlog.sdk.producer.async_producer import DROPPED_TIMEOUT_S, ProducerCore, close_core, flush_core
from quorumlog.sdk.producer.config import ProducerConfig, ProducerOptions
from quorumlog.sdk.producer.delivery import ArrowFuture, BatchRows, RecordFuture, RecordsFuture
from quorumlog.sdk.producer.explanation import BatchNotes, RecordExplanation
from quorumlog.sdk.producer.transaction import Transaction, TransactionalClient
from quorumlog.sdk.producer.transaction_control import TransactionProgress
from quorumlog.sdk.runtime.event_loop import BackgroundLoop, LoopCall
from quorumlog.sdk.runtime.interruptible_event import InterruptibleEvent
from quorumlog.sdk.types import GivenHeaders

Taken = TypeVar("Taken")

#: How much longer a caller waits than the loop: the loop's error message has the cause of the delay.
_GRACE_S = 0.5
#: Time limit for closing connections.
_CLOSE_S = 10.0


@shows_options(ProducerConfig)
class Producer:
    """Sends records. Thread-safe; one per process is usually enough.

    Records gather in batches per partition and are sent by a background thread; :meth:`send` returns at once. With
    ``acks="all"``, the default, every record is in the log once and in order, across retries and leader changes. The
    producer connects on first use.

    Example::

        with Producer(bootstrap_servers="127.0.0.1:19092") as producer:
            metadata = producer.send("orders", b"value", key=b"key").result(timeout=10)

    The options, with their defaults. Names in ``_ms`` are milliseconds, sizes are bytes.
    :class:`~quorumlog.sdk.runtime.security.SecurityOptions` documents the options for TLS and authentication.

    bootstrap_servers='127.0.0.1:19092': ``host:port``, several separated by commas or as a sequence; any nodes of the
        cluster.
    acks='all': ``"all"`` (committed by the replicas: survives the loss of a node), ``1`` (durable on the leader) or
        ``0`` (no acknowledgement).
    linger_ms=100: the longest time that a batch waits for more records while another request to the leader is in
        flight. If none is, a record is sent at once.
    batch_size=1048576: bytes at which a batch is full, and is sent regardless of other batches.
    buffer_memory=33554432: bytes for unacknowledged records; ``send`` blocks beyond it.
    max_block_ms=60000: how long ``send`` may block, for memory or metadata.
    max_request_size=1048576: limit for a record, and for a request, in bytes.
    compression_type=None: ``None``, ``"lz4"`` or ``"zstd"``.
    enable_idempotence=None: writes each record once and in order, across retries. Requires ``acks="all"``, with which
        it is enabled by default.
    max_in_flight=5: unacknowledged batches per partition, 1 to 5.
    delivery_timeout_ms=120000: time limit for delivering a record with all retries, from the first record of its batch.
    request_timeout_ms=30000: time limit of one attempt.
    retry_backoff_ms=20, retry_backoff_max_ms=500: shortest and longest delay between attempts.
    bootstrap_timeout_ms=3000: time limit for reaching a first node.
    metadata_max_age_ms=300000: interval between checks for new partitions while records are sent.
    partitioner='sticky': ``"sticky"``, ``"round_robin"`` or a callable(key, all_partitions, available_partitions).
    key_serializer=None, value_serializer=None: callables that return bytes.
    client_id='quorumlog-producer': the user agent that nodes see.
    producer_name=None: an identity that survives the process. The first record claims it; afterwards an older instance
        with the same name fails with :class:`InvalidProducerEpochError`. The name exists until it is deleted.
    producer_epoch=None: with a name: the epoch to claim, not below the last one, 0 to 2^63 - 1; None claims the next
        one. With the same epoch again, the producer *replays* it: each batch that the log has is acknowledged without
        being appended (with offset -1 if it is an old one), the rest is appended, and a batch that differs fails with
        :class:`DuplicateSequenceMismatchError`. For that, batches are cut only by size and by ``flush``, never by time;
        each record needs a timestamp, and a key or a partition. A replay is equal if the same records go to the same
        partitions in the same order, with ``flush`` at the same places and the same options. An epoch has at most 4,096
        batches per partition.
    epoch_records=None: with an epoch: how many of its records the log already has, by (topic, partition). The producer
        continues after those instead of sending them again. If the log has more, the producer fails, as with any replay
        that differs.
    producer_id=None: with an epoch: the id of the name, as returned to the producer that claimed the epoch. The name is
        then not claimed again.

    transactional_id=None: an identity for transactions, which survives the process; see :meth:`transaction`. Another
        producer with the same one fences this one.
    transaction_timeout_ms=60000: a transaction that is open for longer is aborted.
    joins=None: the ``token`` of a transaction of another process, which all records become part of. :meth:`finish`
        returns what that transaction names to include them.

    Raises:
        IllegalArgumentError: an option is unknown, or its value is invalid.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        self._core = ProducerCore(build_config(ProducerConfig, options))
        self._background = BackgroundLoop("Producer", self._core.accumulator.is_entered)
        self._core.bind(self._background.loop, self._background.thread_id)
        self._try_send = self._core.intake.try_send
        if self._core.transactions is not None:
            self._try_send = partial(self._send_guarded, None)
        self._fork = self._core.fork
        #: Pending look-ups of topics whose callers have timed out.
        self._overdue: dict[str, LoopCall[None]] = {}
        self._background.own(self, partial(close_core, self._core, DROPPED_TIMEOUT_S))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Adds a record to its partition's batch and returns a handle for its outcome.

        Blocks only while the topic's metadata is being loaded or the buffer is full, ``max_block_ms`` at most.

        Arguments:
            value, key: bytes or None, or arguments of the serializers.
            headers: pairs of a str and bytes, text or None, or a mapping; text is sent as UTF-8.
            partition: number of the partition; None leaves the choice to the partitioner.
            timestamp_ms: milliseconds since the epoch; None is the current time.

        Raises:
            IllegalArgumentError: an argument has a wrong type or value.
            UnknownTopicOrPartitionError: the topic does not exist.
            InvalidPartitionsError: the topic has no such partition.
            RecordTooLargeError: the record exceeds ``max_request_size``.
            InvalidRecordError: the topic is compacted and the record has no key.
            BufferExhaustedError: the buffer stayed full for ``max_block_ms``.
            NoBrokersAvailableError: no node was reached.
            RequestTimedOutError: the topic was not looked up within ``max_block_ms``, because this thread holds a lock
                that a logging handler waits for.
            ClientClosedError, ForkedClientError: the producer is closed, or belongs to the parent process.
        """
        if not (self._core.usable and self._fork.same_process):
            self._core.check_usable()
        handle = self._try_send(topic, value, key, headers, partition, timestamp_ms)
        if handle is not None:
            return handle
        return self._until_taken(topic, lambda: self._try_send(topic, value, key, headers, partition, timestamp_ms))

    def _send_guarded(self, state: TransactionProgress | None, *record: Any) -> RecordFuture | None:
        return self._core.guarded(lambda: self._core.intake.try_send(*record), state)()

    def _send_in(self, state: TransactionProgress, topic: str, *rest: Any) -> RecordFuture:
        """Sends a record of one transaction."""
        self._core.check_usable()
        handle = self._send_guarded(state, topic, *rest)
        if handle is not None:
            return handle
        return self._until_taken(topic, lambda: self._send_guarded(state, topic, *rest))

    def transaction(self, consumer: TransactionalClient | None = None, work: int | None = None) -> Transaction:
        """Returns a transaction, for a ``with`` block: all that is sent in it is committed when the block ends.

        An exception that leaves the block aborts it. So does a record that fails: the block then raises, whatever was
        done with the handle. The first transaction fences other instances with the same ``transactional_id``. After an
        interruption, the next transaction ends the former one first.

        Arguments:
            consumer: its offsets are committed in the transaction: those after the records that it has returned by the
                end of the block. If the transaction is aborted, its positions return to where the transaction started.
                It needs a group and ``enable_auto_commit=False``.
            work: number of the work that the transaction does, larger than all before. If it is committed already,
                ``work_committed`` of the transaction is True, and nothing may be sent.

        Raises, on entering and leaving the block:
            TransactionAbortedError: nothing has taken effect: run the transaction again.
            ProducerFencedError: another instance with the same ``transactional_id`` has started.
            CommitUnknownError: no answer to the commit has arrived: the next transaction finds out.
            IllegalStateError: the producer has no ``transactional_id``.

        Example::

            with producer.transaction(consumer) as tx:
                tx.send("invoices", b"value", key=b"key")
        """
        return Transaction(self._core.control(), self._background.run, self.flush, self._send_in, consumer, work)

    def finish(self) -> int | None:
        """Flushes what a producer with ``joins`` has sent. Returns its producer id, by which the transaction includes
        it (:meth:`Transaction.include`), or None if it has sent nothing.

        Raises:
            QuorumlogError: a record has failed: this writer must not be included.
        """
        self._core.check_usable()
        return self._background.run(self._core.finish())

    def explain(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordExplanation:
        """Sends one record as a batch of its own, waits for its acknowledgement, and returns the time of each stage.

        The record is like any other: it is in the log afterwards. Its leader notes when it appended the record, when
        each replica had it on disk, and when it was committed. A node traces one batch per connection at a time; for a
        second one, the explanation contains only the reason why it is missing. The first record of a producer also
        waits for an identity and a connection.

        Arguments:
            as for :meth:`send`.

        Raises:
            IllegalStateError: the producer has ``acks=0`` or a ``producer_epoch``.
            and the errors of :meth:`send` and of its handle.

        Example::

            explanation = producer.explain("orders", b"value")
            print(explanation.rule, explanation.answered_us, explanation.leader.replicas)
        """
        core = self._core
        core.check_explains()
        self._background.check_may_block()
        notes = BatchNotes()
        handle = self._until_taken(
            topic, lambda: self._try_send(topic, value, key, headers, partition, timestamp_ms, notes)
        )
        return notes.explain(handle.result(), core.config.wire_acks)

    def _until_taken(self, topic: str, attempt: Callable[[], Taken | None]) -> Taken:
        core = self._core
        attempt = core.guarded(attempt)
        deadline = time.monotonic() + core.config.max_block_ms / 1000
        self._ensure_topic(topic)
        while True:
            core.check_usable()
            taken = attempt()
            if taken is None:
                self._background.check_may_block()
                room = InterruptibleEvent()
                core.accumulator.when_room(room.set)
                taken = attempt()  # Memory may have become free between the two steps.
            if taken is not None:
                return taken
            if not room.wait(deadline - time.monotonic()):
                raise core.buffer_full()

    def _ensure_topic(self, topic: str) -> None:
        """Waits for an unknown topic, for ``max_block_ms`` at most.

        The limit is needed because the caller may hold a lock that the loop's thread waits for, such as that of a
        logging handler through which it sends. After a time-out the look-up continues when the caller has released its
        lock. Until it has ended, no other caller waits: each would stop it again.
        """
        if checked_topic(topic) in self._core.accumulator.topics:
            return
        overdue = self._overdue.get(topic)
        if overdue is not None and not overdue.is_over:
            raise RequestTimedOutError(
                f"the look-up of topic {topic!r} has not ended: the clients' own thread waits for a lock that callers"
                " hold, such as that of a logging handler"
            )
        self._overdue.pop(topic, None)
        self._background.run(self._core.load_topic(topic), self._block_s(), partial(self._overdue.__setitem__, topic))

    def _block_s(self) -> float:
        return self._core.config.max_block_ms / 1000 + _GRACE_S

    def _flush_s(self, timeout: float | None) -> float:
        """Returns the longest time that a flush takes if nothing blocks the loop's thread, in seconds."""
        config = self._core.config
        limit_s = (config.delivery_timeout_ms + config.request_timeout_ms) / 1000
        return (limit_s if timeout is None else min(timeout, limit_s)) + _GRACE_S

    def send_arrow(self, topic: str, data: pa.Table | pa.RecordBatch, partition: int | None = None) -> ArrowFuture:
        """Sends the rows of a pyarrow Table or RecordBatch in bulk, with no Python code per record.

        Columns are those of a log: ``value``, and optionally ``key``, ``timestamp`` and ``headers``. Rows with keys go
        to the partitions that Kafka's clients would choose; rows without are distributed batch by batch.

        Arguments:
            partition: number of the partition for all rows; None leaves the choice to the keys.

        Returns:
            a handle whose ``result()`` lists the position of each batch.

        Raises:
            IllegalArgumentError: the columns are not those of a log.
            RecordTooLargeError: a row exceeds ``max_request_size``; nothing was sent.
            and the other errors of :meth:`send`.
        """
        self._core.check_usable()
        self._ensure_topic(topic)
        core = self._core
        buffers = core.accumulator.topics[topic]
        parts: list[BatchRows] = []
        for target, piece in core.cut_arrow(buffers, data, partition):
            part = self._until_taken(topic, partial(core.accumulator.append_rows, buffers, target, piece))
            parts.append(part)
        return ArrowFuture(parts)

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Iterable[int] | None = None,
    ) -> RecordsFuture:
        """Sends the records of a list, as if each were passed to :meth:`send` in turn, in a fraction of the time.

        All records are checked before the first is sent. Like :meth:`send`, it blocks only while the topic's metadata
        is being loaded or the buffer is full, here ``max_block_ms`` at most for each wait.

        Each record has an outcome of its own. If an error of the producer stops the call after some records, such as a
        full buffer, the call returns, and the other records have failed with that error, which is ``definite``. In each
        partition, those that failed so follow those that were sent. A signal handler that raises stops the call in the
        same way, but then no handle is returned.

        Arguments:
            values: one for each record: bytes or None, or arguments of the serializer.
            keys, headers, timestamps_ms: as many as values, each as for :meth:`send`; None: no record has one. Without
                timestamps, all records have the current time.
            partition: number of the partition for all records; None leaves the choice to the partitioner.

        Returns:
            a handle whose ``result()`` lists the :class:`RecordMetadata` of all records. Its ``futures()`` are handles
            of the single records.

        Raises:
            the errors of :meth:`send`; nothing was sent.

        Example::

            for future in producer.send_many("orders", [b"3 apples", b"2 pears"]).futures():
                print(future.result(timeout=10).offset)
        """
        self._core.check_usable()
        self._ensure_topic(topic)
        sending = self._core.intake.begin_many(topic, values, keys, headers, partition, timestamps_ms)
        try:
            while not sending.is_complete:
                self._until_taken(topic, sending.add_some)
        except QuorumlogError as error:
            return sending.broken_off(error)
        return sending.future()

    def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            NoBrokersAvailableError: no node was reached.
        """
        self._core.check_usable()
        return self._background.run(self._core.partitions_for(topic), self._block_s())

    def metrics(self) -> ClientFigures:
        """Returns the producer's metrics, named as in Kafka's clients: a dict of groups, each a dict of numbers.

        ``producer-metrics`` covers the producer, ``producer-topic-metrics.NAME`` each topic. Names that end in
        ``-total`` count from the start; ``-rate`` (per second), ``-avg`` and ``-max`` cover the last 30 to 60 s. Can be
        called from any thread.

        Example::

            producer.metrics()["producer-metrics"]["record-send-total"]
        """
        return self._core.metrics()

    def flush(self, timeout: float | None = None) -> None:
        """Sends all waiting records and blocks until each has succeeded or failed.

        Arguments:
            timeout: in seconds; None waits as long as the producer retries (``delivery_timeout_ms``).

        Raises:
            RequestTimedOutError: ``timeout`` has passed; the producer continues to retry.
        """
        self._core.check_usable()
        check_wait(timeout)
        self._background.run(flush_core(self._core, timeout), self._flush_s(timeout))

    def end_epoch(self, timeout: float | None = None) -> None:
        """Ends the epoch of a producer with a ``producer_epoch``. Call it once, after the last record.

        It flushes, and then verifies that the log has exactly the records of this epoch in each partition that records
        were sent to.

        Arguments:
            timeout: in seconds.

        Raises:
            DuplicateSequenceMismatchError: an earlier run of the epoch sent more records, so this one is not a replay
                of it.
            IllegalStateError: the producer has no ``producer_epoch``.
            RequestTimedOutError: flushing took longer than ``timeout``.
        """
        self.flush(timeout)
        self._core.check_epoch_complete()

    def close(self, timeout: float | None = None) -> None:
        """Flushes for at most ``timeout`` seconds, fails the remaining records, and closes. May be called twice.

        In a forked child it only marks the producer as closed: the records and connections belong to the parent.
        """
        if self._core.closed:
            return
        if not self._fork.same_process:
            self._core.closed = True
            return
        check_wait(timeout)
        self._background.run(close_core(self._core, timeout), self._flush_s(timeout) + _CLOSE_S)
        self._background.release(self)

    def _break_off(self) -> None:
        """Closes without sending incomplete batches: a batch that is cut here would differ from those of a replay."""
        if self._core.closed or not self._fork.same_process:
            self.close()
            return
        self._background.run(self._core.close())
        self._background.release(self)

    def __repr__(self) -> str:
        return named("Producer", self._core.config.bootstrap_servers, self._core.closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._core.config.producer_epoch is not None:
            self._break_off()
        else:
            self.close()
