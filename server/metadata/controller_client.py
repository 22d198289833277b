"""Requests from this node to the active controller, wherever it is, and to leaders: each bounded and answered once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from quorumlog.raft.types import NO_NODE
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

OnAnswer = Callable[[peer_pb2.ControllerResponse | None], None]


@dataclass(slots=True, frozen=True)
class _AskedController:
    """A request to another node, and who waits for its answer."""

    request_id: int
    deadline: int
    on_answer: OnAnswer


class ControllerRoute(Protocol):
    """The way to the active controller, and to any other node."""

    def controller_id(self) -> int:
        """Who leads the metadata group as far as this node knows; NO_NODE when it knows of nobody."""

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        """Gives a request to a node; False when it cannot be reached."""


class ControllerClient:
    """Asks the active controller, or another node that it is told.

    Arguments:
        limit: requests that may wait for an answer.
        first_id: requests are numbered from behind it. Random, of this process: what its predecessor asked may be
            answered to this one, and the registration of one that is gone must not be taken for its own.
    """

    def __init__(self, route: ControllerRoute, limit: int, first_id: int) -> None:
        self._route = route
        self._next_id = first_id
        self._waiting: PendingCalls[_AskedController] = PendingCalls(limit)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.calls(self._waiting)

    def ask(
        self, deadline: int, request: peer_pb2.ControllerRequest, on_answer: OnAnswer, to: int | None = None
    ) -> None:
        """Sends a request, to the controller unless ``to`` is given.

        ``on_answer`` is called once: with the answer, or with None when there was nobody to ask or no answer came
        before ``deadline`` (microseconds); then it is not known whether the request took effect.
        """
        target = self._route.controller_id() if to is None else to
        if target == NO_NODE or self._waiting.full:
            on_answer(None)
            return
        self._next_id += 1
        request.request_id = self._next_id
        self._waiting.add(_AskedController(request.request_id, deadline, on_answer))
        if not self._route.send(target, request):
            self.on_response(peer_pb2.ControllerResponse(request_id=request.request_id), lost=True)

    def on_response(self, response: peer_pb2.ControllerResponse, *, lost: bool = False) -> None:
        """An answer came. Answers to requests that are no longer waited for are dropped."""
        question = self._waiting.take(response.request_id)
        if question is not None:
            question.on_answer(None if lost else response)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Gives up the requests whose time is over."""
        for question in self._waiting.take_expired(now):
            question.on_answer(None)


def failure_of(response: peer_pb2.ControllerResponse | None) -> errors_pb2.Error:
    """What a client is told when the controller refused its request as a whole, or did not answer it."""
    if response is not None and response.HasField("error"):
        return response.error
    return error(
        ErrorCode.REQUEST_TIMED_OUT,
        "the active controller did not answer; check that a majority of the controllers is up and try again",
        definite=False,
    )
