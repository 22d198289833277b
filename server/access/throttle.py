"""Throttles principals that exceed a quota: their requests wait until the debt is paid, as in Kafka, but at the node.

A request that finds no debt is served and charged: Produce with its size when it arrives, Fetch with the size of its
response. One that finds a debt queues behind those of the same principal and kind, and its stream is not read further:
so at most one request of each stream waits, and a Fetch reads nothing while it waits. When its time is over, a Fetch is
answered without records, and any other request with an error that says when to retry: half of the client's timeout has
passed then, and nothing was done.

Heartbeats of consumer groups and authentication are neither counted nor delayed, so that no member loses its membership
because of data. Messages of other nodes do not pass through here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.quota_buckets import Buckets, QuotaBuckets
from quorumlog.server.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_RATE
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.observability.principal_totals import PrincipalTotals
from quorumlog.server.step.deadlines import MAX_WAIT_US, wait_us
from quorumlog.server.step.events import ClientRequest, StreamPause
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.admin_pb2 import DescribeNodeRequest
from quorumlog.v1.data_plane_pb2 import FetchRequest, ProduceRequest
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.groups_pb2 import ClassicHeartbeatRequest, GroupHeartbeatRequest
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest, SignInByTokenRequest

#: Maximum wait of a request, whatever its client's timeout; and minimum wait of a Fetch, so that its client does not
#: poll continuously.
MOST_WAIT_US = 30_000_000
LEAST_FETCH_WAIT_US = 1_000_000
_UNLIMITED = (
    GroupHeartbeatRequest,
    ClassicHeartbeatRequest,
    BeginScramRequest,
    FinishScramRequest,
    SignInByTokenRequest,
    DescribeNodeRequest,
)
#: The quotas that apply to a kind of request; the size of a Produce is charged to the first.
_PRODUCE = (PRODUCER_BYTE_RATE, REQUEST_RATE)
_FETCH = (CONSUMER_BYTE_RATE, REQUEST_RATE)
_OTHER = (REQUEST_RATE,)


@dataclass(slots=True, frozen=True)
class ThrottleLimits:
    """Bounds on waiting requests. Beyond them, requests are answered at once as if their time were over.

    Arguments:
        requests: for all principals together.
        size_bytes: total size of these requests.
        principal_requests, principal_bytes: for one principal; one request of any size may always wait.
    """

    requests: int = 10_000
    size_bytes: int = 64 << 20
    principal_requests: int = 1_000
    principal_bytes: int = 16 << 20


class ThrottledServer(Protocol):
    """Serves or refuses the requests that have waited."""

    def serve_held(self, request: ClientRequest, credentials_index: int) -> None:
        """Serves a request whose debt is paid, if its client is still admitted.

        Arguments:
            credentials_index: the version of users and revocations with which it was admitted.
        """

    def refuse_throttled(self, request: ClientRequest, problem: Error) -> None:
        """Answers a request whose time is over."""


@dataclass(slots=True, eq=False)
class _Line:
    """Waiting requests of one principal and kind, in order of arrival."""

    principal: str
    keys: tuple[str, ...]
    waiting: deque[_HeldRequest] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _HeldRequest:
    """A request that waits.

    Arguments:
        deadline: when it is answered at the latest (µs).
        since: when it arrived (µs).
        is_over: it no longer waits.
    """

    asked: ClientRequest
    deadline: int
    since: int
    size_bytes: int
    credentials_index: int
    is_over: bool = False

    @property
    def request_id(self) -> int:
        """The request's number."""
        return self.asked.request_id


@dataclass(slots=True)
class _PrincipalShare:
    """Number and size of a principal's waiting requests."""

    requests: int = 0
    size_bytes: int = 0


