"""Changes that the controller makes, and whose responses wait until this node's own image contains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.controller_client import ControllerClient, failure_of
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.requests.forwarding import FORWARDINGS
from quorumlog.server.step.pending_calls import CallDeadlines, PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@dataclass(slots=True, frozen=True)
class ForwardedChange:
    """A change that a client requests.

    Arguments:
        deadline: by the node's clock (µs).
        principal: the client's principal.
        request: of a type in ``FORWARDINGS``.
    """

    request_id: int
    deadline: int
    principal: str
    request: ProtoMessage


@dataclass(slots=True, frozen=True)
class _Made:
    """A committed change. ``index`` is the metadata index that the image must have applied."""

    request_id: int
    deadline: int
    index: int
    answer: Callable[[], None]


class ReadYourWrites:
    """Answers changes once a client's next request to this node sees their effect.

    Arguments:
        current: holds this node's image.
        controller: makes the changes.
        limit: maximum number of changes that may wait.
    """

    def __init__(self, current: CurrentImage, controller: ControllerClient, limit: int) -> None:
        self._current = current
        self._controller = controller
        self._made: PendingCalls[_Made] = PendingCalls(limit)

    def ask(
        self,
        change: ForwardedChange,
        answer: Callable[[ProtoMessage], None],
        failed: Callable[[errors_pb2.Error], ProtoMessage],
    ) -> None:
        """Forwards a change to the controller.

        Arguments:
            answer: receives the controller's answer when the image contains the change, or at the deadline. The change
                is committed in both cases.
            failed: builds the response to a change that failed.
        """
        forwarding = FORWARDINGS[type(change.request)]

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            made = None if response is None else forwarding.unpack(response)
            if response is None or made is None:
                answer(failed(failure_of(response)))
                return
            shown = _Made(change.request_id, change.deadline, response.applied_index, lambda: answer(made))
            self._made.add(shown)
            self.on_applied()

        if self._made.full:
            busy = error(ErrorCode.SERVER_BUSY, "too many changes at once; try again after a pause")
            answer(failed(busy))
            return
        self._controller.ask(change.deadline, forwarding.pack(change.principal, change.request), answered)

    def on_applied(self) -> None:
        """Answers the changes that the image contains after the latest commands."""
        if not self._made:
            return
        applied = self._current.image.applied_index
        for each in self._made:
            if each.index <= applied:
                self._made.take(each.request_id)
                each.answer()

    def on_time(self, now: int) -> None:
        """Answers changes that are committed, but that this node's image did not contain before their deadline."""
        for each in self._made.take_expired(now):
            each.answer()

    @property
    def pending(self) -> CallDeadlines:
        """The changes that wait."""
        return self._made
