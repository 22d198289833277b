"""The list of a node's services: it is complete, and each service receives the calls that it registers for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from bench.node_trio import Trio
from quorumlog.raft.types import Role
from quorumlog.server.node.member_services import MemberServices
from quorumlog.server.partition.partition import Partition
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import NodeServices, ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.request_context import UNKNOWN_CLIENT
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_TOPIC
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID


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
    services.deadlines_moved()
    assert services.next_deadline is None


class Timed:
    """Has a deadline, and records when it was called."""

    def __init__(self, due: int | None) -> None:
        self.due = due
        self.told: list[int] = []
        self.announce: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self.announce = hooks.deadline(self)

    def on_time(self, now: int, wall_ms: int) -> None:
        self.told.append(now)

    @property
    def next_deadline(self) -> int | None:
        return self.due


class Serving:
    """Serves two kinds of requests, of which one moves no deadline."""

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.DeleteRecordsRequest, lambda time, asked, request: None)
        hooks.serve(data_plane_pb2.FetchRequest, lambda time, asked, request: None, moves_deadlines=False)


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
    services.deadlines_moved()
    assert services.next_deadline is None
    services.on_time(1_000, 0)
    assert (early.told, late.told) == ([1, 7], [1, 7])
    assert following.steps == 4


CALLS: dict[str, Callable[[NodeServices, Timed], None]] = {
    "a request": lambda services, timed: services.serve(
        StepTime(0, 0), ClientRequest(1, admin_pb2.DeleteRecordsRequest())
    ),
    "a client gone": lambda services, timed: services.client_gone(1),
    "a stream closed": lambda services, timed: services.stream_closed(1),
    "a Raft group gone": lambda services, timed: services.raft_group_gone(0, 1),
    "something due": lambda services, timed: services.on_time(7, 0),
    "an announcement": lambda services, timed: timed.announce(),
}


@pytest.mark.parametrize("call", CALLS)
def test_moved_deadlines_are_read_again(call: str) -> None:
    """After each call that may have moved a deadline, all deadlines are read again."""
    timed = Timed(7)
    services = NodeServices([timed, Serving()])
    assert services.next_deadline == 7
    CALLS[call](services, timed)
    timed.due = 3
    assert services.next_deadline == 3


def test_unmoved_deadlines_are_not_read() -> None:
    """A step in which nothing can have moved a deadline reads none; a simulation notices one that moved unannounced."""
    timed = Timed(7)
    services = NodeServices([timed, Serving()])
    assert services.next_deadline == 7
    services.on_time(6, 0)
    services.serve(StepTime(6, 0), ClientRequest(1, data_plane_pb2.FetchRequest()))
    services.check_deadlines()
    timed.due = 3
    assert services.next_deadline == 7
    with pytest.raises(AssertionError, match="a service is due at 3, and the node waits until 7"):
        services.check_deadlines()


def refuse(services: MemberServices, log: Partition) -> None:
    """Records the refusal of a client."""
    services.access.audit.switch(enabled=True)
    services.access.audit.refused(UNKNOWN_CLIENT, ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "t")


def grow_watched(services: MemberServices, log: Partition) -> None:
    """Changes the log of a partition while a client watches the cluster."""
    services.cluster.watches._begin_anew()
    log.high_watermark += 1
    services.cluster.watches.after_round(log)


def lead_watched(services: MemberServices, log: Partition) -> None:
    """Changes the leader of a partition while a client watches the cluster."""
    services.cluster.watches._begin_anew()
    services.cluster.watches._versions.leaders[log.group] = (0, 0)
    services.cluster.watches.after_round(log)


def stall(services: MemberServices, log: Partition) -> None:
    """Steps after a standstill of the node, which does not count for the members of consumer groups."""
    clock = services.groups._led.clock
    services.groups.begin_step(clock.now + 10_000_000, 0)
    services.groups.after_events(clock.now, 0)


def lead_deleted(services: MemberServices, log: Partition) -> None:
    """Starts to lead a partition whose log may have batches of deleted producers."""
    services.logs.deleted_producers._heard_of = 1
    log.producers._named[FIRST_NAMED_PRODUCER_ID] = cast("Any", None)
    services.logs.deleted_producers.consider(0, log)


@pytest.mark.parametrize("move", [refuse, grow_watched, lead_watched, stall, lead_deleted])
def test_services_announce_moved_deadlines(move: Callable[[MemberServices, Partition], None]) -> None:
    """A service announces a deadline that moves in a call after which deadlines are not read again."""
    member = Trio(1)._machines[1].node._member
    assert member is not None
    services = member.services
    log = next(log for log in services.replicas.partitions.logs.values())
    log.raft.role, log.leading_term = Role.LEADER, log.raft.term
    assert services.in_order.next_deadline is not None
    assert not services.in_order._hooks.is_stale
    move(services, log)
    assert services.in_order._hooks.is_stale


def test_a_kind_of_request_has_one_handler() -> None:
    hooks = ServiceHooks()
    hooks.serve(data_plane_pb2.FetchRequest, lambda time, asked, request: None)
    with pytest.raises(AssertionError, match="FetchRequest is served twice"):
        hooks.serve(data_plane_pb2.FetchRequest, lambda time, asked, request: None)
