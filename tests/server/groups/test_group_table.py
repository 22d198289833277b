"""A coordinator's log: applying puts values in place, in order, and stops at what must never be."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest
from group_samples import GROUP, ORIGIN, Client, Coordinator, Topics, partitions, request, until_stable

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.administration import delete_group
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import StoredOffset
from quorumlog.server.groups.group_edit import OverlaidOffsets
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeats
from quorumlog.server.groups.member import UNREVOKED, GroupMember
from quorumlog.server.groups.records import member_record, target_record
from quorumlog.v1.coordinator_log_pb2 import GroupChange, GroupCommand, GroupHeader


@pytest.fixture
def coordinator() -> Coordinator:
    """Returns a coordinator with two members, one of which has partitions to release."""
    coordinator = Coordinator(Topics(t=4))
    a = Client(coordinator, "a")
    until_stable([a])
    Client(coordinator, "b").beat()
    a.beat()
    return coordinator


def change(coordinator: Coordinator) -> GroupChange:
    version = coordinator.group.version
    return GroupChange(group_id=GROUP, base_version=version, version=version + 1)


def test_versions_follow_each_other(coordinator: Coordinator) -> None:
    last = coordinator.commands[-1]
    with pytest.raises(AssertionError, match="based on version"):
        coordinator.table.apply(last)
    skipped = change(coordinator)
    skipped.version += 1
    with pytest.raises(AssertionError, match="skips versions"):
        coordinator.table.apply(GroupCommand(changes=[skipped]))
    with pytest.raises(AssertionError, match="twice"):
        coordinator.table.apply(GroupCommand(changes=[change(coordinator), change(coordinator)]))


def _member(coordinator: Coordinator, name: str, **changes: object) -> GroupChange:
    made = change(coordinator)
    made.members.append(member_record(dataclasses.replace(coordinator.group.members[name], **changes)))  # type: ignore[arg-type]
    return made


def _given_before_released(coordinator: Coordinator) -> GroupChange:
    held = coordinator.group.members["a"].revoking
    return _member(coordinator, "b", assigned=dict.fromkeys(held, 2))


def _had_and_released(coordinator: Coordinator) -> GroupChange:
    member = coordinator.group.members["a"]
    return _member(coordinator, "a", assigned={**member.assigned, **member.revoking})


def _ahead(coordinator: Coordinator) -> GroupChange:
    return _member(coordinator, "b", member_epoch=3)


def _back(coordinator: Coordinator) -> GroupChange:
    return _member(coordinator, "b", member_epoch=1)


def _not_there(coordinator: Coordinator) -> GroupChange:
    return _member(coordinator, "a", member_epoch=2, state=1, assigned={}, revoking={})


def _renamed(coordinator: Coordinator) -> GroupChange:
    return _member(coordinator, "b", instance_id="x")


def _assigned_twice(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.targets.append(target_record("b", partitions("t", 0, 1, 2, 3)))
    return made


def _nobody_reads(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.targets.append(target_record("b", partitions("t", 9)))
    return made


def _epoch_back(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.header.CopyFrom(GroupHeader(group_epoch=1, assignment_epoch=1))
    return made


def _assignment_ahead(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.header.CopyFrom(GroupHeader(group_epoch=2, assignment_epoch=3))
    return made


def _without_target(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.members.append(member_record(GroupMember("c")))
    made.targets.append(target_record("b", ()))
    return made


def _ended_with_members(coordinator: Coordinator) -> GroupChange:
    made = change(coordinator)
    made.version = 0
    return made


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_given_before_released, "two holders"),
        (_had_and_released, "has what it releases"),
        (_ahead, "ahead of the assignment"),
        (_back, "went back"),
        (_not_there, "not where it says"),
        (_renamed, "changed its static name"),
        (_assigned_twice, "assigned twice"),
        (_nobody_reads, "no member reads"),
        (_epoch_back, "group epoch went back"),
        (_assignment_ahead, "ahead of its group"),
        (_without_target, "targets of others"),
        (_ended_with_members, "ends with members"),
    ],
)
def test_a_replica_stops_at_what_must_never_be(
    coordinator: Coordinator, broken: Callable[[Coordinator], GroupChange], message: str
) -> None:
    assert coordinator.group.members["a"].state == UNREVOKED
    with pytest.raises(AssertionError, match=message):
        coordinator.replica.apply(GroupCommand(changes=[broken(coordinator)]))


def test_two_members_do_not_share_a_static_name() -> None:
    coordinator = Coordinator(Topics(t=1))
    until_stable([Client(coordinator, "a", instance="x")])
    made = change(coordinator)
    made.members.append(member_record(GroupMember("b", "x")))
    with pytest.raises(AssertionError, match="same static name"):
        coordinator.table.apply(GroupCommand(changes=[made]))


def test_a_snapshot_is_the_whole_state(coordinator: Coordinator) -> None:
    coordinator.restart()
    until_stable([Client(coordinator, "c")])
    assert GroupTable.from_snapshot(GroupTable().to_snapshot(0))[0].groups == {}


def test_who_knows_less_of_the_topics_decides_nothing(coordinator: Coordinator) -> None:
    index = coordinator.topics.index
    assert coordinator.table.metadata_index == index
    coordinator.restart()
    assert coordinator.table.metadata_index == index
    coordinator.topics.index -= 1
    with pytest.raises(AssertionError, match="older than what was decided"):
        Draft(coordinator.table, coordinator.topics, coordinator.limits, 0)


def test_a_draft_leaves_the_table_as_it_is(coordinator: Coordinator) -> None:
    before = coordinator.table.to_snapshot(1)
    draft = Draft(coordinator.table, coordinator.topics, coordinator.limits, 0)
    heartbeats(draft, [(request("c", 0), ORIGIN), (request("a", -1), ORIGIN)])
    assert draft.changed(GROUP)
    assert draft.command() is not None
    assert coordinator.table.to_snapshot(1) == before


def test_who_joins_and_leaves_in_one_draft_leaves_an_empty_group() -> None:
    coordinator = Coordinator(Topics(t=1))
    coordinator.heartbeats(request("a", 0), request("a", -1))
    assert not coordinator.group.members


def test_a_group_that_is_deleted_and_joined_in_one_draft_begins_anew_with_its_epochs() -> None:
    coordinator = Coordinator(Topics(t=1))
    a = Client(coordinator, "a")
    until_stable([a])
    a.leave()
    epoch = coordinator.group.group_epoch

    def both(draft: Draft) -> None:
        assert delete_group(draft, GROUP) is None
        heartbeats(draft, [(request("b", 0), ORIGIN)])

    coordinator.decide(both)
    assert coordinator.group.members.keys() == {"b"}
    assert coordinator.group.group_epoch == epoch + 1


def test_overlaid_offsets_are_a_mapping() -> None:
    one, two, three = (StoredOffset(offset, -1, "", 0) for offset in (1, 2, 3))
    (a, b, c) = sorted(partitions("t", 0, 1, 2))
    overlaid = OverlaidOffsets({a: one, b: two})
    overlaid[b] = three
    overlaid[c] = one
    del overlaid[a]
    assert dict(overlaid) == {b: three, c: one}
    assert len(overlaid) == 2
    with pytest.raises(KeyError):
        del overlaid[a]


def test_two_hundred_members_join_a_thousand_partitions_in_no_time() -> None:
    """The target is computed once for all of them. The bound is far off, so that a loaded machine does not matter."""
    coordinator = Coordinator(Topics(t=1_000))
    joins = [(request(f"m{number:03}", 0), ORIGIN) for number in range(200)]
    draft = Draft(coordinator.table, coordinator.topics, ConsumerGroupLimits(), 0)
    began = time.thread_time()
    heartbeats(draft, joins)
    command = draft.command()
    assert command is not None
    coordinator.table.apply(command)
    assert time.thread_time() - began < 0.5
    assert {len(target) for target in coordinator.group.targets.values()} == {5}
    assert coordinator.group.group_epoch == 1
