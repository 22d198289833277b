"""Answers that are due to clients: each is sent once, by its deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Builds the response to a request that failed as a whole.
Failed = Callable[[errors_pb2.Error], ProtoMessage]
#: The number of calls is bounded where requests arrive.
NO_LIMIT = 1 << 60


@dataclass(slots=True, frozen=True)
class _ExpectedAnswer:
    """A call, and the response for its failure."""

    request_id: int
    deadline: int
    failed: Failed


class PendingAnswers:
    """The calls of clients that are not answered yet.

    Arguments:
        reply: answers a request.

    Attributes:
        pending: the calls that wait.
    """

    def __init__(self, reply: Callable[[int, ProtoMessage], None]) -> None:
        self._reply = reply
        self.pending: PendingCalls[_ExpectedAnswer] = PendingCalls(NO_LIMIT)

    def expect(self, request_id: int, deadline: int, failed: Failed) -> None:
        """Registers a call that must be answered by ``deadline`` (µs)."""
        self.pending.add(_ExpectedAnswer(request_id, deadline, failed))

    def give(self, request_id: int, answer: ProtoMessage) -> None:
        """Answers a call, unless its deadline passed before."""
        if self.pending.take(request_id) is not None:
            self._reply(request_id, answer)

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        """Answers a call with an error as a whole, unless its deadline passed before."""
        call = self.pending.take(request_id)
        if call is not None:
            self._reply(request_id, call.failed(problem))

    def is_expected(self, request_id: int) -> bool:
        """True if a client still waits for that answer."""
        return self.pending.get(request_id) is not None

    def forget(self, request_id: int) -> None:
        """Forgets a call whose client is gone."""
        self.pending.take(request_id)

    def on_time(self, now: int) -> None:
        """Answers the calls whose deadline has passed."""
        for call in self.pending.take_expired(now):
            late = "the coordinator did not complete it in time, but still may: check before you retry"
            self._reply(call.request_id, call.failed(error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False)))
