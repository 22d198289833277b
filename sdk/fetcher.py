"""Fetches ahead of the application: one long poll per leader at a time for each partition, within a bound of bytes.

Like the producer's sender it is one object on one event loop, whose every event ends in :meth:`Fetcher._pump`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from quorumlog.sdk.assignment import Assignment, PartitionState
from quorumlog.sdk.cluster import Cluster
from quorumlog.sdk.connection import NodeConnection
from quorumlog.sdk.consumer_config import ConsumerConfig
from quorumlog.sdk.errors import (
    STALE_LEADER_ERRORS,
    CorruptRecordError,
    NetworkError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.fetched import FetchedRows
from quorumlog.sdk.offset_lookup import EARLIEST, LATEST, find_offsets
from quorumlog.sdk.record_batch import decode
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.entry import CorruptEntryError, parse_header

#: While a fetch is under way, how often to look whether its leader is silent.
_WATCH_EVERY_S = 0.1
#: A leader that is this late with an answer may be paused: ask the others whether there is a new one.
_SILENCE_S = 0.25
#: What one answer may hold; nodes and clients take messages of twice that.
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
#: Damage is fetched again this often before the application is told: it may have come about on the way.
_CORRUPT_ATTEMPTS = 3
#: A topic may be unknown to a node for a moment; for this long, it is gone.
_UNKNOWN_TOPIC_S = 5.0

_log = logging.getLogger("quorumlog.sdk")


@dataclass(slots=True, eq=False)
class _Fetch:
    """One fetch request under way: for which partitions, from where, in which generation of their state."""

    node: NodeConnection
    sent_at_s: float
    max_bytes: int
    asked: dict[TopicPartition, tuple[PartitionState, int, int]] = field(default_factory=dict)


class _Arrived(NamedTuple):
    """Entries that came for one partition, from ``offset`` on, still to be looked at."""

    state: PartitionState
    generation: int
    offset: int
    entries: list[bytes]
    size_bytes: int
    compacted_offset: int


class Fetcher:
    """The background half of a consumer.

    Arguments:
        clock: monotonic seconds.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, assignment: Assignment, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._clock = clock
        self._fetches: set[_Fetch] = set()
        self._resets: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._served = 0
        #: True while partitions wait for the application to make room. Set under the assignment's lock.
        self.starved = False
        cluster.on_change(lambda: self._guarded(self._leaders_changed))

    def wake(self) -> None:
        """Looks at what can be fetched. On the loop's thread."""
        if not self._closed:
            self._guarded(self._pump)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step; one that raises is told to whoever polls, who would wait for ever otherwise."""
        try:
            step()
        except Exception as error:  # whatever it is, it is a defect
            _log.exception("the consumer has failed")
            self.close()
            with self._assignment.lock:
                for state in self._assignment.states.values():
                    state.error = UnknownServerError(f"the consumer has failed, make a new one: {error!r}")
            self._assignment.notify()

    def _pump(self) -> None:
        now = self._clock()
        wanted_at: float | None = None
        by_node: dict[NodeConnection, list[tuple[PartitionState, int]]] = {}
        to_reset: list[PartitionState] = []
        with self._assignment.lock:
            self.starved = False
            # Nodes fill an answer in the order of the request: who has waited longest comes first. (Else, with more
            # backlog than an answer takes, the last partitions get nothing until the first ones are read to the end.)
            for state in sorted(self._assignment.states.values(), key=_last_served):
                if state.fetching is not None or state.paused or state.resetting or state.error is not None:
                    continue
                if state.queued_bytes >= self._config.max_partition_fetch_bytes:
                    continue
                if now < state.retry_at_s:
                    wanted_at = state.retry_at_s if wanted_at is None else min(wanted_at, state.retry_at_s)
                    continue
                if state.fetch_offset is None:
                    state.resetting = True
                    to_reset.append(state)
                    continue
                found = self._cluster.leader(*state.tp)
                if found is None:
                    self._cluster.watch_topics([state.tp.topic])
                    self._cluster.request_refresh()
                    self._back_off(state, now)
                    wanted_at = state.retry_at_s if wanted_at is None else min(wanted_at, state.retry_at_s)
                    continue
                view, node = found
                state.leader_epoch = view.leader_epoch
                by_node.setdefault(node, []).append((state, view.leader_epoch))
            self._request(by_node, now)
        if to_reset:
            self._start_reset(to_reset)
        if self._fetches:
            wanted_at = min(wanted_at or now + _WATCH_EVERY_S, now + _WATCH_EVERY_S)
            self._watch(now)
        if wanted_at is not None:
            self._arm_timer(wanted_at)

    def _back_off(self, state: PartitionState, now: float) -> None:
        if state.failures == 0:
            state.failing_since_s = now
        state.failures += 1
        state.retry_at_s = now + self._cluster.backoff.delay_s(state.failures)

    # --- requests and answers ------------------------------------------------------------------------------------

    def _request(self, by_node: dict[NodeConnection, list[tuple[PartitionState, int]]], now: float) -> None:
        budget = self._config.fetch_max_bytes - self._assignment.queued_bytes()
        budget -= sum(fetch.max_bytes for fetch in self._fetches)
        for node, states in by_node.items():
            max_bytes = min(budget, len(states) * self._config.max_partition_fetch_bytes, _LARGEST_ANSWER_BYTES)
            if max_bytes <= 0:
                self.starved = True  # Until the application takes from what is there, which wakes us.
                return
            budget -= max_bytes
            request = data_plane_pb2.FetchRequest(
                max_wait_ms=self._config.fetch_max_wait_ms, min_bytes=self._config.fetch_min_bytes, max_bytes=max_bytes
            )
            fetch = _Fetch(node, now, max_bytes)
            for state, leader_epoch in states:
                assert state.fetch_offset is not None
                request.partitions.add(
                    topic_id=self._cluster.metadata.topics[state.tp.topic].topic_id,
                    partition=state.tp.partition,
                    fetch_offset=state.fetch_offset,
                    leader_epoch=leader_epoch,
                    max_bytes=self._config.max_partition_fetch_bytes,
                )
                fetch.asked[state.tp] = (state, state.generation, state.fetch_offset)
                state.fetching = fetch
            self._fetches.add(fetch)
            future = node.fetch.submit(request)
            future.add_done_callback(partial(self._on_answer, fetch))

    def _on_answer(self, fetch: _Fetch, future: asyncio.Future[data_plane_pb2.FetchResponse]) -> None:
        self._guarded(lambda: self._answered(fetch, future))

    def _answered(self, fetch: _Fetch, future: asyncio.Future[data_plane_pb2.FetchResponse]) -> None:
        self._fetches.discard(fetch)
        error = future.exception()
        if self._closed:
            return
        if error is not None:
            if not isinstance(error, QuorumlogError):
                error = UnknownServerError(f"the client failed: {error!r}")
            self._lost(fetch, error)
        else:
            arrived = self._accept(fetch, future.result().results)
            # Ask on before decoding: the node works on the next answer while this one is being looked at. The stream
            # writes when its task is run, and that is next; the decoding comes behind it.
            self._pump()
            asyncio.get_running_loop().call_soon(self._guarded, partial(self._decode, arrived))
            return
        self._assignment.notify()
        self._pump()

    def _decode(self, arrived: list[_Arrived]) -> None:
        for batches in arrived:
            self._take_in(batches)
        self._assignment.notify()
        self._pump()

    def _accept(self, fetch: _Fetch, results: Iterable[data_plane_pb2.FetchResult]) -> list[_Arrived]:
        """Moves fetch offsets past what has come, unseen, and sets it aside to be decoded."""
        arrived: list[_Arrived] = []
        now = self._clock()
        with self._assignment.lock:
            for result in results:
                name = self._cluster.metadata.names.get(result.topic_id)
                asked = fetch.asked.get(TopicPartition(name, result.partition)) if name is not None else None
                if asked is None:
                    continue
                state, generation, offset = asked
                if state.generation != generation or state.fetching is not fetch:
                    continue  # The application has gone elsewhere, or the fetch was given up.
                state.fetching = None
                if result.HasField("error"):
                    self._failed(state, offset, error_from_proto(result.error), result, now)
                    continue
                state.high_watermark = max(state.high_watermark, result.high_watermark)
                entries = list(result.entries)
                if not entries:
                    state.failures = 0
                else:
                    self._served += 1
                    state.served = self._served
                    batches = _Arrived(
                        state, generation, offset, entries, sum(map(len, entries)), result.compacted_offset
                    )
                    state.queued_bytes += batches.size_bytes
                    state.fetch_offset = _offset_after(entries[-1], offset)
                    arrived.append(batches)
            for state, _, _ in fetch.asked.values():
                if state.fetching is fetch:
                    state.fetching = None
        return arrived

    def _take_in(self, batches: _Arrived) -> None:
        """Checks, decodes and queues what came for one partition. Outside the lock: it is most of the work."""
        state = batches.state
        rows: list[FetchedRows] = []
        damage: CorruptRecordError | None = None
        try:
            for part in rows_from(state.tp, batches.entries, batches.offset, batches.compacted_offset):
                rows.append(part)  # noqa: PERF402  # what came before the damage stays
        except CorruptRecordError as error:
            damage = error
        with self._assignment.lock:
            if state.generation != batches.generation:
                return
            state.queued.extend(rows)
            if rows:
                state.failures = 0
            if damage is None:
                return
            # The sound batches before it are handed out; the next fetch begins with the damage, and counts it.
            state.queued_bytes += sum(part.size_bytes for part in rows) - batches.size_bytes
            state.fetch_offset = rows[-1].next_offset if rows else batches.offset
            state.fetching = None  # What was asked for meanwhile lies behind the damage.
            if not rows:
                self._note_failure(state, damage, self._clock())

    def _lost(self, fetch: _Fetch, error: QuorumlogError) -> None:
        """No answer came and none will: every partition of the fetch is asked for again, of whoever leads then."""
        now = self._clock()
        with self._assignment.lock:
            for state, _, _ in fetch.asked.values():
                if state.fetching is fetch:
                    state.fetching = None
                    self._note_failure(state, error, now)
        self._cluster.request_refresh()

    def _failed(
        self, state: PartitionState, offset: int, error: QuorumlogError, result: data_plane_pb2.FetchResult, now: float
    ) -> None:
        news = self._cluster.learn_from(*state.tp, result.error)
        if not news and result.leader_epoch > state.leader_epoch:
            view = self._cluster.metadata.partition(*state.tp)
            if view is not None:
                news = self._cluster.metadata.learn_leader(*state.tp, view.leader, result.leader_epoch)
        if isinstance(error, OffsetOutOfRangeError):
            self._out_of_range(state, offset, error, result, now)
            return
        self._note_failure(state, error, now)
        if news:
            state.retry_at_s = now
        elif isinstance(error, STALE_LEADER_ERRORS):
            self._cluster.request_refresh()

    def _note_failure(self, state: PartitionState, error: QuorumlogError, now: float) -> None:
        """Tries again where that can help, and tells the application where it cannot."""
        self._back_off(state, now)
        if isinstance(error, CorruptRecordError):
            if state.failures >= _CORRUPT_ATTEMPTS:
                state.error = error
                state.failures = 0
        elif isinstance(error, UnknownTopicOrPartitionError):
            if now - state.failing_since_s >= _UNKNOWN_TOPIC_S:
                state.error = error
        elif not error.retriable:
            state.error = error

    def _out_of_range(
        self, state: PartitionState, offset: int, error: QuorumlogError, result: data_plane_pb2.FetchResult, now: float
    ) -> None:
        if result.log_start_offset <= offset <= state.high_watermark:
            # We have seen the end further on than this: the node is new in its office and does not know it yet. To
            # reset now would read the whole log twice, or skip what is not read.
            self._back_off(state, now)
            return
        if self._config.auto_offset_reset == "none":
            state.error = OffsetOutOfRangeError(
                f"offset {offset} of {state.tp.topic}-{state.tp.partition} is out of range: the log has"
                f" {result.log_start_offset} to {result.high_watermark}; seek there, or set auto_offset_reset"
            )
            return
        state.move(None, self._config.auto_offset_reset)

    # --- positions -----------------------------------------------------------------------------------------------

    def _start_reset(self, states: Sequence[PartitionState]) -> None:
        generations = [(state, state.generation, state.reset) for state in states]
        task = asyncio.get_running_loop().create_task(self._reset(generations))
        self._resets.add(task)
        task.add_done_callback(self._resets.discard)

    async def _reset(self, states: Sequence[tuple[PartitionState, int, str]]) -> None:
        """Looks up the positions of partitions that have none."""
        wanted = {
            state.tp: EARLIEST if reset == "earliest" else LATEST for state, _, reset in states if reset != "none"
        }
        failure: QuorumlogError | None = None
        found = {}
        try:
            found = await find_offsets(self._cluster, wanted, self._config.request_timeout_ms / 1000) if wanted else {}
        except QuorumlogError as error:
            failure = error
        with self._assignment.lock:
            for state, generation, reset in states:
                if state.generation != generation:
                    continue
                state.resetting = False
                if state.tp in found:
                    state.position = state.fetch_offset = found[state.tp].offset
                elif reset == "none":
                    where = f"{state.tp.topic}-{state.tp.partition}"
                    state.error = NoOffsetForPartitionError(
                        f"{where} has no position and auto_offset_reset is 'none': call seek"
                    )
                else:
                    state.error = failure
        self._assignment.notify()
        self.wake()

    # --- leaders and time ----------------------------------------------------------------------------------------

    def _leaders_changed(self) -> None:
        """Metadata was heard: partitions whose leader has moved are fetched from the new one at once."""
        if self._closed:
            return
        now = self._clock()
        with self._assignment.lock:
            for state in self._assignment.states.values():
                view = self._cluster.metadata.partition(*state.tp)
                if view is None or view.leader < 0 or view.leader_epoch <= state.leader_epoch:
                    continue
                node = self._cluster.node(view.leader)
                if isinstance(state.fetching, _Fetch) and state.fetching.node is not node:
                    state.fetching = None
                state.retry_at_s = min(state.retry_at_s, now)
        self._pump()

    def _watch(self, now: float) -> None:
        """Looks for fetches that take too long."""
        promised_s = self._config.fetch_max_wait_ms / 1000
        for fetch in list(self._fetches):
            late_s = now - fetch.sent_at_s - promised_s
            if late_s >= self._config.request_timeout_ms / 1000:
                self._fetches.discard(fetch)
                self._lost(fetch, NetworkError(f"{fetch.node.address} did not answer a fetch"))
            elif late_s >= _SILENCE_S:
                self._cluster.request_refresh()

    def _arm_timer(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at_s:
                return
            self._timer.cancel()
        self._timer_at = at_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at_s - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def close(self) -> None:
        """Stops fetching."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._resets:
            task.cancel()


