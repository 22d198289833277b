"""Latencies of clients' requests by stage, and their errors by request, for metrics.

A request that is answered passes five stages, which add up to its latency:

- *queue*: until the node's step that accepts it starts;
- *append*: that step. It is shared by all requests that arrived in the meantime;
- *fsync*: until the node's own disk has synced what the step appended. The followers write at the same time;
- *replication*: the rest of the time until the answer is ready. For Produce, the wait for a majority; for Fetch, for
  records;
- *answer*: until gRPC has accepted the answer, which is when the connection has capacity for it.

This is Kafka's division of a request's latency (queue, local, remote, response), with the wait for the disk separate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.observability.metrics import Histogram
from quorumlog.v1.data_plane_pb2 import ProduceRequest, ProduceResponse
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: Upper bounds of the histograms' buckets, in seconds: from requests that are answered immediately to timeouts.
REQUEST_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STAGES = ("queue", "append", "fsync", "replication", "answer")
#: Answered requests may wait for a transaction that never comes; beyond this number they are removed.
_MOST_UNSYNCED = 1_000


@dataclass(slots=True, eq=False)
class RequestTrace:
    """Times at which a request reached each stage, in seconds of the clock; 0: it has not."""

    kind: str
    came_s: float
    begun_s: float = 0.0
    stepped_s: float = 0.0
    synced_s: float = 0.0
    answered_s: float = 0.0
    is_over: bool = False


class RequestTimes:
    """Traces of the requests in progress, and histograms of those answered.

    Arguments:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._traces: dict[int, RequestTrace] = {}
        self._queued: list[RequestTrace] = []
        self._unsynced: list[RequestTrace] = []
        self._syncing: list[RequestTrace] = []
        #: From arrival to the end of the answer, by request.
        self.seconds: dict[str, Histogram] = {}
        #: Of Produce, by stage.
        self.stages = {stage: Histogram(REQUEST_BUCKETS_S) for stage in STAGES}
        #: By request and name of the error.
        self.errors: Counter[tuple[str, str]] = Counter()

    # -- stages of a request ---------------------------------------------------------------------------------------

    def came(self, number: int, request: ProtoMessage) -> None:
        """Records that a request was submitted to the node."""
        trace = self._traces[number] = RequestTrace(_name_of(request), self._clock())
        self._queued.append(trace)

    def step_begins(self) -> list[RequestTrace]:
        """Records that a step starts; returns the requests that it accepts, for ``step_ends``."""
        taken, self._queued = self._queued, []
        if taken:
            now_s = self._clock()
            for trace in taken:
                trace.begun_s = now_s
        return taken

    def step_ends(self, taken: list[RequestTrace], writes: bool) -> None:
        """Records that a step has finished.

        Arguments:
            writes: the step has started a transaction: it has everything that was appended so far.
        """
        if taken:
            now_s = self._clock()
            for trace in taken:
                trace.stepped_s = now_s
                if trace.kind == _PRODUCE:
                    self._unsynced.append(trace)
            if len(self._unsynced) > _MOST_UNSYNCED:
                self._unsynced = [trace for trace in self._unsynced if not trace.is_over]
        if writes:
            self._syncing, self._unsynced = self._unsynced, []

    def synced(self) -> None:
        """Records that the current transaction is durable."""
        if self._syncing:
            now_s = self._clock()
            for trace in self._syncing:
                trace.synced_s = now_s
            self._syncing = []

    def answered(self, number: int, answer: ProtoMessage) -> None:
        """Records that the node has answered a request."""
        trace = self._traces.get(number)
        if trace is None:
            return
        trace.answered_s = self._clock()
        if trace.kind == _PRODUCE and answer.HasField("trace"):
            # The node records only when the step started in which it produced the answer.
            _finish_batch_trace(answer, trace.answered_s - trace.came_s)
        for code in _codes_in(answer):
            self.errors[trace.kind, ErrorCode.Name(code)] += 1

    def written(self, number: int) -> None:
        """Records that the answer was written."""
        trace = self._traces.pop(number, None)
        if trace is None:
            return
        trace.is_over = True
        now_s = self._clock()
        histogram = self.seconds.get(trace.kind)
        if histogram is None:
            histogram = self.seconds[trace.kind] = Histogram(REQUEST_BUCKETS_S)
        histogram.observe(now_s - trace.came_s)
        if trace.kind == _PRODUCE:
            synced_s = min(trace.synced_s or trace.stepped_s, trace.answered_s)
            times_s = (trace.came_s, trace.begun_s, trace.stepped_s, synced_s, trace.answered_s, now_s)
            for stage, begin_s, end_s in zip(STAGES, times_s[:-1], times_s[1:], strict=True):
                self.stages[stage].observe(end_s - begin_s)

    def abandoned(self, number: int) -> None:
        """Removes a request that was abandoned."""
        trace = self._traces.pop(number, None)
        if trace is not None:
            trace.is_over = True


def _finish_batch_trace(answer: ProtoMessage, seconds: float) -> None:
    assert isinstance(answer, ProduceResponse)
    if not answer.trace.untraced:
        answer.trace.answered_us = max(answer.trace.answered_us, int(seconds * 1e6))


def _name_of(request: ProtoMessage) -> str:
    """Returns a request's name, such as ``Produce`` for a ``ProduceRequest``."""
    return request.DESCRIPTOR.name.removesuffix("Request")


_PRODUCE = _name_of(ProduceRequest())
_has_error: dict[str, tuple[bool, tuple[str, ...]]] = {}


def _codes_in(answer: ProtoMessage) -> list[ErrorCode.ValueType]:
    """Returns the error codes of an answer: of the whole, or of the items in it."""
    descriptor = answer.DESCRIPTOR
    known = _has_error.get(descriptor.name)
    if known is None:
        known = _has_error[descriptor.name] = _where_errors_are(descriptor)
    of_the_whole, lists = known
    codes = []
    if of_the_whole and answer.HasField("error"):
        codes.append(answer.error.code)  # type: ignore[attr-defined]  # the line above says that it has one
    for name in lists:
        codes += [each.error.code for each in getattr(answer, name) if each.HasField("error")]
    return [code for code in codes if code != ErrorCode.NONE]


def _where_errors_are(descriptor: Any) -> tuple[bool, tuple[str, ...]]:
    def holds_error(message: Any) -> bool:
        field = message.fields_by_name.get("error")
        return field is not None and field.message_type is Error.DESCRIPTOR

    lists = (
        field.name
        for field in descriptor.fields
        if field.is_repeated and field.message_type is not None and holds_error(field.message_type)
    )
    return holds_error(descriptor), tuple(lists)
