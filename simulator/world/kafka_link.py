"""A connection of a Kafka client to a simulated node: the shipped connection and mapping, in virtual time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.client import KafkaClient
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header, unpack_response_header
from quorumlog.server.kafka.codec.primitives import KafkaMessage, decode, encode
from quorumlog.server.kafka.connection import (
    KafkaConnection,
    KafkaConnectionEnd,
    KafkaConnectionLimits,
    KafkaRequest,
)
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.handlers.fetch_session import FetchSessionSpace
from quorumlog.server.kafka.handlers.handler import LongWork
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler

_SIZE = struct.Struct(">i")
#: Duration of work on the worker thread (µs).
_WORK_US = 300


class SimKafkaLink:
    """One connection to one node.

    Arguments:
        name: name of the client, which identifies its origin for the cluster.
        on_answer: called when there are more answers.

    Attributes:
        answers: responses by the number of their request.
        begun: the started requests, in order.
    """

    def __init__(
        self,
        name: str,
        cluster: SimCluster,
        node: int,
        scheduler: Scheduler,
        *,
        creates_topics: bool = False,
        limits: KafkaConnectionLimits | None = None,
        fetch_sessions: FetchSessionSpace | None = None,
        on_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._on_answer = on_answer
        self._cluster = cluster
        self._node = node
        self._scheduler = scheduler
        cluster.clients.setdefault(name, RequestContext(name, listener=Listener.KAFKA))
        # A connection is one stream of requests; it ends with the node's process.
        self._stream = cluster.open_stream(node)
        self._numbers = count(1)
        self._abandoned: set[int] = set()
        self._asked: dict[int, tuple[type[KafkaMessage], int]] = {}
        self._received = bytearray()
        self.answers: dict[int, KafkaMessage] = {}
        self.begun: list[KafkaRequest] = []
        self.is_node_full = False
        self._client = KafkaClient(
            KafkaConnection(served_versions(), limits or KafkaConnectionLimits(), scheduler.now),
            self,
            ImageView(self, node).seen_by(self),
            creates_topics,
            lambda: scheduler.now,
            self._flush,
            fetch_sessions=fetch_sessions,
        )

    @property
    def image(self) -> MetadataImage | None:
        """The node's metadata image."""
        node = self._cluster.processes[self._node].node
        return None if node is None else node.image

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may see a topic at the node."""
        node = self._cluster.processes[self._node].node
        return node is not None and node.sees_topic(principal, name)

    @property
    def principal(self) -> str:
        """The client's principal."""
        return self._cluster.clients[self._name].principal

    @property
    def end(self) -> KafkaConnectionEnd | None:
        """The reason why the node has closed the connection, if it has."""
        return self._client.end

    @property
    def is_open(self) -> bool:
        """False once the node has ended the connection's stream."""
        return self._cluster.processes[self._node].has_stream(self._stream)

    def send(self, message: KafkaMessage, version: int) -> int:
        """Sends a request; returns its number."""
        number = next(self._numbers)
        api = APIS[message.API_KEY]
        head = RequestHead(message.API_KEY, version, number)
        header = pack_request_header(head, self._name, flexible=version >= message.FLEXIBLE_FROM)
        content = b"".join((header, *encode(message, version)))
        self._asked[number] = api.response, version
        self.send_bytes(_SIZE.pack(len(content)) + content)
        return number

    def send_bytes(self, data: bytes) -> None:
        """Sends arbitrary bytes."""
        self._client.receive(data)
        self._flush()

    def go_on(self) -> None:
        """Continues after the node may have room again."""
        self._client.go_on()
        self._flush()

    def close(self) -> None:
        """Closes the connection from the client's side."""
        self._client.gone()
        self._cluster.close_stream(self._name, self._node, self._stream)

    # -- interface of the connection to its node -------------------------------------------------------------------

    def has_room(self) -> bool:
        """True if the node accepts another request."""
        return not self.is_node_full

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[ProtoMessage], None]) -> int:
        """Passes a request to the node."""
        number = next(self._numbers)

        def answered(reply: ProtoMessage | Unanswered) -> None:
            if number not in self._abandoned and not isinstance(reply, Unanswered):
                on_reply(reply)

        self._cluster.request(self._name, self._node, message, answered, stream=self._stream)
        return number

    def abandon(self, number: int) -> None:
        """Drops the reply to a request."""
        self._abandoned.add(number)

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        """Runs long work outside of the connection's turn."""

        def carry_out() -> None:
            try:
                done = wanted.work()
            except Exception as problem:
                on_done(None, problem)
            else:
                on_done(done, None)

        self._scheduler.after(_WORK_US, carry_out)

    def count(self, request: KafkaRequest) -> None:
        """Counts a started request."""
        self.begun.append(request)

    def _flush(self) -> None:
        while output := self._client.take_output():
            self._received += b"".join(output)
            self._client.note_unsent(0)
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            frame = bytes(self._received[_SIZE.size : _SIZE.size + size])
            del self._received[: _SIZE.size + size]
            (number,) = _SIZE.unpack_from(frame)
            response, version = self._asked[number]
            _, at = unpack_response_header(frame, flexible=version >= response.FLEXIBLE_FROM)
            self.answers[number] = decode(response, frame, version, at=at)
            self._on_answer()
