"""Linearizable reads of the metadata, from any node.

The node asks the controller for a read index of the metadata group and answers from its own image once that has applied
it. The controller returns its commit index, once a quorum has confirmed that it was the leader when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Delay before the controller is asked again after a failure, and time to wait for its response (µs).
RETRY_US = 50_000
ATTEMPT_US = 500_000

Respond = Callable[[peer_pb2.ControllerResponse], None]
#: Called with None once the image is as new as the request, or with the error if that fails.
OnRead = Callable[[errors_pb2.Error | None], None]


@dataclass(slots=True)
class _ReadIndexQuestion:
    """A read that waits here. ``index`` is the index that the image must have applied; None until the controller has
    returned it."""

    request_id: int
    deadline: int
    done: OnRead
    asked: bool = False
    index: int | None = None


@dataclass(slots=True, frozen=True)
class _Confirmation:
    """A read index that waits until a quorum has answered ``heartbeat``.

    ``asked_as`` is the number that the requesting node has given to its request.
    """

    request_id: int
    deadline: int
    respond: Respond
    asked_as: int
    term: int
    heartbeat: int
    index: int


class MetadataReads:
    """Both sides of linearizable reads of the metadata: asking the controller, and answering as the controller.

    Arguments:
        metadata: this node's replica of the metadata group.
        rounds: rounds of heartbeats, shared with other reads.
    """

    def __init__(
        self, options: NodeOptions, metadata: MetadataReplica, client: ControllerClient, rounds: HeartbeatRounds
    ) -> None:
        self._metadata = metadata
        self._client = client
        self._rounds = rounds
        limit = options.limits.controller_requests
        self._numbers = count()
        self._questions: PendingCalls[_ReadIndexQuestion] = PendingCalls(limit)
        self._asking = False
        self._ask_at = 0
        self._confirmations: PendingCalls[_Confirmation] = PendingCalls(limit)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.after_events(self.after_events)
        hooks.deadline(self)
        hooks.calls(self._confirmations, self._questions)

    # -- any node ---------------------------------------------------------------------------------------------

    def read(self, now: int, timeout_ms: int, done: OnRead) -> None:
        """Calls ``done`` once this node's image contains everything committed before the call, or with an error after
        the timeout."""
        if self._questions.full:
            done(error(ErrorCode.SERVER_BUSY, "too many linearizable reads at once; try again after a pause"))
        else:
            self._questions.add(_ReadIndexQuestion(next(self._numbers), now + wait_us(timeout_ms), done))

    def _ask(self, now: int) -> None:
        """Asks the controller once for all reads that arrived since it was last asked.

        A request already under way may return an index from before they arrived, so it does not count for them.
        """
        batch = [question for question in self._questions if not question.asked]
        if self._asking or not batch or now < self._ask_at:
            return
        self._asking = True
        for question in batch:
            question.asked = True

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            self._asking = False
            failed = response is None or not response.HasField("metadata_read_index")
            for question in batch:
                question.asked = not failed
                question.index = None if response is None or failed else response.metadata_read_index.index
            if failed:
                self._ask_at = now + RETRY_US

        body = peer_pb2.MetadataReadIndex(timeout_ms=ATTEMPT_US // 1000)
        self._client.ask(now + ATTEMPT_US, peer_pb2.ControllerRequest(metadata_read_index=body), answered)

    def _finish(self) -> None:
        applied = self._metadata.image.applied_index
        for question in self._questions:
            if question.index is not None and question.index <= applied:
                self._questions.take(question.request_id)
                question.done(None)

    # -- the controller ---------------------------------------------------------------------------------------

    def serve(self, now: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Returns the commit index of the metadata group, once a quorum has confirmed that this node leads it."""
        raft = self._metadata.raft
        heartbeat = None
        # Before a leader has committed an entry of its term, it has no reliable commit index (raft.md 15).
        if raft.leads_committed and not self._confirmations.full:
            unhurried = request.metadata_read_index.unhurried
            # A heartbeat already sent may have been answered before the request arrived: only the next one confirms it.
            heartbeat = raft.newest_round + 1 if unhurried else self._rounds.begin(now, METADATA_GROUP)
        if heartbeat is None:
            respond(self._not_controller(request.request_id))
            return
        deadline = now + wait_us(request.metadata_read_index.timeout_ms)
        number, asked_as = next(self._numbers), request.request_id
        self._confirmations.add(
            _Confirmation(number, deadline, respond, asked_as, raft.term, heartbeat, raft.commit_index)
        )
        self._confirm()

    def _confirm(self) -> None:
        raft = self._metadata.raft
        for each in self._confirmations:
            if not raft.is_leader or raft.term != each.term:
                answer = self._not_controller(each.asked_as)
            elif raft.confirmed_round >= each.heartbeat:
                index = peer_pb2.MetadataReadIndexResponse(index=each.index)
                answer = peer_pb2.ControllerResponse(request_id=each.asked_as, metadata_read_index=index)
            else:
                continue
            self._confirmations.take(each.request_id)
            each.respond(answer)

    def _not_controller(self, request_id: int) -> peer_pb2.ControllerResponse:
        raft = self._metadata.raft
        problem = error(
            ErrorCode.NOT_CONTROLLER,
            "this node does not lead the metadata group, or cannot confirm it; retry",
            leader=raft.leader_id,
            leader_epoch=raft.term,
        )
        return peer_pb2.ControllerResponse(request_id=request_id, error=problem)

    # -- both -------------------------------------------------------------------------------------------------

    def after_round(self) -> None:
        """Completes reads after a step of the metadata group, which may have confirmed or applied their indexes."""
        if self._confirmations:
            self._confirm()
        if self._questions:
            self._finish()

    def after_events(self, now: int, wall_ms: int) -> None:
        """Asks for the reads that arrived in this step or must be retried, and fails those whose deadline has
        passed."""
        if not self._questions.deadlines and not self._confirmations.deadlines:
            return
        for _ in self._confirmations.take_expired(now):
            pass  # The requesting node has timed out too.
        for question in self._questions.take_expired(now):
            question.done(
                error(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "no controller confirmed a read index of the metadata in time; retry, or read without linearizable",
                )
            )
        if self._questions:
            self._ask(now)
            self._finish()

    @property
    def next_deadline(self) -> int | None:
        """Time at which the controller must be asked again; None if no read needs it."""
        if not self._asking and self._questions and any(not question.asked for question in self._questions):
            return self._ask_at
        return None
