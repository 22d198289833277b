"""How a request of a Kafka client is served: in steps, between which somebody else asks the node, or works.

Whoever serves a request is a generator. It yields questions to the node and gets the replies to them in that order, or
work that takes long and gets what comes of it. What it returns is the answer. The first step is made as the request
comes, so requests reach the node in the order in which clients sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.v1.errors_pb2 import Error
from quorumlog.wire.request_limits import MAX_ITEMS

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=KafkaMessage)
ReplyT = TypeVar("ReplyT", bound=ProtoMessage)

#: Questions that are with the node at a time for one request.
MOST_QUESTIONS_AT_ONCE = 64


class KafkaClusterView(Protocol):
    """What a node knows of its cluster at this moment."""

    @property
    def node_id(self) -> int:
        """Of the node that is asked."""

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic, if there is one of that name."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic, if there is one of that id."""

    @property
    def default_replicas(self) -> int:
        """Of a topic, where its creator does not say how many."""

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        """What is set of a topic's configuration; None where there is no such topic."""

    def topic_names(self) -> Iterable[str]:
        """Of all topics: which of them a client may know of is the node's to say."""

    def partition_count(self, name: str) -> int:
        """Partitions of a topic; 0 where there is none of that name."""

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        """Host and port at which Kafka's clients reach a node, if they do."""


@dataclass(slots=True, frozen=True)
class KafkaCall(Generic[RequestT]):
    """A request that is to be served.

    Arguments:
        creates_topics: unknown topics are created when clients mention them.
        sign_in: how far the connection is with that; None: nobody signs in on it by password.
        fetches: what the connection remembers of fetches; None: nothing.
    """

    message: RequestT
    version: int
    cluster: KafkaClusterView
    creates_topics: bool = False
    sign_in: KafkaSignIn | None = None
    fetches: ConnectionFetches | None = None


class Questions(NamedTuple):
    """Asks the node something; it is sent as many replies."""

    messages: Sequence[ProtoMessage]


class LongWork(NamedTuple):
    """Has something done beside all else; it is sent what that returns.

    Arguments:
        is_password: a password is hashed, perhaps a stranger's: that waits for others of its kind only.
        size_bytes: of what is kept in memory for it until it is done.
    """

    work: Callable[[], object]
    is_password: bool = False
    size_bytes: int = 0


#: A part of serving a request that comes to something.
Steps: TypeAlias = Generator[Questions | LongWork, object, T]


class RefusedAsAWholeError(Exception):
    """The node has refused a question as a whole: nothing can be answered."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class TooMuchWorkError(Exception):
    """So much waits to be worked on that this is not taken: what needs it is to be asked for again."""


class KafkaConnectionRefusedError(Exception):
    """A request cannot be answered in a way that the client understands: its connection has to end."""


def ask(message: ProtoMessage, kind: type[ReplyT]) -> Steps[ReplyT]:
    """Asks the node one thing.

    Raises:
        RefusedAsAWholeError: it does not answer that.
    """
    (reply,) = yield from ask_all((message,), kind)
    return reply


def ask_all(messages: Sequence[ProtoMessage], kind: type[ReplyT]) -> Steps[list[ReplyT]]:
    """Asks the node several things that do not depend on each other, so many at a time.

    Raises:
        RefusedAsAWholeError: it does not answer one of them.
        KafkaConnectionRefusedError: one of them is about more than a node takes at once.
    """
    found: list[ReplyT] = []
    for message in messages:
        _check_size(message)
    for begin in range(0, len(messages), MOST_QUESTIONS_AT_ONCE):
        replies = yield Questions(messages[begin : begin + MOST_QUESTIONS_AT_ONCE])
        for reply in cast("list[ProtoMessage]", replies):
            if isinstance(reply, Error):
                raise RefusedAsAWholeError(reply)
            assert isinstance(reply, kind), f"a {type(reply).__name__} is no {kind.__name__}"
            found.append(reply)
    return found


def hash_password(work: Callable[[], T]) -> Steps[T]:
    """Has a password hashed.

    Raises:
        KafkaConnectionRefusedError: too many others are.
    """
    done = yield LongWork(work, is_password=True)
    return cast("T", done)


def _check_size(message: ProtoMessage) -> None:
    for field, value in message.ListFields():
        if field.is_repeated and len(value) > MAX_ITEMS:
            raise KafkaConnectionRefusedError(
                f"{field.name} has {len(value)} items, at most {MAX_ITEMS} are taken: ask in parts"
            )


def work_on(work: Callable[[], T], size_bytes: int) -> Steps[T]:
    """Has something done that takes long.

    Arguments:
        size_bytes: of what is kept in memory for it until it is done.

    Raises:
        TooMuchWorkError: so much of that is kept already that this is not done.
    """
    done = yield LongWork(work, size_bytes=size_bytes)
    return cast("T", done)
