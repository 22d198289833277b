"""A client of Kafka's protocol: its connection, and its requests on their way through the node.

Sans I/O, as the connection is: whoever has a socket or a simulation brings bytes and the node's replies.
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
    Questions,
    RefusedAsAWholeError,
    Steps,
)
from quorumlog.server.kafka.sign_in_state import KafkaSignIn


class KafkaClientNode(Protocol):
    """The node behind a client."""

    def has_room(self) -> bool:
        """Whether it takes another request."""

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[ProtoMessage], None]) -> int:
        """Asks it something; the reply comes later, once, or never after ``abandon``. Returns the question's number."""

    def abandon(self, number: int) -> None:
        """Nobody waits for that reply any more."""

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        """Has something done beside all else; what it returned or raised comes later."""

    def count(self, request: KafkaRequest) -> None:
        """Takes note of a request that was begun."""


@dataclass(slots=True, eq=False)
class _RequestInProgress:
    """A request on its way through the node.

    Arguments:
        replies: to the questions that are with the node; None for those that have none yet.
        missing: how many have none.
    """

    request: KafkaRequest
    steps: Steps[KafkaMessage | None]
    blocks_pipeline: bool
    has_asked: bool = False
    replies: list[ProtoMessage | None] = field(default_factory=list)
    missing: int = 0


class KafkaClient:
    """One client, as long as its connection goes on.

    Arguments:
        creates_topics: unknown topics are created when it mentions them.
        now_us: the clock of the connection.
        changed: is called when there is something to send, or more may be read, because of the node.
        sign_in: by which the node knows who asks, where clients sign in on the connection.
        fetch_sessions: what those of all connections keep; None: of this one alone.
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
        #: The request behind which nothing is begun.
        self._holding: _RequestInProgress | None = None
        #: Bytes came that nobody has looked at. Until then the client is read, so that its end is noticed.
        self._has_backlog = False
        self._is_paused = False
        self._is_gone = False

    @property
    def end(self) -> KafkaConnectionEnd | None:
        """Why the connection has to be closed; None while it goes on."""
        return self._connection.end

    @property
    def reads_on(self) -> bool:
        """Whether more should be read from the client."""
        return self._connection.reads_on and (self._may_begin or not self._has_backlog)

    @property
    def unfinished(self) -> tuple[int, int]:
        """How many requests have come as a whole, and bytes that have come behind them."""
        return self._connection.unfinished

    @property
    def kept_bytes(self) -> int:
        """Bytes of answers that wait for one before them."""
        return self._connection.kept_bytes

    @property
    def waits_for_room(self) -> bool:
        """Whether ``go_on`` is to be called once the node has fewer requests."""
        return not self._node.has_room()

    def receive(self, data: Buffer) -> None:
        """Takes bytes as they come from the client."""
        self._connection.receive(data)
        self._has_backlog = not self._may_begin
        self.go_on()

    def go_on(self) -> None:
        """Begins the requests that are there, in their order, as far as they may begin."""
        while self._may_begin:
            request = self._connection.next_request(self._now_us())
            if request is None:
                return
            self._begin(request)

    def pause(self, is_paused: bool) -> None:
        """The client is over a quota: nothing is begun; or it may go on."""
        self._is_paused = is_paused
        self.go_on()

    def take_output(self) -> list[Buffer]:
        """What is to be sent now, in this order."""
        return self._connection.take_output()

    def note_unsent(self, size_bytes: int) -> None:
        """Takes note of how many of the bytes that were handed out have not left."""
        self._connection.note_unsent(size_bytes)
        self.go_on()

    def on_time(self) -> None:
        """Ends the connection of a client that was silent for too long."""
        self._connection.on_time(self._now_us())

    def gone(self) -> None:
        """The connection is no more: nobody waits for anything."""
        self._is_gone = True
        self._fetches.end()
        for number in self._questions:
            self._node.abandon(number)
        self._questions.clear()

    @property
    def _may_begin(self) -> bool:
        return not self._is_gone and not self._is_paused and self._holding is None and self._node.has_room()

    # -- a request's way ------------------------------------------------------------------------------------------

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
        except Exception as problem:  # What one client's request meets is not the end of all others'.
            self._connection.fail(request, _described(problem))
        else:
            if isinstance(wanted, Questions):
                self._ask(conversation, wanted.messages)
            else:
                if not conversation.has_asked:
                    # What was sent behind it must not reach the node before it.
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
        def reply(answer: ProtoMessage) -> None:
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
