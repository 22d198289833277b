"""Requests from this node to the active controller, or to leaders: each is bounded and answered once."""

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
    """A request to another node, and the callback for its answer."""

    request_id: int
    deadline: int
    on_answer: OnAnswer


class ControllerRoute(Protocol):
    """The connection to the active controller and to any other node."""

    def controller_id(self) -> int:
        """Returns the leader of the metadata group according to this node; NO_NODE if it has none."""

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        """Sends a request to a node; False if the node cannot be reached."""


class ControllerClient:
    """Sends requests to the active controller, or to a given node.

    Arguments:
        limit: maximum number of pending requests.
        first_id: requests are numbered after this. It is random for each process: answers to the previous process's
            requests may still arrive, and the registration of a process that has ended must not be taken for this
            one's.
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

        ``on_answer`` is called once: with the answer, or with None if no node could be asked or no answer came before
        ``deadline`` (microseconds); then it is not known whether the request took effect.
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
        """Handles an answer. Answers to requests that are no longer pending are dropped."""
        question = self._waiting.take(response.request_id)
        if question is not None:
            question.on_answer(None if lost else response)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Fails the requests whose deadline has passed."""
        for question in self._waiting.take_expired(now):
            question.on_answer(None)


def failure_of(response: peer_pb2.ControllerResponse | None) -> errors_pb2.Error:
    """Returns the error for a client whose request the controller refused as a whole, or did not answer."""
    if response is not None and response.HasField("error"):
        return response.error
    return error(
        ErrorCode.REQUEST_TIMED_OUT,
        "the active controller did not answer; check that a majority of the controllers is up and try again",
        definite=False,
    )
