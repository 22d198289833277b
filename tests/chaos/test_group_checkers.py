"""The checkers of consumer groups pass a good history and name what is wrong with a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorumlog.chaos.checkers.group_checkers import Coverage, check_groups
from quorumlog.chaos.checkers.group_history import Act, Ending, GroupHistory, GroupOperation, Part
from quorumlog.chaos.checkers.history import OperationOutcome

PART = Part("g", "t-0")


def act(
    kind: Act,
    member: str,
    begin: int,
    end: int,
    offset: int = -1,
    until: int = -1,
    *,
    outcome: OperationOutcome = OperationOutcome.OK,
    ending: Ending = Ending.REVOKED,
    number: int = 0,
) -> GroupOperation:
    """An operation on the one partition."""
    return GroupOperation("g", "t-0", member, kind, begin, end, outcome, offset, until, ending, number)


def handover() -> list[GroupOperation]:
    """One member does and commits two records, does a third, and is cut off; the next one starts with the third."""
    return [
        act(Act.READ_COMMITTED, "a", 11, 12, -1),
        act(Act.PROCESS, "a", 15, 20, 0, 2),
        act(Act.COMMIT, "a", 21, 25, 2),
        act(Act.PROCESS, "a", 26, 30, 2, 3),
        act(Act.COMMIT, "a", 31, 60, 3, outcome=OperationOutcome.INFO),
        act(Act.OWN, "a", 10, 50, ending=Ending.LOST),
        act(Act.READ_COMMITTED, "b", 56, 57, 2),
        act(Act.PROCESS, "b", 60, 70, 2, 4),
        act(Act.COMMIT, "b", 70, 75, 4),
        act(Act.OWN, "b", 55, 99, ending=Ending.OPEN),
    ]


def messages(operations: list[GroupOperation], end: int = 4, tolerance_us: int = 0) -> str:
    """Returns the anomalies."""
    verdict = check_groups(GroupHistory(operations), {PART: end}, tolerance_us, knows_when_work_ends=True)
    return "; ".join(anomaly.message for anomaly in verdict.anomalies)


def changed(place: int, **fields: object) -> list[GroupOperation]:
    """The handover, with one operation otherwise."""
    operations = handover()
    for name, value in fields.items():
        setattr(operations[place], name, value)
    return operations


def test_a_handover_is_fine_and_what_was_done_twice_is_explained() -> None:
    verdict = check_groups(GroupHistory(handover()), {PART: 4})
    assert not verdict.anomalies
    assert verdict.processed == 5
    assert dict(verdict.duplicates) == {"was cut off or put out, its commit was rejected or not answered": 1}


@pytest.mark.parametrize(
    ("place", "fields", "message"),
    [
        (9, {"invoked_us": 49}, "b works on t-0 of group g from 49 µs on, but a, which was cut off"),
        (
            4,
            {"outcome": OperationOutcome.OK, "invoked_us": 56},
            "a commits offset 3 of t-0 of group g, asked for at 56 µs",
        ),
        (8, {"invoked_us": 5}, "it belongs to no member"),
        (5, {"returned_us": 29}, "a processes t-0 of group g from 2 to 3 between 26 and 30 µs, but does not own"),
        (8, {"offset": 1}, "b commits offset 1 of t-0 of group g after 2"),
        (6, {"offset": -1}, "b reads the committed offset -1 of t-0 of group g after 2"),
        (6, {"offset": 7}, "b reads offset 7 of t-0 of group g, which was never committed"),
        (8, {"invoked_us": 65}, "b commits offset 4 of t-0 of group g; 3 is not processed"),
        (7, {"offset": 3}, ""),
        (7, {"end": 3}, "offset 3 of t-0 of group g was never processed"),
        (7, {"offset": 1}, "b processes t-0 of group g from 1 to 3 again: a had done so, and it was committed before"),
    ],
)
def test_a_broken_promise_is_named(place: int, fields: dict[str, object], message: str) -> None:
    found = messages(changed(place, **fields))
    assert message in found if message else not found


def test_a_skew_of_clocks_is_allowed_to_those_who_were_cut_off_only() -> None:
    late = changed(9, invoked_us=49)
    assert not messages(late, tolerance_us=1)
    late[5].ending = Ending.REVOKED
    assert "gave it up" in messages(late, tolerance_us=1)


def test_a_commit_at_the_instant_of_a_handover_may_be_of_either_owner() -> None:
    assert not messages(changed(8, invoked_us=55, offset=2)), "by whom it is given"
    assert not messages(changed(4, invoked_us=55, outcome=OperationOutcome.OK)), "by whom it is taken"
    assert "c commits offset 2 of t-0 of group g" in messages([*handover(), act(Act.COMMIT, "c", 55, 75, 2)])


def overtaken(commits: list[tuple[int, int, int]], told: int) -> list[GroupOperation]:
    """A member commits (number, offset, when it gets there), reads its position again, and continues from there."""
    return [
        act(Act.PROCESS, "a", 11, 20, 0, 4),
        *(act(Act.COMMIT, "a", 20 + number, when, offset, number=number) for number, offset, when in commits),
        act(Act.READ_COMMITTED, "a", 50, 51, told),
        act(Act.PROCESS, "a", 60, 70, told, 4),
        act(Act.OWN, "a", 10, 99, ending=Ending.OPEN),
    ]


def test_a_member_may_take_its_own_commit_back_by_a_later_one() -> None:
    assert not messages(overtaken([(1, 4, 30), (2, 3, 40)], told=3))
    assert not messages(overtaken([(1, 4, 30), (2, 3, 40)], told=4)), "as if the later one had not got there yet"
    found = messages(overtaken([(1, 4, 30), (2, 3, 40)], told=2))
    assert "a reads the committed offset 2 of t-0 of group g after 4" in found


def test_a_commit_that_comes_behind_a_later_one_of_its_member_stores_nothing() -> None:
    assert not messages(overtaken([(2, 4, 30), (1, 3, 40)], told=4))
    assert "reads the committed offset 3" in messages(overtaken([(2, 4, 30), (1, 3, 40)], told=3))


def test_commits_in_flight_together_may_be_carried_out_in_any_order() -> None:
    """Those of Kafka's clients have no number, and librdkafka retries each after a random pause."""

    def read(first: tuple[int, int], told: int) -> str:
        commits = [act(Act.COMMIT, "a", *first, 3), act(Act.COMMIT, "a", 25, 30, 4)]
        done, *later = overtaken([], told)
        return messages([done, *commits, *later])

    assert [read((21, 40), told) for told in (3, 4)] == ["", ""]
    assert "reads the committed offset 2 of t-0 of group g after 4" in read((21, 40), 2)
    assert "reads the committed offset 3 of t-0 of group g after 4" in read((21, 24), 3)


def test_who_is_late_to_give_up_is_put_out_while_it_works() -> None:
    late = changed(9, invoked_us=40)
    late[5].ending = Ending.OVERDUE
    assert not messages(late)


def test_records_that_are_not_kept_need_not_be_processed() -> None:
    operations = handover()
    assert "was never processed" in messages(operations, end=9)
    assert not messages([*operations, act(Act.PASS, "b", 80, 80, 4, 9)], end=9)


def test_a_partition_that_nobody_has_read_is_named() -> None:
    assert "t-0 of group g was never read" in messages([], end=1)
    assert not messages([], end=0)


def test_coverage_names_what_was_in_it_before() -> None:
    covered = Coverage()
    assert covered.add(0, 2) == []
    assert covered.add(4, 6) == []
    assert covered.first_missing() == 2
    assert covered.add(1, 5) == [(1, 2), (4, 5)]
    assert covered.first_missing() == covered.first_missing(3) == 6
    assert covered.first_missing(7) == 7


def test_a_history_is_written_line_by_line(tmp_path: Path) -> None:
    GroupHistory(handover()).save(tmp_path / "groups.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert len(rows) == len(handover())
    assert rows[4]["act"] == "commit"
    assert rows[4]["outcome"] == "info"
