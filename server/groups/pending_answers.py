"""Answers that are due to clients: each given once, by its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.pending_calls import CallDeadlines, PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Makes the answer to a request that failed as a whole.
Failed = Callable[[errors_pb2.Error], ProtoMessage]
#: What waits here is bounded where the requests come in.
NO_LIMIT = 1 << 60


@dataclass(slots=True, frozen=True)
class _ExpectedAnswer:
    """A call, and what it is answered when it fails."""

    request_id: int
    deadline: int
    failed: Failed


class PendingAnswers:
    """The calls of clients that are not answered yet.

    Arguments:
        reply: answers a request.
    """

    def __init__(self, reply: Callable[[int, ProtoMessage], None]) -> None:
        self._reply = reply
        self._calls: PendingCalls[_ExpectedAnswer] = PendingCalls(NO_LIMIT)

    def expect(self, request_id: int, deadline: int, failed: Failed) -> None:
        """A call came that is to be answered by ``deadline`` (µs)."""
        self._calls.add(_ExpectedAnswer(request_id, deadline, failed))

    def give(self, request_id: int, answer: ProtoMessage) -> None:
        """Answers a call, unless its time was over before."""
        if self._calls.take(request_id) is not None:
            self._reply(request_id, answer)

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        """Answers a call with an error as a whole, unless its time was over before."""
        call = self._calls.take(request_id)
        if call is not None:
            self._reply(request_id, call.failed(problem))

    def is_expected(self, request_id: int) -> bool:
        """Whether somebody still waits for that answer."""
        return self._calls.get(request_id) is not None

    def forget(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._calls.take(request_id)

    def on_time(self, now: int) -> None:
        """Answers those whose time is over."""
        for call in self._calls.take_expired(now):
            late = "the coordinator could not do it in time, it may yet: look before you ask again"
            self._reply(call.request_id, call.failed(error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False)))

    @property
    def pending(self) -> CallDeadlines:
        """The calls that wait."""
        return self._calls
