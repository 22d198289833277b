"""Gaps in delivery around a change of a group's members, from what the members wrote down."""

from bench.coordinator_failover import differences
from bench.delivery_gaps import MemberDelivery, deliveries_of, effect_of, longest_gap_ms
from bench.rebalance import lines_of
from quorumlog.chaos.processes.member_log import Event, MemberEvent, WorkedRecord
from quorumlog.sdk import GroupState, TopicPartition
from quorumlog.sdk.types import GroupDescription, MemberDescription

MS = 1_000_000


def deliveries(member: str, *at_ms: int) -> list[MemberDelivery]:
    return [MemberDelivery(at * MS, member) for at in at_ms]


def test_deliveries_are_when_a_poll_brought_records() -> None:
    def worked(partition: int, at: int) -> MemberEvent:
        return MemberEvent(99, Event.WORKED, partition=partition, records=(WorkedRecord(0, 0, 0, 0),), given_ns=at)

    found = deliveries_of([("b", [worked(1, 5)]), ("a", [MemberEvent(1, Event.STARTED), worked(1, 3), worked(0, 4)])])
    assert found == {0: [MemberDelivery(4, "a")], 1: [MemberDelivery(3, "a"), MemberDelivery(5, "b")]}


def test_the_longest_gap_is_of_those_that_touch_the_time() -> None:
    steady = deliveries("a", 0, 100, 110, 130, 140, 500)
    assert longest_gap_ms(steady, 105 * MS, 135 * MS) == 20
    assert longest_gap_ms(steady, 95 * MS, 135 * MS) == 100
    assert longest_gap_ms(steady, 600 * MS, 700 * MS) == 100


def test_what_stays_is_compared_with_itself_and_what_moves_is_timed() -> None:
    effect = effect_of(
        {0: deliveries("a", 0, 10, 20, 35, 40), 1: deliveries("a", 0, 10, 22) + deliveries("b", 31, 40)},
        5 * MS,
        21 * MS,
        40 * MS,
    )
    assert (effect.unmoved, effect.undisturbed, effect.moved) == ([15], [15], [9])
    before = effect_of({0: deliveries("a", 0, 10, 20, 25, 30, 37, 40)}, 0, 22 * MS, 40 * MS)
    assert (before.unmoved, before.undisturbed) == ([7], [10])
    effect.add(before)
    assert (effect.unmoved, effect.undisturbed, effect.moved) == ([15, 7], [15, 10], [9])


def test_stops_are_held_against_two_heartbeats_after_a_crash_beyond_the_session() -> None:
    effect = effect_of({1: deliveries("a", 0, 10) + deliveries("b", 31, 40)}, 0, 15 * MS, 40 * MS)
    join, crash = lines_of({"join": effect, "crash": effect}, session_ms=10, heartbeat_ms=10)
    assert (join.target, join.met) == (20, False)
    assert (crash.target, crash.met) == (30, True)
    assert "= 1.10 heartbeats beyond the session" in crash.figure


def described(epoch: int, *members: MemberDescription) -> GroupDescription:
    return GroupDescription("g", GroupState.STABLE, epoch, epoch, "uniform", members, 1)


def member(member_id: str, epoch: int, partition: int) -> MemberDescription:
    has = (TopicPartition("t", partition),)
    return MemberDescription(member_id, None, None, "c", "h", epoch, ("t",), None, has, has, True)


def test_every_difference_of_a_group_is_named() -> None:
    before = described(3, member("a", 3, 0), member("b", 3, 1))
    assert differences(before, before) == []
    found = differences(before, described(4, member("a", 4, 0), member("c", 4, 1)))
    assert [one.split()[0:2] for one in found] == [
        ["group_epoch", "was"],
        ["assignment_epoch", "was"],
        ["member", "a"],
        ["member", "b"],
        ["member", "c"],
    ]
