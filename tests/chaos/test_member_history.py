"""Tests that the logs of members are read back, made into a history, and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from quorumlog.chaos.checkers.group_checkers import GroupVerdict, check_groups
from quorumlog.chaos.checkers.group_history import GroupHistory, Part
from quorumlog.chaos.processes.member_history import MemberHistory, MemberLife, keys_in_order
from quorumlog.chaos.processes.member_log import Event, MemberEvent, MemberLog, MemberLogTail, WorkedRecord

END_NS = 1_000_000


def records(first: int, count: int = 1, number: int | None = None) -> tuple[WorkedRecord, ...]:
    """Records of one writer and key, numbered like their offsets unless said otherwise."""
    return tuple(
        WorkedRecord(offset, 0, offset if number is None else number, 5) for offset in range(first, first + count)
    )


def assigned(at_us: int) -> MemberEvent:
    return MemberEvent(at_us * 1_000, Event.ASSIGNED, partitions=(0,))


def gone(event: Event, at_us: int) -> MemberEvent:
    return MemberEvent(at_us * 1_000, event, partitions=(0,))


def worked(at_us: int, done: tuple[WorkedRecord, ...], asked_us: int | None = None) -> MemberEvent:
    asked_ns = (at_us - 2 if asked_us is None else asked_us) * 1_000
    return MemberEvent(
        at_us * 1_000, Event.WORKED, partition=0, records=done, asked_ns=asked_ns, given_ns=(at_us - 1) * 1_000
    )


def commit(number: int, offset: int, at_us: int, told: Event | None = Event.COMMITTED) -> list[MemberEvent]:
    request = MemberEvent(at_us * 1_000, Event.COMMITTING, commit=number, offsets=((0, offset),))
    return [request] if told is None else [request, MemberEvent((at_us + 2) * 1_000, told, commit=number)]


def first_owner(ending: Sequence[MemberEvent] = ()) -> list[MemberEvent]:
    """Works on offsets 0 to 4 and commits 3."""
    return [assigned(10), worked(20, records(0, 3)), *commit(1, 3, 25), worked(30, records(3, 2)), *ending]


def second_owner(first: int, at_us: int = 100) -> list[MemberEvent]:
    """Takes over at an offset, and continues to 9."""
    return [assigned(at_us), worked(at_us + 20, records(first, 10 - first)), *commit(1, 10, at_us + 30)]


def judged(*lives: MemberLife, end: int = 10) -> tuple[GroupVerdict, list[str]]:
    """The verdict on a group, and every anomaly in one line."""
    histories = [MemberHistory(life, "t", END_NS) for life in lives]
    verdict = check_groups(
        GroupHistory(operation for history in histories for operation in history.operations), {Part("g", "t-0"): end}
    )
    found = [anomaly.message for history in histories for anomaly in history.anomalies]
    found += [anomaly.message for anomaly in verdict.anomalies]
    found += [anomaly.message for anomaly in keys_in_order("g", (one for each in histories for one in each.work))]
    return verdict, found


def test_a_killed_members_uncommitted_work_is_done_twice_and_explained() -> None:
    a = MemberLife("a", "g", first_owner(), killed_ns=90_000)
    verdict, found = judged(a, MemberLife("b", "g", second_owner(3)))
    assert found == []
    assert dict(verdict.duplicates) == {"crashed, it was not committed": 2}
    assert verdict.processed == 12


@pytest.mark.parametrize(
    ("first", "message"),
    [(2, "committed before b read the start offset"), (4, "never committed"), (0, "after 3")],
)
def test_who_takes_over_begins_where_it_was_committed(first: int, message: str) -> None:
    a = MemberLife("a", "g", first_owner(), killed_ns=90_000)
    _, found = judged(a, MemberLife("b", "g", second_owner(first)))
    assert any(message in one for one in found), found


def test_a_commit_of_which_nobody_knows_may_have_been_taken() -> None:
    a = MemberLife("a", "g", first_owner(commit(2, 5, 80, told=None)), killed_ns=90_000)
    for first in (3, 5):
        assert judged(a, MemberLife("b", "g", second_owner(first)))[1] == []


def test_two_owners_at_a_time_are_found_whoever_still_has_it() -> None:
    keeper = MemberLife("a", "g", first_owner())
    assert "still has it" in judged(keeper, MemberLife("b", "g", second_owner(3)))[1][0]
    late = MemberLife("a", "g", first_owner([gone(Event.REVOKED, 101)]))
    assert "gave it up" in judged(late, MemberLife("b", "g", second_owner(3)))[1][0]
    dying = MemberLife("a", "g", first_owner(), killed_ns=101_000)
    assert "crashed" in judged(dying, MemberLife("b", "g", second_owner(3)))[1][0]


def test_a_stopped_member_may_hear_late_of_what_it_lost_but_is_given_nothing_more() -> None:
    stopped = [(50_000, 200_000)]
    b = MemberLife("b", "g", second_owner(3))
    heard = MemberLife("a", "g", first_owner([gone(Event.LOST, 205)]), stopped)
    assert judged(heard, b)[1] == []
    # Given before it was stopped, for all that anybody can say; worked on after.
    straddling = [worked(202, records(5, 1), asked_us=40), gone(Event.LOST, 205)]
    assert (
        judged(MemberLife("a", "g", first_owner(straddling), stopped), MemberLife("b", "g", second_owner(3)))[1] == []
    )
    given = [worked(204, records(5, 1), asked_us=202), gone(Event.LOST, 205)]
    _, found = judged(MemberLife("a", "g", first_owner(given), stopped), b)
    assert "was cut off" in found[0]


def test_a_member_of_kafkas_goes_on_after_a_stop_until_it_hears_and_commits_nothing_of_that() -> None:
    stopped = [(50_000, 200_000)]
    given = worked(204, records(5, 1), asked_us=202)
    refused = commit(2, 6, 205, Event.REFUSED)
    heard = MemberLife("a", "g", first_owner([given, *refused, gone(Event.LOST, 210)]), stopped, hears_late=True)
    assert judged(heard, MemberLife("b", "g", second_owner(3)))[1] == []
    taken = commit(2, 6, 205)
    heard = MemberLife("a", "g", first_owner([given, *taken, gone(Event.LOST, 210)]), stopped, hears_late=True)
    assert any("it belongs to b" in one for one in judged(heard, MemberLife("b", "g", second_owner(3)))[1])
    # Without a stop nothing explains it.
    going_on = MemberLife("a", "g", first_owner([given, gone(Event.LOST, 210)]), hears_late=True)
    assert "was cut off" in judged(going_on, MemberLife("b", "g", second_owner(3)))[1][0]


def test_a_commit_that_comes_after_the_take_over_must_not_be_taken() -> None:
    late = commit(2, 5, 203)
    a = MemberLife("a", "g", first_owner([*late, gone(Event.LOST, 210)]), [(50_000, 200_000)])
    _, found = judged(a, MemberLife("b", "g", second_owner(3)))
    assert any("it belongs to b" in one for one in found), found
    refused = commit(2, 5, 203, Event.REFUSED)
    a = MemberLife("a", "g", first_owner([*refused, gone(Event.LOST, 210)]), [(50_000, 200_000)])
    assert judged(a, MemberLife("b", "g", second_owner(3)))[1] == []


def test_commits_of_what_nobody_did_and_records_that_nobody_did_are_found() -> None:
    a = MemberLife("a", "g", [assigned(10), worked(20, records(0, 3)), *commit(1, 5, 25)])
    assert "3 is not processed" in judged(a, end=3)[1][0]
    assert "offset 5 of t-0 of group g was never processed" in judged(MemberLife("a", "g", first_owner()))[1][0]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (lambda: [worked(5, records(0))], "was given offset 0 of partition 0, which is not its own"),
        (lambda: [assigned(10), assigned(11)], "was given partition 0, which it has"),
        (lambda: [gone(Event.REVOKED, 10)], "had to give up partition 0, which is not its own"),
        (
            lambda: [assigned(10), worked(20, records(0, 2)), worked(30, records(3, 1))],
            "expects offset 2 of partition 0, and is given [3]",
        ),
        (lambda: [MemberEvent(1, Event.FAILED, message="broken")], "gave up: broken"),
    ],
)
def test_what_a_member_should_not_see_is_found(events: Callable[[], list[MemberEvent]], message: str) -> None:
    assert message in judged(MemberLife("a", "g", events()), end=0)[1][0]


def test_records_of_a_key_out_of_order_are_found_unless_they_are_repetitions_or_straddle_a_stop() -> None:
    early = [worked(40, records(5, number=2))]
    assert "record 2 of writer 0 with key 5 after 4" in judged(MemberLife("a", "g", first_owner(early)), end=6)[1][0]
    again = MemberLife("b", "g", second_owner(3))
    assert judged(MemberLife("a", "g", first_owner(), killed_ns=90_000), again)[1] == []
    straddling = MemberLife("a", "g", first_owner(early), [(39_000, 39_500)])
    assert judged(straddling, end=6)[1] == []


def test_a_file_is_read_as_it_was_written_but_for_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = MemberLogTail(path)
    assert tail.events() == []
    log = MemberLog(path)
    log.note(Event.STARTED)
    log.assigned(Event.ASSIGNED, {2, 1})
    log.worked(1, 7, 8, records(4, 2))
    number = log.committing({1: 6})
    log.refused(number, True, "because")
    assert log.committing({1: 7}) != number
    log.committed(number)
    log.close()
    with path.open("a") as torn:
        torn.write('{"at_ns": 1, "ev')
    events = tail.events()
    assert [one.event.value for one in events] == [
        "started",
        "assigned",
        "worked",
        "committing",
        "refused",
        "committing",
        "committed",
    ]
    assert events[1].partitions == (1, 2)
    assert (events[2].partition, events[2].asked_ns, events[2].given_ns) == (1, 7, 8)
    assert events[2].records == records(4, 2)
    assert events[3].offsets == ((1, 6),)
    assert (events[4].definite, events[4].message) == (True, "because")
    with path.open("a") as rest:
        rest.write('ent": "left"}\n')
    assert tail.events()[-1].event is Event.LEFT


def test_a_line_that_no_member_writes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"at_ns": 1, "event": "started"}\nnonsense\n')
    with pytest.raises(ValueError, match="line 2 is not an event of a member"):
        MemberLogTail(path).events()
