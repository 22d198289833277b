"""The list of a node's services: it is complete, and each service receives the calls that it registers for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bench.node_trio import Trio
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import NodeServices, ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.v1 import admin_pb2, data_plane_pb2


@dataclass(frozen=True)
class Waiting:
    """A call that waits. ``asked``: its question has been sent, and it waits only for the answer."""

    request_id: int
    deadline: int
    asked: bool = True


class Listening:
    """Registers for everything, and records the calls."""

    def __init__(self, due: int | None) -> None:
        self.due = due
        self.told: list[object] = []

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.DeleteRecordsRequest, self.serve)
        hooks.on_time(self.on_time)
        hooks.deadline(self)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)

    def serve(self, time: StepTime, asked: ClientRequest, request: admin_pb2.DeleteRecordsRequest) -> None:
        self.told.append((time.now, asked.request_id, request))

    def on_time(self, now: int, wall_ms: int) -> None:
        self.told.append((now, wall_ms))

    @property
    def next_deadline(self) -> int | None:
        return self.due

    def client_gone(self, request_id: int) -> None:
        self.told.append(request_id)

    def raft_group_gone(self, now: int, group: int) -> None:
        self.told.append((now, group))


def test_no_service_of_a_cluster_member_is_left_out_of_its_list() -> None:
    member = Trio(0)._machines[1].node._member
    assert member is not None
    groups = member.services
    parts = (member, groups, groups.access, groups.replicas, groups.pipeline, groups.logs, groups.cluster)
    held = [(name, getattr(owner, name, None)) for owner in parts for name in dir(owner)]
    services = [(name, part) for name, part in held if hasattr(part, "register")]
    assert len(services) >= 35
    assert [name for name, service in services if service not in groups.in_order] == []


@pytest.mark.parametrize("hook", ["after_events", "on_time", "client_gone", "stream_closed", "raft_group_gone"])
def test_a_service_registers_its_hooks(hook: str) -> None:
    """A service registers every method that has the name of a hook: otherwise the method would never be called."""
    member = Trio(0)._machines[1].node._member
    assert member is not None
    services = member.services.in_order
    hooks = services._hooks
    every = (hooks.of_steps, hooks.of_time, hooks.of_clients, hooks.of_streams, hooks.of_replicas)
    registered = [each for one in every for each in one]
    wanted = [getattr(each, hook) for each in services._services if hasattr(each, hook)]
    assert wanted
    assert [each for each in wanted if each not in registered] == []


def calls_held(part: object, depth: int) -> Iterator[PendingCalls[Waiting]]:
    """Yields the tables of pending calls anywhere in a part of a node."""
    if isinstance(part, PendingCalls):
        yield part
    elif depth and type(part).__module__.startswith("quorumlog.server."):
        names = [*getattr(part, "__dict__", ()), *getattr(type(part), "__slots__", ())]
        for name in names:
            yield from calls_held(getattr(part, name, None), depth - 1)


def test_calls_that_wait_in_a_service_count_whichever_it_is() -> None:
    member = Trio(0)._machines[1].node._member
    assert member is not None
    services = member.services.in_order
    before = services.next_deadline
    assert before is not None
    held = {id(calls): calls for service in services._services for calls in calls_held(service, 3)}
    assert len(held) >= 12
    for calls in held.values():
        calls.add(Waiting(-1, before - 1))
        deadline = services.next_deadline
        assert deadline is not None
        assert deadline < before
        calls.take(-1)
        assert services.next_deadline == before


def test_a_service_is_told_what_happens_and_its_deadline_counts() -> None:
    listening = Listening(7)
    services = NodeServices([listening])
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=5)
    services.on_time(1, 2)
    services.client_gone(3)
    services.stream_closed(4)
    services.raft_group_gone(5, 6)
    services.serve(StepTime(8, 9), ClientRequest(10, request))
    assert listening.told == [(1, 2), 3, (5, 6), (8, 10, request)]
    assert services.next_deadline == 7
    listening.due = None
    assert services.next_deadline is None


class Timed:
    """Has a deadline, and records when it was called."""

    def __init__(self, due: int | None) -> None:
        self.due = due
        self.told: list[int] = []

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def on_time(self, now: int, wall_ms: int) -> None:
        self.told.append(now)

    @property
    def next_deadline(self) -> int | None:
        return self.due


class AfterEvents:
    """Counts the steps."""

    def __init__(self) -> None:
        self.steps = 0

    def register(self, hooks: ServiceHooks) -> None:
        hooks.after_events(self.after_events)

    def after_events(self, now: int, wall_ms: int) -> None:
        self.steps += 1


def test_services_are_told_of_the_time_when_the_first_of_them_has_something_due() -> None:
    early, late, following = Timed(7), Timed(20), AfterEvents()
    services = NodeServices([late, following, early])
    services.on_time(1, 0)  # No service has been asked for its deadline yet.
    assert services.next_deadline == 7
    for now in (6, 7):
        services.on_time(now, 0)
    assert (early.told, late.told) == ([1, 7], [1, 7])
    early.due = late.due = None
    assert services.next_deadline is None
    services.on_time(1_000, 0)
    assert (early.told, late.told) == ([1, 7], [1, 7])
    assert following.steps == 4


def test_a_kind_of_request_has_one_handler() -> None:
    hooks = ServiceHooks()
    hooks.serve(data_plane_pb2.FetchRequest, lambda time, asked, request: None)
    with pytest.raises(AssertionError, match="FetchRequest is served twice"):
        hooks.serve(data_plane_pb2.FetchRequest, lambda time, asked, request: None)
