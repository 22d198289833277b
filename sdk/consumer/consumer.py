"""The synchronous consumer."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, Unpack

import pyarrow as pa

from quorumlog.sdk.arguments import check_wait
from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.consumer.assignment import ReadOffsets
from quorumlog.sdk.consumer.async_consumer import (
    CLOSE_TIMEOUT_S,
    LONGEST_WAIT_S,
    MAX_ARROW_ROWS,
    as_committed,
    check_poll_arguments,
    checked_callback,
    position_timed_out,
)
from quorumlog.sdk.consumer.commit_future import CommitFuture
from quorumlog.sdk.consumer.config import ConsumerConfig, ConsumerOptions
from quorumlog.sdk.consumer.core import CommitCallback, ConsumerCore
from quorumlog.sdk.consumer.subscription import (
    ConsumerRebalanceListener,
    Rebalance,
    RebalanceStep,
    Subscription,
    checked_subscription,
)
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.metrics.figures import ClientFigures
from quorumlog.sdk.records.fetched import FetchedRows, to_table
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.runtime.interruptible_event import InterruptibleEvent
from quorumlog.sdk.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

#: How much longer a caller waits than the loop: the loop's error message has the cause of the delay.
_GRACE_S = 0.5
#: Number of requests that a call may wait for, such as a commit for the commits before it.
_CALLS_IN_A_ROW = 10


@shows_options(ConsumerConfig)
class Consumer:
    """Reads records. Use it from one thread at a time.

    It reads all partitions of the given topics, including partitions added later, or those passed to :meth:`assign`.
    Only committed records are returned, each partition's in order, without omissions or repetitions, also across leader
    changes. Records are fetched ahead by a background thread. The consumer connects on first use.

    With a ``group_id`` it shares the partitions with the other consumers of the group, and starts at the group's
    committed offsets. Each partition has one reader at a time; during a rebalance the consumer continues to read the
    partitions that it keeps. Returned records are committed when the application calls again (``enable_auto_commit``),
    so that records whose processing failed are read again: by this consumer after a restart, or by another one.

    Example::

        with Consumer("orders", bootstrap_servers="127.0.0.1:19092") as consumer:
            for record in consumer:
                print(record.offset, record.value)

    The options, with their defaults. Names in ``_ms`` are milliseconds, sizes are bytes.
    :class:`~quorumlog.sdk.runtime.security.SecurityOptions` documents the options for TLS and authentication.

    bootstrap_servers='127.0.0.1:19092': ``host:port``, several separated by commas or as a sequence; any nodes of the
        cluster.
    group_id=None: the consumer group to join; None: a consumer without a group, which reads all partitions of its
        topics.
    group_instance_id=None: a name that is the same across restarts. It makes the consumer a static member, whose
        partitions are reserved for ``session_timeout_ms`` when it leaves. One process at a time may use the name.
    client_rack=None: the rack of this process; the consumer reads from replicas in it, if there are any in sync
        (KIP-392), and group assignors prefer them.
    group_assignor=None: ``"uniform"`` or ``"range"``: the assignor that this member prefers; None: the group's.
    session_timeout_ms=45000: the group removes a member after this time without a heartbeat, and assigns its partitions
        to others.
    heartbeat_interval_ms=3000: the longest time between heartbeats, which a background thread sends; at least three
        must fit into ``session_timeout_ms``.
    max_poll_interval_ms=300000: a consumer that is not polled for this time leaves its group, and rejoins at the next
        poll.
    enable_auto_commit=True, auto_commit_interval_ms=5000: commits, at about this interval, the records that were
        returned before the application called again; also when partitions are revoked, and on close.
    auto_offset_reset='earliest': the start position without a committed offset, or if the offset is out of range:
        ``"earliest"``, ``"latest"``, or ``"none"``, which raises an error.
    isolation_level='read_committed': which records of transactions are returned: those of committed ones, each
        partition up to its last stable offset, where the oldest open transaction starts; or with ``"read_uncommitted"``
        all. Markers and records that are left out have offsets, which the position passes.
    on_corrupt='raise': the reaction to a batch whose records cannot be decoded although its checksum is right:
        ``"raise"`` ``UnreadableBatchError``, or ``"skip"`` the batch with a warning. Damaged batches are never skipped.
    fetch_min_bytes=1, fetch_max_wait_ms=500: a node responds once it has this many bytes, or after this time.
    max_partition_fetch_bytes=8388608: limit of bytes of one partition per fetch; a larger batch is still returned
        whole.
    fetch_max_bytes=52428800: limit of bytes to fetch ahead, shared by all partitions.
    max_poll_records=500: limit of records that one ``poll`` returns.
    consumer_timeout_ms=inf: iteration ends after this time without a record.
    request_timeout_ms=30000: time limit of one look-up.
    metadata_max_age_ms=300000: interval between checks for new partitions of the topics.
    retry_backoff_ms=20, retry_backoff_max_ms=500: shortest and longest delay between attempts.
    bootstrap_timeout_ms=3000: time limit for reaching a first node.
    key_deserializer=None, value_deserializer=None: callables that accept bytes; not called for None, nor by
        ``poll_arrow``.
    client_id='quorumlog-consumer': the user agent that nodes see.

    Raises:
        IllegalArgumentError: an option is unknown, or its value is invalid.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._core = ConsumerCore(topics, options)
        self._limit_s = self._core.config.request_timeout_ms / 1000
        self._first_use_s = self._limit_s + self._core.config.bootstrap_timeout_ms / 1000 + _GRACE_S
        self._background = BackgroundLoop(
            "Consumer", self._core.assignment.is_entered, _CALLS_IN_A_ROW * self._limit_s + self._first_use_s
        )
        self._news = InterruptibleEvent()
        self._core.assignment.listen(self._news.set)
        # If a program ends without closing, it is unknown whether the last returned records were processed.
        self._background.own(self, self._core.close, autocommit=False)

    # --- reading -------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns records by partition, as soon as any are available.

        Arguments:
            timeout_ms: how long to wait for the first record; afterwards the result is empty.
            max_records: limit of the number of records; ``max_poll_records`` by default.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            OffsetOutOfRangeError, NoOffsetForPartitionError: only with ``auto_offset_reset="none"``.
            UnreadableBatchError: a batch cannot be decoded (``on_corrupt="raise"``): ``seek(error.partition,
                error.next_offset)`` continues after it.
            CorruptRecordError: a partition's data is damaged, also when fetched again.
            NoBrokersAvailableError: no node was reached.
            UnreleasedInstanceIdError, FencedInstanceIdError: another process uses the ``group_instance_id``.
            InvalidGroupIdError, InvalidRegularExpressionError, GroupMaxSizeReachedError: the group refuses the member.
            ClientClosedError, ForkedClientError: the consumer is closed, or belongs to the parent process.
        """
        core = self._core
        core.iteration.give_back()
        limit = core.config.max_poll_records if max_records is None else max_records
        records = core.records(self._take(timeout_ms, limit))
        handed = core.assignment.handed
        try:
            # The last step: if interrupted before it, or here, the next poll returns these records.
            core.assignment.handed = ()
            return records
        except BaseException:
            core.assignment.handed = handed
            raise

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Returns records as a table of topic, partition, offset, timestamp, key, value, headers, with no Python code
        per record.

        Arguments and errors are those of :meth:`poll`; by default it returns all records fetched ahead
        (``fetch_max_bytes`` at most). Deserializers are not applied.
        """
        core = self._core
        core.iteration.give_back()
        table = to_table(self._take(timeout_ms, MAX_ARROW_ROWS if max_records is None else max_records))
        handed = core.assignment.handed
        try:
            core.assignment.handed = ()  # As in poll.
            return table
        except BaseException:
            core.assignment.handed = handed
            raise

    def _take(self, timeout_ms: float, max_records: int) -> list[FetchedRows]:
        """Waits for rows. They stay in the assignment's ``handed`` until the caller has returned them."""
        check_poll_arguments(timeout_ms, max_records)
        core = self._core
        core.check_usable()
        self._ensure_assigned()
        poll = object()
        try:
            try:
                core.begin_poll(poll)
                return self._take_in_poll(time.monotonic() + timeout_ms / 1000, max_records)
            finally:
                core.end_poll(poll)
        finally:  # In case a signal handler has prevented the first call.
            core.end_poll(poll)

    def _take_in_poll(self, deadline_s: float, max_records: int) -> list[FetchedRows]:
        core = self._core
        core.came_back()
        while True:
            self._news.clear()
            core.check_usable()
            self._settle()
            rows = core.take_fetched(max_records)
            left_s = deadline_s - time.monotonic()
            if rows or left_s <= 0:
                return rows
            self._background.check_may_block()
            self._news.wait(min(left_s, LONGEST_WAIT_S))

    def _settle(self) -> None:
        """Runs pending callbacks and rebalance steps on the application's thread."""
        core = self._core
        core.call_back()
        if core.group is None or not core.group.pending:
            return
        while (step := self._background.run(core.group.next_step(core.consumed()))) is not None:
            self._tell_listener(core.group.subscription, step)

    def _tell_listener(self, subscription: Subscription | None, step: RebalanceStep) -> None:
        group = self._core.require_group("a rebalance")
        try:
            group.begins(step)
            if subscription is not None:
                subscription.tell(step)
        finally:
            self._background.run(group.finished(step))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Returns the next record; waits for it, ``consumer_timeout_ms`` at most."""
        core = self._core
        deadline = time.monotonic() + core.config.consumer_timeout_ms / 1000
        while True:
            record = core.next_record()
            if record is not None:
                count = core.iteration.given
                try:
                    core.iteration.given = count + 1  # The last step: if interrupted, the next call returns the record.
                    return record
                except BaseException:
                    core.iteration.given = count
                    raise
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                raise StopIteration
            self._take(min(left_ms, 60_000.0), core.config.max_poll_records)

    # --- what is read, and where it is ---------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, instead of the previous subscription.

        With a group the consumer joins it at the next poll; the group assigns partitions to each member. Without one,
        all partitions of the topics are read.

        Arguments:
            topics: names. A group waits for topics that do not exist yet.
            pattern: alternatively, a regular expression (RE2) that matches whole names, also of future topics. Only
                with a group.
            listener: called with the partitions that are gained and given up. Only with a group.

        Raises:
            IllegalArgumentError: both topics and a pattern, neither, or an option that needs a group.
            IllegalStateError: partitions were assigned by :meth:`assign`; call :meth:`unsubscribe` first.
        """
        self._core.check_usable()
        subscription = checked_subscription(topics, pattern, listener)
        for kind in Rebalance:
            if listener is not None and inspect.iscoroutinefunction(getattr(listener, kind.value)):
                raise IllegalArgumentError(f"the listener's {kind.value} is a coroutine: those are for AsyncConsumer")
        self._background.run(self._core.subscribe(subscription))

    def unsubscribe(self) -> None:
        """Stops reading. A member commits the returned records (``enable_auto_commit``), gives its partitions up as in
        a close, and leaves the group."""
        self._core.check_usable()
        try:
            self._give_up(self._core.consumed(), CLOSE_TIMEOUT_S)
        finally:
            self._background.run(self._core.unsubscribe())

    def subscription(self) -> set[str]:
        """Returns the subscribed topics; with a pattern, the topics of which this consumer has partitions now."""
        self._core.check_usable()
        return self._core.subscribed_topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on; those that stay keep their position.

        With a ``group_id`` they start at the group's committed offsets, and can be committed while the group has no
        members; this consumer does not become one.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError: a topic or partition does not exist.
            IllegalStateError: the consumer is subscribed as a member of its group; call :meth:`unsubscribe` first.
        """
        self._core.check_usable()
        self._background.run(self._core.assign(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions being read; empty before :meth:`assign` if the consumer has no topics.

        For a member of a group these are the partitions that polls return records of; they change only inside polls.
        """
        self._core.check_usable()
        if self._core.subscription is not None and self._core.group is None:
            self._ensure_assigned()
        return set(self._core.assignment.states)

    def _ensure_assigned(self) -> None:
        self._core.check_usable()
        if not self._core.assigned:
            self._background.run(self._core.ensure_assigned(), self._first_use_s)

    def topics(self) -> set[str]:
        """Returns the names of all topics except internal ones."""
        self._core.check_usable()
        return self._background.run(self._core.topic_names())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        self._core.check_usable()
        return self._background.run(self._core.partitions_for_topic(topic))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the position of a partition to an offset.

        Raises:
            IllegalArgumentError: the offset is not an int from 0 to 2^63 - 1.
            IllegalStateError: the partition is not assigned.
        """
        self._ensure_assigned()
        self._core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Sets the positions of partitions, by default all, to their first record."""
        self._ensure_assigned()
        self._core.seek_to(partitions, "earliest")

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Sets the positions of partitions, by default all, to the current end of their logs."""
        self._ensure_assigned()
        self._core.seek_to(partitions, "latest")

    def position(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record that a poll returns.

        Raises:
            IllegalStateError: the partition is not assigned.
            RequestTimedOutError: the position was not looked up within ``request_timeout_ms``.
        """
        self._ensure_assigned()
        deadline = time.monotonic() + self._limit_s
        while True:
            self._news.clear()
            self._core.check_usable()
            known = self._core.known_position(partition)
            if known is not None:
                return known
            if not self._news.wait(deadline - time.monotonic()):
                raise position_timed_out(partition)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the high watermark from the last fetch, None before the first. :meth:`end_offsets` requests a new
        one."""
        self._ensure_assigned()
        return self._core.highwater(partition)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        self._core.check_usable()
        return self._background.run(self._core.offsets_at(partitions, EARLIEST))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset at which each partition ends now: its last stable offset, or the high watermark with
        ``isolation_level="read_uncommitted"``.

        Linearizable: it is beyond every record acknowledged (``acks="all"``) before the call, except those of open
        transactions and the records after them.
        """
        self._core.check_usable()
        return self._background.run(self._core.offsets_at(partitions, LATEST))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first offset at or after a timestamp (ms), per partition; None after the last record."""
        self._core.check_usable()
        return self._background.run(self._core.offsets_for_times(timestamps))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops returning records of partitions until :meth:`resume`."""
        self._ensure_assigned()
        self._core.pause(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Reverses :meth:`pause`."""
        self._ensure_assigned()
        self._core.pause(partitions, False)

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        return self._core.paused()

    # --- the group -----------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commits offsets of the group; returns when they are stored on a majority of the coordinator's replicas.

        Commit processed records: after a failure the group continues at the committed offsets. During an iteration the
        last returned record counts as processed.

        Arguments:
            offsets: the next offset to read, per partition; by default, for all partitions, the first that was not
                returned yet.

        Raises:
            CommitFailedError: this member does not have the partitions, or lost them: it did not poll for
                ``max_poll_interval_ms``, or had no contact for ``session_timeout_ms``. Other members read them again.
            OffsetMetadataTooLargeError: the metadata of an offset is too long.
            QuorumlogError: the commit took longer than ``request_timeout_ms``, or failed otherwise.
        """
        done = self._core.to_commit(offsets)
        self._core.call_back()
        self._background.run(self._core.commit(done))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> CommitFuture:
        """Commits in the background, in the order of the calls; for offsets and errors see :meth:`commit`.

        Arguments:
            callback: called with the offsets and None or the error, during a later poll, commit or close.

        Returns:
            A handle whose ``result`` raises the errors of :meth:`commit`.
        """
        done = self._core.to_commit(offsets)
        committing = self._core.commit_then(done, checked_callback(callback))
        return CommitFuture(self._background.start(committing))

    def committed(self, partition: TopicPartition, metadata: bool = False) -> OffsetAndMetadata | int | None:
        """Returns the group's committed offset of a partition, None without one. It is never older than the call.

        Arguments:
            metadata: return :class:`OffsetAndMetadata`, with the text and the leader epoch.
        """
        self._core.check_usable()
        return as_committed(self._background.run(self._core.committed([partition])), bool(metadata))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the group id and this consumer's membership."""
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

    def close(self, autocommit: bool = True, timeout: float | None = None) -> None:
        """Closes the consumer. May be called twice; in a forked child it only marks the consumer as closed.

        A member commits the returned records, notifies its listener that all partitions are revoked, and leaves its
        group, which assigns them to others at once; the partitions of a static member (``group_instance_id``) are
        reserved for it instead. At the end of a ``with`` block that has raised, the records returned last are not
        committed.

        Arguments:
            autocommit: False commits nothing more, as ``enable_auto_commit=False`` does throughout.
            timeout: time limit of the commit, in seconds; 5 by default.
        """
        check_wait(timeout)
        if not self._core.closed:
            self._close(
                self._core.consumed() if autocommit and self._core.fork.same_process else ReadOffsets(), timeout
            )

    def _close(self, done: ReadOffsets, timeout: float | None) -> None:
        if not self._core.fork.same_process:
            self._core.closed = True
            return
        self._core.closing = True
        try:
            self._give_up(done, CLOSE_TIMEOUT_S if timeout is None else timeout)
        finally:
            self._background.run(self._core.close(), timeout_s=10.0)
            self._background.release(self)

    def _give_up(self, done: ReadOffsets, limit_s: float) -> None:
        """Commits processed records, and notifies the listener that all partitions are revoked."""
        group = self._core.group
        if group is None:
            return
        done = done if self._core.config.enable_auto_commit else ReadOffsets()
        self._background.run(group.commit_finally(done, limit_s))
        step = self._background.run(group.farewell())
        try:
            if step is not None:
                self._tell_listener(group.subscription, step)
        finally:
            self._core.call_back()

    def __repr__(self) -> str:
        core = self._core
        what = "" if core.config.group_id is None else f", group {core.config.group_id!r}"
        return named("Consumer", core.config.bootstrap_servers, core.closed, what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._core.closed:  # Records whose processing has raised must be read again, so they are not committed.
            self._close(self._core.consumed(but_the_last=error is not None), None)
