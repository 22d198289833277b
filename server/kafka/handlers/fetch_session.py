"""State of incremental fetch sessions (KIP-227): clients send and receive only what has changed.

A session belongs to its connection, which has at most one: it ends with the connection, no other client can continue
it, and it needs no separate authentication. A consumer that has reconnected, or receives an error that its session is
unknown, starts another one; Kafka's clients always have to be prepared for that.

Below it, the node has a session of the same stream (``server/requests/fetch_sessions.py``). That session tracks what
is new; this one tracks what the consumer has requested. They differ in one respect: the node's positions advance past
the records that it sends, and Kafka's stay until the consumer names another offset. So a partition is sent to the node
again where the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from quorumlog.wire.request_limits import MAX_ITEMS

#: Limit shared by all sessions of a listener.
MOST_KEPT_PARTITIONS = 100_000
#: Session epochs start at 1, and wrap around to it.
_FIRST_EPOCH, _LAST_EPOCH = 1, (1 << 31) - 1
_NO_SESSION = 0


class WantedFetch(NamedTuple):
    """Parameters with which a consumer fetches a partition."""

    fetch_offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(slots=True, eq=False)
class KeptPartition:
    """A partition of a session.

    Arguments:
        topic: its name, or from version 13 on its id.
        topic_id: key in the node's session; None: the node's session does not have it.
        known: parameters in the node's session; their offset advances with the records sent.
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
        epoch: expected epoch of the consumer's next request.
        node_epoch: epoch of the last request in the node's session.
        due: partitions whose parameters may differ in the node's session, or that may be missing from it.
        at_node: partitions of the node's session, by topic id and number.
    """

    number: int
    by_id: bool
    epoch: int = _FIRST_EPOCH
    node_epoch: int = 0
    partitions: dict[tuple[str | bytes, int], KeptPartition] = field(default_factory=dict)
    due: dict[KeptPartition, None] = field(default_factory=dict)
    at_node: dict[tuple[bytes, int], KeptPartition] = field(default_factory=dict)

    def want(self, topic: str | bytes, number: int, wish: WantedFetch, most: int) -> bool:
        """Adds a partition or changes its parameters; False if that would exceed ``most`` partitions."""
        kept = self.partitions.get((topic, number))
        if kept is None:
            if len(self.partitions) >= most:
                return False
            kept = self.partitions[topic, number] = KeptPartition(topic, number, wish)
        kept.wish = wish
        self.due[kept] = None
        return True

    def forget(self, topic: str | bytes, number: int) -> tuple[bytes, int] | None:
        """Removes a partition. Returns its key in the node's session, or None if it is absent."""
        kept = self.partitions.pop((topic, number), None)
        if kept is None:
            return None
        self.due.pop(kept, None)
        return self.lose(kept)

    def lose(self, kept: KeptPartition) -> tuple[bytes, int] | None:
        """Marks a partition as removed from the node's session. Returns its key there, or None if it was absent."""
        if kept.topic_id is None:
            return None
        place = kept.topic_id, kept.number
        kept.topic_id = kept.known = None
        if self.at_node.get(place) is kept:
            del self.at_node[place]
            return place
        return None

    def put_at_node(self, kept: KeptPartition, topic_id: bytes) -> None:
        """Records that the node's session now has the consumer's parameters of a partition."""
        kept.topic_id, kept.known = topic_id, kept.wish
        self.at_node[topic_id, kept.number] = kept

    def moved(self, kept: KeptPartition, next_offset: int) -> None:
        """Records that the node has sent a partition's records before an offset."""
        assert kept.known is not None
        kept.known = kept.known._replace(fetch_offset=next_offset)
        self.due[kept] = None

    def next_epoch(self) -> None:
        """Advances the epoch after a request was accepted."""
        self.epoch = _FIRST_EPOCH if self.epoch == _LAST_EPOCH else self.epoch + 1


class FetchSessionSpace:
    """Session numbers, and the limit shared by the partitions of all sessions of a listener.

    Arguments:
        limit: number of partitions.
        first: number of the first session. It should differ on each start of a node, so that a consumer that reconnects
            is not mistaken for another.
    """

    def __init__(self, limit: int = MOST_KEPT_PARTITIONS, first: int = 1) -> None:
        self._limit = limit
        self._kept = 0
        self._number = first % _LAST_EPOCH

    @property
    def kept(self) -> int:
        """Number of partitions in all sessions."""
        return self._kept

    def most_of(self, size: int) -> int:
        """Returns how many partitions a session of the given size may have.

        It is called before any is added, because a request can name as many as fit into its bytes.
        """
        return min(MAX_ITEMS, self._limit - self._kept + size)

    def resize(self, before: int, now: int) -> None:
        """Accounts for a session whose number of partitions has changed."""
        assert now <= max(before, self.most_of(before)), (
            f"a session grew from {before} to {now} partitions, above its limit"
        )
        self._kept += now - before

    def next_number(self) -> int:
        """Returns the number of a new session."""
        self._number = self._number % _LAST_EPOCH + 1
        return self._number


class ConnectionFetches:
    """The fetch session of a connection, if it has one.

    Attributes:
        ended: the session has ended, and the node has not been notified yet.
    """

    def __init__(self, space: FetchSessionSpace) -> None:
        self._space = space
        self._session: KafkaFetchSession | None = None
        self._size = 0
        self.ended = False

    def find(self, number: int) -> KafkaFetchSession | None:
        """Returns the session of that number, or None if it is not this connection's."""
        session = self._session
        return session if session is not None and session.number == number else None

    def begin(self, wanted: Iterable[tuple[str | bytes, int, WantedFetch]], *, by_id: bool) -> KafkaFetchSession | None:
        """Starts a session in place of the previous one; None if it would be empty or exceed the limit."""
        self.end()
        session, most = KafkaFetchSession(_NO_SESSION, by_id), self.most_partitions
        if (
            not all(session.want(topic, number, parameters, most) for topic, number, parameters in wanted)
            or not session.partitions
        ):
            return None
        self._size = len(session.partitions)
        self._space.resize(0, self._size)
        session.number = self._space.next_number()
        self._session = session
        self.ended = False  # The node replaces its session, if any, when this one starts.
        return session

    @property
    def most_partitions(self) -> int:
        """Maximum number of partitions of the session."""
        return self._space.most_of(self._size)

    def resized(self) -> None:
        """Accounts for partitions added to or removed from the session."""
        size = 0 if self._session is None else len(self._session.partitions)
        self._space.resize(self._size, size)
        self._size = size

    def end(self) -> None:
        """Ends the session."""
        if self._session is not None:
            self.ended = True
            self._session = None
            self._space.resize(self._size, 0)
            self._size = 0
