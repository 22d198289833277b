"""Answers that are due to clients: each given once, by its time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Makes the answer to a request that failed as a whole.
Failed = Callable[[errors_pb2.Error], ProtoMessage]


class PendingAnswers:
    """The calls of clients that are not answered yet.

    Arguments:
        reply: answers a request.
    """

    def __init__(self, reply: Callable[[int, ProtoMessage], None]) -> None:
        self._reply = reply
        self._failed: dict[int, Failed] = {}
        self._deadlines: list[tuple[int, int]] = []

    def expect(self, request_id: int, deadline: int, failed: Failed) -> None:
        """A call came that is to be answered by ``deadline`` (µs)."""
        self._failed[request_id] = failed
        heapq.heappush(self._deadlines, (deadline, request_id))

    def give(self, request_id: int, answer: ProtoMessage) -> None:
        """Answers a call, unless its time was over before."""
        if self._failed.pop(request_id, None) is not None:
            self._reply(request_id, answer)

    def fail(self, request_id: int, problem: errors_pb2.Error) -> None:
        """Answers a call with an error as a whole, unless its time was over before."""
        failed = self._failed.pop(request_id, None)
        if failed is not None:
            self._reply(request_id, failed(problem))

    def forget(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._failed.pop(request_id, None)

    def on_time(self, now: int) -> None:
        """Answers those whose time is over."""
        while self._deadlines and self._deadlines[0][0] <= now:
            late = "the coordinator could not do it in time, it may yet: look before you ask again"
            self.fail(heapq.heappop(self._deadlines)[1], error(ErrorCode.REQUEST_TIMED_OUT, late, definite=False))

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        while self._deadlines and self._deadlines[0][1] not in self._failed:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
