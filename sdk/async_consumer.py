"""The consumer's asyncio core, shared by ``AsyncConsumer`` and the synchronous ``Consumer``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

import pyarrow as pa

from quorumlog.sdk.arguments import (
    check_count,
    check_wait,
    checked_numbers,
    checked_offset,
    checked_partitions,
    checked_topic,
    checked_topics,
)
from quorumlog.sdk.assignment import Assignment
from quorumlog.sdk.backoff import Backoff
from quorumlog.sdk.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.consumer_config import ConsumerConfig, ConsumerOptions
from quorumlog.sdk.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidPartitionsError,
    QuorumlogError,
    RequestTimedOutError,
    UnsupportedError,
)
from quorumlog.sdk.fetched import FetchedRows, to_records, to_table
from quorumlog.sdk.fetcher import Fetcher
from quorumlog.sdk.fork import ForkGuard
from quorumlog.sdk.iteration import Iteration
from quorumlog.sdk.offset_lookup import find_offsets
from quorumlog.sdk.offset_search import EARLIEST, LATEST
from quorumlog.sdk.types import ConsumerRecord, OffsetAndTimestamp, TopicPartition

#: ``poll_arrow`` takes what has been fetched ahead, which is bounded in bytes; this bounds it in rows too.
MAX_ARROW_ROWS = 10_000_000


class ConsumerCore:
    """Everything of a consumer that does not depend on how its caller waits.

    Coroutines belong to one event loop; the other methods to the one thread that consumes.
    """

    def __init__(self, topics: Iterable[str], options: Mapping[str, Any]) -> None:
        self.config = build_config(ConsumerConfig, options)
        self.topics = checked_topics(topics)
        self.fork = ForkGuard("Consumer")
        self.closed = False
        self.assignment = Assignment(self.config.max_partition_fetch_bytes)
        self.cluster = Cluster(
            parse_bootstrap_servers(self.config.bootstrap_servers),
            request_timeout_s=self.config.request_timeout_ms / 1000,
            bootstrap_timeout_s=self.config.bootstrap_timeout_ms / 1000,
            backoff=Backoff(self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000),
            client_id=self.config.client_id,
        )
        self.fetcher = Fetcher(self.config, self.cluster, self.assignment, time.monotonic)
        self.iteration = Iteration(self.assignment, self._to_records)
        self.assigned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: asyncio.Task[None] | None = None
        self._limit_s = self.config.request_timeout_ms / 1000

    def check_usable(self) -> None:
        """Raises when closed, or in a forked child."""
        self.fork.check()
        if self.closed:
            raise ClientClosedError("the consumer is closed")

    def wake(self) -> None:
        """Has the fetcher look again. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.fetcher.wake)

    # --- what is read --------------------------------------------------------------------------------------------

    async def ensure_assigned(self) -> None:
        """On first use: all partitions of the topics given, or nothing to do after ``assign``."""
        self.check_usable()
        if self.assigned:
            return
        if not self.topics:
            raise IllegalStateError("the consumer has nothing to read: give it topics, or call assign")
        views = await self.cluster.ensure_topics(self.topics, self._limit_s)
        self.assignment.assign(
            (TopicPartition(name, p.partition) for name, view in views.items() for p in view.partitions),
            self.config.auto_offset_reset,
        )
        self.assigned = True
        self._loop = asyncio.get_running_loop()
        self._watching = self._loop.create_task(self._watch_for_partitions())
        self.fetcher.wake()

    async def _watch_for_partitions(self) -> None:
        """Reads partitions that the topics gain, from their beginning, whatever ``auto_offset_reset`` says.

        (Else what is written between their creation and our noticing would be skipped in silence.)
        """
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            self.cluster.watch_topics(self.topics)
            try:
                await self.cluster.ask_metadata(self.topics)
            except QuorumlogError:
                continue  # Asked again after the next interval; fetching notices and reports on its own.
            known = [self.cluster.metadata.topics[name] for name in self.topics if name in self.cluster.metadata.topics]
            self.assignment.add(
                (TopicPartition(view.name, p.partition) for view in known for p in view.partitions), "earliest"
            )
            self.fetcher.wake()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on."""
        wanted = checked_partitions(partitions)
        views = await self.cluster.ensure_topics(sorted({tp.topic for tp in wanted}), self._limit_s)
        for tp in wanted:
            last = len(views[tp.topic].partitions) - 1
            if not 0 <= tp.partition <= last:
                raise InvalidPartitionsError(
                    f"there is no partition {tp.partition} in topic {tp.topic!r}: it has 0 to {last}"
                )
        if self._watching is not None:
            self._watching.cancel()
        self.iteration.give_back()
        self.assignment.assign(wanted, self.config.auto_offset_reset)
        self.assigned = True
        self._loop = asyncio.get_running_loop()
        self.fetcher.wake()

    async def topic_names(self) -> set[str]:
        """Every topic of the cluster but its own."""
        response = await self.cluster.ask_metadata([], all_topics=True)
        return {topic.name for topic in response.topics if not topic.internal}

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        views = await self.cluster.ensure_topics([checked_topic(topic)], self._limit_s)
        return {p.partition for p in views[topic].partitions}

    async def offsets_at(self, partitions: Iterable[TopicPartition], when: int) -> dict[TopicPartition, int]:
        """Where partitions begin or end."""
        wanted = dict.fromkeys(checked_partitions(partitions), when)
        found = await find_offsets(self.cluster, wanted, self._limit_s)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a timestamp, per partition."""
        wanted = checked_numbers(wanted, 0, "milliseconds since 1970, as an int")
        found = await find_offsets(self.cluster, wanted, self._limit_s)
        return {
            tp: OffsetAndTimestamp(found[tp].offset, found[tp].timestamp_ms) if found[tp].offset >= 0 else None
            for tp in wanted
        }

    # --- where it is ---------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes to an offset."""
        self._move([partition], checked_offset(offset), self.config.auto_offset_reset)

    def seek_to(self, partitions: Collection[TopicPartition], reset: str) -> None:
        """Goes to the beginning or the end of partitions, or of all."""
        self._move(partitions or list(self.assignment.states), None, reset)

    def _move(self, partitions: Iterable[TopicPartition], offset: int | None, reset: str) -> None:
        states = [self.assignment.state(tp) for tp in partitions]
        self.iteration.give_back()
        with self.assignment.lock:
            for state in states:
                state.move(offset, reset)
        self.wake()

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Sets or clears the pause of partitions."""
        states = [self.assignment.state(tp) for tp in partitions]
        self.iteration.give_back()
        with self.assignment.lock:
            for state in states:
                state.paused = paused
        self.wake()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {tp for tp, state in self.assignment.states.items() if state.paused}

    def known_position(self, partition: TopicPartition) -> int | None:
        """The next offset, or None while it is being looked up.

        Raises:
            QuorumlogError: it could not be looked up.
        """
        state = self.assignment.state(partition)
        unread = self.iteration.position(partition)
        if unread is not None:
            return unread
        with self.assignment.lock:
            if state.position is None and state.error is not None:
                error, state.error = state.error, None
                self.wake()
                raise error
            return state.position

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark that the last fetch told, if any."""
        known = self.assignment.state(partition).high_watermark
        return known if known >= 0 else None

    def take(self, max_records: int) -> list[FetchedRows]:
        """What has been fetched, up to a number of records."""
        try:
            rows, drained = self.assignment.take(max_records)
        except QuorumlogError:
            self.wake()  # What has failed was left alone until somebody heard of it.
            raise
        if drained or (rows and self.fetcher.starved):
            self.wake()
        return rows

    def records(self, rows: Sequence[FetchedRows]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Fetched rows as records, by partition."""
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            for part in rows:
                records.setdefault(part.tp, []).extend(self._to_records(part))
        except Exception:
            self.assignment.give_back(rows)  # A deserializer has failed: nothing was handed out.
            raise
        return records

    def _to_records(self, rows: FetchedRows) -> list[ConsumerRecord]:
        return to_records(rows, self.config.key_deserializer, self.config.value_deserializer)

    async def close(self) -> None:
        """Stops fetching and closes connections."""
        self.closed = True
        if self._watching is not None:
            self._watching.cancel()
        self.fetcher.close()
        await self.cluster.close()


class AsyncConsumer:
    """Reads records, from asyncio. Options and methods as in :class:`quorumlog.sdk.Consumer`; for one event loop.

    Example::

        async with AsyncConsumer("orders", bootstrap_servers="127.0.0.1:19092") as consumer:
            async for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._core = ConsumerCore(topics, options)
        self._news = asyncio.Event()
        self._core.assignment.listen(self._news.set)

    async def start(self) -> None:
        """Connects and looks up the topics' partitions. Optional: the first poll does it too."""
        self._core.check_usable()
        if self._core.topics:
            await self._core.ensure_assigned()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; those that stay keep their position."""
        self._core.check_usable()
        await self._core.assign(partitions)

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition; see :meth:`quorumlog.sdk.Consumer.poll`."""
        self._core.iteration.give_back()
        limit = self._core.config.max_poll_records if max_records is None else max_records
        return self._core.records(await self._take(timeout_ms, limit))

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Records as a table; see :meth:`quorumlog.sdk.Consumer.poll_arrow`."""
        self._core.iteration.give_back()
        return to_table(await self._take(timeout_ms, MAX_ARROW_ROWS if max_records is None else max_records))

    async def _take(self, timeout_ms: float, max_records: int) -> list[FetchedRows]:
        check_poll_arguments(timeout_ms, max_records)
        self._core.check_usable()
        await self._core.ensure_assigned()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            self._news.clear()
            rows = self._core.take(max_records)
            left = deadline - time.monotonic()
            if rows or left <= 0:
                return rows
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                continue

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it, at most ``consumer_timeout_ms``."""
        core = self._core
        deadline = time.monotonic() + core.config.consumer_timeout_ms / 1000
        while True:
            core.check_usable()
            record = core.iteration.next()
            if record is not None:
                return record
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                raise StopAsyncIteration
            core.iteration.add(await self._take(min(left_ms, 60_000.0), core.config.max_poll_records))

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read."""
        self._core.check_usable()
        return set(self._core.assignment.states)

    async def topics(self) -> set[str]:
        """The names of all topics, internal ones left out."""
        self._core.check_usable()
        return await self._core.topic_names()

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        return await self._core.partitions_for_topic(topic)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues a partition at an offset."""
        await self._core.ensure_assigned()
        self._core.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continues partitions, by default all, at their first record."""
        await self._core.ensure_assigned()
        self._core.seek_to(partitions, "earliest")

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continues partitions, by default all, after their last record."""
        await self._core.ensure_assigned()
        self._core.seek_to(partitions, "latest")

    async def position(self, partition: TopicPartition) -> int:
        """The next offset that a poll returns."""
        await self._core.ensure_assigned()
        try:
            async with asyncio.timeout(self._core.config.request_timeout_ms / 1000):
                while True:
                    self._news.clear()
                    known = self._core.known_position(partition)
                    if known is not None:
                        return known
                    await self._news.wait()
        except TimeoutError:
            raise position_timed_out(partition) from None

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch, None before the first: :meth:`end_offsets` asks anew."""
        self._core.check_usable()
        return self._core.highwater(partition)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._core.offsets_at(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last committed record of each partition; linearizable."""
        return await self._core.offsets_at(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a timestamp in milliseconds, per partition; None past the last record."""
        return await self._core.offsets_for_times(timestamps)

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns nothing from partitions until :meth:`resume`."""
        self._core.check_usable()
        self._core.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends :meth:`pause`."""
        self._core.check_usable()
        self._core.pause(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._core.paused()

    async def commit(self, *arguments: object) -> NoReturn:
        """Consumer groups arrive with a later version."""
        refuse_groups("commit")

    async def committed(self, *arguments: object) -> NoReturn:
        """Consumer groups arrive with a later version."""
        refuse_groups("committed")

    async def close(self, timeout: float | None = None) -> None:
        """Closes. May be called twice."""
        if not self._core.closed:
            await self._core.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def check_poll_arguments(timeout_ms: float, max_records: int) -> None:
    """Refuses what cannot be meant."""
    check_wait(timeout_ms, "timeout_ms", endless=False)
    check_count(max_records, "max_records")


def refuse_groups(what: str) -> NoReturn:
    """Says that a method needs consumer groups."""
    raise UnsupportedError(
        f"{what} needs a consumer group, and groups arrive with a later version: keep offsets yourself"
    )


def position_timed_out(partition: TopicPartition) -> RequestTimedOutError:
    """The error of a position that could not be looked up in time."""
    return RequestTimedOutError(
        f"the position of {partition.topic}-{partition.partition} was not found in time", definite=True
    )
