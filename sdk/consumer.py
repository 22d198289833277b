"""The synchronous consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import NoReturn, Self, Unpack

import pyarrow as pa

from quorumlog.sdk.async_consumer import (
    MAX_ARROW_ROWS,
    ConsumerCore,
    check_poll_arguments,
    position_timed_out,
    refuse_groups,
)
from quorumlog.sdk.consumer_config import ConsumerOptions
from quorumlog.sdk.event_loop import BackgroundLoop
from quorumlog.sdk.fetched import FetchedRows, to_table
from quorumlog.sdk.offset_search import EARLIEST, LATEST
from quorumlog.sdk.types import ConsumerRecord, OffsetAndTimestamp, TopicPartition


class Consumer:
    """Reads records. To be used from one thread at a time.

    Given topics it reads all of their partitions, those added later too; or :meth:`assign` says which. Only committed
    records are returned, each partition's in order, without gaps or repetitions; changes of leader go unnoticed.
    Records are fetched ahead by a background thread. Nothing is connected before the first use. For the options see
    :class:`quorumlog.sdk.consumer_config.ConsumerOptions`.

    Example::

        with Consumer("orders", bootstrap_servers="127.0.0.1:19092") as consumer:
            for record in consumer:
                print(record.offset, record.value)
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._core = ConsumerCore(topics, options)
        self._background = BackgroundLoop("Consumer")
        self._news = threading.Event()
        self._core.assignment.listen(self._news.set)
        self._limit_s = self._core.config.request_timeout_ms / 1000
        self._background.own(self, self._core.close)

    # --- reading -------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns records by partition: what is there, or as soon as something comes.

        Arguments:
            timeout_ms: how long to wait for the first record; empty after that.
            max_records: how many at most; ``max_poll_records`` by default.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            OffsetOutOfRangeError, NoOffsetForPartitionError: only with ``auto_offset_reset="none"``.
            CorruptRecordError: what a partition returned is damaged, also when fetched again.
            NoBrokersAvailableError: no node was reached.
            ClientClosedError, ForkedClientError: this object cannot be used (any more, or here).
        """
        self._core.iteration.give_back()
        limit = self._core.config.max_poll_records if max_records is None else max_records
        return self._core.records(self._take(timeout_ms, limit))

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Returns records as a table of topic, partition, offset, timestamp, key, value, headers; no Python per record.

        Arguments and errors are those of :meth:`poll`; by default it returns all that has been fetched ahead
        (``fetch_max_bytes`` at most). Deserializers are not applied.
        """
        self._core.iteration.give_back()
        return to_table(self._take(timeout_ms, MAX_ARROW_ROWS if max_records is None else max_records))

    def _take(self, timeout_ms: float, max_records: int) -> list[FetchedRows]:
        check_poll_arguments(timeout_ms, max_records)
        core = self._core
        core.check_usable()
        if not core.assigned:
            self._background.run(core.ensure_assigned())
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            self._news.clear()
            rows = core.take(max_records)
            left = deadline - time.monotonic()
            if rows or left <= 0:
                return rows
            self._background.check_may_block()
            self._news.wait(left)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
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
                raise StopIteration
            core.iteration.add(self._take(min(left_ms, 60_000.0), core.config.max_poll_records))

    # --- what is read, and where it is ---------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; those that stay keep their position.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError: there is no such topic or partition.
        """
        self._core.check_usable()
        self._background.run(self._core.assign(partitions))

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read; empty before :meth:`assign` of a consumer that was given no topics."""
        self._core.check_usable()
        if self._core.topics:
            self._ensure_assigned()
        return set(self._core.assignment.states)

    def _ensure_assigned(self) -> None:
        self._core.check_usable()
        if not self._core.assigned:
            self._background.run(self._core.ensure_assigned())

    def topics(self) -> set[str]:
        """The names of all topics, internal ones left out."""
        self._core.check_usable()
        return self._background.run(self._core.topic_names())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic."""
        self._core.check_usable()
        return self._background.run(self._core.partitions_for_topic(topic))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues a partition at an offset."""
        self._ensure_assigned()
        self._core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continues partitions, by default all, at their first record."""
        self._ensure_assigned()
        self._core.seek_to(partitions, "earliest")

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continues partitions, by default all, after the last record there is now."""
        self._ensure_assigned()
        self._core.seek_to(partitions, "latest")

    def position(self, partition: TopicPartition) -> int:
        """The next offset that a poll returns.

        Raises:
            RequestTimedOutError: it had to be looked up, and that took too long.
        """
        self._ensure_assigned()
        deadline = time.monotonic() + self._limit_s
        while True:
            self._news.clear()
            known = self._core.known_position(partition)
            if known is not None:
                return known
            if not self._news.wait(deadline - time.monotonic()):
                raise position_timed_out(partition)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch, None before the first: :meth:`end_offsets` asks anew."""
        self._ensure_assigned()
        return self._core.highwater(partition)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        self._core.check_usable()
        return self._background.run(self._core.offsets_at(partitions, EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last committed record of each partition.

        Linearizable: it lies beyond every record acknowledged (``acks="all"``) before the call.
        """
        self._core.check_usable()
        return self._background.run(self._core.offsets_at(partitions, LATEST))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset at or after a timestamp in milliseconds, per partition; None past the last record."""
        self._core.check_usable()
        return self._background.run(self._core.offsets_for_times(timestamps))

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns nothing from partitions until :meth:`resume`."""
        self._ensure_assigned()
        self._core.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends :meth:`pause`."""
        self._ensure_assigned()
        self._core.pause(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._core.paused()

    def commit(self, *arguments: object) -> NoReturn:
        """Consumer groups arrive with a later version."""
        refuse_groups("commit")

    def committed(self, *arguments: object) -> NoReturn:
        """Consumer groups arrive with a later version."""
        refuse_groups("committed")

    def close(self, timeout: float | None = None) -> None:
        """Closes. May be called twice; in a forked child it only lets go."""
        if self._core.closed:
            return
        if not self._core.fork.same_process:
            self._core.closed = True
            return
        self._background.run(self._core.close(), timeout_s=10.0)
        self._background.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
