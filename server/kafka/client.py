"""A client that speaks Kafka's protocol: its connection, and its requests on their way through the node.

Sans I/O, like the connection: the caller has a socket or a simulation and delivers bytes and the node's replies.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.codec.primitives import Buffer, KafkaMessage, UnencodableMessageError
from quorumlog.server.kafka.connection import KafkaConnection, KafkaConnectionEnd, KafkaRequest
from quorumlog.server.kafka.handlers.dispatch import SERVED
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace
from quorumlog.server.kafka.handlers.handler import (
    KafkaCall,
    KafkaClusterView,
    KafkaConnectionRefusedError,
    LongWork,
    NodeReply,
    Questions,
    RefusedAsAWholeError,
    Steps,
)
from quorumlog.server.kafka.sign_in_state import KafkaSignIn


class KafkaClientNode(Protocol):
    """The node that serves a client."""

    def has_room(self) -> bool:
        """True if the node accepts another request."""

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[NodeReply], None]) -> int:
        """Submits a request and returns its number. ``on_reply`` is called once, later; never after ``abandon``."""

    def abandon(self, number: int) -> None:
        """Drops the reply to a request that was submitted."""

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        """Runs work outside of the node's event loop; ``on_done`` receives its result or its exception."""

    def count(self, request: KafkaRequest) -> None:
        """Counts a request whose processing has started."""


@dataclass(slots=True, eq=False)
class _RequestInProgress:
    """A request on its way through the node.

    Arguments:
        replies: to the messages that the node is processing; None for those that it has not answered.
        missing: number of replies that are still None.
    """

    request: KafkaRequest
    steps: Steps[KafkaMessage | None]
    blocks_pipeline: bool
    has_asked: bool = False
    replies: list[NodeReply | None] = field(default_factory=list)
    missing: int = 0


