"""A consumer's fetch session with one node: requests say only what differs from what the node knows.

The node moves the position of a partition past the entries that it sends, and forgets a partition of which it reports
an error. This side does the same with its picture of the node, so that both agree without a word. Whenever they might
not (the stream broke, a request was refused or is late), a new session begins, and names everything once.

A node that keeps no session is asked in requests that stand for themselves: each names what it is about.
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

#: Requests of one session under way: one that waits, and one that takes its place; of who is behind, one that is being
#: answered while what the other brought is on its way.
IN_FLIGHT = 2
#: Requests under way that stand for themselves: each waits for its own partitions, and holds up nobody else's.
ALONE_IN_FLIGHT = 8


class Wanted(NamedTuple):
    """A partition to be read from a node that leads it."""

    state: PartitionState
    topic_id: bytes
    leader_epoch: int


@dataclass(slots=True, eq=False)
class Known:
    """What the node knows of a partition.

    Arguments:
        generation: of the state when it was named.
        fetch_offset: where the node goes on.
        epoch: of the request that named it last; answers to earlier ones are about its past.
        stride: offsets that the last answer moved it by, if that was as much as an answer takes; else 0.
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
        """Whether the log goes on behind what the next answer will bring."""
        return self.stride > 0 and self.state.high_watermark > self.fetch_offset + self.stride


@dataclass(slots=True, eq=False)
class Fetch:
    """One request under way.

    Arguments:
        epoch: counts the requests of its session.
        max_bytes: of the whole answer; limit_bytes: of one partition in it.
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
    """What one node knows of what is read from it.

    Arguments:
        life: which of the node's Fetch streams it belongs to.
        incremental: False where each request stands for itself.
        known: by partition; without a session only what is being asked for.
        in_flight: requests under way.
    """

    node: NodeConnection
    life: int
    incremental: bool
    known: dict[tuple[bytes, int], Known] = field(default_factory=dict)
    in_flight: dict[Fetch, None] = field(default_factory=dict)
    _epoch: int = 0

    def next_fetch(self, wanted: Sequence[Wanted], now_s: float, max_bytes: int, limit_bytes: int) -> Fetch | None:
        """The next request, if there is one to be made now.

        Arguments:
            wanted: all that is to be read from the node.
            max_bytes: of the whole answer; limit_bytes: of one partition in it.
        """
        if len(self.in_flight) >= (IN_FLIGHT if self.incremental else ALONE_IN_FLIGHT):
            return None
        news = list(islice(filter(self._differs, wanted), MAX_ITEMS))
        goes_on = self.incremental and (not self.in_flight or self._is_behind(wanted))
        if not (wanted if goes_on else news):
            return None
        self._epoch += 1
        request = data_plane_pb2.FetchRequest(
            max_bytes=max_bytes, session_epoch=self._epoch if self.incremental else 0, takes_kafka_batches=True
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
        """Whether the node could answer another request at once, also after those that are under way.

        At the end of a log it could not: the request would take the place of the one that waits, for nothing.
        """
        known = (self.known.get((one.topic_id, one.state.tp.partition)) for one in wanted)
        return any(one is not None and one.is_behind for one in known)

    def _forget(self, wanted: Iterable[Wanted], request: data_plane_pb2.FetchRequest) -> None:
        stay = {(one.topic_id, one.state.tp.partition) for one in wanted}
        for key in list(islice((key for key in self.known if key not in stay), MAX_ITEMS)):
            del self.known[key]
            request.forgotten.add(topic_id=key[0], partition=key[1])

    def answered(self, fetch: Fetch) -> None:
        """A request has been answered, or will not be."""
        self.in_flight.pop(fetch, None)
        if not self.incremental:
            self.known = {key: known for key, known in self.known.items() if known.epoch != fetch.epoch}

    def heard(self, fetch: Fetch, result: FetchedResult) -> tuple[PartitionState, int] | None:
        """Takes in where the node is now with a partition.

        Returns:
            The state that the result is about and the offset that it begins at; None if it is about the past.
        """
        key = (result.told.topic_id, result.told.partition)
        known = self.known.get(key)
        if known is None or known.epoch > fetch.epoch:
            return None
        state, offset = known.state, known.fetch_offset
        fresh = state.session is self and state.generation == known.generation and state.fetch_offset == offset
        if result.told.HasField("error"):
            del self.known[key]
        elif result.entries:
            try:
                known.fetch_offset = parse_header(result.entries[-1]).last_offset + 1
            except CorruptEntryError:
                del self.known[key]  # Where the node went on is not to be known: it is named anew.
            is_full = 2 * sum(map(len, result.entries)) >= min(fetch.max_bytes, fetch.limit_bytes)
            known.stride = known.fetch_offset - offset if is_full else 0
        return (state, offset) if fresh else None
