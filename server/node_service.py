"""The contract between a node and its services: what a node tells each of them, and how it finds who serves a request.

A service is a part of a node that has deadlines, or answers clients. The node has one list of its services and goes
through it; so a service that is in the list misses nothing that all of them are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.replication import NEVER
from quorumlog.server.events import ClientRequest
from quorumlog.server.pending_calls import CallDeadlines

RequestT = TypeVar("RequestT", bound=ProtoMessage)


@dataclass(slots=True)
class StepTime:
    """When the step under way takes place: ``now`` in microseconds on the node's clock, ``wall_ms`` since the epoch."""

    now: int
    wall_ms: int


#: Serves one kind of request. The message is the one in the request, as the type that the handler was declared for.
Handler: TypeAlias = Callable[[StepTime, ClientRequest, RequestT], None]


class RequestTable:
    """Who serves which kind of request."""

    def __init__(self) -> None:
        self._handlers: dict[type[ProtoMessage], Handler[ProtoMessage]] = {}

    def declare(self, kind: type[RequestT], handler: Handler[RequestT]) -> None:
        """From now on requests of this kind go to that handler."""
        assert kind not in self._handlers, f"{kind.__name__} is served twice"
        self._handlers[kind] = cast("Handler[ProtoMessage]", handler)

    @property
    def kinds(self) -> set[type[ProtoMessage]]:
        """The kinds of request that are served."""
        return set(self._handlers)

    def serve(self, time: StepTime, request: ClientRequest) -> None:
        """Has a request served."""
        self._handlers[type(request.message)](time, request, request.message)


class NodeService:
    """A part of a node. Each method does nothing here: a service defines those that it has a use for."""

    def declare_requests(self, table: RequestTable) -> None:
        """Says which kinds of request this service serves."""

    def after_events(self, now: int, wall_ms: int) -> None:
        """Does what follows from the events of a step, in each of them, whatever its deadline.

        Arguments:
            now: microseconds on the node's clock.
            wall_ms: milliseconds since the epoch.
        """

    def on_time(self, now: int, wall_ms: int) -> None:
        """Does what is due: not called before the earliest deadline of all services.

        Arguments:
            as above.
        """

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due (µs), but for calls that wait; None: not before something happens."""
        return None

    def pending_calls(self) -> Sequence[CallDeadlines]:
        """The calls that this service gives up when their time is over: the deadlines of all of them count like
        ``next_deadline``."""
        return ()

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for the answer to that request any more."""

    def stream_closed(self, stream: int) -> None:
        """A stream of a client has ended, and what was bound to it."""

    def raft_group_gone(self, now: int, group: int) -> None:
        """This node has no replica of a Raft group any more: whoever waits for it is told."""


class NodeServices:
    """The services of a node, in the order in which they are told what happens.

    What a service does not define is not called: after_events and next_deadline are asked for in every step, and the
    deadlines of calls where some wait. Nobody is told of the time before one of them has something due, as all of them
    said when they were last asked. What has become due since then is done in the next step, which the node is given at
    once.
    """

    def __init__(self, services: Iterable[NodeService]) -> None:
        self._services = tuple(services)
        self._due = 0
        self._after_events = [each.after_events for each in self._defining("after_events")]
        self._on_time = [each.on_time for each in self._defining("on_time")]
        self._timed = self._defining("next_deadline")
        self._pending = tuple(calls for each in self._services for calls in each.pending_calls())
        self._served_clients = self._defining("client_gone")
        self._served_streams = self._defining("stream_closed")
        self._watching_groups = self._defining("raft_group_gone")
        self._requests = RequestTable()
        for service in self._services:
            service.declare_requests(self._requests)

    def _defining(self, name: str) -> list[NodeService]:
        inherited = getattr(NodeService, name)
        return [each for each in self._services if getattr(type(each), name) is not inherited]

    @property
    def kinds(self) -> set[type[ProtoMessage]]:
        """The kinds of request that are served."""
        return self._requests.kinds

    def __contains__(self, service: object) -> bool:
        return any(each is service for each in self._services)

    def serve(self, time: StepTime, request: ClientRequest) -> None:
        """Has a client's request served."""
        self._requests.serve(time, request)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Does what follows from the step's events, and what was due when ``next_deadline`` was last asked for."""
        for after_events in self._after_events:
            after_events(now, wall_ms)
        if now < self._due:
            return
        for on_time in self._on_time:
            on_time(now, wall_ms)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        due = None
        for service in self._timed:
            deadline = service.next_deadline
            if deadline is not None and (due is None or deadline < due):
                due = deadline
        for calls in self._pending:
            if calls.deadlines:
                deadline = calls.next_deadline
                if deadline is not None and (due is None or deadline < due):
                    due = deadline
        self._due = due if due is not None else NEVER
        return due

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for the answer to that request any more."""
        for service in self._served_clients:
            service.client_gone(request_id)

    def stream_closed(self, stream: int) -> None:
        """A client's stream has ended."""
        for service in self._served_streams:
            service.stream_closed(stream)

    def raft_group_gone(self, now: int, group: int) -> None:
        """This node has no replica of a Raft group any more."""
        for service in self._watching_groups:
            service.raft_group_gone(now, group)
