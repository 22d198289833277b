"""The producer's asyncio core, shared by ``AsyncProducer`` and the synchronous ``Producer``."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import pyarrow as pa

from quorumlog.sdk.arguments import check_wait, checked_topic
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.errors import (
    BufferExhaustedError,
    ClientClosedError,
    IllegalStateError,
    QuorumlogError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.metrics.figures import PRODUCER, ClientFigures
from quorumlog.sdk.metrics.producer_metrics import ProducerMetrics
from quorumlog.sdk.producer.accumulator import Accumulator, TopicBuffers
from quorumlog.sdk.producer.async_transaction import AsyncTransaction, AsyncTransactionalClient
from quorumlog.sdk.producer.config import ProducerConfig, ProducerOptions
from quorumlog.sdk.producer.delivery import ArrowFuture, BatchRows, RecordFuture, RecordsFuture
from quorumlog.sdk.producer.explanation import BatchNotes, RecordExplanation
from quorumlog.sdk.producer.record_intake import RecordIntake, check_partition, no_key, not_replayable
from quorumlog.sdk.producer.sender import Sender
from quorumlog.sdk.producer.transaction_control import TransactionControl, TransactionProgress
from quorumlog.sdk.records.arrow_partitioner import split_by_partition
from quorumlog.sdk.records.record_batch import (
    BATCH_BASE_BYTES,
    split_by_bytes,
    to_log_schema,
    without_dead_headers,
)
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime
from quorumlog.sdk.runtime.event_loop import close_when_dropped
from quorumlog.sdk.runtime.fork import ForkGuard
from quorumlog.sdk.types import GivenHeaders
from quorumlog.wire.payload import KEY

Taken = TypeVar("Taken")

#: How long delivery is still attempted for records of a producer that was garbage-collected without being closed (s).
DROPPED_TIMEOUT_S = 30.0
#: Arrow data is sent in batches of at least this size: all its rows exist already, so waiting saves no latency.
_ARROW_BATCH_BYTES = 256 * 1024


class ProducerCore:
    """The part of a producer that does not depend on how its caller waits.

    Created on any thread. :meth:`_load_topic` and the sender belong to one event loop, the intake of records to every
    thread.
    """

    def __init__(self, config: ProducerConfig, runtime: ClientRuntime = SYSTEM_RUNTIME) -> None:
        self.config = config
        self.fork = ForkGuard("Producer")
        #: False once closed or failed: one check instead of two for every record.
        self.usable = True
        self.closed = False
        self._defect: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wall_ns = runtime.wall_ns
        self.clock = runtime.monotonic_s
        self._wake_pending = False
        self._started = False
        self.accumulator = Accumulator(
            # Records that may be sent one by one must not form a batch that exceeds the request size.
            batch_size=min(max(config.batch_size, 1), config.max_request_size),
            linger_s=config.linger_ms / 1000,
            buffer_memory=config.buffer_memory,
            clock=self.clock,
            wake=self._wake,
            cut_by_time=not config.replayable,
        )
        self.cluster = Cluster(
            parse_bootstrap_servers(config.bootstrap_servers),
            request_timeout_s=config.request_timeout_ms / 1000,
            bootstrap_timeout_s=config.bootstrap_timeout_ms / 1000,
            backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, runtime),
            client_id=config.client_id,
            runtime=runtime,
            security=config,
        )
        self._metrics = ProducerMetrics(self.clock())
        self.sender = Sender(config, self.cluster, self.accumulator, self.clock, self._metrics, self._broke)
        self.arrow_batch_bytes = min(config.max_request_size, max(config.batch_size, _ARROW_BATCH_BYTES))
        self.intake = RecordIntake(config, self.accumulator, runtime.wall_ns)
        self.transactions = (
            TransactionControl(config, self.cluster, self.sender) if config.transactional_id is not None else None
        )

    def bind(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        """Sets the event loop that all asynchronous work runs on, and its thread."""
        self._loop = loop
        self.accumulator.loop_thread = thread_id

    def _wake(self) -> None:
        # Racing wakes may both see False and wake twice, which is harmless; no wake is lost, because the flag is
        # cleared before the sender runs.
        if not self._wake_pending and self._loop is not None:
            try:
                self._wake_pending = True
                self._loop.call_soon_threadsafe(self._on_wake)
            except BaseException:
                self._wake_pending = False
                raise

    def _on_wake(self) -> None:
        self._wake_pending = False
        self.sender.wake()

    def cut_arrow(
        self, buffers: TopicBuffers, data: pa.Table | pa.RecordBatch, partition: int | None
    ) -> list[tuple[int | None, pa.RecordBatch]]:
        """Cuts a user's table into batches within the limits, each with its partition (None: any).

        Raises:
            RecordTooLargeError: a row exceeds ``max_request_size``; nothing has been sent.
            InvalidRecordError: a row has no key, and the topic is compacted; nothing has been sent.
        """
        if partition is not None:
            check_partition(buffers, partition)
        table = to_log_schema(data, self._wall_ns() // 1_000_000)
        if buffers.compacted and table.column(KEY).null_count:
            raise no_key(buffers)
        if self.config.replayable and ("timestamp" not in data.schema.names or data.column("timestamp").null_count):
            raise not_replayable("no timestamp")
        # Replayable batches must be cut the same way in each run, so they ignore a topic configuration that may change.
        most = (
            self.arrow_batch_bytes if self.config.replayable else min(self.arrow_batch_bytes, buffers.max_batch_bytes)
        )
        limit = max(1, most - BATCH_BASE_BYTES)
        pieces = [(partition, table)] if partition is not None else split_by_partition(table, len(buffers.partitions))
        cut: list[tuple[int | None, pa.RecordBatch]] = []
        for target, rows in pieces:
            if target is None and rows.num_rows and self.config.replayable:
                raise not_replayable("neither a key nor a partition")
            for batch in rows.combine_chunks().to_batches():
                cut.extend(
                    (target, without_dead_headers(piece)) for piece in split_by_bytes(batch, limit) if piece.num_rows
                )
        largest = max((piece.nbytes for _, piece in cut), default=0)
        if largest > self.config.max_request_size - BATCH_BASE_BYTES:
            raise RecordTooLargeError(
                f"a row takes {largest} bytes, more than max_request_size ({self.config.max_request_size})"
            )
        return cut

    # --- topics --------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic."""
        views = await self.cluster.ensure_topics([checked_topic(topic)], self.config.max_block_ms / 1000)
        return {each.partition for each in views[topic].partitions}

    async def load_topic(self, topic: str) -> None:
        """Loads a topic, after which its records are accepted.

        Raises:
            UnknownTopicOrPartitionError: it does not exist.
        """
        await self.cluster.shared.join(self.begin_loading(topic))

    def begin_loading(self, topic: str) -> asyncio.Task[None]:
        """Returns the task that loads a topic: one task for all callers that wait for it."""
        return self.cluster.shared.begin(("load", checked_topic(topic)), lambda: self._load_topic(topic))

    async def _load_topic(self, topic: str) -> None:
        if self.accumulator.loop_thread == 0:
            self.bind(asyncio.get_running_loop(), threading.get_ident())
        views = await self.cluster.ensure_topics([topic], self.config.max_block_ms / 1000)
        view = views[topic]
        self.cluster.watch_topics([topic])
        self.accumulator.add_topic(view)

    def metrics(self) -> ClientFigures:
        """Returns counters and buffer levels, by group and name."""
        figures = self._metrics.figures(self.clock())
        figures[PRODUCER] |= {
            "requests-in-flight": float(self.sender.requests_in_flight),
            "buffer-total-bytes": float(self.config.buffer_memory),
            "buffer-available-bytes": float(self.accumulator.free_bytes),
            "connection-count": float(self.cluster.connection_count),
        }
        return figures

    def guarded(self, attempt: Callable[[], Taken], state: TransactionProgress | None = None) -> Callable[[], Taken]:
        """Returns an attempt to add records that is refused outside of a transaction if the producer has such."""
        return attempt if self.transactions is None else self.transactions.guarded(attempt, state)

    def control(self) -> TransactionControl:
        """Returns the control of the transactions.

        Raises:
            IllegalStateError: the producer has no transactional id.
        """
        self.check_usable()
        if self.transactions is None:
            raise IllegalStateError("transaction() needs a producer with a transactional_id")
        return self.transactions

    async def finish(self) -> int | None:
        """Flushes what a joined writer has sent; returns its producer id, or None if it has sent nothing."""
        if self.config.joins is None:
            raise IllegalStateError("finish() is for a producer that joins a transaction: Producer(joins=token)")
        await flush_core(self, None)
        if self.sender.failure is not None:
            raise self.sender.failure
        identity = self.sender.identity
        return None if identity is None else identity.producer_id

    def check_usable(self) -> None:
        """Raises if the producer is closed or has failed, or in a forked child."""
        self.fork.check()
        if self.closed:
            raise ClientClosedError("the producer is closed")
        if isinstance(self._defect, QuorumlogError):
            raise type(self._defect)(self._defect.message, retriable=False)
        if self._defect is not None:
            raise IllegalStateError(f"the producer has failed and accepts no more records: {self._defect!r}")

    def check_explains(self) -> None:
        """Raises if records cannot be explained: no response exists, or batches must be cut as in earlier runs."""
        self.check_usable()
        if self.config.wire_acks == 0:
            raise IllegalStateError("acks=0 has no response to explain: create a producer with acks=1 or acks='all'")
        if self.config.replayable:
            raise IllegalStateError("a producer with a producer_epoch cannot explain records: use one without an epoch")

    def _broke(self, error: Exception) -> None:
        self._defect = error
        self.usable = False

    def check_epoch_complete(self) -> None:
        """Verifies that the log has exactly what was sent in a replayable epoch; call it after a flush."""
        self.check_usable()
        if not self.config.replayable:
            raise IllegalStateError("only a producer with a producer_epoch has an epoch to end")
        self.sender.check_complete()

    def buffer_full(self) -> BufferExhaustedError:
        """Returns the error for a send that has waited for ``max_block_ms``."""
        return BufferExhaustedError(
            f"buffer_memory ({self.config.buffer_memory} bytes) stayed full for {self.config.max_block_ms:g} ms:"
            " records come faster than they are acknowledged"
        )

    async def close(self) -> None:
        """Fails unresolved records and closes connections."""
        self.closed = True
        self.usable = False
        self.sender.close()
        await self.cluster.close()


