"""What a connection remembers of a consumer's fetches between them, so that the consumer says only what changes, and
is told only what is new (KIP-227).

A session belongs to its connection, which has one at most: it ends with it, nobody else can go on with it, and whose it
is needs no proof of its own. A consumer that has connected anew, or is told that its session is not known, begins
another; Kafka's clients always had to reckon with that.

Beneath it the node has a session of the same stream (``server/requests/fetch_sessions.py``). It knows what there is to
say; this one knows what the consumer has asked for. They differ in one point: positions of the node's move past what it
sends, those of Kafka's stay until the consumer names another. So a partition is named to the node again where the two
have come apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.wire.request_limits import MAX_ITEMS

#: What is kept of all sessions of a port, together.
MOST_KEPT_PARTITIONS = 100_000
#: Epochs of sessions count on from 1, and begin there again.
_FIRST_EPOCH, _LAST_EPOCH = 1, (1 << 31) - 1
_NO_SESSION = 0


class WantedFetch(NamedTuple):
    """What a consumer wants of a partition."""

    fetch_offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(slots=True, eq=False)
class KeptPartition:
    """A partition of a session.

    Arguments:
        topic: its name, or from version 13 on its id.
        topic_id: by which the node's session has it; None: it has not.
        known: what the node's session goes by: its position moves on with what is sent.
    """

    topic: str | bytes
    number: int
    wish: WantedFetch
    topic_id: bytes | None = None
    known: WantedFetch | None = None


@dataclass(slots=True, eq=False)
class KafkaFetchSession:
    """A consumer's session.

    Arguments:
        by_id: topics are named by their ids.
        epoch: of the consumer's next request.
        node_epoch: of the last request of the node's session.
        due: partitions that may be elsewhere in the node's session than the consumer wants, or not be in it.
        at_node: those that are in it, by topic id and number.
    """

    number: int
    by_id: bool
    epoch: int = _FIRST_EPOCH
    node_epoch: int = 0
    partitions: dict[tuple[str | bytes, int], KeptPartition] = field(default_factory=dict)
    due: dict[KeptPartition, None] = field(default_factory=dict)
    at_node: dict[tuple[bytes, int], KeptPartition] = field(default_factory=dict)

    def want(self, topic: str | bytes, number: int, wish: WantedFetch, most: int) -> bool:
        """The consumer wants this of a partition from now on; False if that would be one more than ``most``."""
        kept = self.partitions.get((topic, number))
        if kept is None:
            if len(self.partitions) >= most:
                return False
            kept = self.partitions[topic, number] = KeptPartition(topic, number, wish)
        kept.wish = wish
        self.due[kept] = None
        return True

    def forget(self, topic: str | bytes, number: int) -> tuple[bytes, int] | None:
        """The consumer does not want a partition any more. Returns by what the node's session has it, if it has."""
        kept = self.partitions.pop((topic, number), None)
        if kept is None:
            return None
        self.due.pop(kept, None)
        return self.lose(kept)

    def lose(self, kept: KeptPartition) -> tuple[bytes, int] | None:
        """A partition is in the node's session no more. Returns by what it was there, if it was."""
        if kept.topic_id is None:
            return None
        place = kept.topic_id, kept.number
        kept.topic_id = kept.known = None
        if self.at_node.get(place) is kept:
            del self.at_node[place]
            return place
        return None

    def put_at_node(self, kept: KeptPartition, topic_id: bytes) -> None:
        """The node's session is told what the consumer wants of a partition."""
        kept.topic_id, kept.known = topic_id, kept.wish
        self.at_node[topic_id, kept.number] = kept

    def moved(self, kept: KeptPartition, next_offset: int) -> None:
        """The node has sent records of a partition: up to before an offset."""
        assert kept.known is not None
        kept.known = kept.known._replace(fetch_offset=next_offset)
        self.due[kept] = None

    def next_epoch(self) -> None:
        """A request of the session is taken."""
        self.epoch = _FIRST_EPOCH if self.epoch == _LAST_EPOCH else self.epoch + 1


class FetchSessionSpace:
    """How many partitions the sessions of a port's connections keep, and the numbers of sessions.

    Arguments:
        limit: of partitions.
        first: the number of the first session. Another one for each start of a node keeps a consumer that has connected
            anew from being taken for another.
    """

    def __init__(self, limit: int = MOST_KEPT_PARTITIONS, first: int = 1) -> None:
        self._limit = limit
        self._kept = 0
        self._number = first % _LAST_EPOCH

    @property
    def kept(self) -> int:
        """Partitions that are kept."""
        return self._kept

    def most_of(self, size: int) -> int:
        """How many partitions a session of so many may have. It is asked before any is added: a request names as many
        as fit into its bytes."""
        return min(MAX_ITEMS, self._limit - self._kept + size)

    def resize(self, before: int, now: int) -> None:
        """A session has so many partitions now, where it had others before."""
        assert now <= max(before, self.most_of(before)), f"{now} partitions of a session, where there were {before}"
        self._kept += now - before

    def next_number(self) -> int:
        """The number of a new session."""
        self._number = self._number % _LAST_EPOCH + 1
        return self._number


class ConnectionFetches:
    """The session of one connection, if it has one.

    Attributes:
        ended: the node does not know yet that there is none any more.
    """

    def __init__(self, space: FetchSessionSpace) -> None:
        self._space = space
        self._session: KafkaFetchSession | None = None
        self._size = 0
        self.ended = False

    def find(self, number: int) -> KafkaFetchSession | None:
        """The session of that number, if it is this connection's."""
        session = self._session
        return session if session is not None and session.number == number else None

    def begin(self, wanted: Iterable[tuple[str | bytes, int, WantedFetch]], *, by_id: bool) -> KafkaFetchSession | None:
        """A new session, in the place of the one that there was; None where there is no room for it."""
        self.end()
        session, most = KafkaFetchSession(_NO_SESSION, by_id), self.most_partitions
        if not all(session.want(topic, number, wish, most) for topic, number, wish in wanted) or not session.partitions:
            return None
        self._size = len(session.partitions)
        self._space.resize(0, self._size)
        session.number = self._space.next_number()
        self._session = session
        self.ended = False  # The node's session, if there is one, begins anew with it.
        return session

    @property
    def most_partitions(self) -> int:
        """How many partitions the session may have."""
        return self._space.most_of(self._size)

    def resized(self) -> None:
        """The session has more partitions, or fewer."""
        size = 0 if self._session is None else len(self._session.partitions)
        self._space.resize(self._size, size)
        self._size = size

    def end(self) -> None:
        """Forgets the session."""
        if self._session is not None:
            self.ended = True
            self._session = None
            self._space.resize(self._size, 0)
            self._size = 0