class Throttle:
    """Charges principals for their requests, and delays requests of those in debt.

    Arguments:
        current: contains the quotas.
        time: the time of the current step.
        server: serves the requests that have waited.

    Attributes:
        throttled_seconds: total wait of requests, by principal.
        pauses: the streams to pause and to resume, until ``take_pauses`` is called.
    """

    def __init__(
        self, current: CurrentImage, time: StepTime, server: ThrottledServer, limits: ThrottleLimits | None = None
    ) -> None:
        self._current = current
        self._time = time
        self._server = server
        self._limits = limits or ThrottleLimits()
        self._buckets = QuotaBuckets(current, (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_RATE))
        self._known_index = current.image.client_quotas.index
        self._lines: dict[tuple[str, tuple[str, ...]], _Line] = {}
        #: When to look at each line again, with a number that makes the order unique.
        self._due: list[tuple[int, int, _Line]] = []
        self._numbers = 0
        self._held: PendingCalls[_HeldRequest] = PendingCalls(self._limits.requests)
        self._held_bytes = 0
        self._held_of: dict[str, _PrincipalShare] = {}
        #: By stream: the number of its waiting requests.
        self._paused: dict[int, int] = {}
        self.pauses: list[StreamPause] = []
        self.throttled_seconds = PrincipalTotals()
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)
        hooks.client_gone(self.client_gone)
        hooks.stream_closed(self.stream_closed)
        hooks.calls(self._held)

    def __len__(self) -> int:
        """Returns the number of waiting requests."""
        return len(self._held)

    # -- requests ---------------------------------------------------------------------------------------------

    def holds(self, asked: ClientRequest) -> bool:
        """True if a request has to wait or was refused; otherwise it is charged, and must be served now."""
        if not self._current.image.client_quotas.by_principal and not self._lines:
            return False
        if isinstance(asked.message, _UNLIMITED):
            return False
        now, keys = self._time.now, _keys_of(asked.message)
        line = self._lines.get((asked.principal, keys))
        buckets = self._buckets.of(now, asked.principal)
        if line is None and not buckets:
            return False
        if line is None and not _wait_us(now, buckets, keys):
            _charge(now, buckets, keys, asked.size_bytes if keys is _PRODUCE else 0)
            return False
        if self._has_room(asked):
            self._hold(now, asked, line or self._new_line(now, asked.principal, keys))
        else:
            self._give_up(now, asked, keys)
        return True

    def _has_room(self, asked: ClientRequest) -> bool:
        limits, size_bytes = self._limits, asked.size_bytes
        if self._held.full or self._held_bytes + size_bytes > limits.size_bytes:
            return False
        own = self._held_of.get(asked.principal)
        return own is None or (
            own.requests < limits.principal_requests and own.size_bytes + size_bytes <= limits.principal_bytes
        )

    def _new_line(self, now: int, principal: str, keys: tuple[str, ...]) -> _Line:
        line = self._lines[principal, keys] = _Line(principal, keys)
        self._look_again(now + _wait_us(now, self._buckets.of(now, principal), keys), line)
        return line

    def _look_again(self, at: int, line: _Line) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (at, self._numbers, line))
        self._deadline_moved()

    def _hold(self, now: int, asked: ClientRequest, line: _Line) -> None:
        credentials_index = self._current.image.credentials.index
        held = _HeldRequest(
            asked, now + _patience_us(asked.message), now, asked.size_bytes, credentials_index
        )  # fmt: skip
        line.waiting.append(held)
        self._held.add(held)
        self._held_bytes += held.size_bytes
        own = self._held_of.setdefault(asked.principal, _PrincipalShare())
        own.requests += 1
        own.size_bytes += held.size_bytes
        if asked.stream:
            self._paused[asked.stream] = self._paused.get(asked.stream, 0) + 1
            if self._paused[asked.stream] == 1:
                self.pauses.append(StreamPause(asked.stream, is_paused=True))

    def _give_up(self, now: int, asked: ClientRequest, keys: tuple[str, ...]) -> None:
        buckets = self._buckets.of(now, asked.principal)
        over = max(keys, key=lambda key: buckets[key].wait_us(now) if key in buckets else -1)
        rate = f" ({over} = {buckets[over].rate:g} per second)" if over in buckets else ""
        # A request behind others in the queue must not be retried at once.
        wait_ms = max(1, -(-_wait_us(now, buckets, keys) // 1_000))
        problem = f"{asked.principal} is over its quota{rate}, and nothing was done: try again in {wait_ms} ms"
        refusal = error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, problem, throttle_time_ms=min(wait_ms, (1 << 32) - 1))
        self._server.refuse_throttled(asked, refusal)

    # -- what is handed out -----------------------------------------------------------------------------------

    def most_bytes(self, principal: str, wanted: int) -> int:
        """Returns the maximum size of one response to a principal: a full bucket, otherwise its next one would be late.

        Arguments:
            wanted: limit of the client and the node.
        """
        bucket = self._buckets.of(self._time.now, principal).get(CONSUMER_BYTE_RATE)
        return wanted if bucket is None else max(1, min(wanted, int(bucket.burst)))

    def handed_out(self, principal: str, size_bytes: int) -> None:
        """Charges a principal for the entries in a response."""
        bucket = self._buckets.of(self._time.now, principal).get(CONSUMER_BYTE_RATE)
        if bucket is not None:
            bucket.take(self._time.now, size_bytes)

    # -- changes while requests wait -------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Checks all waiting requests again if quotas have changed."""
        index = self._current.image.client_quotas.index
        if index == self._known_index:
            return
        self._known_index = index
        self._buckets.quotas_changed()
        self._due = [(self._time.now, number, line) for _, number, line in self._due]
        heapq.heapify(self._due)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Serves requests whose debt is paid, and answers those whose time is over."""
        while self._due and self._due[0][0] <= now:
            self._advance(now, heapq.heappop(self._due)[2])
        for held in self._held.take_expired(now):
            self._leave(now, held)
            self._give_up(now, held.asked, _keys_of(held.asked.message))

    def _advance(self, now: int, line: _Line) -> None:
        while line.waiting:
            held = line.waiting[0]
            if held.is_over:
                line.waiting.popleft()
                continue
            buckets = self._buckets.of(now, line.principal)
            wait_us = _wait_us(now, buckets, line.keys)
            if wait_us:
                self._look_again(now + wait_us, line)
                return
            line.waiting.popleft()
            self._held.take(held.request_id)
            self._leave(now, held)
            _charge(now, buckets, line.keys, held.size_bytes if line.keys is _PRODUCE else 0)
            self._server.serve_held(held.asked, held.credentials_index)
        del self._lines[line.principal, line.keys]

    def _leave(self, now: int, held: _HeldRequest) -> None:
        """Removes a request from the waiting ones."""
        held.is_over = True
        principal, stream = held.asked.principal, held.asked.stream
        self.throttled_seconds.add(principal, (now - held.since) / 1e6)
        self._held_bytes -= held.size_bytes
        own = self._held_of[principal]
        own.requests -= 1
        own.size_bytes -= held.size_bytes
        if not own.requests:
            del self._held_of[principal]
        if stream in self._paused:
            self._paused[stream] -= 1
            if not self._paused[stream]:
                del self._paused[stream]
                self.pauses.append(StreamPause(stream, is_paused=False))

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        return self._due[0][0] if self._due else None

    def client_gone(self, request_id: int) -> None:
        held = self._held.take(request_id)
        if held is not None:
            self._leave(self._time.now, held)

    def stream_closed(self, stream: int) -> None:
        self._paused.pop(stream, None)

    def take_pauses(self) -> list[StreamPause]:
        """Removes and returns the streams to pause and to resume, in order."""
        pauses, self.pauses = self.pauses, []
        return pauses


def _keys_of(message: ProtoMessage) -> tuple[str, ...]:
    if isinstance(message, ProduceRequest):
        return _PRODUCE
    return _FETCH if isinstance(message, FetchRequest) else _OTHER


def _wait_us(now: int, buckets: Buckets, keys: tuple[str, ...]) -> int:
    return max((buckets[key].wait_us(now) for key in keys if key in buckets), default=0)


def _charge(now: int, buckets: Buckets, keys: tuple[str, ...], size_bytes: int) -> None:
    if REQUEST_RATE in buckets:
        buckets[REQUEST_RATE].take(now, 1)
    if size_bytes and keys[0] in buckets:
        buckets[keys[0]].take(now, size_bytes)


def _patience_us(message: ProtoMessage) -> int:
    """Returns how long a request may wait: short enough that its client still waits for the response (µs)."""
    if isinstance(message, FetchRequest):
        return min(max(message.max_wait_ms * 1_000, LEAST_FETCH_WAIT_US), MOST_WAIT_US)
    if isinstance(message, ProduceRequest) and not message.acks:
        return MAX_WAIT_US  # No client waits for a response, and none would learn that it was dropped.
    if isinstance(message, ProduceRequest):
        return min(message.timeout_ms * 1_000 // 2, MOST_WAIT_US)
    timeout_ms = getattr(message, "timeout_ms", 0)
    return min(wait_us(timeout_ms) // 2, MOST_WAIT_US)