def _last_served(state: PartitionState) -> int:
    return state.served


def rows_from(
    tp: TopicPartition, entries: Sequence[bytes], offset: int, compacted_offset: int = 0
) -> Iterator[FetchedRows]:
    """Checks and decodes fetched entries from ``offset`` on, one by one. The first may begin before it and is trimmed.

    Arguments:
        compacted_offset: below it offsets may be missing.

    Raises:
        CorruptRecordError: a batch is damaged, or the entries skip or repeat offsets.
    """
    expected = offset
    for number, entry in enumerate(entries):
        try:
            header, _, columns = decode(entry)
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f"{tp.topic}-{tp.partition} at offset {expected}: {error}; seek beyond the batch to go on without it"
            ) from None
        skips = header.base_offset > max(expected, compacted_offset)
        repeats = header.last_offset < expected or (number and header.base_offset < expected)
        if skips or repeats:
            raise CorruptRecordError(
                f"{tp.topic}-{tp.partition}: offset {expected} should come next,"
                f" but the batch holds {header.base_offset} to {header.last_offset}"
            )
        yield FetchedRows(tp, header.base_offset, header, columns, len(entry)).starting_at(expected)
        expected = header.last_offset + 1


def _offset_after(entry: bytes, offset: int) -> int:
    """The offset after an entry that nobody has checked yet; ``offset`` if even its header makes no sense."""
    try:
        return max(offset, parse_header(entry).last_offset + 1)
    except CorruptEntryError:
        return offset
