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
    """Time of the current step: ``now`` in microseconds on the node's clock, ``wall_ms`` since the epoch."""

    now: int
    wall_ms: int


#: Serves one kind of request. The third argument is the request's message, typed as the handler declares it.
Handler: TypeAlias = Callable[[StepTime, ClientRequest, RequestT], None]
#: Rejects a request of one kind that has waited for its quota for as long as it may, with the given error.
OverdueHandler: TypeAlias = Callable[[StepTime, ClientRequest, Error], None]


class HasDeadline(Protocol):
    """A service that must be stepped by a certain time."""

    @property
    def next_deadline(self) -> int | None:
        """The next deadline (µs on the node's clock); None: nothing is due until an event happens. It may be early,
        but never late. The node reads it again only after a call that may have moved it (``ServiceHooks.deadline``)."""


class NodeService(Protocol):
    """A part of a node that serves clients or has deadlines."""

    def register(self, hooks: ServiceHooks) -> None:
        """Registers the requests that the service serves, and the methods to call when something happens."""


class ServiceHooks:
    """The handlers and hooks that the services of a node have registered, called in the order of registration."""

    def __init__(self) -> None:
        self.handlers: dict[type[ProtoMessage], Handler[ProtoMessage]] = {}
        self.overdue: dict[type[ProtoMessage], OverdueHandler] = {}
        self.of_steps: list[Callable[[int, int], None]] = []
        self.of_time: list[Callable[[int, int], None]] = []
        self.deadlines: list[HasDeadline] = []
        #: True if a deadline may have moved since the deadlines were last read.
        self.is_stale = True
        self.steady: set[type[ProtoMessage]] = set()
        self.pending: list[CallDeadlines] = []
        self.of_clients: list[Callable[[int], None]] = []
        self.of_streams: list[Callable[[int], None]] = []
        self.of_replicas: list[Callable[[int, int], None]] = []

    def serve(
        self,
        kind: type[RequestT],
        handler: Handler[RequestT],
        overdue: OverdueHandler | None = None,
        *,
        moves_deadlines: bool = True,
    ) -> None:
        """Registers the handler for requests of a kind.

        Arguments:
            handler: called with the time of the step, the request, and its message.
            overdue: called for a request that has waited too long for its quota; None: it gets the failed response of
                its kind.
            moves_deadlines: False for frequent requests whose handler moves no deadline without announcing it.
        """
        assert kind not in self.handlers, f"{kind.__name__} is served twice"
        self.handlers[kind] = cast("Handler[ProtoMessage]", handler)
        if overdue is not None:
            self.overdue[kind] = overdue
        if not moves_deadlines:
            self.steady.add(kind)

    def after_events(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, wall_ms)`` after the events of every step.

        ``now`` is in microseconds on the node's clock, ``wall_ms`` in milliseconds since the epoch.
        """
        self.of_steps.append(hook)

    def on_time(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, wall_ms)`` once the earliest deadline of all services has passed."""
        self.of_time.append(hook)

    def deadline(self, service: HasDeadline) -> Callable[[], None]:
        """Makes the node step by the deadline of a service.

        Returns:
            A function with which the service announces that its deadline has moved. That is not necessary where all
            deadlines are read again anyway: after each of its hooks except ``after_events``, after requests (unless
            ``serve`` excludes their kind), messages of the controller, jobs, and steps of the metadata's Raft group.
        """
        self.deadlines.append(service)
        return self.deadline_moved

    def deadline_moved(self) -> None:
        """Announces that a deadline has moved, in a call after which deadlines are not read again otherwise."""
        self.is_stale = True

    def calls(self, *pending: CallDeadlines) -> None:
        """Makes the node step by the deadlines of pending calls. The service answers them in one of its hooks."""
        self.pending.extend(pending)

    def client_gone(self, hook: Callable[[int], None]) -> None:
        """Calls ``hook(request_id)`` when no client waits for the reply to a request any longer."""
        self.of_clients.append(hook)

    def stream_closed(self, hook: Callable[[int], None]) -> None:
        """Calls ``hook(stream)`` when a stream of a client has ended."""
        self.of_streams.append(hook)

    def raft_group_gone(self, hook: Callable[[int, int], None]) -> None:
        """Calls ``hook(now, group)`` when this node no longer has a replica of a Raft group."""
        self.of_replicas.append(hook)


class NodeServices:
    """The services of a node, called through the hooks that they registered.

    ``after_events`` and ``next_deadline`` run in every step. The deadlines of calls are only read where calls are
    pending, and those of services only if one of them may have moved. ``on_time`` runs once a service has something
    due, according to ``next_deadline`` when it was last read. Anything that has become due since then is done in the
    next step, which follows immediately.

    Arguments:
        services: in the order in which their hooks are called.
    """

    def __init__(self, services: Iterable[NodeService]) -> None:
        self._services = tuple(services)
        self._due = 0
        self._earliest: int | None = None
        self._hooks = ServiceHooks()
        for service in self._services:
            service.register(self._hooks)

    @property
    def kinds(self) -> set[type[ProtoMessage]]:
        """The kinds of request that have a handler."""
        return set(self._hooks.handlers)

    def __contains__(self, service: object) -> bool:
        return any(each is service for each in self._services)

    def serve(self, time: StepTime, request: ClientRequest) -> None:
        """Calls the handler for a client's request."""
        kind = type(request.message)
        if kind not in self._hooks.steady:
            self.deadlines_moved()
        self._hooks.handlers[kind](time, request, request.message)

    def overdue_handler(self, kind: type[ProtoMessage]) -> OverdueHandler | None:
        """Returns the handler for requests of a kind that have exceeded their wait for a quota; None if not
        registered."""
        return self._hooks.overdue.get(kind)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Runs the hooks for the end of a step, and those that were due when ``next_deadline`` was last read."""
        for after_events in self._hooks.of_steps:
            after_events(now, wall_ms)
        if now < self._due:
            return
        self.deadlines_moved()
        for on_time in self._hooks.of_time:
            on_time(now, wall_ms)

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        if self._hooks.is_stale:
            self._hooks.is_stale = False
            self._earliest = self._read_deadlines()
        due = self._earliest
        for calls in self._hooks.pending:
            if calls.deadlines:
                deadline = calls.next_deadline
                if deadline is not None and (due is None or deadline < due):
                    due = deadline
        self._due = due if due is not None else NEVER
        return due

    def _read_deadlines(self) -> int | None:
        due = None
        for service in self._hooks.deadlines:
            deadline = service.next_deadline
            if deadline is not None and (due is None or deadline < due):
                due = deadline
        return due

    def deadlines_moved(self) -> None:
        """Makes ``next_deadline`` ask every service again."""
        self._hooks.is_stale = True

    def check_deadlines(self) -> None:
        """Checks that no service has moved its deadline without announcing it; for simulations.

        Raises:
            AssertionError: one has.
        """
        if not self._hooks.is_stale:
            due = self._read_deadlines()
            assert due == self._earliest, f"a service is due at {due}, and the node waits until {self._earliest}"

    def client_gone(self, request_id: int) -> None:
        """Reports that no client waits for the reply to a request any longer."""
        self.deadlines_moved()
        for hook in self._hooks.of_clients:
            hook(request_id)

    def stream_closed(self, stream: int) -> None:
        """Reports that a stream of a client has ended."""
        self.deadlines_moved()
        for hook in self._hooks.of_streams:
            hook(stream)

    def raft_group_gone(self, now: int, group: int) -> None:
        """Reports that this node no longer has a replica of a Raft group."""
        self.deadlines_moved()
        for hook in self._hooks.of_replicas:
            hook(now, group)
