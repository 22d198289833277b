"""Committed offsets: the members and epochs that may commit (KIP-1251), reading, deletion and retention."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from group_samples import GROUP, Client, Coordinator, Topics, partitions, topic_id, until_stable

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.administration import add_offsets, delete_group, describe, listing
from quorumlog.server.groups.committed_offsets import commit_offsets, delete_offsets, fetch_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.member import PartitionId
from quorumlog.server.groups.periodic_checks import expire_offsets
from quorumlog.server.groups.records import partition_lists
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

DAY_MS = 86_400_000


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(Topics(t=4, u=2))


def commit(
    coordinator: Coordinator,
    rows: dict[PartitionId, int],
    *,
    member: str = "",
    epoch: int = -1,
    metadata: str = "",
    group: str = GROUP,
    number: int = 0,
) -> list[str]:
    """Commits; returns what became of each row, or of the request."""
    offsets = [
        pb.CommittedOffset(topic_id=topic, partition=number, offset=offset, leader_epoch=3, metadata=metadata)
        for (topic, number), offset in rows.items()
    ]
    request = pb.CommitOffsetsRequest(
        group_id=group, member_id=member, member_epoch=epoch, offsets=offsets, number=number
    )
    answer = coordinator.decide(lambda draft: commit_offsets(draft, request))
    if answer.HasField("error"):
        assert not answer.results
        return [ErrorCode.Name(answer.error.code)]
    assert [(row.topic_id, row.partition) for row in answer.results] == list(rows)
    return [ErrorCode.Name(row.error.code) for row in answer.results]


def committed(
    coordinator: Coordinator, of: Iterable[PartitionId] = (), *, member: str = "", epoch: int = -1
) -> dict[PartitionId, int] | str:
    request = pb.FetchOffsetsRequest(group_id=GROUP, member_id=member, member_epoch=epoch, topics=partition_lists(of))
    answer = coordinator.decide(lambda draft: fetch_offsets(draft, request))
    if answer.HasField("error"):
        return ErrorCode.Name(answer.error.code)
    return {(row.topic_id, row.partition): row.offset for row in answer.offsets}


T0, T1, T2, T3 = sorted(partitions("t", 0, 1, 2, 3))
U0 = (topic_id("u"), 0)


# -- members ----------------------------------------------------------------------------------------------------------


def test_a_member_commits_what_it_has(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a")
    until_stable([a])
    assert commit(coordinator, {T0: 5, T1: 7}, member="a", epoch=1, metadata="x") == ["NONE", "NONE"]
    assert committed(coordinator) == {T0: 5, T1: 7}
    assert committed(coordinator, [T1, T2], member="a", epoch=1) == {T1: 7}
    stored = coordinator.group.offsets[T0]
    assert (stored.leader_epoch, stored.metadata, stored.commit_timestamp_ms) == (3, "x", coordinator.wall_ms)


def test_a_commit_that_comes_late_takes_no_later_one_back(coordinator: Coordinator) -> None:
    """A late commit does not undo a later one, and is not an error: the client has given it up already."""
    a = Client(coordinator, "a")
    until_stable([a])
    assert commit(coordinator, {T0: 5}, member="a", epoch=1, number=1) == ["NONE"]
    assert commit(coordinator, {T0: 9}, member="a", epoch=1, number=3) == ["NONE"]
    assert commit(coordinator, {T0: 7, T1: 7}, member="a", epoch=1, number=2) == ["NONE", "NONE"]
    assert committed(coordinator) == {T0: 9, T1: 7}
    assert commit(coordinator, {T0: 2}, member="a", epoch=1, number=4) == ["NONE"], "a member may go back"
    assert committed(coordinator) == {T0: 2, T1: 7}


def test_an_older_epoch_counts_for_what_the_member_has_had_since(coordinator: Coordinator) -> None:
    """A commit of an older epoch counts for partitions owned since then: it may be in flight when the epoch changes."""
    a = Client(coordinator, "a")
    until_stable([a])
    b = Client(coordinator, "b")
    b.beat()
    a.beat()
    lost, kept = sorted(a.to_revoke), sorted(a.owned - a.to_revoke)
    assert commit(coordinator, {lost[0]: 1, kept[0]: 1}, member="a", epoch=1) == ["NONE", "NONE"], "not given up yet"
    a.revoke()
    a.beat()
    assert a.epoch == 2
    assert commit(coordinator, {kept[0]: 2, lost[0]: 2}, member="a", epoch=1) == ["NONE", "STALE_MEMBER_EPOCH"]
    b.beat()
    assert commit(coordinator, {lost[0]: 3}, member="b", epoch=2) == ["NONE"]
    assert commit(coordinator, {lost[0]: 2}, member="a", epoch=2) == ["STALE_MEMBER_EPOCH"], "it is another's by now"
    assert commit(coordinator, {lost[0]: 2}, member="b", epoch=1) == ["STALE_MEMBER_EPOCH"], "b was not there yet"
    assert committed(coordinator) == {kept[0]: 2, lost[0]: 3}


def test_a_partition_that_comes_back_begins_anew(coordinator: Coordinator) -> None:
    """A commit from before a partition was assigned again is refused: another member may have owned it in between."""
    a = Client(coordinator, "a")
    until_stable([a])
    b = Client(coordinator, "b")
    until_stable([a, b])
    b.leave()
    until_stable([a])
    old, new = sorted(coordinator.group.members["a"].assigned.items(), key=lambda row: row[1])[::3]
    assert (old[1], new[1]) == (1, 3)
    assert commit(coordinator, {old[0]: 1, new[0]: 1}, member="a", epoch=2) == ["NONE", "STALE_MEMBER_EPOCH"]


def test_what_nobody_has_a_member_may_commit_in_its_present_epoch(coordinator: Coordinator) -> None:
    until_stable([Client(coordinator, "a")])
    assert commit(coordinator, {U0: 5}, member="a", epoch=1) == ["NONE"]
    assert commit(coordinator, {U0: 5}, member="a", epoch=2) == ["STALE_MEMBER_EPOCH"]
    assert commit(coordinator, {U0: 5}, member="a", epoch=0) == ["STALE_MEMBER_EPOCH"]


def test_who_is_no_member_commits_nothing_while_there_are_members(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a", instance="one")
    until_stable([a])
    assert commit(coordinator, {T0: 5}) == ["UNKNOWN_MEMBER_ID"]
    assert commit(coordinator, {T0: 5}, member="b", epoch=1) == ["UNKNOWN_MEMBER_ID"]
    assert commit(coordinator, {T0: 5}, member="", epoch=1) == ["UNKNOWN_MEMBER_ID"]
    a.leave(-2)
    assert commit(coordinator, {T0: 5}) == ["UNKNOWN_MEMBER_ID"], "it is expected back"
    assert commit(coordinator, {T0: 5}, member="a", epoch=1) == ["STALE_MEMBER_EPOCH"]
    a.leave(-1)
    assert commit(coordinator, {T0: 5}) == ["NONE"]
    assert commit(coordinator, {T0: 6}, member="a", epoch=1) == ["UNKNOWN_MEMBER_ID"]


def test_a_member_asks_in_its_epoch(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a")
    until_stable([a])
    commit(coordinator, {T0: 5}, member="a", epoch=1)
    until_stable([a, Client(coordinator, "b")])
    assert committed(coordinator, member="a", epoch=2) == {T0: 5}
    assert committed(coordinator, [T0], member="a", epoch=1) == {T0: 5}
    assert committed(coordinator, [T0], member="a", epoch=3) == "STALE_MEMBER_EPOCH"
    assert committed(coordinator, [T0], member="a", epoch=0) == "STALE_MEMBER_EPOCH"
    assert committed(coordinator, member="a", epoch=1) == "STALE_MEMBER_EPOCH"
    assert committed(coordinator, [T0], member="c", epoch=1) == "UNKNOWN_MEMBER_ID"
    assert committed(coordinator, [T0]) == {T0: 5}, "who only looks needs no epoch"


# -- clients without a member -----------------------------------------------------------------------------------------


def test_a_commit_makes_a_group_without_members(coordinator: Coordinator) -> None:
    assert committed(coordinator) == {}
    assert commit(coordinator, {T0: 5, T1: 0}) == ["NONE", "NONE"]
    assert listing(coordinator.group) == pb.GroupListing(
        group_id=GROUP, state=pb.GROUP_EMPTY, kind=pb.GROUP_KIND_CONSUMER
    )
    assert coordinator.group.header.empty_since_ms == coordinator.wall_ms


def test_what_is_refused_does_not_keep_the_rest_from_being_stored(coordinator: Coordinator) -> None:
    rows = {T0: 5, (topic_id("t"), 4): 1, (topic_id("t"), -1): 1, (b"?", 0): 1, T1: -1}
    no_partition = "UNKNOWN_TOPIC_OR_PARTITION"
    assert commit(coordinator, rows) == ["NONE", no_partition, no_partition, no_partition, "INVALID_REQUEST"]
    assert committed(coordinator) == {T0: 5}
    assert commit(coordinator, {T1: 1}, metadata="ä" * 2_049) == ["OFFSET_METADATA_TOO_LARGE"]
    assert commit(coordinator, {T1: 1}, metadata="ä" * 2_048) == ["NONE"]
    assert commit(coordinator, {T0: 1}, group="") == ["INVALID_GROUP_ID"]


def test_a_commit_of_which_nothing_is_stored_makes_no_group(coordinator: Coordinator) -> None:
    assert commit(coordinator, {T0: -1}) == ["INVALID_REQUEST"]
    assert coordinator.table.groups == {}


def test_offsets_and_groups_have_limits() -> None:
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(offsets=2, groups=1))
    assert commit(coordinator, {T0: 1, T1: 1, T2: 1}) == ["NONE", "NONE", "GROUP_MAX_SIZE_REACHED"]
    assert commit(coordinator, {T0: 2}) == ["NONE"]
    assert commit(coordinator, {T0: 2}, group="h") == ["GROUP_MAX_SIZE_REACHED"]


def test_offsets_of_all_groups_together_have_a_limit() -> None:
    """The offsets of all groups have a shared limit: a group may have a hundred thousand, each with four kilobytes of
    text."""
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(coordinator_bytes=150))
    assert commit(coordinator, {T0: 1, T1: 1}) == ["NONE", "NONE"]
    assert commit(coordinator, {T2: 1}) == ["NONE"]
    assert commit(coordinator, {T0: 1}, group="h") == ["GROUP_MAX_SIZE_REACHED"]
    assert commit(coordinator, {T0: 2, T1: 2, T2: 2}) == ["NONE"] * 3, "a group that has committed continues"
    delete(coordinator, T1, T2)
    assert commit(coordinator, {T0: 1}, group="h") == ["NONE"]


# -- what goes --------------------------------------------------------------------------------------------------------


def delete(coordinator: Coordinator, *of: PartitionId) -> list[str]:
    request = pb.DeleteOffsetsRequest(group_id=GROUP, topics=partition_lists(of))
    answer = coordinator.decide(lambda draft: delete_offsets(draft, request))
    return [ErrorCode.Name(row.error.code) for row in (answer.results or [answer])]


def test_offsets_are_deleted_where_nobody_subscribes(coordinator: Coordinator) -> None:
    assert delete(coordinator, T0) == ["GROUP_ID_NOT_FOUND"]
    commit(coordinator, {T0: 5, U0: 7})
    a = Client(coordinator, "a")
    until_stable([a])
    assert delete(coordinator, T0, U0) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    assert delete(coordinator, U0) == ["NONE"]
    assert committed(coordinator) == {T0: 5}
    a.leave()
    assert delete(coordinator, T0) == ["NONE"]
    assert committed(coordinator) == {}


def test_a_group_with_members_is_not_deleted(coordinator: Coordinator) -> None:
    def deleted() -> str:
        problem = coordinator.decide(lambda draft: delete_group(draft, GROUP))
        return "NONE" if problem is None else ErrorCode.Name(problem.code)

    assert deleted() == "GROUP_ID_NOT_FOUND"
    a = Client(coordinator, "a")
    until_stable([a])
    commit(coordinator, {T0: 5}, member="a", epoch=1)
    assert deleted() == "NON_EMPTY_GROUP"
    a.leave()
    assert deleted() == "NONE"
    assert GROUP not in coordinator.table.groups
    assert deleted() == "GROUP_ID_NOT_FOUND"


def test_a_group_may_be_deleted_and_made_anew_in_one_draft(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5, T1: 6})

    def both(draft: Draft) -> None:
        assert delete_group(draft, GROUP) is None
        assert draft.group(GROUP) is None
        offset = pb.CommittedOffset(topic_id=T2[0], partition=2, offset=1, leader_epoch=-1)
        commit_offsets(draft, pb.CommitOffsetsRequest(group_id=GROUP, member_epoch=-1, offsets=[offset]))

    coordinator.decide(both)
    assert committed(coordinator) == {T2: 1}


def expire(coordinator: Coordinator, days: int) -> bool:
    coordinator.wall_ms += days * DAY_MS
    return coordinator.decide(lambda draft: expire_offsets(draft, GROUP, 7 * DAY_MS))


def test_an_empty_group_goes_with_its_offsets_after_the_retention(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a")
    until_stable([a])
    commit(coordinator, {T0: 5}, member="a", epoch=1)
    assert not expire(coordinator, 30), "it has members"
    a.leave()
    assert not expire(coordinator, 6)
    assert expire(coordinator, 1)
    assert coordinator.table.groups == {}
    assert not expire(coordinator, 1)


def test_an_empty_group_that_is_committed_to_stays(coordinator: Coordinator) -> None:
    commit(coordinator, {T0: 5})
    assert not expire(coordinator, 6)
    commit(coordinator, {T1: 5})
    assert expire(coordinator, 1)
    assert committed(coordinator) == {T1: 5}
    assert expire(coordinator, 6)
    assert coordinator.table.groups == {}


def test_offsets_of_topics_that_nobody_reads_go(coordinator: Coordinator) -> None:
    commit(coordinator, {U0: 1, T0: 5})
    until_stable([Client(coordinator, "a")])
    assert not expire(coordinator, 6)
    assert expire(coordinator, 1)
    assert committed(coordinator) == {T0: 5}


def test_offsets_of_deleted_topics_go_at_once(coordinator: Coordinator) -> None:
    commit(coordinator, {U0: 1, T0: 5})
    coordinator.topics.delete("u")
    assert committed(coordinator) == {T0: 5}
    assert expire(coordinator, 0)
    assert list(coordinator.group.offsets) == [T0]


def test_a_group_that_never_committed_goes_when_it_is_empty(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a")
    until_stable([a])
    assert not expire(coordinator, 0)
    a.leave()
    assert expire(coordinator, 0)
    assert coordinator.table.groups == {}


# -- descriptions -----------------------------------------------------------------------------------------------------


def test_a_description_shows_what_members_have_and_are_to_have(coordinator: Coordinator) -> None:
    def described(group_id: str = GROUP) -> pb.GroupDescription:
        return coordinator.decide(lambda draft: describe(draft, group_id, 3))

    nothing = described("none")
    assert (nothing.error.code, nothing.state) == (ErrorCode.GROUP_ID_NOT_FOUND, pb.GROUP_DEAD)
    a = Client(coordinator, "a", rack="r")
    until_stable([a])
    Client(coordinator, "b", instance="two").beat()
    group = described()
    assert (group.state, group.group_epoch, group.assignment_epoch) == (pb.GROUP_RECONCILING, 2, 2)
    assert (group.assignor, group.coordinator) == ("uniform", 3)
    first, second = group.members
    assert (first.member_id, first.rack, first.client_id, first.host) == ("a", "r", "client", "127.0.0.1")
    assert (second.member_id, second.instance_id, second.present, second.member_epoch) == ("b", "two", True, 2)
    assert list(first.assignment[0].partitions) == [0, 1, 2, 3]
    assert first.assignment[0].topic == "t"
    assert len(first.target[0].partitions) == len(second.target[0].partitions) == 2
    assert list(first.topics) == ["t"]
    coordinator.topics.delete("t")
    assert described().members[0].assignment[0].topic == ""


def test_a_description_has_what_was_committed_if_there_is_room_for_all_of_it(coordinator: Coordinator) -> None:
    commit(coordinator, {(topic_id("u"), 1): 9, (topic_id("t"), 0): 7}, metadata="by hand")

    def described(room_bytes: int, group_id: str = GROUP) -> tuple[pb.GroupDescription, int]:
        group = pb.GroupDescription(group_id=group_id)
        return group, coordinator.decide(lambda draft: add_offsets(draft, group, room_bytes))

    group, taken = described(1_000)
    assert group.has_offsets
    assert [(row.topic, row.partition, row.offset, row.metadata) for row in group.offsets] == [
        ("t", 0, 7, "by hand"),
        ("u", 1, 9, "by hand"),
    ]
    assert taken == sum(row.ByteSize() for row in group.offsets)
    assert described(taken) == (group, taken)
    too_large, taken = described(taken - 1)
    assert (too_large.has_offsets, list(too_large.offsets), taken) == (False, [], 0)
    nothing, taken = described(1_000, "none")
    assert (nothing.has_offsets, list(nothing.offsets), taken) == (False, [], 0)
