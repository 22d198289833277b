"""Fetch requests: answered immediately, or when one of their partitions has data or an error.

A change in a partition costs one lookup in that partition, however many others a waiting fetch or its session names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.server.access.permissions import operation_of
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.aborted_ranges import AbortedRange
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.refusals import not_here, out_of_sync, unreadable
from quorumlog.server.partition.restoration import gaps_before
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.fetch_sessions import (
    FetchedPartition,
    FetchSessions,
    Found,
    PendingFetch,
    ServedFetchSession,
)
from quorumlog.server.requests.isolation import VisibleEntries, read_isolated, stable_end
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.deadlines import MAX_WAIT_US
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header
from quorumlog.wire.kafka.entry import is_kafka

#: Operation that a client needs on each partition's topic.
_OPERATION = operation_of(data_plane_pb2.FetchRequest)
#: The part of a partition's state that its readers can observe. The last stable offset only moves with the high
#: watermark, because a marker takes an offset, or with the log start.
_Seen = tuple[int, int, int, bool, bool]
#: How long a follower may take to reach the offset of a client that came from another replica, before the client has to
#: go to the leader. Ten heartbeats: each reports to a follower what is committed.
_CATCH_UP_US = 1_000_000


class ReadingQuotas(Protocol):
    """Read quotas of principals."""

    def most_bytes(self, principal: str, wanted: int) -> int:
        """Returns how many bytes one answer to a principal may hold; never more than ``wanted``."""

    def handed_out(self, principal: str, size_bytes: int) -> None:
        """Charges a principal for the bytes of entries in an answer."""


@dataclass(slots=True)
class _WatchedPartition:
    """A group that is being read: its state as of the last look, and its readers."""

    seen: _Seen
    readers: dict[FetchedPartition, None] = field(default_factory=dict)


class FetchRequests:
    """Serves fetches from the partitions that this node leads; to clients that accept it (KIP-392), also from those
    that it follows.

    Attributes:
        watches: the Raft groups that are being read.
    """

    def __init__(
        self,
        partitions: Replicas,
        limits: NodeLimits,
        replies: Replies,
        absent: PartitionErrors,
        quotas: ReadingQuotas,
    ) -> None:
        self._partitions = partitions
        self._limits = limits
        self._replies = replies
        self._absent = absent
        self._quotas = quotas
        self._parked: PendingCalls[PendingFetch] = PendingCalls(limits.parked_fetches)
        self.watches: dict[int, _WatchedPartition] = {}
        self._rights_version = absent.rights_version
        self.sessions = FetchSessions(limits.fetch_sessions, limits.fetch_session_partitions)

    def __len__(self) -> int:
        """Returns the number of fetches that wait."""
        return len(self._parked)

    # -- requests ---------------------------------------------------------------------------------------------

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(data_plane_pb2.FetchRequest, self.fetch, self.answer_without_records, moves_deadlines=False)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.stream_closed(self.stream_closed)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._parked)

    def fetch(self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.FetchRequest) -> None:
        """Answers a fetch now if there is enough data, otherwise parks it. Its session belongs to the stream it arrived
        on."""
        budget = min(request.max_bytes or self._limits.fetch_bytes, self._limits.fetch_bytes)
        self._begin(time.now, asked, request, self._quotas.most_bytes(asked.principal, budget), request.max_wait_ms)

    def answer_without_records(self, time: StepTime, asked: ClientRequest, problem: errors_pb2.Error) -> None:
        """Answers a fetch that has waited for its quota until its deadline. Its session continues."""
        request = asked.message
        assert isinstance(request, data_plane_pb2.FetchRequest)
        self._begin(time.now, asked, request, 0, 0)

    def _begin(
        self, now: int, asked: ClientRequest, request: data_plane_pb2.FetchRequest, budget: int, max_wait_ms: int
    ) -> None:
        request_id, stream = asked.request_id, asked.stream
        if request.session_epoch == 0:
            if request.ends_session:
                self.stream_closed(stream)
            session = ServedFetchSession(0, asked.client)
        else:
            for other in self.sessions.in_the_way(stream, request, now):
                self.stream_closed(other)
            refusal = self.sessions.refusal(stream, request)
            if refusal is not None:
                self.stream_closed(stream)
                self._replies.reply(
                    request_id, data_plane_pb2.FetchResponse(correlation_id=request.correlation_id, error=refusal)
                )
                return
            session = self._continue_session(now, asked, request)
        session.take_options(request)
        for wanted in request.partitions:
            self._want(session, wanted)
        deadline = now + min(max_wait_ms * 1000, MAX_WAIT_US)
        fetch = PendingFetch(
            request_id, request.correlation_id, session, deadline, max(1, min(request.min_bytes, budget)), budget,
            request.tells_all,
        )  # fmt: skip
        self._look_at_partitions(now, fetch)

    def _continue_session(
        self, now: int, asked: ClientRequest, request: data_plane_pb2.FetchRequest
    ) -> ServedFetchSession:
        """Returns the stream's session, prepared for its next request."""
        stream = asked.stream
        if request.session_epoch == 1:
            self.stream_closed(stream)
            session = self.sessions.begin(stream, asked.client)
        else:
            existing = self.sessions.get(stream)
            assert existing is not None
            session = existing
            if session.client != asked.client:
                # A stream can authenticate again as another client, whose rights differ.
                session.client = asked.client
                self._forget_rights(session)
        self._supersede(now, session)
        self.sessions.use(session, now)
        session.epoch = request.session_epoch
        for gone in request.forgotten:
            self._unwatch(session.drop((gone.topic_id, gone.partition)))
        return session

    def _supersede(self, now: int, session: ServedFetchSession) -> None:
        """Answers the request that waits in a session with no data; the next request reports what that one would have
        reported."""
        if session.waiting is not None:
            fetch = self._parked.take(session.waiting)
            session.waiting = None
            if fetch is not None:
                session.news = dict.fromkeys([*fetch.found, *session.news])
                self._replies.reply(fetch.request_id, data_plane_pb2.FetchResponse(correlation_id=fetch.correlation_id))

    def _want(self, session: ServedFetchSession, wanted: data_plane_pb2.FetchPartition) -> None:
        partition = self._partitions.find(wanted.topic_id, wanted.partition)
        self._unwatch(session.drop((wanted.topic_id, wanted.partition)))
        reader = session.put(wanted, None if partition is None else partition.group)
        if partition is not None:
            watch = self.watches.get(partition.group)
            if watch is None:
                watch = self.watches[partition.group] = _WatchedPartition(_seen(partition))
            watch.readers[reader] = None
            if session.from_replicas:
                partition.raft.set_readers(True)

    def _unwatch(self, reader: FetchedPartition | None) -> None:
        if reader is None or reader.group is None:
            return
        watch = self.watches[reader.group]
        del watch.readers[reader]
        if not watch.readers:
            del self.watches[reader.group]
            partition = self._partitions.find(reader.topic_id, reader.number)
            if partition is not None:
                partition.raft.set_readers(False)

    # -- answers ----------------------------------------------------------------------------------------------

    def _look_at_partitions(self, now: int, fetch: PendingFetch) -> None:
        """Reads the partitions that may have data or an error, and answers if that is enough."""
        session = fetch.session
        for reader in list(session.news):
            budget = fetch.max_bytes - fetch.size_bytes
            if budget <= 0 and session.incremental:
                # The others stay in ``news``, and come first in the next answer.
                if not fetch.tells_all:
                    break
                if reader not in fetch.found:
                    fetch.put(reader, self._read(reader, 0))
                continue
            del session.news[reader]
            before = fetch.found.get(reader)
            result = self._read(reader, max(0, budget + (before.size_bytes if before is not None else 0)))
            offsets = (result.high_watermark, result.log_start_offset, result.last_stable_offset)
            is_empty = not result.entries and not result.leaves_session and not result.is_behind
            fetch.put(reader, None if session.incremental and is_empty and offsets == reader.told else result)
        if fetch.urgent or fetch.size_bytes >= fetch.min_bytes or now >= fetch.deadline or not session.partitions:
            self._answer(now, fetch)
        elif session.waiting is None and self._parked.full:
            busy = error(ErrorCode.SERVER_BUSY, "too many fetches wait here; try again after a pause")
            for reader in list(session.partitions.values()):
                fetch.put(reader, Found(error=busy))
            self._answer(now, fetch)
        elif session.waiting is None:
            session.waiting = fetch.request_id
            self._parked.add(fetch)
            # A fetch that waits holds no entries in memory: they are read again when there are enough.
            for result in fetch.found.values():
                result.entries = []

    def _read(self, reader: FetchedPartition, budget: int) -> Found:
        stale = self._absent.too_old(reader.session.client)
        if stale is not None:
            return Found(stale)
        version = self._absent.rights_version
        if reader.allowed_by != version:
            refused = self._absent.refusal(reader.session.client, _OPERATION, reader.topic_id)
            if refused is not None:
                return Found(refused)
            reader.allowed_by = version
        partition = self._partitions.find(reader.topic_id, reader.number)
        if partition is None:
            return self._read_absent(reader)
        problem = self._check_replica(reader, partition)
        if problem is not None:
            return Found(problem, -1, partition.log_start_offset, partition.raft.term)
        problem = partition.check_offset(reader.fetch_offset)
        bounds = (partition.high_watermark, partition.log_start_offset, partition.raft.term)
        if problem is not None:
            # A client that requested an offset outside the log receives the log's bounds.
            return Found(problem, *bounds)
        if reader.session.client_rack and partition.leads:
            session = reader.session
            preferred = self._partitions.replica_in_rack(partition, session.client_rack, session.client.listener)
            if preferred is not None:
                return Found(None, *bounds, preferred_replica=preferred)
        if not partition.leads and reader.fetch_offset > partition.high_watermark:
            return Found(None, *bounds, is_behind=True)
        return self._read_log(reader, partition, budget)

    def _check_replica(self, reader: FetchedPartition, partition: Partition) -> errors_pb2.Error | None:
        """Returns the error if the replica here may not serve a reader."""
        if partition.leads or not reader.session.from_replicas:
            return partition.check_readable(reader.leader_epoch)
        problem = partition.check_follower(reader.leader_epoch)
        if problem is None and not self._partitions.is_in_sync(partition):
            # It could stay behind for as long as it is out of sync, and its readers with it.
            return out_of_sync(partition.name)
        return problem

    def _read_log(self, reader: FetchedPartition, partition: Partition, budget: int) -> Found:
        if partition.transactions is not None:
            return self._read_isolated(reader, partition, budget)
        entries: list[bytes] = []
        fills_answer = False
        if budget > 0:
            wanted_bytes = reader.max_bytes or self._limits.fetch_bytes
            try:
                entries = partition.read(reader.fetch_offset, min(wanted_bytes, budget))
            except UnreadableEntryError as damage:
                return Found(unreadable(partition.name, damage), -1, partition.log_start_offset, partition.raft.term)
            if entries and budget <= wanted_bytes:
                fills_answer = parse_header(entries[-1]).last_offset + 1 < partition.high_watermark
            if entries and not reader.session.takes_kafka_batches:
                entries = before_kafka(entries)
                if not entries:
                    return Found(refuse_kafka(partition.name), -1, partition.log_start_offset, partition.raft.term)
        size = sum(map(len, entries))
        return Found(
            None, partition.high_watermark, partition.log_start_offset, partition.raft.term, entries, size,
            gaps_before(partition.compacted_offset, partition.restoration), fills_answer,
        )  # fmt: skip

    def _read_isolated(self, reader: FetchedPartition, partition: Partition, budget: int) -> Found:
        """Does the same as ``_read_log`` for a log with transactions."""
        session, stable_offset = reader.session, partition.last_stable_offset
        bounds = (partition.high_watermark, partition.log_start_offset, partition.raft.term)
        seen = VisibleEntries([], reader.fetch_offset)
        fills_answer = False
        if budget > 0:
            wanted_bytes = reader.max_bytes or self._limits.fetch_bytes
            level, takes_control = session.isolation_level, session.takes_control_batches
            try:
                seen = read_isolated(
                    partition, reader.fetch_offset, min(wanted_bytes, budget), level, takes_control=takes_control
                )
            except UnreadableEntryError as damage:
                return Found(unreadable(partition.name, damage), -1, *bounds[1:])
            if seen.problem is None and seen.entries and not session.takes_kafka_batches:
                seen.entries = before_kafka(seen.entries)
                seen.problem = None if seen.entries else refuse_kafka(partition.name)
            if seen.problem is not None:
                return Found(seen.problem, -1, *bounds[1:])
            # With what is left out an answer may be small although much was read.
            is_full = budget <= wanted_bytes or seen.gaps_before > 0
            fills_answer = bool(seen.entries) and is_full and seen.next_offset < stable_end(partition, level)
        gaps = max(seen.gaps_before, gaps_before(partition.compacted_offset, partition.restoration))
        return Found(
            None, *bounds, seen.entries, sum(map(len, seen.entries)), gaps, fills_answer,
            last_stable_offset=stable_offset if stable_offset < partition.high_watermark else -1, aborted=seen.aborted,
        )  # fmt: skip

    def _read_absent(self, reader: FetchedPartition) -> Found:
        record = self._absent.read_as_empty(reader.session.client, reader.topic_id, reader.number)
        if record is None:
            return Found(self._absent.problem(reader.topic_id, reader.number))
        if reader.fetch_offset == 0:
            return Found(None, 0, 0, record.leader_epoch)
        what = f"offset {reader.fetch_offset} of {record.topic.name}-{record.number}: it has no records"
        return Found(error(ErrorCode.OFFSET_OUT_OF_RANGE, what), 0, 0, record.leader_epoch)

    def _count(self, reader: FetchedPartition, size_bytes: int) -> None:
        partition = self._partitions.find(reader.topic_id, reader.number)
        if partition is not None:
            partition.read_bytes += size_bytes

    def _answer(self, now: int, fetch: PendingFetch) -> None:
        session = fetch.session
        self._parked.take(fetch.request_id)
        session.waiting = None
        response = data_plane_pb2.FetchResponse(correlation_id=fetch.correlation_id)
        entries: list[Sequence[bytes]] = []
        handed_out = 0
        for reader, result in fetch.found.items():
            if result.size_bytes and not result.entries:
                result = self._read(reader, result.size_bytes)  # The same result, with its entries.
            if result.is_behind:
                result = self._behind(now, fetch, reader, result)
            else:
                reader.behind_since = None
            if result.size_bytes:
                self._count(reader, result.size_bytes)
                handed_out += result.size_bytes
            told = response.results.add(
                topic_id=reader.topic_id, partition=reader.number, error=result.error,
                high_watermark=result.high_watermark, log_start_offset=result.log_start_offset,
                leader_epoch=result.leader_epoch, compacted_offset=result.compacted_offset,
                preferred_replica=result.preferred_replica,
            )  # fmt: skip
            if result.last_stable_offset >= 0:
                told.last_stable_offset = result.last_stable_offset
            if result.aborted:
                told.aborted.extend(map(_aborted, result.aborted))
            entries.append(result.entries)
            if result.leaves_session:
                self._unwatch(session.drop(reader.key))
                continue
            reader.told = (result.high_watermark, result.log_start_offset, result.last_stable_offset)
            if result.entries:
                reader.fetch_offset = parse_header(result.entries[-1]).last_offset + 1
                session.news[reader] = None
        if handed_out:
            self._quotas.handed_out(session.client.principal, handed_out)
        if not session.incremental:
            self._release(session)
        self._replies.reply(fetch.request_id, response, entries if handed_out else ())

    def _behind(self, now: int, fetch: PendingFetch, reader: FetchedPartition, result: Found) -> Found:
        """Returns the result for a client that is ahead of this follower: an empty one for a moment, then an error."""
        if reader.behind_since is None:
            reader.behind_since = now
        if now < fetch.deadline and now - reader.behind_since < _CATCH_UP_US:
            fetch.session.news[reader] = None  # The next request looks again.
            return result
        partition = self._partitions.find(reader.topic_id, reader.number)
        name = "the partition" if partition is None else partition.name
        problem = not_here(name, reader.fetch_offset, result.high_watermark)
        return Found(problem, result.high_watermark, result.log_start_offset, result.leader_epoch)

    # -- events -----------------------------------------------------------------------------------------------

    def after_round(self, now: int, partition: Partition) -> None:
        """Notifies the readers of a partition if the step of its Raft group changed anything they can observe."""
        watch, seen = self.watches[partition.group], _seen(partition)
        if watch.seen != seen:
            watch.seen = seen
            self._tell_readers(now, watch)

    def raft_group_gone(self, now: int, group: int) -> None:
        watch = self.watches.get(group)
        if watch is not None:
            self._tell_readers(now, watch)

    def rights_changed(self, now: int) -> None:
        """Sends errors to clients that lost the right to read, even where there are no records to read."""
        if self._rights_version == self._absent.rights_version:
            return
        self._rights_version = self._absent.rights_version
        for session in [*self.sessions, *(fetch.session for fetch in self._parked if not fetch.session.incremental)]:
            self._forget_rights(session)
            fetch = self._parked.get(session.waiting) if session.waiting is not None else None
            if fetch is not None:
                self._look_at_partitions(now, fetch)

    def _forget_rights(self, session: ServedFetchSession) -> None:
        """Schedules another look at each partition of a session that its client may not read."""
        for reader in session.partitions.values():
            if self._absent.allows(session.client, _OPERATION, reader.topic_id):
                reader.allowed_by = self._absent.rights_version
            else:
                reader.allowed_by = None
                session.news[reader] = None

    def _tell_readers(self, now: int, watch: _WatchedPartition) -> None:
        for reader in list(watch.readers):
            session = reader.session
            session.news[reader] = None
            fetch = self._parked.get(session.waiting) if session.waiting is not None else None
            if fetch is not None:
                self._look_at_partitions(now, fetch)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the fetches whose deadline has passed."""
        for fetch in list(self._parked.take_expired(now)):
            self._answer(now, fetch)

    def client_gone(self, request_id: int) -> None:
        fetch = self._parked.take(request_id)
        if fetch is not None:
            fetch.session.waiting = None
            if not fetch.session.incremental:
                self._release(fetch.session)

    def stream_closed(self, stream: int) -> None:
        """Ends a stream's session."""
        session = self.sessions.end(stream)
        if session is None:
            return
        if session.waiting is not None:
            fetch = self._parked.take(session.waiting)
            session.waiting = None
            if fetch is not None:
                self._replies.reply(fetch.request_id, data_plane_pb2.FetchResponse(correlation_id=fetch.correlation_id))
        self._release(session)

    def _release(self, session: ServedFetchSession) -> None:
        for reader in session.partitions.values():
            self._unwatch(reader)
        session.partitions = {}
        session.news = {}


def failed_fetch(request: data_plane_pb2.FetchRequest, problem: errors_pb2.Error) -> data_plane_pb2.FetchResponse:
    """Returns the response to a fetch that failed as a whole."""
    response = data_plane_pb2.FetchResponse(correlation_id=request.correlation_id)
    for wanted in request.partitions:
        response.results.add(topic_id=wanted.topic_id, partition=wanted.partition, error=problem)
    return response


def _seen(partition: Partition) -> _Seen:
    raft = partition.raft
    return partition.high_watermark, partition.log_start_offset, raft.term, partition.leads, partition.follows


def _aborted(aborted: AbortedRange) -> data_plane_pb2.AbortedTransaction:
    return data_plane_pb2.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)


def before_kafka(entries: Sequence[bytes]) -> list[bytes]:
    """Returns the entries before the first batch of a Kafka client, for clients that would misread such a batch."""
    return list(takewhile(lambda entry: not is_kafka(entry), entries))


def refuse_kafka(partition: str) -> errors_pb2.Error:
    """Returns the error for a client that cannot read the batch of a Kafka client that comes next."""
    return error(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{partition} continues with a batch that a Kafka client has written, and this client cannot read it: upgrade"
        " it to the version of the nodes",
    )
