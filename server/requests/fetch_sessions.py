"""Fetch sessions, with which a client sends only the changes between its fetches, and the fetch that waits in each
session.

A session belongs to one Fetch stream: it starts with a request of epoch 1, continues with 2, 3 …, and ends with the
stream. It holds the position of each partition it reads, which moves past the entries that are sent, and the offsets
that the client has received with them. A request without a session (epoch 0) is a session of one answer.

The number of sessions is limited. Where there is no space for a new one, sessions that were unused for two minutes are
evicted, the oldest first, as in Kafka; their clients start new sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.server.partition.aborted_ranges import AbortedRange
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Time without use after which a session may be evicted.
IDLE_US = 120_000_000
#: Value of ``told`` for a partition of which the client has received no bounds.
NOTHING_TOLD = (-1, -1, -1)


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """One partition that a session reads.

    Arguments:
        group: its Raft group; None if this node has no replica of it.
        fetch_offset: the next offset to send.
        told: the high watermark, the log start offset and the last stable offset that the client received last; -1 for
            a last stable offset that is the high watermark.
        allowed_by: the version of the ACLs that allow the client to read it; None if not yet decided.
        behind_since: when the replica here, a follower, was first found not to have reached ``fetch_offset``; None if
            it has (µs).
    """

    session: ServedFetchSession
    topic_id: bytes
    number: int
    group: int | None
    fetch_offset: int
    leader_epoch: int
    max_bytes: int
    told: tuple[int, int, int] = NOTHING_TOLD
    allowed_by: int | None = None
    behind_since: int | None = None

    @property
    def key(self) -> tuple[bytes, int]:
        """The key by which clients name the partition."""
        return self.topic_id, self.number


@dataclass(slots=True, eq=False)
class ServedFetchSession:
    """The partitions that one stream reads.

    Arguments:
        stream: the stream it belongs to; 0 for a request without a session.
        client: the client that reads.
        epoch: epoch of its newest request.
        partitions: by topic id and number.
        news: partitions that may have data or an error; the one that has waited longest for its entries comes first.
        waiting: id of the request that waits for data or an error.
        takes_kafka_batches: True if its newest request accepts batches of Kafka clients.
        isolation_level, takes_control_batches: of its newest request.
        client_rack: of its newest request; empty if the client does not want a replica in its rack.
        from_replicas: True if its newest request accepts answers of replicas that do not lead.
        used_us: time of its newest request.
    """

    stream: int
    client: RequestContext = UNKNOWN_CLIENT
    epoch: int = 0
    used_us: int = 0
    partitions: dict[tuple[bytes, int], FetchedPartition] = field(default_factory=dict)
    news: dict[FetchedPartition, None] = field(default_factory=dict)
    waiting: int | None = None
    takes_kafka_batches: bool = False
    isolation_level: data_plane_pb2.IsolationLevel.ValueType = data_plane_pb2.ISOLATION_LEVEL_UNSPECIFIED
    takes_control_batches: bool = False
    client_rack: str = ""
    from_replicas: bool = False

    def take_options(self, request: data_plane_pb2.FetchRequest) -> None:
        """Applies the options of its newest request, which hold for all its partitions."""
        self.takes_kafka_batches = request.takes_kafka_batches
        self.isolation_level = request.isolation_level
        self.takes_control_batches = request.takes_control_batches
        self.client_rack = request.client_rack
        self.from_replicas = request.from_replicas or bool(request.client_rack)

    @property
    def incremental(self) -> bool:
        """True if the client keeps the state it has received, so that only changes are sent."""
        return self.stream != 0

    def put(self, wanted: data_plane_pb2.FetchPartition, group: int | None) -> FetchedPartition:
        """Adds or replaces a partition, with nothing reported to the client yet."""
        self.drop((wanted.topic_id, wanted.partition))
        partition = FetchedPartition(
            self, wanted.topic_id, wanted.partition, group, wanted.fetch_offset, wanted.leader_epoch, wanted.max_bytes
        )
        self.partitions[partition.key] = partition
        self.news[partition] = None
        return partition

    def drop(self, key: tuple[bytes, int]) -> FetchedPartition | None:
        """Removes a partition and returns it; None if the session did not read it."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.news.pop(partition, None)
        return partition


@dataclass(slots=True)
class Found:
    """The result of one partition for a fetch: an error, or entries and the bounds of its log.

    Arguments:
        fills_answer: True if there are more entries than fit into the answer.
        preferred_replica: the node that the client should read from; None: this one.
        is_behind: this replica, a follower, has not reached the offset yet.
        last_stable_offset: -1 if it is the high watermark.
        aborted: the aborted transactions that the client leaves out itself.
    """

    error: errors_pb2.Error | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    leader_epoch: int = 0
    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    compacted_offset: int = 0
    fills_answer: bool = False
    preferred_replica: int | None = None
    is_behind: bool = False
    last_stable_offset: int = -1
    aborted: list[AbortedRange] = field(default_factory=list)

    @property
    def leaves_session(self) -> bool:
        """True if the client does not read the partition here any longer, unless it requests it again."""
        return self.error is not None or self.preferred_replica is not None