class KafkaClient:
    """One client, for the lifetime of its connection.

    Arguments:
        creates_topics: an unknown topic is created when the client mentions it.
        now_us: the clock of the connection.
        changed: called when the node has caused output, or has made it possible to read more.
        sign_in: state of SASL authentication, where clients authenticate on the connection.
        fetch_sessions: the limit shared by the fetch sessions of all connections; None: one for this connection.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        node: KafkaClientNode,
        cluster: KafkaClusterView,
        creates_topics: bool,
        now_us: Callable[[], int],
        changed: Callable[[], None],
        sign_in: KafkaSignIn | None = None,
        fetch_sessions: FetchSessionSpace | None = None,
    ) -> None:
        self._connection = connection
        self._node = node
        self._cluster = cluster
        self._creates_topics = creates_topics
        self._now_us = now_us
        self._changed = changed
        self._sign_in = sign_in
        self._fetches = ConnectionFetches(fetch_sessions or FetchSessionSpace())
        self._questions: dict[int, None] = {}
        #: The request behind which no other request may start.
        self._holding: _RequestInProgress | None = None
        #: Bytes were received but not parsed. Until then the client is still read, so that a disconnect is noticed.
        self._has_backlog = False
        self._is_paused = False
        self._is_gone = False

    @property
    def end(self) -> KafkaConnectionEnd | None:
        """The reason to close the connection; None while it is open."""
        return self._connection.end

    @property
    def reads_on(self) -> bool:
        """True if more should be read from the client."""
        return self._connection.reads_on and (self._may_begin or not self._has_backlog)

    @property
    def unfinished(self) -> tuple[int, int]:
        """Number of complete requests received, and of bytes received after the last of them."""
        return self._connection.unfinished

    @property
    def kept_bytes(self) -> int:
        """Bytes of responses that wait for an earlier response."""
        return self._connection.kept_bytes

    @property
    def waits_for_room(self) -> bool:
        """True if the caller must call ``go_on`` when the node has capacity for more requests."""
        return not self._node.has_room()

    def receive(self, data: Buffer) -> None:
        """Processes bytes received from the client."""
        self._connection.receive(data)
        self._has_backlog = not self._may_begin
        self.go_on()

    def go_on(self) -> None:
        """Starts received requests in order, until one has to wait."""
        while self._may_begin:
            request = self._connection.next_request(self._now_us())
            if request is None:
                return
            self._begin(request)

    def pause(self, is_paused: bool) -> None:
        """Stops starting requests while the client is over a quota, or resumes."""
        self._is_paused = is_paused
        self.go_on()

    def take_output(self) -> list[Buffer]:
        """Returns the bytes to send, in order."""
        return self._connection.take_output()

    def note_unsent(self, size_bytes: int) -> None:
        """Records how many of the bytes handed out have not been sent yet."""
        self._connection.note_unsent(size_bytes)
        self.go_on()

    def on_time(self) -> None:
        """Closes the connection of a client that was silent for too long."""
        self._connection.on_time(self._now_us())

    def gone(self) -> None:
        """Abandons all pending requests: the connection is closed."""
        self._is_gone = True
        self._fetches.end()
        for number in self._questions:
            self._node.abandon(number)
        self._questions.clear()

    @property
    def _may_begin(self) -> bool:
        return not self._is_gone and not self._is_paused and self._holding is None and self._node.has_room()

    # -- processing a request --------------------------------------------------------------------------------------

    def _begin(self, request: KafkaRequest) -> None:
        self._node.count(request)
        served = SERVED[request.api.request.API_KEY]
        call = KafkaCall(
            request.message, request.version, self._cluster, self._creates_topics, self._sign_in, self._fetches
        )
        conversation = _RequestInProgress(request, served.serve(call), served.blocks_pipeline)
        if served.blocks_pipeline:
            self._holding = conversation
        self._advance(conversation, partial(next, conversation.steps))

    def _advance(self, conversation: _RequestInProgress, step: Callable[[], Questions | LongWork]) -> None:
        request = conversation.request
        try:
            wanted = step()
        except StopIteration as done:
            self._answer(request, done.value)
            self._look_at_sign_in()
        except (RefusedAsAWholeError, KafkaConnectionRefusedError) as problem:
            self._connection.refuse(request, str(problem))
        except Exception as problem:  # A failure of one client's request must not affect the others.
            self._connection.fail(request, _described(problem))
        else:
            if isinstance(wanted, Questions):
                self._ask(conversation, wanted.messages)
            else:
                if not conversation.has_asked:
                    # Requests sent after this one must not reach the node before it.
                    self._holding = conversation
                self._node.work(wanted, partial(self._worked, conversation))
            return
        self._release(conversation)

    def _answer(self, request: KafkaRequest, response: KafkaMessage | None) -> None:
        try:
            self._connection.answer(request, response, self._now_us())
        except UnencodableMessageError as problem:
            self._connection.fail(request, str(problem))

    def _look_at_sign_in(self) -> None:
        if self._sign_in is None:
            return
        if self._sign_in.failure is not None:
            self._connection.distrust(self._sign_in.failure)
        elif self._sign_in.token:
            self._connection.trust()

    def _ask(self, conversation: _RequestInProgress, messages: Sequence[ProtoMessage]) -> None:
        conversation.replies = [None] * len(messages)
        conversation.missing = len(messages)
        for slot, message in enumerate(messages):
            self._ask_one(conversation, slot, message)
        conversation.has_asked = True
        if not conversation.blocks_pipeline:
            self._release(conversation)

    def _ask_one(self, conversation: _RequestInProgress, slot: int, message: ProtoMessage) -> None:
        def reply(answer: NodeReply) -> None:
            del self._questions[number]
            conversation.replies[slot] = answer
            conversation.missing -= 1
            if not conversation.missing:
                self._advance(conversation, partial(conversation.steps.send, conversation.replies))
                self._after()

        number = self._node.ask(message, conversation.request.client_id or "", reply)
        self._questions[number] = None

    def _worked(self, conversation: _RequestInProgress, result: object, problem: Exception | None) -> None:
        if self._is_gone:
            return
        steps = conversation.steps
        self._advance(conversation, partial(steps.send, result) if problem is None else partial(steps.throw, problem))
        self._after()

    def _release(self, conversation: _RequestInProgress) -> None:
        if self._holding is conversation:
            self._holding = None

    def _after(self) -> None:
        self.go_on()
        self._changed()


def _described(problem: Exception) -> str:
    frames = traceback.extract_tb(problem.__traceback__)[-3:]
    places = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(problem).__name__}: {problem}; in {places}"
