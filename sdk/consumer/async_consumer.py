"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack

import pyarrow as pa

from quorumlog.sdk.arguments import check_count, check_wait
from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.consumer.assignment import ReadOffsets
from quorumlog.sdk.consumer.config import ConsumerConfig, ConsumerOptions
from quorumlog.sdk.consumer.core import CommitCallback, ConsumerCore
from quorumlog.sdk.consumer.subscription import (
    ConsumerRebalanceListener,
    RebalanceStep,
    Subscription,
    checked_subscription,
)
from quorumlog.sdk.errors import IllegalArgumentError, RequestTimedOutError
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.metrics.figures import ClientFigures
from quorumlog.sdk.records.fetched import FetchedRows, to_table
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime
from quorumlog.sdk.runtime.event_loop import close_when_dropped
from quorumlog.sdk.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

#: ``poll_arrow`` returns all records fetched ahead, which are limited in bytes; this limits them in rows too.
MAX_ARROW_ROWS = 10_000_000
#: A longer poll checks in between: clocks cannot represent ``float("inf")``.
LONGEST_WAIT_S = 3600.0
#: Time limit of the last commit when a consumer is closed.
CLOSE_TIMEOUT_S = 5.0


@shows_options(ConsumerConfig)
class AsyncConsumer:
    """Reads records, from asyncio. Options and methods as in :class:`quorumlog.sdk.Consumer`; use it on one event loop.

    Arguments:
        runtime: source of time, randomness and channels, for simulations.

    Example::

        async with AsyncConsumer("orders", bootstrap_servers="127.0.0.1:19092") as consumer:
            async for record in consumer:
                ...
    """

    def __init__(
        self, *topics: str, runtime: ClientRuntime = SYSTEM_RUNTIME, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._core = ConsumerCore(topics, options, runtime)
        self._news = asyncio.Event()
        self._core.assignment.listen(self._news.set)
        close_when_dropped(self, self._core.fork, self._core.cluster.open_on, self._core.close)

    async def start(self) -> None:
        """Connects, and looks up the topics' partitions or joins the group. Optional: otherwise the first poll does."""
        self._core.check_usable()
        if self._core.subscription is not None:
            await self._core.ensure_assigned()

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics; see :meth:`quorumlog.sdk.Consumer.subscribe`. Listener methods may be coroutines."""
        self._core.check_usable()
        await self._core.subscribe(checked_subscription(topics, pattern, listener))

    async def unsubscribe(self) -> None:
        """Stops reading and leaves the group; see :meth:`quorumlog.sdk.Consumer.unsubscribe`."""
        self._core.check_usable()
        try:
            await self._give_up(self._core.consumed(), CLOSE_TIMEOUT_S)
        finally:
            await self._core.unsubscribe()

    def subscription(self) -> set[str]:
        """Returns the subscribed topics; with a pattern, the topics of which this consumer has partitions now."""
        self._core.check_usable()
        return self._core.subscribed_topics()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; those that stay keep their position."""
        self._core.check_usable()
        await self._core.assign(partitions)

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns records by partition; see :meth:`quorumlog.sdk.Consumer.poll`."""
        self._core.iteration.give_back()
        limit = self._core.config.max_poll_records if max_records is None else max_records
        records = self._core.records(await self._take(timeout_ms, limit))
        self._core.assignment.handed = ()  # No await in between: no cancellation can occur after they were taken.
        return records

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Returns records as a table; see :meth:`quorumlog.sdk.Consumer.poll_arrow`."""
        self._core.iteration.give_back()
        table = to_table(await self._take(timeout_ms, MAX_ARROW_ROWS if max_records is None else max_records))
        self._core.assignment.handed = ()
        return table

    async def _take(self, timeout_ms: float, max_records: int) -> list[FetchedRows]:
        check_poll_arguments(timeout_ms, max_records)
        core = self._core
        core.check_usable()
        await core.ensure_assigned()
        deadline = core.clock() + timeout_ms / 1000
        poll = object()
        try:
            core.begin_poll(poll)
            core.came_back()
            while True:
                self._news.clear()
                core.check_usable()
                await self._settle()
                rows = core.take_fetched(max_records)
                left = deadline - core.clock()
                if rows or left <= 0:
                    return rows
                # asyncio.wait_for would lose a cancellation that coincides with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, LONGEST_WAIT_S)):
                        await self._news.wait()
        finally:
            core.end_poll(poll)

    async def _settle(self) -> None:
        """Runs pending callbacks and rebalance steps in the application's task."""
        core = self._core
        core.call_back()
        if core.group is None or not core.group.pending:
            return
        while (step := await core.group.next_step(core.consumed())) is not None:
            await self._tell_listener(core.group.subscription, step)

    async def _tell_listener(self, subscription: Subscription | None, step: RebalanceStep) -> None:
        group = self._core.require_group("a rebalance")
        try:
            group.begins(step)
            notification = subscription.tell(step) if subscription is not None else None
            if notification is not None:
                await notification
        finally:
            await group.finished(step)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Returns the next record; waits for it, ``consumer_timeout_ms`` at most."""
        core = self._core
        deadline = core.clock() + core.config.consumer_timeout_ms / 1000
        while True:
            record = core.next_record()
            if record is not None:
                core.iteration.given += 1
                return record
            left_ms = (deadline - core.clock()) * 1000
            if left_ms <= 0:
                raise StopAsyncIteration
            await self._take(min(left_ms, 60_000.0), core.config.max_poll_records)

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions being read."""
        self._core.check_usable()
        return set(self._core.assignment.states)

    async def topics(self) -> set[str]:
        """Returns the names of all topics except internal ones."""
        self._core.check_usable()
        return await self._core.topic_names()

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic."""
        return await self._core.partitions_for_topic(topic)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the position of a partition to an offset."""
        await self._core.ensure_assigned()
        self._core.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Sets the positions of partitions, by default all, to their first record."""
        await self._core.ensure_assigned()
        self._core.seek_to(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Sets the positions of partitions, by default all, to the current end of their logs."""
        await self._core.ensure_assigned()
        self._core.seek_to(partitions, "latest")

    async def position(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record that a poll returns; see :meth:`quorumlog.sdk.Consumer.position`."""
        await self._core.ensure_assigned()
        try:
            async with asyncio.timeout(self._core.config.request_timeout_ms / 1000):
                while True:
                    self._news.clear()
                    self._core.check_usable()
                    known = self._core.known_position(partition)
                    if known is not None:
                        return known
                    await self._news.wait()
        except TimeoutError:
            raise position_timed_out(partition) from None

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the high watermark from the last fetch, None before the first. :meth:`end_offsets` requests a new
        one."""
        self._core.check_usable()
        return self._core.highwater(partition)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._core.offsets_at(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset after the last committed record of each partition; linearizable."""
        return await self._core.offsets_at(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first offset at or after a timestamp (ms), per partition; None after the last record."""
        return await self._core.offsets_for_times(timestamps)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops returning records of partitions until :meth:`resume`."""
        self._core.check_usable()
        self._core.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Reverses :meth:`pause`."""
        self._core.check_usable()
        self._core.pause(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        return self._core.paused()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commits offsets, by default of all returned records; see :meth:`quorumlog.sdk.Consumer.commit`."""
        self._core.call_back()
        await self._core.commit(self._core.to_commit(offsets))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> asyncio.Future[None]:
        """Commits in the background; see :meth:`quorumlog.sdk.Consumer.commit_async`."""
        done = self._core.to_commit(offsets)
        committing = asyncio.get_running_loop().create_task(self._core.commit_then(done, checked_callback(callback)))
        committing.add_done_callback(_look_at_error)
        return committing

    async def committed(self, partition: TopicPartition, metadata: bool = False) -> OffsetAndMetadata | int | None:
        """Returns the group's committed offset of a partition; see :meth:`quorumlog.sdk.Consumer.committed`."""
        self._core.check_usable()
        return as_committed(await self._core.committed([partition]), metadata)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the group id and this consumer's membership; see :meth:`quorumlog.sdk.Consumer.group_metadata`."""
        self._core.check_usable()
        return self._core.group_metadata()

    def metrics(self) -> ClientFigures:
        """Returns the consumer's metrics, named as in Kafka's clients: a dict of groups, each a dict of numbers.

        ``consumer-fetch-manager-metrics`` covers the consumer, ``consumer-fetch-manager-metrics.TOPIC-PARTITION`` each
        partition. Names that end in ``-total`` count from the start; ``-rate`` (per second), ``-avg`` and ``-max``
        cover the last 30 to 60 s. Can be called from any thread.

        Example::

            consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]
        """
        return self._core.metrics()

    async def close(self, autocommit: bool = True, timeout: float | None = None) -> None:
        """Closes the consumer; see :meth:`quorumlog.sdk.Consumer.close`. May be called twice."""
        check_wait(timeout)
        if not self._core.closed:
            await self._close(self._core.consumed() if autocommit else ReadOffsets(), timeout)

    async def _close(self, done: ReadOffsets, timeout: float | None) -> None:
        self._core.closing = True
        try:
            await self._give_up(done, CLOSE_TIMEOUT_S if timeout is None else timeout)
        finally:
            await self._core.close()

    async def _give_up(self, done: ReadOffsets, limit_s: float) -> None:
        """Commits processed records, and notifies the listener that all partitions are revoked."""
        group = self._core.group
        if group is None:
            return
        await group.commit_finally(done if self._core.config.enable_auto_commit else ReadOffsets(), limit_s)
        step = await group.farewell()
        try:
            if step is not None:
                await self._tell_listener(group.subscription, step)
        finally:
            self._core.call_back()

    def __repr__(self) -> str:
        core = self._core
        what = "" if core.config.group_id is None else f", group {core.config.group_id!r}"
        return named("AsyncConsumer", core.config.bootstrap_servers, core.closed, what)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._core.closed:  # Records whose processing has raised must be read again, so they are not committed.
            await self._close(self._core.consumed(but_the_last=error is not None), None)


def check_poll_arguments(timeout_ms: float, max_records: int) -> None:
    """Raises `IllegalArgumentError` for an invalid timeout or number of records."""
    check_wait(timeout_ms, "timeout_ms", endless=False)
    check_count(max_records, "max_records")


def checked_callback(callback: object) -> CommitCallback | None:
    """Returns the callback, or raises `IllegalArgumentError` if it is not callable."""
    if callback is not None and not callable(callback):
        raise IllegalArgumentError(f"callback is {callback!r}: give a function of the offsets and an error or None")
    return callback


def as_committed(found: Mapping[TopicPartition, OffsetAndMetadata], metadata: bool) -> OffsetAndMetadata | int | None:
    """Returns the committed offset of one partition in the requested form."""
    committed = next(iter(found.values()), None)
    return committed if metadata or committed is None else committed.offset


def position_timed_out(partition: TopicPartition) -> RequestTimedOutError:
    """Returns the error for a position that was not looked up in time."""
    return RequestTimedOutError(
        f"the position of {partition.topic}-{partition.partition} was not found in time", definite=True
    )


def _look_at_error(task: asyncio.Future[None]) -> None:
    """Retrieves the exception, which the callback or the log has reported; otherwise asyncio would warn about it."""
    if not task.cancelled():
        task.exception()