@dataclass(slots=True, eq=False)
class PendingFetch:
    """A fetch that is being answered.

    Arguments:
        deadline: time at which it is answered with what there is (µs).
        min_bytes, max_bytes: bytes of entries that suffice for an answer, and the most that an answer holds.
        tells_all: the answer has a result for every partition, also for those whose entries do not fit.
        found: results by partition.
        size_bytes: bytes of the entries in them.
        urgent: it holds an error or another replica, which no client should wait for, or as many bytes as it may.
    """

    request_id: int
    correlation_id: int
    session: ServedFetchSession
    deadline: int
    min_bytes: int
    max_bytes: int
    tells_all: bool = False
    found: dict[FetchedPartition, Found] = field(default_factory=dict)
    size_bytes: int = 0
    urgent: bool = False

    def put(self, partition: FetchedPartition, found: Found | None) -> None:
        """Replaces the result for a partition; None removes it."""
        before = self.found.get(partition)
        if before is not None:
            self.size_bytes -= before.size_bytes
        if found is None:
            self.found.pop(partition, None)
            return
        self.found[partition] = found
        self.size_bytes += found.size_bytes
        self.urgent = self.urgent or found.leaves_session or found.fills_answer


class FetchSessions:
    """The sessions of all streams.

    Arguments:
        limit: maximum number of sessions that the node keeps.
        partition_limit: maximum number of partitions, shared by all sessions.
    """

    def __init__(self, limit: int, partition_limit: int) -> None:
        self._limit = limit
        self._partition_limit = partition_limit
        #: The session that was unused longest comes first.
        self._by_stream: dict[int, ServedFetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_stream)

    def __iter__(self) -> Iterator[ServedFetchSession]:
        return iter(self._by_stream.values())

    def get(self, stream: int) -> ServedFetchSession | None:
        """Returns the session of a stream, if it has one."""
        return self._by_stream.get(stream)

    def begin(self, stream: int, client: RequestContext = UNKNOWN_CLIENT) -> ServedFetchSession:
        """Returns a new session of a client. The stream's previous session must have been ended."""
        assert stream and stream not in self._by_stream
        session = self._by_stream[stream] = ServedFetchSession(stream, client)
        return session

    def use(self, session: ServedFetchSession, now: int) -> None:
        """Records that a request of a session arrived."""
        session.used_us = now
        self._by_stream[session.stream] = self._by_stream.pop(session.stream)

    def in_the_way(self, stream: int, request: data_plane_pb2.FetchRequest, now: int) -> list[int]:
        """Returns the streams whose sessions must end to make space for a request.

        Only idle sessions without a waiting request are chosen, so the request may have to be refused nevertheless.
        """
        sessions = len(self._by_stream) + (request.session_epoch == 1 and stream not in self._by_stream)
        held = sum(len(one.partitions) for one in self) if request.partitions else 0
        partitions = held + len(request.partitions)
        ending = []
        for one in self:
            if sessions <= self._limit and partitions <= self._partition_limit:
                break
            if one.used_us + IDLE_US > now:
                break
            if one.stream != stream and one.waiting is None:
                ending.append(one.stream)
                sessions, partitions = sessions - 1, partitions - len(one.partitions)
        return ending

    def end(self, stream: int) -> ServedFetchSession | None:
        """Removes a stream's session and returns it; None if there was none."""
        return self._by_stream.pop(stream, None)

    def refusal(self, stream: int, request: data_plane_pb2.FetchRequest) -> errors_pb2.Error | None:
        """Returns the error if a session cannot continue or start with this request; None if it can."""
        session = self._by_stream.get(stream)
        if request.session_epoch > 1:
            known = session.epoch if session is not None else 0
            if request.session_epoch != known + 1:
                # A request between the two was lost, so the client's positions are not those of the session.
                return error(
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"request {request.session_epoch} of a fetch session arrived after {known}: start a new session",
                )
        elif not stream:
            return error(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a fetch session needs a stream")
        elif session is None and len(self._by_stream) >= self._limit:
            return error(
                ErrorCode.TOO_MANY_FETCH_SESSIONS,
                f"the node keeps {self._limit} fetch sessions already: fetch without a session",
            )
        # A request that only continues a session names no partitions, and so needs no counting.
        held = sum(len(one.partitions) for one in self) if request.partitions else 0
        if held + len(request.partitions) > self._partition_limit:
            return error(
                ErrorCode.TOO_MANY_FETCH_SESSIONS,
                f"fetch sessions hold {held} of {self._partition_limit} partitions already: fetch without a session",
            )
        return None
