"""Sessions, rebalance timeouts and waiting heartbeats: what is due when, at what cost."""

import dataclasses

from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.groups.member import STABLE, UNREVOKED, GroupMember
from quorumlog.server.groups.member_timers import MemberTimers
from quorumlog.server.groups.parked_heartbeats import HeartbeatCall, ParkedHeartbeats
from quorumlog.server.step.request_context import UNKNOWN_CLIENT
from quorumlog.v1.groups_pb2 import GroupHeartbeatRequest

SECOND = 1_000_000
MEMBER = GroupMember("a", session_timeout_ms=10_000, rebalance_timeout_ms=3_000, member_epoch=4, state=STABLE)


def timers(**changes: object) -> MemberTimers:
    made = MemberTimers()
    made.track(0, "g", dataclasses.replace(MEMBER, **changes))  # type: ignore[arg-type]
    return made


def test_a_member_is_silent_once_its_session_has_passed_since_it_was_heard() -> None:
    watched = timers()
    watched.heard(6 * SECOND, "g", "a")
    assert list(watched.take_due(10 * SECOND)) == []
    assert watched.next_deadline == 16 * SECOND
    assert list(watched.take_due(16 * SECOND)) == [("g", "a", None)]
    assert list(watched.take_due(17 * SECOND)) == [], "it is reported once"


def test_a_member_that_has_left_is_not_missed() -> None:
    watched = timers()
    watched.forget("g", "a")
    assert list(watched.take_due(60 * SECOND)) == []
    assert len(watched) == 0


def test_a_member_has_its_rebalance_timeout_for_each_time_that_it_has_to_give_something_up() -> None:
    watched = timers(state=UNREVOKED)
    watched.track(2 * SECOND, "g", dataclasses.replace(MEMBER, state=UNREVOKED))
    watched.heard(2 * SECOND, "g", "a")
    assert list(watched.take_due(3 * SECOND)) == [("g", "a", 4)], "the same time still"
    again = timers(state=UNREVOKED)
    again.track(2 * SECOND, "g", dataclasses.replace(MEMBER, state=UNREVOKED, member_epoch=5))
    assert list(again.take_due(4 * SECOND)) == []
    assert list(again.take_due(5 * SECOND)) == [("g", "a", 5)]
    done = timers(state=UNREVOKED)
    done.track(2 * SECOND, "g", MEMBER)
    assert list(done.take_due(9 * SECOND)) == []


def test_a_heartbeat_costs_no_entry_of_the_heap() -> None:
    watched = timers()
    for second in range(1, 500):
        watched.heard(second * SECOND, "g", "a")
        assert list(watched.take_due(second * SECOND)) == []
    assert len(watched._heap) == 1


def test_time_in_which_the_node_stood_still_passes_for_nobody() -> None:
    clock = AwakeClock(0, 100_000)
    clock.step(100_000, 1)
    assert (clock.awake_us, clock.stood_still) == (100_000, False)
    clock.step(30 * SECOND, 2)
    assert (clock.awake_us, clock.stood_still) == (100_000, True)
    clock.step(30 * SECOND + 200_000, 3)
    assert (clock.awake_us, clock.stood_still) == (300_000, False)
    assert clock.due(1_300_000) == 31 * SECOND + 200_000


def pending(request_id: int, member_id: str, deadline: int) -> HeartbeatCall:
    request = GroupHeartbeatRequest(group_id="g", member_id=member_id)
    return HeartbeatCall(request_id, request, UNKNOWN_CLIENT, 0, deadline, lambda number, response: None)


def test_waiting_heartbeats_are_due_in_their_order_and_those_that_were_taken_are_not() -> None:
    parked = ParkedHeartbeats()
    for number, member in enumerate("abc", 1):
        parked.park(pending(number, member, 10 - number))
    assert parked.take_of_member("g", "b") is not None
    assert parked.take_of_member("g", "b") is None
    assert parked.next_deadline == 7
    assert [each.request_id for each in parked.take_due(20)] == [3, 1]
    assert (len(parked), parked.next_deadline, parked.of_group("g")) == (0, None, [])
