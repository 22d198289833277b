"""Fetch sessions, so that a client sends only what changes between its fetches, and the fetch that waits in each.

A session belongs to one Fetch stream: it begins with a request of epoch 1, goes on with 2, 3 …, and ends with the
stream. It holds the position of each partition read, which moves past the entries that are sent, and what the client
has been told beside them. A request that stands for itself (epoch 0) is a session of one answer.

There are only so many. Where there is no room for a new one, sessions that nobody has used for two minutes make way for
it, the oldest first, as in Kafka: their clients begin anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.server.step.request_context import UNKNOWN_CLIENT, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: A session that has not been used for so long makes way for another.
IDLE_US = 120_000_000
#: What has been told of a partition of which nothing has been told: neither a high watermark nor a log start.
NOTHING_TOLD = (-1, -1)


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """One partition that a session reads.

    Arguments:
        group: its Raft group; None where this node has no replica of it.
        fetch_offset: the next offset to send.
        told: the high watermark and the log start that the client heard last.
        allowed_by: the version of the rules by which the client may read it; None: that is yet to be decided.
    """

    session: ServedFetchSession
    topic_id: bytes
    number: int
    group: int | None
    fetch_offset: int
    leader_epoch: int
    max_bytes: int
    told: tuple[int, int] = NOTHING_TOLD
    allowed_by: int | None = None

    @property
    def key(self) -> tuple[bytes, int]:
        """What clients name it by."""
        return self.topic_id, self.number


@dataclass(slots=True, eq=False)
class ServedFetchSession:
    """What one stream reads.

    Arguments:
        stream: whose it is; 0 for a request that stands for itself.
        client: who reads.
        epoch: of its newest request.
        partitions: by topic id and number.
        news: partitions that may have something to say; who has waited longest for entries comes first.
        waiting: the request that waits for something to be said, by its id.
        takes_kafka_batches: what its newest request says.
        used_us: when that came.
    """

    stream: int
    client: RequestContext = UNKNOWN_CLIENT
    epoch: int = 0
    used_us: int = 0
    partitions: dict[tuple[bytes, int], FetchedPartition] = field(default_factory=dict)
    news: dict[FetchedPartition, None] = field(default_factory=dict)
    waiting: int | None = None
    takes_kafka_batches: bool = False

    @property
    def incremental(self) -> bool:
        """Whether the client keeps what it was told, and hears only what is new."""
        return self.stream != 0

    def put(self, wanted: data_plane_pb2.FetchPartition, group: int | None) -> FetchedPartition:
        """A client says what it wants of a partition, and that it knows nothing of it."""
        self.drop((wanted.topic_id, wanted.partition))
        partition = FetchedPartition(
            self, wanted.topic_id, wanted.partition, group, wanted.fetch_offset, wanted.leader_epoch, wanted.max_bytes
        )
        self.partitions[partition.key] = partition
        self.news[partition] = None
        return partition

    def drop(self, key: tuple[bytes, int]) -> FetchedPartition | None:
        """The partition is not read any more; returns it if it was."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.news.pop(partition, None)
        return partition


@dataclass(slots=True)
class Found:
    """What one partition has for a fetch: an error, or entries and where its log begins and ends.

    Arguments:
        fills_answer: more entries are there than the answer has room for.
    """

    error: errors_pb2.Error | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    leader_epoch: int = 0
    entries: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    compacted_offset: int = 0
    fills_answer: bool = False


@dataclass(slots=True, eq=False)
class PendingFetch:
    """A fetch that is being answered.

    Arguments:
        deadline: when it is answered with what there is (µs).
        min_bytes, max_bytes: of entries: enough to answer, and the most that an answer holds.
        tells_all: it is answered of all partitions, also of those whose entries there is no room for.
        found: what is to be said, by partition.
        size_bytes: of the entries in it.
        urgent: it holds an error, which no client should wait for, or as much as it may.
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
        """Says this of a partition, and not what was to be said before; nothing if ``found`` is None."""
        before = self.found.get(partition)
        if before is not None:
            self.size_bytes -= before.size_bytes
        if found is None:
            self.found.pop(partition, None)
            return
        self.found[partition] = found
        self.size_bytes += found.size_bytes
        self.urgent = self.urgent or found.error is not None or found.fills_answer


class FetchSessions:
    """The sessions of all streams.

    Arguments:
        limit: sessions that the node keeps.
        partition_limit: partitions in all of them together.
    """

    def __init__(self, limit: int, partition_limit: int) -> None:
        self._limit = limit
        self._partition_limit = partition_limit
        #: Whoever has not been used for longest comes first.
        self._by_stream: dict[int, ServedFetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_stream)

    def __iter__(self) -> Iterator[ServedFetchSession]:
        return iter(self._by_stream.values())

    def get(self, stream: int) -> ServedFetchSession | None:
        """The session of a stream, if it has one."""
        return self._by_stream.get(stream)

    def begin(self, stream: int, client: RequestContext = UNKNOWN_CLIENT) -> ServedFetchSession:
        """A new session of a client. The one that the stream had must have been ended."""
        assert stream and stream not in self._by_stream
        session = self._by_stream[stream] = ServedFetchSession(stream, client)
        return session

    def use(self, session: ServedFetchSession, now: int) -> None:
        """A request of a session has come."""
        session.used_us = now
        self._by_stream[session.stream] = self._by_stream.pop(session.stream)

    def in_the_way(self, stream: int, request: data_plane_pb2.FetchRequest, now: int) -> list[int]:
        """The streams whose sessions are to end so that there is room for what a request brings. Others wait for it
        where that is not enough."""
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
        """Forgets a stream's session and returns it, if there was one."""
        return self._by_stream.pop(stream, None)

    def refusal(self, stream: int, request: data_plane_pb2.FetchRequest) -> errors_pb2.Error | None:
        """Why a session cannot go on, or begin, with this request; None if it can."""
        session = self._by_stream.get(stream)
        if request.session_epoch > 1:
            known = session.epoch if session is not None else 0
            if request.session_epoch != known + 1:
                # Something between the two was not taken in: what the client believes of its positions is not so.
                return error(
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"request {request.session_epoch} of a fetch session of which {known} are known: begin a new one",
                )
        elif not stream:
            return error(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "a fetch session needs a stream: fetch without one")
        elif session is None and len(self._by_stream) >= self._limit:
            return error(
                ErrorCode.TOO_MANY_FETCH_SESSIONS,
                f"the node keeps {self._limit} fetch sessions already: fetch without one",
            )
        # A session that only goes on names no partitions, and costs no counting.
        held = sum(len(one.partitions) for one in self) if request.partitions else 0
        if held + len(request.partitions) > self._partition_limit:
            return error(
                ErrorCode.TOO_MANY_FETCH_SESSIONS,
                f"fetch sessions hold {held} partitions here already, {self._partition_limit} at most: fetch without",
            )
        return None
