"""Members of classic groups may only receive the assignment that the log has for their generation.

This includes entries of several steps: a coordinator decides together the requests that arrive together.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.server.groups.classic.classic_records import change_of
from quorumlog.simulator.consumer_groups.classic_members import ClassicHistory
from quorumlog.simulator.models.classic_model import ModelClassic
from quorumlog.simulator.models.committed_partition import Violation

A, B = "a", "b"
PARTS = {A: b"0", B: b"1"}


def member(name: str, instance: str = "") -> ClassicMember:
    return ClassicMember(name, instance, protocols=(("range", b""),))


def round_of(before: ClassicGroup, *members: ClassicMember) -> ClassicGroup:
    return before.next_round({each.member_id: each for each in members}, "consumer", "range", members[0].member_id)


#: Two members whose leader is to assign.
SYNCING = round_of(ClassicGroup(), member(A, "static"), member(B))


class Log:
    """A coordinator's log, and a history of what members receive."""

    def __init__(self, said: dict[str, bytes] | None = PARTS) -> None:
        self.model = ModelClassic()
        self.group: ClassicGroup | None = None
        self.history = ClassicHistory("g", bytes(16), 2, lambda: self.model)
        if said is not None:
            self.history.leader_says(1, said)
        self.commit(SYNCING)

    def commit(self, after: ClassicGroup) -> None:
        """One entry that makes the group this."""
        self.model.judge("entry", change_of(self.group, after))
        self.group = after

    def is_right(self, name: str, part: bytes) -> bool:
        """True if a member that synced in the first generation may receive this assignment."""
        try:
            self.history.judge("sync", name, 1, held=True, part=part)
        except Violation:
            return False
        return True


def stays(after: ClassicGroup) -> ClassicGroup:
    return after


def leader_is_replaced(after: ClassicGroup) -> ClassicGroup:
    return after.replaced(A, member("c", "static"))


def leader_leaves(after: ClassicGroup) -> ClassicGroup:
    return after.without([A])


def all_leave(after: ClassicGroup) -> ClassicGroup:
    return after.without([A, B]).emptied()


def all_join_again(after: ClassicGroup) -> ClassicGroup:
    return round_of(after.joining(), member(A, "static"), member(B))


MEANWHILE = (stays, ClassicGroup.joining, leader_is_replaced, leader_leaves, all_leave, all_join_again)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_a_leader_has_assigned_is_told_whatever_was_decided_together_with_it(
    meanwhile: Callable[[ClassicGroup], ClassicGroup],
) -> None:
    log = Log()
    log.commit(meanwhile(SYNCING.assigned(PARTS)))
    for name, part in PARTS.items():
        assert log.is_right(name, part)
        assert not log.is_right(name, b"2")
        assert not log.is_right(name, b"")


@pytest.mark.parametrize("meanwhile", [ClassicGroup.joining, leader_leaves, all_leave, all_join_again])
def test_what_no_leader_has_said_is_told_nobody(meanwhile: Callable[[ClassicGroup], ClassicGroup]) -> None:
    log = Log(said=None)
    log.commit(meanwhile(SYNCING))
    assert not any(log.is_right(name, part) for name, part in PARTS.items())


def test_what_a_leader_says_is_told_nobody_before_the_log_has_it() -> None:
    log = Log()
    assert not any(log.is_right(name, part) for name, part in PARTS.items())


def test_who_stays_is_told_what_the_log_has_whatever_the_leader_has_said() -> None:
    log = Log(said={A: b"1", B: b"0"})
    log.commit(leader_leaves(SYNCING.assigned(PARTS)))
    assert log.is_right(B, b"1") and not log.is_right(B, b"0")
