"""Steps: how a handler serves a request without I/O of its own.

A handler is a generator. It yields questions to the node and is sent the replies in that order, or it yields long work
and is sent the result. Its return value is the response. The first step runs when the request arrives, so requests
reach the node in the order in which clients sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.v1.data_plane_pb2 import FetchRequest, FetchResponse
from quorumlog.v1.errors_pb2 import Error
from quorumlog.wire.request_limits import MAX_ITEMS

T = TypeVar("T")
RequestT = TypeVar("RequestT", bound=KafkaMessage)
ReplyT = TypeVar("ReplyT", bound=ProtoMessage)

#: Questions of one request that the node processes at a time.
MOST_QUESTIONS_AT_ONCE = 64


class KafkaClusterView(Protocol):
    """The current cluster metadata, limited to what the client may see."""

    @property
    def node_id(self) -> int:
        """Id of the node that serves the client."""

    def topic_id(self, name: str) -> bytes | None:
        """Returns the id of a topic, or None if no topic has that name."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic, or None if no topic has that id."""

    @property
    def default_replicas(self) -> int:
        """Replication factor of a topic whose creator does not specify one."""

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        """Returns the overrides in a topic's configuration; None if the topic does not exist."""

    def topic_names(self) -> Iterable[str]:
        """Returns the names of all topics that the client may see."""

    def partition_count(self, name: str) -> int:
        """Returns the number of partitions of a topic; 0 if no topic has that name."""

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        """Returns host and port of a node's Kafka listener, or None if it has none."""


@dataclass(slots=True, frozen=True)
class KafkaCall(Generic[RequestT]):
    """A request to serve.

    Arguments:
        creates_topics: unknown topics are created when clients mention them.
        sign_in: state of the connection's authentication; None: clients do not authenticate with a password.
        fetches: the connection's fetch session; None: sessions are not supported.
    """

    message: RequestT
    version: int
    cluster: KafkaClusterView
    creates_topics: bool = False
    sign_in: KafkaSignIn | None = None
    fetches: ConnectionFetches | None = None


class FetchReply(NamedTuple):
    """The node's reply to a fetch.

    Arguments:
        told: the message without its entries: protobuf would copy each of them when it is added, and at every access.
        entries: the entries of each of its results, as stored.
    """

    told: FetchResponse
    entries: Sequence[Sequence[bytes]]


#: The node's reply to a question. Every reply is a message, except that to a fetch with entries.
NodeReply: TypeAlias = ProtoMessage | FetchReply


class Questions(NamedTuple):
    """A step that sends messages to the node; the handler is sent as many replies."""

    messages: Sequence[ProtoMessage]


class LongWork(NamedTuple):
    """A step that runs work on a worker thread; the handler is sent its result.

    Arguments:
        to_sign_in: the work is for an authentication, possibly of a stranger: it competes only with its kind.
        size_bytes: memory held until it is done.
    """

    work: Callable[[], object]
    to_sign_in: bool = False
    size_bytes: int = 0


#: A generator that serves a request, or a part of it, and returns a result.
Steps: TypeAlias = Generator[Questions | LongWork, object, T]


class RefusedAsAWholeError(Exception):
    """Raised if the node refuses a question as a whole, so that the request cannot be answered."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class TooMuchWorkError(Exception):
    """Raised if too much work is pending: the client has to retry what needs this work."""


class KafkaConnectionRefusedError(Exception):
    """Raised if no response would be understood by the client: its connection has to be closed."""


def ask(message: ProtoMessage, kind: type[ReplyT]) -> Steps[ReplyT]:
    """Asks the node one question.

    Raises:
        RefusedAsAWholeError: the node refuses it.
    """
    (reply,) = yield from ask_all((message,), kind)
    return reply


def ask_fetch(request: FetchRequest) -> Steps[FetchReply]:
    """Asks the node for records.

    Raises:
        RefusedAsAWholeError: the node refuses it.
        KafkaConnectionRefusedError: it names more partitions than a node accepts.
    """
    _check_size(request)
    (reply,) = cast("list[NodeReply]", (yield Questions((request,))))
    if isinstance(reply, Error):
        raise RefusedAsAWholeError(reply)
    if isinstance(reply, FetchReply):
        return reply
    assert isinstance(reply, FetchResponse), f"a {type(reply).__name__} is not a FetchResponse"
    return FetchReply(reply, [result.entries for result in reply.results])


def ask_all(messages: Sequence[ProtoMessage], kind: type[ReplyT]) -> Steps[list[ReplyT]]:
    """Asks the node several independent questions, with a limit on those in flight.

    Raises:
        RefusedAsAWholeError: the node refuses one of them.
        KafkaConnectionRefusedError: one of them has more items than a node accepts.
    """
    collected: list[ReplyT] = []
    for message in messages:
        _check_size(message)
    for begin in range(0, len(messages), MOST_QUESTIONS_AT_ONCE):
        replies = yield Questions(messages[begin : begin + MOST_QUESTIONS_AT_ONCE])
        for reply in cast("list[ProtoMessage]", replies):
            if isinstance(reply, Error):
                raise RefusedAsAWholeError(reply)
            assert isinstance(reply, kind), f"a {type(reply).__name__} is not a {kind.__name__}"
            collected.append(reply)
    return collected


def work_to_sign_in(work: Callable[[], T]) -> Steps[T]:
    """Hashes a password, or reads the keys for tokens, on a worker thread.

    Raises:
        KafkaConnectionRefusedError: too many clients wait for that.
    """
    done = yield LongWork(work, to_sign_in=True)
    return cast("T", done)


def _check_size(message: ProtoMessage) -> None:
    for field, value in message.ListFields():
        if field.is_repeated and len(value) > MAX_ITEMS:
            raise KafkaConnectionRefusedError(
                f"{field.name} has {len(value)} items, the maximum is {MAX_ITEMS}: split the request"
            )


def work_on(work: Callable[[], T], size_bytes: int) -> Steps[T]:
    """Runs long work on a worker thread.

    Arguments:
        size_bytes: memory held until it is done.

    Raises:
        TooMuchWorkError: too much memory is held by pending work.
    """
    done = yield LongWork(work, size_bytes=size_bytes)
    return cast("T", done)
