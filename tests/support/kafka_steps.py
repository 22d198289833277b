"""Serves requests of Kafka's protocol by the mapping alone: what the node is asked, and what the client is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.kafka.codec.primitives import KafkaMessage
from quorumlog.server.kafka.handlers.dispatch import SERVED
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches
from quorumlog.server.kafka.handlers.handler import (
    KafkaCall,
    KafkaConnectionRefusedError,
    Questions,
    RefusedAsAWholeError,
)
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import CorruptEntryError

#: Topics that a node has, by name.
TOPIC_IDS = {name: bytes([number]) * 16 for number, name in enumerate(("t", "u"), start=1)}

#: What a node replies to a question; None: an error that refuses the question as a whole.
Reply = Callable[[Any], ProtoMessage | None]


class FixedView:
    """A cluster that never changes."""

    node_id = 1
    default_replicas = 3

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_IDS.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, each in TOPIC_IDS.items() if each == topic_id), None)

    def topic_configs(self, name: str) -> Mapping[str, str] | None:
        return {} if name in TOPIC_IDS else None

    def topic_names(self) -> Iterable[str]:
        return TOPIC_IDS

    def partition_count(self, name: str) -> int:
        return 3 if name in TOPIC_IDS else 0

    def kafka_address(self, node_id: int) -> tuple[str, int] | None:
        return f"node-{node_id}", 9092


class Served(NamedTuple):
    """The outcome of a request.

    Arguments:
        questions: to the node, in order.
        answer: None where the node or the connection refused it.
        refusal: why.
    """

    questions: list[Any]
    answer: Any
    refusal: str = ""


def refuse_all(question: ProtoMessage) -> None:
    """A node that answers nothing."""


def serve(
    message: KafkaMessage,
    version: int,
    reply: Reply = refuse_all,
    *,
    fetches: ConnectionFetches | None = None,
    creates_topics: bool = False,
    most: int = 1_000,
) -> Served:
    """Serves one request to its end, or to so many questions."""
    call = KafkaCall(message, version, FixedView(), creates_topics=creates_topics, fetches=fetches)
    steps = SERVED[message.API_KEY].serve(call)
    questions: list[ProtoMessage] = []
    given: Any = None
    failed: CorruptEntryError | None = None
    try:
        while True:
            step = steps.send(given) if failed is None else steps.throw(failed)
            failed = None
            if not isinstance(step, Questions):
                try:
                    given = step.work()
                except CorruptEntryError as problem:
                    failed = problem
                continue
            # Copies: what is asked again is made of what was asked.
            questions += (type(each).FromString(each.SerializeToString()) for each in step.messages)
            error = errors_pb2.Error(code=ErrorCode.SERVER_BUSY, message="no reply")
            if len(questions) > most:
                return Served(questions, None, "it asks on and on")
            given = [error if (each := reply(question)) is None else each for question in step.messages]
    except StopIteration as end:
        return Served(questions, end.value)
    except (RefusedAsAWholeError, KafkaConnectionRefusedError) as problem:
        return Served(questions, None, f"{type(problem).__name__}: {problem}")
