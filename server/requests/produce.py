"""Produce requests: batches are appended (`batch_appends`), and answered when the acks of each are satisfied.

A refused batch of a request without a response (``acks=0``) is logged for the operator, because no client learns of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.acknowledgements import ACKS_NONE, ProduceCall
from quorumlog.server.partition.batch_admission import check_acks, check_request_size
from quorumlog.server.requests.batch_appends import AppendConditions, BatchAppends, ProducedBatch
from quorumlog.server.requests.produce_traces import DUPLICATE, ProduceTraces
from quorumlog.server.step.deadlines import MAX_WAIT_US
from quorumlog.server.step.events import ClientRequest, EventLog
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Minimum time between two log lines about unanswered refusals for the same reason (µs).
TELL_EVERY_US = 60_000_000


@dataclass(slots=True)
class _Reason:
    quiet_until: int = 0
    untold: int = 0


class SilentRefusals:
    """Logs refusals for which no client gets a response: the first of each reason immediately, further ones
    together."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._reasons: dict[int, _Reason] = {}

    def note(self, now: int, problem: errors_pb2.Error) -> None:
        """Counts a refused batch, and logs it unless its reason was logged recently."""
        reason = self._reasons.setdefault(problem.code, _Reason())
        reason.untold += 1
        if now < reason.quiet_until:
            return
        self._log(
            "warning",
            "unanswered_produce_refused",
            error=errors_pb2.ErrorCode.Name(problem.code),
            batches=reason.untold,
            reason=problem.message,
        )
        reason.untold, reason.quiet_until = 0, now + TELL_EVERY_US


class ProduceRequests:
    """Serves produce requests from the partitions that this node leads.

    Attributes:
        traces: the batches that clients requested to trace.
    """

    def __init__(
        self,
        appends: BatchAppends,
        limits: NodeLimits,
        conditions: AppendConditions,
        replies: Replies,
        silent: SilentRefusals,
        traces: ProduceTraces,
    ) -> None:
        self.traces = traces
        self._appends = appends
        self._limits = limits
        self._conditions = conditions
        self._replies = replies
        self._silent = silent
        self._calls: PendingCalls[ProduceCall] = PendingCalls(limits.pending_produces)

    def __len__(self) -> int:
        """Returns the number of requests that wait."""
        return len(self._calls)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(data_plane_pb2.ProduceRequest, self.produce, self.refuse_overdue, moves_deadlines=False)
        hooks.on_time(self.on_time)
        hooks.client_gone(self.client_gone)
        hooks.calls(self._calls)

    def limit_requests(self, size_bytes: int) -> None:
        """Changes the maximum size of the batches in a request, of clients other than Kafka's."""
        self._limits = replace(self._limits, request_bytes=size_bytes)

    def produce(self, time: StepTime, asked: ClientRequest, request: data_plane_pb2.ProduceRequest) -> None:
        """Appends a request's batches and answers when the acks of each are satisfied."""
        response = data_plane_pb2.ProduceResponse(correlation_id=request.correlation_id)
        slots = range(len(request.batches))
        deadline = time.now + min(request.timeout_ms * 1000, MAX_WAIT_US)
        call = ProduceCall(asked.request_id, response, deadline, len(slots), set(slots))
        for batch in request.batches:
            response.results.add(topic_id=batch.topic_id, partition=batch.partition)
        # Each access to a field of bytes copies them.
        entries = [batch.batch for batch in request.batches]
        refusal = self._refuse_all(request, sum(map(len, entries)), asked.client)
        for slot, batch in enumerate(request.batches):
            if refusal is None:
                produced = ProducedBatch(asked, request, batch, entries[slot], call, slot)
                problem = self._appends.append(time, produced, self.finish)
                traced = request.trace and not request.transactional_id
                if problem is None and traced and request.acks != ACKS_NONE:
                    self._trace(produced)
            else:
                problem = self._appends.refuse(time.now, batch, refusal, call, slot)
            if problem is not None and request.acks == ACKS_NONE:
                self._silent.note(time.now, problem)
        if request.acks == ACKS_NONE:
            return
        if call.done:
            self._replies.reply(asked.request_id, response)
        else:
            self._calls.add(call)

    def _refuse_all(
        self, request: data_plane_pb2.ProduceRequest, size_bytes: int, client: RequestContext
    ) -> errors_pb2.Error | None:
        limits = self._limits
        most = limits.kafka_request_bytes if client.listener is Listener.KAFKA else limits.request_bytes
        invalid = check_acks(request.acks) or check_request_size(size_bytes, most)
        if invalid is not None:
            return invalid
        if request.transactional_id and (refused := self._appends.refuse_transaction(client, request.transactional_id)):
            return refused
        if self._calls.full:
            return error(
                ErrorCode.SERVER_BUSY, f"{len(self._calls)} produce requests wait here already; try again after a pause"
            )
        return self._conditions.refusal()

    def _trace(self, produced: ProducedBatch) -> None:
        if produced.appended_to is None:
            produced.call.response.trace.untraced = DUPLICATE
        else:
            self.traces.begin(produced.asked, produced.request, produced.call, produced.appended_to)

    def refuse_overdue(self, time: StepTime, asked: ClientRequest, problem: errors_pb2.Error) -> None:
        """Refuses a request that has waited too long for its quota; with ``acks=0`` the refusal is only logged."""
        assert isinstance(asked.message, data_plane_pb2.ProduceRequest)
        for batch in asked.message.batches:
            self._appends.refused.refused(time.now, batch, problem)
        response = failed_produce(asked.message, problem)
        if response is not None:
            self._replies.reply(asked.request_id, response)
        else:
            self._silent.note(time.now, problem)

    def finish(self, calls: list[ProduceCall]) -> None:
        """Answers the calls, of which every slot is filled."""
        for call in calls:
            # A call that timed out has been answered already, while its batches still wait in their partitions.
            if self._calls.take(call.request_id) is not None:
                self._answer(call)

    def _answer(self, call: ProduceCall) -> None:
        if self.traces.by_request:
            self.traces.answered(call.request_id)
        self._replies.reply(call.request_id, call.response)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Answers the calls whose deadline has passed."""
        for call in self._calls.take_expired(now):
            call.time_out()
            self._answer(call)

    def client_gone(self, request_id: int) -> None:
        call = self._calls.take(request_id)
        if call is not None:
            call.abandon()
            self.traces.forget(request_id)


def failed_produce(
    request: data_plane_pb2.ProduceRequest, problem: errors_pb2.Error
) -> data_plane_pb2.ProduceResponse | None:
    """Returns the response to a request that failed as a whole; None with ``acks=0``."""
    response = data_plane_pb2.ProduceResponse(correlation_id=request.correlation_id)
    for batch in request.batches:
        response.results.add(topic_id=batch.topic_id, partition=batch.partition, error=problem, base_offset=-1)
    return response if request.acks else None
