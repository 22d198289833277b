"""A consumer's fetch session with one node: requests contain only changes.

The node moves the position of a partition past the entries that it sends, and forgets a partition that it reports an
error for. This side does the same with its view of the node, so that both agree without further messages. Whenever they
might not (the stream broke, a request was refused or is late), a new session starts, and names every partition once.

A node without free sessions receives self-contained requests: each names its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.consumer.assignment import PartitionState
from quorumlog.sdk.records.fetch_answer import FetchedResult
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import CorruptEntryError, parse_header
from quorumlog.wire.request_limits import MAX_ITEMS

#: Requests of one session in flight: one that waits, and one that replaces it; for a consumer that lags, one that is
#: being answered while the other's response is on its way.
IN_FLIGHT = 2
#: Self-contained requests in flight: each waits for its own partitions only.
ALONE_IN_FLIGHT = 8


class Wanted(NamedTuple):
    """A partition to be read from its leader, or from the replica that its leader has named."""

    state: PartitionState
    topic_id: bytes
    leader_epoch: int


@dataclass(slots=True, eq=False)
class Known:
    """The node's view of a partition.

    Arguments:
        generation: of the state when it was named.
        fetch_offset: the node's position.
        epoch: of the request that named it last; responses to earlier ones are outdated.
        stride: offsets that the last response moved it by, if that response was full; otherwise 0.
    """

    state: PartitionState
    generation: int
    topic_id: bytes
    fetch_offset: int
    leader_epoch: int
    epoch: int
    stride: int = 0

    @property
    def is_behind(self) -> bool:
        """True if the log continues beyond the next response."""
        return self.stride > 0 and self.state.readable_end > self.fetch_offset + self.stride


@dataclass(slots=True, eq=False)
class Fetch:
    """One request in flight.

    Arguments:
        epoch: number of the request in its session.
        max_bytes: limit of the whole response; limit_bytes: of one partition in it.
        named: the partitions that it names.
    """

    session: FetchSession
    request: data_plane_pb2.FetchRequest
    epoch: int
    sent_at_s: float
    max_bytes: int
    limit_bytes: int
    named: list[TopicPartition]


@dataclass(slots=True, eq=False)
class FetchSession:
    """A session, with the node's view of the partitions read from it.

    Arguments:
        life: number of the node's Fetch stream that the session belongs to.
        incremental: False if each request is self-contained.
        isolation_level: which records of transactions the consumer reads.
        known: by partition; without a session only the partitions in flight.
        in_flight: requests in flight.
    """

    node: NodeConnection
    life: int
    incremental: bool
    isolation_level: data_plane_pb2.IsolationLevel.ValueType = data_plane_pb2.ISOLATION_LEVEL_READ_COMMITTED
    known: dict[tuple[bytes, int], Known] = field(default_factory=dict)
    in_flight: dict[Fetch, None] = field(default_factory=dict)
    _epoch: int = 0

    def next_fetch(
        self, wanted: Sequence[Wanted], now_s: float, max_bytes: int, limit_bytes: int, rack: str = ""
    ) -> Fetch | None:
        """Returns the next request, or None if none is needed now.

        Arguments:
            wanted: all partitions to be read from the node.
            max_bytes: limit of the whole response; limit_bytes: of one partition in it.
            rack: the client's rack; empty if all these partitions must be read from their leaders.
        """
        if len(self.in_flight) >= (IN_FLIGHT if self.incremental else ALONE_IN_FLIGHT):
            return None
        news = list(islice(filter(self._differs, wanted), MAX_ITEMS))
        goes_on = self.incremental and (not self.in_flight or self._is_behind(wanted))
        if not (wanted if goes_on else news):
            return None
        self._epoch += 1
        request = data_plane_pb2.FetchRequest(
            max_bytes=max_bytes,
            session_epoch=self._epoch if self.incremental else 0,
            takes_kafka_batches=True,
            client_rack=rack,
            isolation_level=self.isolation_level,
        )
        if self.incremental and len(self.known) + len(news) > len(wanted):
            self._forget(wanted, request)
        for state, topic_id, leader_epoch in news:
            assert state.fetch_offset is not None
            request.partitions.add(
                topic_id=topic_id,
                partition=state.tp.partition,
                fetch_offset=state.fetch_offset,
                leader_epoch=leader_epoch,
                max_bytes=limit_bytes,
            )
            self.known[topic_id, state.tp.partition] = Known(
                state, state.generation, topic_id, state.fetch_offset, leader_epoch, self._epoch
            )
            state.session = self
        fetch = Fetch(self, request, self._epoch, now_s, max_bytes, limit_bytes, [one.state.tp for one in news])
        self.in_flight[fetch] = None
        return fetch

    def _differs(self, wanted: Wanted) -> bool:
        state = wanted.state
        known = self.known.get((wanted.topic_id, state.tp.partition))
        return (
            known is None
            or known.state is not state
            or known.generation != state.generation
            or known.fetch_offset != state.fetch_offset
            or known.leader_epoch != wanted.leader_epoch
            or state.session is not self
        )

    def _is_behind(self, wanted: Iterable[Wanted]) -> bool:
        """True if the node could answer another request at once, also after those in flight.

        At the end of a log it could not: the request would replace the waiting one without benefit.
        """
        known = (self.known.get((one.topic_id, one.state.tp.partition)) for one in wanted)
        return any(one is not None and one.is_behind for one in known)

    def _forget(self, wanted: Iterable[Wanted], request: data_plane_pb2.FetchRequest) -> None:
        stay = {(one.topic_id, one.state.tp.partition) for one in wanted}
        for key in list(islice((key for key in self.known if key not in stay), MAX_ITEMS)):
            del self.known[key]
            request.forgotten.add(topic_id=key[0], partition=key[1])

    def answered(self, fetch: Fetch) -> None:
        """Removes a request that was answered, or will not be."""
        self.in_flight.pop(fetch, None)
        if not self.incremental:
            self.known = {key: known for key, known in self.known.items() if known.epoch != fetch.epoch}

    def heard(self, fetch: Fetch, result: FetchedResult) -> tuple[PartitionState, int] | None:
        """Updates the node's position in a partition.

        Returns:
            The state and start offset of the result; None if it is outdated.
        """
        key = (result.told.topic_id, result.told.partition)
        known = self.known.get(key)
        if known is None or known.epoch > fetch.epoch:
            return None
        state, offset = known.state, known.fetch_offset
        fresh = state.session is self and state.generation == known.generation and state.fetch_offset == offset
        if result.told.HasField("error") or result.told.HasField("preferred_replica"):
            del self.known[key]
        elif result.entries:
            try:
                known.fetch_offset = parse_header(result.entries[-1]).last_offset + 1
            except CorruptEntryError:
                del self.known[key]  # The node's position is unknown: the partition is named again.
            is_full = 2 * sum(map(len, result.entries)) >= min(fetch.max_bytes, fetch.limit_bytes)
            known.stride = known.fetch_offset - offset if is_full else 0
        return (state, offset) if fresh else None
