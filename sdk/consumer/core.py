"""The part of ``AsyncConsumer`` and ``Consumer`` that does not depend on how their callers wait."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from quorumlog.sdk.arguments import (
    checked_commits,
    checked_numbers,
    checked_offset,
    checked_partition,
    checked_partitions,
    checked_topic,
    checked_topics,
)
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState, ReadOffsets, Start
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.consumer.fetcher import Fetcher
from quorumlog.sdk.consumer.group_consumer import GroupConsumer
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.sdk.consumer.iteration import Iteration
from quorumlog.sdk.consumer.subscription import Subscription
from quorumlog.sdk.errors import (
    ClientClosedError,
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    QuorumlogError,
    error_from_proto,
)
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.sdk.metrics.figures import CONSUMER, COORDINATOR, FETCHES, ClientFigures
from quorumlog.sdk.records.fetched import FetchedRows, to_records
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime
from quorumlog.sdk.runtime.fork import ForkGuard
from quorumlog.sdk.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TransactionToken,
)

#: Called with the outcome of a commit: its offsets, and None or the error.
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object]

_log = logging.getLogger("quorumlog.sdk")


class ConsumerCore:
    """The part of a consumer that does not depend on how its caller waits.

    Coroutines belong to one event loop; the other methods to the one thread that consumes.
    """

    def __init__(
        self, topics: Iterable[str], options: Mapping[str, Any], runtime: ClientRuntime = SYSTEM_RUNTIME
    ) -> None:
        self.config = build_config(ConsumerConfig, options)
        names = checked_topics(topics)
        #: None if partitions are assigned by hand.
        self.subscription = Subscription(names) if names else None
        self.fork = ForkGuard("Consumer")
        self.closed = False
        #: The consumer is leaving its group and has given its partitions up itself.
        self.closing = False
        self.clock = runtime.monotonic_s
        self.assignment = Assignment(self.config.max_partition_fetch_bytes, self.clock)
        self.cluster = Cluster(
            parse_bootstrap_servers(self.config.bootstrap_servers),
            request_timeout_s=self.config.request_timeout_ms / 1000,
            bootstrap_timeout_s=self.config.bootstrap_timeout_ms / 1000,
            backoff=Backoff(self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000, runtime),
            client_id=self.config.client_id,
            runtime=runtime,
            security=self.config,
        )
        self._metrics = ConsumerMetrics(self.clock())
        self.fetcher = Fetcher(self.config, self.cluster, self.assignment, self.clock, self._metrics)
        self.iteration = Iteration(self.assignment, self._to_records)
        self.group: GroupConsumer | None = None
        if self.config.group_id is not None:
            self.group = GroupConsumer(
                self.config, self.cluster, self.assignment, runtime, self._metrics, self.fetcher.wake
            )
        self.assigned = False
        #: Callbacks of finished commits, to be called on the application's thread.
        self.completed: deque[Callable[[], object]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: asyncio.Task[None] | None = None
        self._limit_s = self.config.request_timeout_ms / 1000

    def check_usable(self) -> None:
        """Raises if the consumer is closed, or in a forked child."""
        self.fork.check()
        if self.closed:
            raise ClientClosedError("the consumer is closed")

    def wake(self) -> None:
        """Wakes the fetcher. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.fetcher.wake)

    # --- what is read --------------------------------------------------------------------------------------------

    async def ensure_assigned(self) -> None:
        """On first use, joins the group, or starts reading all partitions of the topics; not after ``assign``."""
        self.check_usable()
        if self.assigned:
            return
        if self.subscription is None:
            raise IllegalStateError("the consumer has nothing to read: give it topics, subscribe, or call assign")
        self._loop = asyncio.get_running_loop()
        if self.group is not None:
            await self._look_at_topics(self.subscription.topics)
            self.check_usable()
            self.group.subscribe(self.subscription)
            self.assigned = True
            return
        views = await self.cluster.ensure_topics(self.subscription.topics, self._limit_s)
        self.check_usable()
        self.assignment.assign(
            (TopicPartition(name, p.partition) for name, view in views.items() for p in view.partitions),
            self.config.auto_offset_reset,
        )
        self.assigned = True
        self._watching = self.cluster.in_background(self._watch_for_partitions(self.subscription.topics))
        self.fetcher.wake()

    async def _look_at_topics(self, topics: Sequence[str]) -> None:
        """Logs a warning for missing topics: a group may wait for topics that do not exist yet, but a name may be
        mistyped."""
        for topic in (await self.cluster.ask_metadata(topics)).topics:
            if topic.HasField("error"):
                error = error_from_proto(topic.error)
                if isinstance(error, InvalidTopicError):
                    raise error
                _log.warning("consumer group %s: topic %r: %s", self.config.group_id, topic.name, error.message)

    async def _watch_for_partitions(self, topics: Sequence[str]) -> None:
        """Reads new partitions of the topics from their start, regardless of ``auto_offset_reset``.

        Otherwise records written between their creation and this check would be skipped silently. A recreated topic may
        have fewer partitions: removed ones would fail in every poll.
        """
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            self.cluster.watch_topics(topics)
            try:
                await self.cluster.ask_metadata(topics)
            except QuorumlogError:
                continue  # Requested again after the next interval; fetching detects and reports problems on its own.
            known = [self.cluster.metadata.topics[name] for name in topics if name in self.cluster.metadata.topics]
            counts = {view.name: len(view.partitions) for view in known}
            gone = [tp for tp in self.assignment.states if tp.partition >= counts.get(tp.topic, tp.partition + 1)]
            self.assignment.remove(gone)
            self.assignment.add(
                (TopicPartition(view.name, p.partition) for view in known for p in view.partitions), "earliest"
            )
            self.fetcher.wake()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def subscribe(self, subscription: Subscription) -> None:
        """Subscribes to topics: partitions as the group assigns them, or all without a group."""
        if self.group is None:
            if subscription.pattern or subscription.listener is not None:
                raise IllegalArgumentError("a pattern or a listener needs a consumer group: give group_id")
            self._stop_watching()
            self.iteration.give_back()
            self.assigned = False
        elif self.assigned and self.subscription is None:
            raise IllegalStateError("partitions are assigned by hand: unsubscribe before you subscribe")
        elif self.assigned:
            await self._look_at_topics(subscription.topics)
            self.check_usable()
            self.group.subscribe(subscription)
        self.subscription = subscription

    async def unsubscribe(self) -> None:
        """Stops reading and leaves the group."""
        self._stop_watching()
        self.iteration.give_back()
        self.subscription = None
        self.assigned = False
        try:
            if self.group is not None:
                await self.group.leave(self._limit_s)
        finally:
            self.assignment.remove(list(self.assignment.states))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions from now on."""
        wanted = checked_partitions(partitions)
        if self.group is not None and self.subscription is not None:
            raise IllegalStateError("the consumer subscribes to topics as a member of its group: unsubscribe before")
        await self.cluster.require_partitions(wanted, self._limit_s)
        starts = await self._committed_starts([tp for tp in wanted if tp not in self.assignment.states])
        self.check_usable()
        self._stop_watching()
        self.iteration.give_back()
        self.assignment.remove([tp for tp in self.assignment.states if tp not in set(wanted)])
        self.assignment.place(starts)
        self.assignment.assign(wanted, self.config.auto_offset_reset)
        self.assigned = True
        self._loop = asyncio.get_running_loop()
        self.fetcher.wake()

    async def _committed_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Returns the partitions with committed offsets, positioned there."""
        if self.group is None:
            return {}
        wanted, found = await self._committed(partitions)
        return {
            wanted[place]: PartitionState.at(
                wanted[place],
                place.topic_id,
                Start(
                    self.config.auto_offset_reset,
                    committed.offset,
                    -1 if committed.leader_epoch is None else committed.leader_epoch,
                ),
            )
            for place, committed in found.items()
        }

    async def topic_names(self) -> set[str]:
        """Returns all topics of the cluster except internal ones."""
        response = await self.cluster.ask_metadata([], all_topics=True)
        return {topic.name for topic in response.topics if not topic.internal}

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic."""
        views = await self.cluster.ensure_topics([checked_topic(topic)], self._limit_s)
        return {p.partition for p in views[topic].partitions}

    async def offsets_at(self, partitions: Iterable[TopicPartition], when: int) -> dict[TopicPartition, int]:
        """Returns the first or end offsets of partitions."""
        wanted = dict.fromkeys(checked_partitions(partitions), when)
        found = await find_offsets(self.cluster, wanted, self._limit_s, self.config.isolation_level)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first offset at or after a timestamp, per partition."""
        wanted = checked_numbers(wanted, 0, "milliseconds since 1970, as an int")
        found = await find_offsets(self.cluster, wanted, self._limit_s, self.config.isolation_level)
        return {
            tp: OffsetAndTimestamp(found[tp].offset, found[tp].timestamp_ms) if found[tp].offset >= 0 else None
            for tp in wanted
        }

    # --- where it is ---------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Sets the position to an offset."""
        self._move([partition], checked_offset(offset), self.config.auto_offset_reset)

    def seek_to(self, partitions: Collection[TopicPartition], reset: str) -> None:
        """Sets the positions of partitions, or of all, to the start or end."""
        self._move(partitions or list(self.assignment.states), None, reset)

    def _move(self, partitions: Iterable[TopicPartition], offset: int | None, reset: str) -> None:
        states = [self.assignment.state(tp) for tp in partitions]
        self.iteration.give_back()

        def move(saved: object) -> None:
            for state in states:
                state.move(offset, reset)
                state.given_topic_id = None
            self.assignment.unannounced = True

        self.assignment.change(move, states)
        self._announce()

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Pauses or resumes partitions."""
        states = [self.assignment.state(tp) for tp in partitions]
        self.iteration.give_back()

        def pause(saved: object) -> None:
            for state in states:
                state.paused = paused
            self.assignment.unannounced = True

        self.assignment.change(pause, states)
        self._announce()

    def _announce(self) -> None:
        """Wakes the fetcher after a change. If this is interrupted, the next poll does it."""
        self.wake()
        self.assignment.unannounced = False

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        return {tp for tp, state in self.assignment.states.items() if state.paused}

    def known_position(self, partition: TopicPartition) -> int | None:
        """Returns the next offset, or None while it is being looked up.

        Raises:
            QuorumlogError: it could not be looked up.
        """
        state = self.assignment.state(partition)
        unread = self.iteration.positions().get(partition)
        if unread is not None:
            return unread
        position, error = state.position, state.error
        if position is None and error is not None:
            self.assignment.unannounced = True
            state.error = None
            self._announce()
            raise error
        return position

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the high watermark from the last fetch, or None."""
        known = self.assignment.state(partition).high_watermark
        return known if known >= 0 else None

    def metrics(self) -> ClientFigures:
        """Returns counters, lags and buffer levels, by group and name."""
        now = self.clock()
        figures = self._metrics.figures(now, in_group=self.group is not None)
        known, buffered = self.assignment.read(self._lags_and_bytes)
        lags = {tp: lag for tp, lag in known.items() if lag is not None}
        figures[FETCHES]["buffered-bytes"] = float(buffered)
        figures[FETCHES]["records-lag-max"] = float(max(lags.values(), default=0))
        for (topic, partition), lag in lags.items():
            figures[f"{FETCHES}.{topic}-{partition}"] = {"records-lag": float(lag)}
        figures.get(COORDINATOR, {})["assigned-partitions"] = float(len(known))
        figures[CONSUMER] = {"connection-count": float(self.cluster.connection_count)}
        return figures

    def _lags_and_bytes(self) -> tuple[dict[TopicPartition, int | None], int]:
        return {tp: each.lag() for tp, each in self.assignment.states.items()}, self.assignment.queued_bytes()

    def take_fetched(self, max_records: int) -> list[FetchedRows]:
        """Returns fetched rows, up to a number of records."""
        try:
            rows, _ = self.assignment.take_fetched(max_records)
        except QuorumlogError:
            self._announce()  # A failed partition is not fetched until the application has received the error.
            raise
        for error in self.assignment.skipped:
            self._metrics.skipped(error.record_count, self.clock())
            _log.warning(
                "%s-%d: offsets %d to %d cannot be read and were skipped (on_corrupt): %s",
                *error.partition, error.first_offset, error.last_offset, error.reason,
            )  # fmt: skip
        count = sum(part.columns.num_rows for part in rows)
        if self.assignment.unannounced or self.fetcher.wants_a_look(all_taken=count < max_records):
            self._announce()
        if rows:
            self._metrics.returned(count, sum(part.size_bytes for part in rows), self.clock())
        return rows

    def records(self, rows: Sequence[FetchedRows]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Converts fetched rows to records, by partition."""
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            for part in rows:
                records.setdefault(part.tp, []).extend(self._to_records(part))
        except Exception:
            self.assignment.give_back(rows)  # A deserializer has failed: no record was returned.
            raise
        return records

    def _to_records(self, rows: FetchedRows) -> list[ConsumerRecord]:
        return to_records(rows, self.config.key_deserializer, self.config.value_deserializer)

    # --- the group -----------------------------------------------------------------------------------------------

    def came_back(self) -> None:
        """Notes that the application called again, so that all returned records are processed and may be committed."""
        if self.group is not None and self._loop is not None and self.group.came_back():
            self._loop.call_soon_threadsafe(self.group.commit_done, self.consumed())

    def begin_poll(self, poll: object) -> None:
        """Notes that the application waits in a poll, so that it counts as active."""
        if self.group is not None:
            self.group.begin_poll(poll)

    def end_poll(self, poll: object) -> None:
        """Notes that the poll has ended. May be called twice, and for a poll that has not started."""
        if self.group is not None:
            self.group.end_poll(poll)

    def next_record(self) -> ConsumerRecord | None:
        """Returns the next record of the last poll for an iteration; None if another poll is needed.

        It remains the next one until the caller has counted it (:attr:`Iteration.given`).
        """
        self.check_usable()
        if self.group is not None:
            self.came_back()
            if self.group.out_of_date():
                self.iteration.give_back()
        return self.iteration.peek()

    def consumed(self, *, but_the_last: bool = False) -> ReadOffsets:
        """Returns the offset after the last returned record, per partition.

        Arguments:
            but_the_last: exclude the records that were returned last, because their processing failed; unless they were
                committed.
        """
        places = self.iteration.positions()
        if but_the_last:
            current = self.iteration.current()
            if current is None:
                places = self.assignment.before_last | places
            else:
                places[TopicPartition(current.topic, current.partition)] = current.offset
        return self.assignment.read(lambda: self._consumed(places, but_the_last))

    def _consumed(self, places: Mapping[TopicPartition, int], but_the_last: bool) -> ReadOffsets:
        consumed = ReadOffsets()
        for tp, state in self.assignment.states.items():
            offset = places.get(tp, state.position)
            if but_the_last and offset is not None and offset < state.said_done <= (state.position or 0):
                offset = state.said_done
            if offset is not None:
                known = state.read_epoch >= 0 and offset == state.position
                consumed[tp] = OffsetAndMetadata(offset, "", state.read_epoch if known else None)
                # The returned records may be from a topic that has been deleted since.
                topic_id = state.topic_id if offset == state.position else state.given_topic_id or state.topic_id
                if topic_id is not None:
                    consumed.topic_ids[tp] = topic_id
        return consumed

    def require_group(self, what: str) -> GroupConsumer:
        """Returns the consumer's part in its group.

        Raises:
            IllegalStateError: it has no group.
        """
        if self.group is None:
            raise IllegalStateError(f"{what} needs a consumer group: give group_id, or keep offsets yourself")
        return self.group

    def to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None) -> ReadOffsets:
        """Returns the offsets to commit: the given ones, or those of all returned records."""
        self.check_usable()
        self.require_group("commit")
        done = self.consumed() if offsets is None else ReadOffsets(checked_commits(offsets))
        self.assignment.read(lambda: self._note_done(done))
        return done

    def _note_done(self, done: ReadOffsets) -> None:
        for tp, committed in done.items():
            state = self.assignment.states.get(tp)
            if state is not None:
                state.said_done = committed.offset
                # The given offsets are of the topic whose records were returned last.
                topic_id = state.given_topic_id or state.topic_id
                if topic_id is not None:
                    done.topic_ids.setdefault(tp, topic_id)

    async def commit(self, offsets: ReadOffsets) -> None:
        """Commits offsets."""
        try:
            await self.require_group("commit").commit(offsets)
        except CommitFailedError as error:
            if self.closing:  # Closed by another task, which is why this member has no partitions.
                message = "the consumer was closed before the commit was stored"
                raise ClientClosedError(message, definite=error.definite) from None
            raise

    # --- in transactions -----------------------------------------------------------------------------------------

    def check_transactional(self) -> None:
        """Raises unless a producer's transactions may commit the offsets of this consumer."""
        self.require_group("transaction(consumer)")
        if self.config.enable_auto_commit:
            raise IllegalArgumentError(
                "transaction(consumer) needs a consumer with enable_auto_commit=False: the transaction commits"
            )

    async def commit_in(self, offsets: ReadOffsets, transaction: TransactionToken) -> None:
        """Commits offsets that take effect with a producer's transaction."""
        await self.require_group("commit").commit(offsets, transaction)

    def transaction_committed(self, offsets: ReadOffsets) -> None:
        """Notes that a transaction with these offsets is committed: the next one starts there. May be repeated."""
        states = [state for tp, state in self.assignment.states.items() if tp in offsets]

        def note(saved: object) -> None:
            for state in states:
                state.commits(offsets[state.tp].offset)

        self.assignment.change(note, states)

    def return_to_begin(self) -> None:
        """Moves the positions back to where the transaction started. May be repeated."""
        self._return_to({})

    def return_to(self, offsets: ReadOffsets) -> None:
        """Moves the positions back to what a transaction commits whose outcome is not known. If it has aborted, the
        consumer can still return to where it started.
        """
        self._return_to({tp: each.offset for tp, each in offsets.items()})

    def _return_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.iteration.give_back()
        states = [state for state in self.assignment.states.values() if state.began >= 0]

        def move(saved: object) -> None:
            for state in states:
                began, end = state.began, offsets.get(state.tp, -1)
                state.move(max(began, end), self.config.auto_offset_reset)
                if end > began:
                    state.began = began
                state.given_topic_id = None
            self.assignment.unannounced = True

        self.assignment.change(move, states)
        self._announce()

    async def commit_then(self, offsets: ReadOffsets, callback: CommitCallback | None) -> None:
        """Commits offsets, and queues the callback for the application's thread."""
        error: Exception | None = None
        try:
            await self.commit(offsets)
        except QuorumlogError as failure:
            error = failure
            if callback is None and not self.closing:
                _log.warning("consumer group %s: a commit failed: %s", self.config.group_id, failure.message)
            raise
        finally:
            if callback is not None:
                self.completed.append(partial(callback, offsets, error))

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the group's committed offsets of partitions that have one."""
        wanted, found = await self._committed(partitions)
        return {wanted[place]: committed for place, committed in found.items()}

    async def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[GroupPartition, TopicPartition], dict[GroupPartition, OffsetAndMetadata]]:
        """Returns the partitions by the current ids of their topics, and their committed offsets."""
        group = self.require_group("committed")
        wanted = [checked_partition(tp) for tp in partitions]
        await self.cluster.require_partitions(wanted, self._limit_s)
        topics = self.cluster.metadata.topics
        places = {GroupPartition(topics[tp.topic].topic_id, tp.partition): tp for tp in wanted}
        return places, await group.commits.fetch(places)

    def subscribed_topics(self) -> set[str]:
        """Returns the subscribed topics."""
        if self.subscription is None:
            return set()
        if self.subscription.pattern:
            return {tp.topic for tp in self.assignment.states}
        return set(self.subscription.topics)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's membership in its group."""
        member = self.require_group("group_metadata").membership
        instance_id = self.config.group_instance_id
        return ConsumerGroupMetadata(member.config.group_id, member.member_id, member.member_epoch, instance_id)

    def call_back(self) -> None:
        """Calls the callbacks of finished commits."""
        while self.completed:
            callback = self.completed[0]
            try:
                callback()
            finally:  # A callback that was interrupted or has failed counts as called.
                self.completed.popleft()

    async def close(self) -> None:
        """Stops fetching, leaves the group and closes connections."""
        self.closed = self.closing = True
        self.assignment.notify()  # Wakes a caller that waits in a poll.
        self._stop_watching()
        self.fetcher.close()
        try:
            if self.group is not None:
                await self.group.close()
        finally:
            await self.cluster.close()
