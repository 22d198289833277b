"""The contract between a node and its services: each service registers its request handlers and its hooks.

A service is a part of a node that has deadlines or answers clients. The node has one ordered list of its services.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.replication import NEVER
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.pending_calls import CallDeadlines
from quorumlog.v1.errors_pb2 import Error

RequestT = TypeVar("RequestT", bound=ProtoMessage)


@dataclass(slots=True)
class StepTime:
    """When the step under way takes place: ``now`` in microseconds on the node's clock, ``wall_ms`` since the epoch."""

    now: int
    wall_ms: int


#: Serves one kind of request. The message is the one in the request, as the type that the handler was declared for.
Handler: TypeAlias = Callable[[StepTime, ClientRequest, RequestT], None]
#: Answers a request of one kind that has waited for its quota for as long as it may, with the error that says so.
OverdueHandler: TypeAlias = Callable[[StepTime, ClientRequest, Error], None]


class HasDeadline(Protocol):
    """A service that must be stepped at a certain time."""

    @property
    def next_deadline(self) -> int | None:
        """When (µs on the node's clock); None: not before something happens. It may be early, but never late."""


class NodeService(Protocol):
    """A part of a node that serves clients or has deadlines."""

    def register(self, hooks: ServiceHooks) -> None:
        """Registers the requests that the service serves, and the methods to call when something happens."""


class ServiceHooks:
    """What the services of a node have registered for. Each hook is called in the order of registration."""

    def __init__(self) -> None:
        self.handlers: dict[type[ProtoMessage], Handler[ProtoMessage]] = {}
        self.overdue: dict[type[ProtoMessage], OverdueHandler] = {}
        self.of_steps: list[Callable[[int, int], None]] = []
        self.of_time: list[Callable[[int, int], None]] = []
        self.deadlines: list[HasDeadline] = []
        self.pending: list[CallDeadlines] = []
        self.of_clients: list[Callable[[int], None]] = []
        self.of_streams: list[Callable[[int], None]] = []
        self.of_replicas: list[Callable[[int, int], None]] = []

    def serve(self, kind: type[RequestT], handler: Handler[RequestT], overdue: OverdueHandler | None = None) -> None:
        """Serves requests of a kind.

        Arguments:
            handler: called with the time of the step, the request, and its message.
            overdue: called for a request that has waited for its quota for too long; None: it gets the failed response
                of its kind.
        """
        assert kind not in self.handlers, f"{kind.__name__} is served twice"
        self.handlers[kind] = cast("Handler[ProtoMessage]", handler)
        if overdue is not None:
            self.overdue[kind] = overdue

    def after_events(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, wall_ms)`` after the events of every step: microseconds on the node's clock, and
        milliseconds since the epoch."""
        self.of_steps.append(hook)

    def on_time(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, wall_ms)`` when the earliest deadline of all services has come."""
        self.of_time.append(hook)

    def deadline(self, service: HasDeadline) -> None:
        """Has the node stepped at the deadline of a service at the latest."""
        self.deadlines.append(service)

    def calls(self, *pending: CallDeadlines) -> None:
        """Has the node stepped at the deadlines of calls that wait. The service answers them in one of its hooks."""
        self.pending.extend(pending)

    def client_gone(self, hook: Callable[[int], None]) -> None:
        """Calls ``hook(request_id)`` when no client waits for the answer to a request any longer."""
        self.of_clients.append(hook)

    def stream_closed(self, hook: Callable[[int], None]) -> None:
        """Calls ``hook(stream)`` when a stream of a client has ended."""
        self.of_streams.append(hook)

    def raft_group_gone(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, group)`` when this node has no replica of a Raft group any longer."""
        self.of_replicas.append(hook)


class NodeServices:
    """The services of a node, called through the hooks that they registered.

    ``after_events`` and ``next_deadline`` are called in every step. The deadlines of calls are read where some wait.
    ``on_time`` is called once one of the services has something due, as ``next_deadline`` said when it was last read.
    What has become due since then is done in the next step, which follows at once.

    Arguments:
        services: in the order in which their hooks are called.
    """

    def __init__(self, services: Iterable[NodeService]) -> None:
        self._services = tuple(services)
        self._due = 0
        self._hooks = ServiceHooks()
        for service in self._services:
            service.register(self._hooks)

    @property
    def kinds(self) -> set[type[ProtoMessage]]:
        """The kinds of request that are served."""
        return set(self._hooks.handlers)

    def __contains__(self, service: object) -> bool:
        return any(each is service for each in self._services)

    def serve(self, time: StepTime, request: ClientRequest) -> None:
        """Has a client's request served."""
        self._hooks.handlers[type(request.message)](time, request, request.message)

    def overdue_handler(self, kind: type[ProtoMessage]) -> OverdueHandler | None:
        """What a service registered for requests of a kind that have waited for their quota for too long."""
        return self._hooks.overdue.get(kind)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Does what follows from the step's events, and what was due when ``next_deadline`` was last read."""
        for after_events in self._hooks.of_steps:
            after_events(now, wall_ms)
        if now < self._due:
            return
        for on_time in self._hooks.of_time:
            on_time(now, wall_ms)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        due = None
        for service in self._hooks.deadlines:
            deadline = service.next_deadline
            if deadline is not None and (due is None or deadline < due):
                due = deadline
        for calls in self._hooks.pending:
            if calls.deadlines:
                deadline = calls.next_deadline
                if deadline is not None and (due is None or deadline < due):
                    due = deadline
        self._due = due if due is not None else NEVER
        return due

    def client_gone(self, request_id: int) -> None:
        """No client waits for the answer to a request any longer."""
        for hook in self._hooks.of_clients:
            hook(request_id)

    def stream_closed(self, stream: int) -> None:
        """A stream of a client has ended."""
        for hook in self._hooks.of_streams:
            hook(stream)

    def raft_group_gone(self, now: int, group: int) -> None:
        """This node has no replica of a Raft group any longer."""
        for hook in self._hooks.of_replicas:
            hook(now, group)
