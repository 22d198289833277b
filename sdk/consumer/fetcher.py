"""Fetches ahead of the application: one long poll per leader at a time for each partition, within a limit in bytes.

Like the producer's sender it is one object on one event loop, whose every event ends in :meth:`Fetcher._pump`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.offset_search import extent
from quorumlog.sdk.cluster.outage_log import OutageLog
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.consumer.fetch_session import IN_FLIGHT, Fetch, FetchSession, Wanted
from quorumlog.sdk.consumer.positions import PositionLookUps
from quorumlog.sdk.errors import (
    STALE_LEADER_ERRORS,
    CorruptRecordError,
    InvalidFetchSessionEpochError,
    LeaderNotAvailableError,
    NetworkError,
    OffsetOutOfRangeError,
    QuorumlogError,
    TooManyFetchSessionsError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnreadableBatchError,
    error_from_proto,
)
from quorumlog.sdk.isolation import LEVELS
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.sdk.records.fetch_answer import FetchAnswer, FetchedResult
from quorumlog.sdk.records.fetched import FetchedRows, rows_from
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.wire.entry import CorruptEntryError, parse_header

#: Interval of checks for silent leaders while a fetch is in flight.
_WATCH_EVERY_S = 0.1
#: A leader whose response is this late may be paused: ask the other replicas for a new leader.
_SILENCE_S = 0.25
#: Limit of one response; nodes and clients accept messages of twice that.
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
#: Damaged data is fetched again this often before the error is raised: it may have been damaged in transit.
_CORRUPT_ATTEMPTS = 3
#: A topic may be unknown to a node briefly; after this time it counts as deleted.
_UNKNOWN_TOPIC_S = 5.0
#: A node without free sessions is asked for one again after this time.
_WITHOUT_SESSION_S = 30.0
#: A partition whose replica has failed is read from its leader for this time: the leader may name the same replica
#: until the cluster has noticed the failure.
_AT_LEADER_S = 10.0

_log = logging.getLogger("quorumlog.sdk")


@dataclass(slots=True, eq=False)
class _Arrived:
    """Received entries of one partition, decoded one by one or several together.

    Arguments:
        offset: of the first undecoded record.
        rows: decodes the entries lazily.
        undecoded_bytes: size of the entries that are not decoded yet.
    """

    state: PartitionState
    generation: int
    offset: int
    rows: Iterator[FetchedRows]
    undecoded_bytes: int


class Fetcher:
    """The background half of a consumer.

    Arguments:
        clock: monotonic seconds.
        metrics: counts responses.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        assignment: Assignment,
        clock: Callable[[], float],
        metrics: ConsumerMetrics,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._clock = clock
        self._metrics = metrics
        self._sessions: dict[NodeConnection, FetchSession] = {}
        self._without_session_until: dict[NodeConnection, float] = {}
        self._arrived: deque[_Arrived] = deque()
        self._look_ups = PositionLookUps(config, cluster, assignment, self.wake)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._served = 0
        self._outages = OutageLog("fetching from")
        #: Fetching is paused until the application has taken this many bytes in total (by the assignment's count);
        #: infinite if no partition waits. Set under the assignment's lock.
        self._room_at: float = math.inf
        cluster.on_change(lambda: self._guarded(self._leaders_changed))
        cluster.keep_topics(self._topics)

    def _topics(self) -> set[str]:
        with self._assignment.lock:
            return {tp.topic for tp in self._assignment.states}

    def wants_a_look(self, *, all_taken: bool) -> bool:
        """True if memory may have become free for waiting partitions. From any thread.

        Arguments:
            all_taken: the application has taken all available records.
        """
        return self._assignment.taken_bytes >= self._room_at or (all_taken and self._room_at < math.inf)

    def wake(self) -> None:
        """Fetches what is due. Called on the loop's thread."""
        if not self._closed:
            self._guarded(self._decode if self._arrived else self._pump)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step. The caller of a poll receives its exception, so that it does not wait indefinitely."""
        try:
            step()
        except Exception as error:  # any exception is a defect
            _log.exception("the consumer has failed")
            self.close()
            with self._assignment.lock:
                for state in self._assignment.states.values():
                    state.error = UnknownServerError(f"the consumer has failed, create a new one: {error!r}")
            self._assignment.notify()

    def _pump(self) -> None:
        now = self._clock()
        wanted_at: float | None = None
        by_node: dict[NodeConnection, list[Wanted]] = {}
        to_reset: list[PartitionState] = []
        has_failed = False
        with self._assignment.lock:
            if not self._arrived:
                self._room_at = math.inf
            for state in self._assignment.states.values():
                if state.paused or state.revoked or state.resetting or state.error is not None:
                    continue
                if state.queued_bytes >= self._config.max_partition_fetch_bytes:
                    continue
                if now < state.retry_at_s:
                    wanted_at = state.retry_at_s if wanted_at is None else min(wanted_at, state.retry_at_s)
                    continue
                known = self._check_identity(state)
                if state.error is not None:
                    has_failed = True
                    continue  # The topic was recreated: the error is raised first, as for other failures.
                if known and state.fetch_offset is None:
                    state.resetting = True
                    to_reset.append(state)
                    continue
                found = self._cluster.leader(*state.tp) if known else None
                if found is None:
                    self._cluster.watch_topics([state.tp.topic])
                    self._cluster.request_refresh()
                    self._back_off(state, now)
                    self._outages.failed(state.tp, LeaderNotAvailableError("no leader is known"), now)
                    wanted_at = state.retry_at_s if wanted_at is None else min(wanted_at, state.retry_at_s)
                    continue
                view, node = found
                state.leader_epoch = view.leader_epoch
                topic_id = self._cluster.metadata.topics[state.tp.topic].topic_id
                by_node.setdefault(self._replica(state, now) or node, []).append(
                    Wanted(state, topic_id, view.leader_epoch)
                )
            self._request(by_node, now)
        if has_failed:
            self._assignment.notify()
        if to_reset:
            self._look_ups.reset(to_reset)
        if any(session.in_flight for session in self._sessions.values()):
            wanted_at = min(wanted_at or now + _WATCH_EVERY_S, now + _WATCH_EVERY_S)
            self._watch(now)
        if wanted_at is not None:
            self._arm_timer(wanted_at)

    def _check_identity(self, state: PartitionState) -> bool:
        """Restarts reading if the topic was deleted and created again.

        It is read from its start, also with ``auto_offset_reset="latest"``; with ``none``, an error is raised.
        Otherwise records written before this check would be skipped silently, or a position of the old topic would be
        applied to the new one. A consumer group itself decides which member reads the new topic.

        Returns:
            False if the partition may differ from the one that was assigned.
        """
        topic = self._cluster.metadata.topics.get(state.tp.topic)
        if state.pinned:  # The coordinator has topics and partitions before every node does.
            return topic is not None and topic.topic_id == state.topic_id and state.tp.partition < len(topic.partitions)
        if topic is None or topic.topic_id == state.topic_id:
            return True
        if state.topic_id is not None and self._config.auto_offset_reset == "none":
            state.move(None, "none")
            state.error = OffsetOutOfRangeError(
                f"topic {state.tp.topic} was deleted and created again: seek, or set auto_offset_reset"
            )
        elif state.topic_id is not None:
            _log.warning("topic %s was deleted and created again: partition %d is read from its start", *state.tp)
            state.move(None, "earliest")
            state.committed = -1  # Nothing of this topic is committed.
        if state.topic_id is not None:
            # Those of the old log do not apply to this one.
            state.high_watermark, state.readable_end, state.log_start = -1, -1, 0
        state.topic_id = topic.topic_id
        return True

    def _replica(self, state: PartitionState, now: float) -> NodeConnection | None:
        """Returns the node that the leader has named to read a partition from; None: the leader must be asked."""
        if state.replica is not None and now >= state.replica_until_s:
            state.replica = None  # The replicas, or their racks, may have changed.
        return None if state.replica is None else self._cluster.node(state.replica)

    def _go_to_replica(self, state: PartitionState, node_id: int, now: float) -> None:
        """Reads a partition from the node that its leader has named, for as long as metadata count as fresh."""
        state.replica = node_id
        state.replica_until_s = now + self._config.metadata_max_age_ms / 1000
        if self._cluster.node(node_id) is None:
            # It joined a moment ago. Until its address is known, the leader would name it again and again.
            self._leave_replica(state, now)
            self._cluster.request_refresh()

    def _leave_replica(self, state: PartitionState, now: float) -> None:
        """Returns to the leader, at once: the failure of a replica does not affect the leader."""
        state.replica = None
        state.at_leader_until_s = now + _AT_LEADER_S
        state.retry_at_s = now

    def _back_off(self, state: PartitionState, now: float) -> None:
        if state.failures == 0:
            state.failing_since_s = now
        state.failures += 1
        state.retry_at_s = now + self._cluster.backoff.delay_s(state.failures)

    # --- requests and answers ------------------------------------------------------------------------------------

    def _request(self, by_node: dict[NodeConnection, list[Wanted]], now: float) -> None:
        config = self._config
        queued = self._assignment.queued_bytes()
        for node in by_node:
            self._session(node, now)
        # Every node gets its share, for both of its requests: a node without new records must not hold bytes that the
        # others need.
        share = max(1, config.fetch_max_bytes // (IN_FLIGHT * len(self._sessions) or 1))
        for node, wanted in by_node.items():
            session = self._sessions[node]
            under_way = sum(fetch.max_bytes for other in self._sessions.values() for fetch in other.in_flight)
            budget = config.fetch_max_bytes - queued - under_way
            most = min(share, len(wanted) * config.max_partition_fetch_bytes, _LARGEST_ANSWER_BYTES)
            max_bytes = min(budget, most)
            # With little free memory it waits for half of the possible size. Otherwise an application that is slower
            # than the nodes would cause a small request after each poll (silly window syndrome, RFC 813).
            lacking = (most + 1) // 2 - max_bytes
            if lacking > 0:
                self._room_at = min(self._room_at, self._assignment.taken_bytes + lacking)
                if not self._arrived and self._assignment.release_paused():
                    asyncio.get_running_loop().call_soon(self.wake)
                return
            if not session.incremental:
                # Without a session a node fills its response in the order of the request. The partition that has waited
                # longest comes first. Otherwise, if the backlog exceeds a response, the last ones would starve.
                wanted.sort(key=_last_served)
            # A rack applies to all partitions of a session.
            stays = not config.client_rack or any(now < one.state.at_leader_until_s for one in wanted)
            rack = "" if stays else config.client_rack or ""
            fetch = session.next_fetch(wanted, now, max_bytes, config.max_partition_fetch_bytes, rack)
            if fetch is None:
                continue
            fetch.request.max_wait_ms = config.fetch_max_wait_ms
            fetch.request.min_bytes = config.fetch_min_bytes
            future = node.fetch.submit(fetch.request)
            future.add_done_callback(partial(self._on_answer, fetch))

    def _session(self, node: NodeConnection, now: float) -> FetchSession:
        """Returns the session with a node; a new one if its stream was replaced."""
        life = node.fetch.open()
        session = self._sessions.get(node)
        if session is None or session.life != life:
            incremental = now >= self._without_session_until.get(node, 0.0)
            session = self._sessions[node] = FetchSession(node, life, incremental, LEVELS[self._config.isolation_level])
        return session

    def _on_answer(self, fetch: Fetch, future: asyncio.Future[FetchAnswer]) -> None:
        self._guarded(lambda: self._answered(fetch, future))

    def _answered(self, fetch: Fetch, future: asyncio.Future[FetchAnswer]) -> None:
        session = fetch.session
        error = future.exception()
        if self._closed or fetch not in session.in_flight:
            return  # The fetch was given up.
        if error is None and future.result().told.HasField("error"):
            error = self._session_refused(session, future.result().told.error)
        if error is not None:
            if not isinstance(error, QuorumlogError):
                error = UnknownServerError(f"the client failed: {error!r}")
            self._lost(session, error, anew=_may_ask_on(error, fetch))
            self._assignment.notify()
        else:
            self._arrived.extend(self._accept(fetch, future.result().results))
            session.answered(fetch)
            # Request more before decoding: the node works on the next response while this one is decoded. The stream
            # writes when its task runs, which is next; the decoding runs after it.
            asyncio.get_running_loop().call_soon(self._guarded, self._decode)
        self._pump()

    def _session_refused(self, session: FetchSession, problem: errors_pb2.Error) -> QuorumlogError:
        error = error_from_proto(problem)
        if isinstance(error, TooManyFetchSessionsError):
            self._without_session_until[session.node] = self._clock() + _WITHOUT_SESSION_S
        return error

    def _accept(self, fetch: Fetch, results: Iterable[FetchedResult]) -> list[_Arrived]:
        """Advances fetch offsets past received entries, without decoding them, and returns the entries for decoding."""
        arrived: list[_Arrived] = []
        now = self._clock()
        came_bytes = 0
        with self._assignment.lock:
            for result in results:
                heard = fetch.session.heard(fetch, result)
                if heard is None:
                    continue  # The application has sought elsewhere, or another node leads.
                state, offset = heard
                reported, entries = result.told, result.entries
                if reported.HasField("error") and state.replica is not None:
                    _log.debug("leaving replica %d of %s-%d: %s", state.replica, *state.tp, reported.error.message)
                    self._cluster.learn_from(state.tp.topic, reported.topic_id, state.tp.partition, reported.error)
                    self._leave_replica(state, now)
                    continue
                state.log_start = max(state.log_start, reported.log_start_offset)
                if reported.HasField("preferred_replica"):
                    self._go_to_replica(state, reported.preferred_replica, now)
                    continue
                if reported.HasField("error"):
                    self._failed(state, offset, error_from_proto(reported.error), reported, now)
                    continue
                state.high_watermark = max(state.high_watermark, reported.high_watermark)
                state.readable_end = max(state.readable_end, self._readable_end(reported))
                state.failures = 0 if not entries else state.failures
                # A replica that does not lead may not have reached the offset yet.
                state.unproven = state.unproven and reported.high_watermark < offset
                self._outages.served(state.tp, now)
                if not entries:
                    continue
                self._served += 1
                state.served = self._served
                size = sum(map(len, entries))
                skip = self._config.on_corrupt == "skip"
                rows = rows_from(state.tp, entries, offset, reported.compacted_offset, skip_unreadable=skip)
                arrived.append(_Arrived(state, state.generation, offset, rows, size))
                state.queued_bytes += size
                came_bytes += size
                state.fetch_offset = _offset_after(entries[-1], offset)
        self._metrics.fetched(came_bytes, fetch.sent_at_s, now)
        return arrived

    def _readable_end(self, reported: data_plane_pb2.FetchResult) -> int:
        if self._config.isolation_level == "read_committed" and reported.HasField("last_stable_offset"):
            return reported.last_stable_offset
        return reported.high_watermark

    def _decode(self) -> None:
        """Verifies, decodes and queues received entries, as far as memory allows. Outside the lock, as it is most of
        the work.

        Compressed batches may expand many times; they wait compressed until the application has taken records.
        """
        if self._closed:
            return  # Closed between the response and this call.
        room = 0
        while self._arrived and (room > 0 or (room := self._count_room()) > 0):
            decoded_bytes = self._decode_next(self._arrived[0])
            if decoded_bytes is None:
                self._arrived.popleft()
            else:
                room -= decoded_bytes
        self._assignment.notify()
        self._pump()

    def _count_room(self) -> int:
        """Returns the bytes that may be decoded now. If it is not positive, decoding resumes when the application has
        taken enough."""
        with self._assignment.lock:
            undecoded = sum(arrived.undecoded_bytes for arrived in self._arrived)
            room = self._config.fetch_max_bytes - (self._assignment.queued_bytes() - undecoded)
            if room <= 0 and not self._assignment.has_records():
                # One more batch: otherwise the application, which has nothing to take, would wait indefinitely.
                room = 1
            self._room_at = math.inf if room > 0 else self._assignment.taken_bytes - room + 1
            return room

    def _decode_next(self, arrived: _Arrived) -> int | None:
        """Decodes and queues one received batch of a partition, or several together.

        Returns:
            Its size in memory; None if there was none left.
        """
        state = arrived.state
        if state.generation != arrived.generation:
            return None
        damage: CorruptRecordError | None = None
        part: FetchedRows | None = None
        try:
            part = next(arrived.rows, None)
        except CorruptRecordError as error:
            damage = error
        with self._assignment.lock:
            if state.generation != arrived.generation:
                return None
            if damage is not None:
                # The intact batches before it are returned; the next fetch starts at the damaged one, and counts it.
                # Other received entries are after it.
                state.queued_bytes -= sum(other.undecoded_bytes for other in self._arrived if other.state is state)
                state.generation += 1
                state.fetch_offset = arrived.offset
                if state.replica is not None:
                    self._leave_replica(state, self._clock())
                else:
                    self._note_failure(state, damage, self._clock())
            if part is None:
                return None
            arrived.undecoded_bytes -= part.stored_bytes
            arrived.offset = part.next_offset
            state.queued.append(part)
            state.queued_bytes += part.size_bytes - part.stored_bytes
            state.failures = 0
            return part.size_bytes

    def _lost(self, session: FetchSession, error: QuorumlogError, *, anew: bool = False) -> None:
        """Ends a session. Each of its partitions is requested again from its current leader; at once if ``anew``."""
        now = self._clock()
        if self._sessions.get(session.node) is session:
            del self._sessions[session.node]
        session.in_flight.clear()
        with self._assignment.lock:
            for known in session.known.values():
                if known.state.session is session:
                    known.state.session = None
                    if not anew and known.state.replica is not None:
                        self._leave_replica(known.state, now)
                    elif not anew:
                        self._note_failure(known.state, error, now)
        if not anew:
            self._cluster.request_refresh()

    def _failed(
        self, state: PartitionState, offset: int, error: QuorumlogError, result: data_plane_pb2.FetchResult, now: float
    ) -> None:
        topic, partition = state.tp
        # The epoch of the result itself proves nothing: a candidate that campaigns without success is in a term without
        # a leader.
        news = self._cluster.learn_from(topic, result.topic_id, partition, result.error)
        if isinstance(error, OffsetOutOfRangeError):
            self._out_of_range(state, offset, error, result, now)
            return
        self._note_failure(state, error, now)
        if news:
            state.retry_at_s = now
        elif isinstance(error, STALE_LEADER_ERRORS):
            self._cluster.request_refresh()

    def _note_failure(self, state: PartitionState, error: QuorumlogError, now: float) -> None:
        """Schedules a retry if that can help; otherwise sets the error for the application."""
        self._back_off(state, now)
        if isinstance(error, UnreadableBatchError):
            state.error = error  # Every replica has the same bytes.
        elif isinstance(error, CorruptRecordError):
            if state.failures >= _CORRUPT_ATTEMPTS:
                state.error = error
                state.failures = 0
        elif isinstance(error, UnknownTopicOrPartitionError):
            if now - state.failing_since_s >= _UNKNOWN_TOPIC_S:
                state.error = error.about(*state.tp)
        elif not error.retriable:
            state.error = error
        if state.error is None:
            self._outages.failed(state.tp, error, now)

    def _out_of_range(
        self, state: PartitionState, offset: int, error: QuorumlogError, result: data_plane_pb2.FetchResult, now: float
    ) -> None:
        if state.unproven and offset >= result.log_start_offset:
            # This consumer has not seen the log reach the committed offset yet: its leader must confirm the end of the
            # log.
            state.resetting = True
            self._look_ups.prove(state, offset)
            return
        if result.log_start_offset <= offset <= state.high_watermark:
            # This consumer has already seen a higher end of the log: the new leader does not have it yet. A reset now
            # would read the whole log twice, or skip unread records.
            self._back_off(state, now)
            return
        what_there_is = extent(result.log_start_offset, result.high_watermark)
        if self._config.auto_offset_reset == "none":
            state.error = OffsetOutOfRangeError(
                f"offset {offset} of {state.tp.topic}-{state.tp.partition} is out of range: {what_there_is};"
                " seek there, or set auto_offset_reset"
            )
            return
        _log.warning(
            "offset %d of %s-%d is out of range: %s; reading continues at the %s",
            offset, *state.tp, what_there_is, self._config.auto_offset_reset,
        )  # fmt: skip
        state.move(None, self._config.auto_offset_reset)

    # --- leaders and time ----------------------------------------------------------------------------------------

    def _leaders_changed(self) -> None:
        """Applies new metadata: partitions whose leader has moved are fetched from the new one at once."""
        if self._closed:
            return
        now = self._clock()
        with self._assignment.lock:
            for state in self._assignment.states.values():
                view = self._cluster.metadata.partition(*state.tp)
                if view is not None and view.leader >= 0 and view.leader_epoch > state.leader_epoch:
                    state.retry_at_s = min(state.retry_at_s, now)
        self._pump()

    def _watch(self, now: float) -> None:
        """Handles fetches that take too long."""
        promised_s = self._config.fetch_max_wait_ms / 1000
        for session in list(self._sessions.values()):
            late_s = max((now - fetch.sent_at_s - promised_s for fetch in session.in_flight), default=-1.0)
            if late_s >= self._config.request_timeout_ms / 1000:
                self._lost(session, NetworkError(f"{session.node.address} did not answer a fetch"))
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
        self._look_ups.close()


def _may_ask_on(error: QuorumlogError, fetch: Fetch) -> bool:
    """True if the request can be repeated at once: without a session, or in a new one."""
    goes_on = isinstance(error, InvalidFetchSessionEpochError) and fetch.epoch > 1
    return goes_on or isinstance(error, TooManyFetchSessionsError)


def _last_served(wanted: Wanted) -> int:
    return wanted.state.served


def _offset_after(entry: bytes, offset: int) -> int:
    """Returns the offset after an unverified entry; ``offset`` if its header is invalid."""
    try:
        return max(offset, parse_header(entry).last_offset + 1)
    except CorruptEntryError:
        return offset