@shows_options(ProducerConfig)
class AsyncProducer:
    """Sends records, from asyncio. Same options as :class:`quorumlog.sdk.Producer`; use it on one event loop.

    Arguments:
        runtime: source of time, randomness and channels, for simulations.

    Example::

        async with AsyncProducer(bootstrap_servers="127.0.0.1:19092") as producer:
            handle = await producer.send("orders", b"value", key=b"key")
            metadata = await handle
    """

    def __init__(self, *, runtime: ClientRuntime = SYSTEM_RUNTIME, **options: Unpack[ProducerOptions]) -> None:
        #: Topics that calls wait for.
        self._waiting: dict[str, _Turn] = {}
        core = self._core = ProducerCore(build_config(ProducerConfig, options), runtime)
        close_when_dropped(self, core.fork, core.cluster.open_on, partial(close_core, core, DROPPED_TIMEOUT_S))

    async def start(self) -> None:
        """Connects, so that a wrong address fails here. Optional: otherwise the first send connects.

        Raises:
            NoBrokersAvailableError: no node was reached.
        """
        self._core.check_usable()
        self._core.bind(asyncio.get_running_loop(), threading.get_ident())
        await self._core.cluster.ask_metadata([])

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Adds a record to its partition's batch. Await the returned handle for its :class:`RecordMetadata`.

        Suspends only while the buffer is full or the topic is not known yet. For arguments and errors see
        :meth:`quorumlog.sdk.Producer.send`.
        """
        core = self._core
        core.check_usable()
        if not self._waiting or checked_topic(topic) not in self._waiting:
            handle = core.guarded(lambda: core.intake.try_send(topic, value, key, headers, partition, timestamp_ms))()
            if handle is not None:
                return handle
        return await self._until_taken(
            topic, lambda: core.intake.try_send(topic, value, key, headers, partition, timestamp_ms)
        )

    async def _send_in(self, state: TransactionProgress, topic: str, *rest: Any) -> RecordFuture:
        """Sends a record of one transaction."""
        core = self._core
        core.check_usable()
        return await self._until_taken(topic, core.guarded(lambda: core.intake.try_send(topic, *rest), state))

    def transaction(
        self, consumer: AsyncTransactionalClient | None = None, work: int | None = None
    ) -> AsyncTransaction:
        """Returns a transaction, for an ``async with`` block; see :meth:`quorumlog.sdk.Producer.transaction`."""
        return AsyncTransaction(self._core.control(), self.flush, self._send_in, consumer, work)

    async def finish(self) -> int | None:
        """Flushes what a producer with ``joins`` has sent; see :meth:`quorumlog.sdk.Producer.finish`."""
        self._core.check_usable()
        return await self._core.finish()

    async def _until_taken(self, topic: str, attempt: Callable[[], Taken | None]) -> Taken:
        """Waits until the topic is known and memory is free. Calls for one topic continue in the order they were made.

        No call waits for its turn longer than ``max_block_ms``: those before it started to wait earlier.
        """
        core = self._core
        deadline = core.clock() + core.config.max_block_ms / 1000
        loading = None if checked_topic(topic) in core.accumulator.topics else core.begin_loading(topic)
        turn = self._waiting.setdefault(topic, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                if loading is not None:
                    await core.cluster.shared.join(loading)
                return await self._until_room(attempt, deadline)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._waiting[topic]

    async def _until_room(self, attempt: Callable[[], Taken | None], deadline: float) -> Taken:
        core = self._core
        attempt = core.guarded(attempt)
        while True:
            core.check_usable()
            taken = attempt()
            if taken is None:
                room = self._room()
                taken = attempt()  # Memory may have become free between the two steps.
            if taken is not None:
                return taken
            try:
                async with asyncio.timeout(deadline - core.clock()):
                    await room
            except TimeoutError:
                raise core.buffer_full() from None

    def _room(self) -> asyncio.Future[None]:
        """Returns a future that is done once memory has become free."""
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()

        def came() -> None:
            if not room.done():
                room.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(came)

        self._core.accumulator.when_room(wake)
        return room

    async def explain(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordExplanation:
        """Sends one record alone and returns the time of each stage; see :meth:`quorumlog.sdk.Producer.explain`."""
        core = self._core
        core.check_explains()
        notes = BatchNotes()
        handle = await self._until_taken(
            topic, lambda: core.intake.try_send(topic, value, key, headers, partition, timestamp_ms, notes)
        )
        return notes.explain(await handle, core.config.wire_acks)

    async def send_and_wait(self, topic: str, value: Any = None, **arguments: Any) -> Any:
        """Sends one record and awaits its :class:`RecordMetadata`.

        Arguments:
            as for :meth:`send`.

        Raises:
            QuorumlogError: the record failed; unless the error is ``definite``, the record may still appear in the log.
        """
        return await (await self.send(topic, value, **arguments))

    async def send_arrow(
        self, topic: str, data: pa.Table | pa.RecordBatch, partition: int | None = None
    ) -> ArrowFuture:
        """Sends rows in bulk; see :meth:`quorumlog.sdk.Producer.send_arrow`."""
        core = self._core
        core.check_usable()
        if checked_topic(topic) not in core.accumulator.topics:
            await core.load_topic(topic)
        buffers = core.accumulator.topics[topic]
        parts: list[BatchRows] = []
        for target, piece in core.cut_arrow(buffers, data, partition):
            part = await self._until_taken(topic, partial(core.accumulator.append_rows, buffers, target, piece))
            parts.append(part)
        return ArrowFuture(parts)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        headers: Iterable[GivenHeaders | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Iterable[int] | None = None,
    ) -> RecordsFuture:
        """Sends the records of a list; see :meth:`quorumlog.sdk.Producer.send_many`.

        Suspends while the buffer is full or the topic is not known yet. If it is cancelled then, the first records of
        each partition may have been sent.
        """
        core = self._core
        core.check_usable()
        if checked_topic(topic) not in core.accumulator.topics:
            await core.load_topic(topic)
        sending = core.intake.begin_many(topic, values, keys, headers, partition, timestamps_ms)
        try:
            while not sending.is_complete:
                await self._until_taken(topic, sending.add_some)
        except QuorumlogError as error:
            return sending.broken_off(error)
        return sending.future()

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            NoBrokersAvailableError: no node was reached.
        """
        self._core.check_usable()
        return await self._core.partitions_for(topic)

    def metrics(self) -> ClientFigures:
        """Returns the producer's metrics, named as in Kafka's clients: a dict of groups, each a dict of numbers.

        ``producer-metrics`` covers the producer, ``producer-topic-metrics.NAME`` each topic. Names that end in
        ``-total`` count from the start; ``-rate`` (per second), ``-avg`` and ``-max`` cover the last 30 to 60 s. Can be
        called from any thread.

        Example::

            producer.metrics()["producer-metrics"]["record-send-total"]
        """
        return self._core.metrics()

    async def flush(self, timeout: float | None = None) -> None:
        """Sends all waiting records and returns once each has succeeded or failed.

        Raises:
            RequestTimedOutError: ``timeout`` (seconds) has passed; the producer continues to retry.
        """
        self._core.check_usable()
        await flush_core(self._core, timeout)

    async def end_epoch(self, timeout: float | None = None) -> None:
        """Ends a replayable epoch; see :meth:`quorumlog.sdk.Producer.end_epoch`."""
        await self.flush(timeout)
        self._core.check_epoch_complete()

    async def close(self, timeout: float | None = None) -> None:
        """Flushes for at most ``timeout`` seconds, fails the remaining records, and closes. May be called twice."""
        if not self._core.closed:
            await close_core(self._core, timeout)

    def __repr__(self) -> str:
        return named("AsyncProducer", self._core.config.bootstrap_servers, self._core.closed)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._core.config.producer_epoch is not None:
            # Incomplete batches are not sent: a batch cut here would differ from those of a replay.
            await self._core.close()
        else:
            await self.close()


class _Turn:
    """The order of calls that wait for one topic: asyncio's lock is fair."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


async def flush_core(core: ProducerCore, timeout_s: float | None) -> None:
    """Waits until all batches that are incomplete now are resolved."""
    check_wait(timeout_s)
    batches = core.accumulator.begin_flush()
    try:
        async with asyncio.timeout(timeout_s):
            for batch in batches:
                await batch.delivery.wait_async()
    except TimeoutError:
        left = sum(not batch.delivery.done for batch in batches)
        raise RequestTimedOutError(f"{left} batches were not acknowledged within {timeout_s} s") from None
    finally:
        core.accumulator.end_flush()


async def close_core(core: ProducerCore, timeout_s: float | None) -> None:
    """Flushes for at most ``timeout_s`` seconds or until cancelled, fails the remaining records, and closes."""
    try:
        with contextlib.suppress(RequestTimedOutError):
            await flush_core(core, timeout_s)
    finally:
        await core.close()
