"""Administration of groups against scripted coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from scripted_cluster import TOPIC_ID, Code, ScriptedCluster, error
from scripted_groups import Asked, ScriptedCoordinators, ScriptedGroup

from quorumlog.sdk import (
    Admin,
    GroupIdNotFoundError,
    GroupListing,
    GroupState,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetAndMetadata,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.aio import AsyncAdmin
from quorumlog.v1 import errors_pb2, groups_pb2

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest_asyncio.fixture
async def script() -> AsyncIterator[ScriptedCoordinators]:
    """Three nodes, each of which leads one partition of ``__groups``; topic ``t`` has offsets 5 to 100."""
    nodes = ScriptedCluster(nodes=3, partitions=2)
    for log in nodes.logs:
        log.log_start, log.next_offset = 5, 100
    made = ScriptedCoordinators(nodes)
    await nodes.start()
    yield made
    await nodes.stop()


@pytest_asyncio.fixture
async def admin(script: ScriptedCoordinators) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(bootstrap_servers=script.cluster.bootstrap_servers, request_timeout_ms=5_000) as made:
        yield made


def active() -> ScriptedGroup:
    """A group with a member that has partition 0 and is to have both."""
    has = groups_pb2.TopicPartitions(topic_id=TOPIC_ID, topic="t", partitions=[0])
    target = groups_pb2.TopicPartitions(topic_id=TOPIC_ID, topic="t", partitions=[1, 0])
    member = groups_pb2.MemberDescription(
        member_id="m",
        client_id="c",
        host="127.0.0.1",
        member_epoch=2,
        topics=["t"],
        assignment=[has],
        target=[target],
        present=True,
    )
    return ScriptedGroup(members=[member])


async def test_groups_of_all_coordinators_are_listed(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    script.groups = {"c": ScriptedGroup(), "b": active(), "a": ScriptedGroup()}
    assert await admin.list_groups() == [
        GroupListing("a", GroupState.EMPTY, 0),
        GroupListing("b", GroupState.STABLE, 1),
        GroupListing("c", GroupState.EMPTY, 0),
    ]
    assert [group.group_id for group in await admin.list_groups(["stable", GroupState.ASSIGNING])] == ["b"]


async def test_a_coordinator_that_moves_during_a_list_is_asked_where_it_is(
    script: ScriptedCoordinators, admin: AsyncAdmin
) -> None:
    script.groups = {group_id: ScriptedGroup() for group_id in "abc"}
    stale = list(script.leaders)
    script.elect(0, script.leaders[1][0])

    def refuse(asked: Asked) -> errors_pb2.Error | None:
        script.shown = stale if script.count("FindCoordinators") < 3 else None
        return None

    script.refuse = refuse
    assert [group.group_id for group in await admin.list_groups()] == ["a", "b", "c"]


async def test_a_group_is_described_with_its_members(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    script.groups = {"g": active(), "empty": ScriptedGroup()}
    empty, group = await admin.describe_groups(["empty", "g"])
    assert (empty.state, empty.assignor, empty.members) == (GroupState.EMPTY, None, ())
    assert (group.group_id, group.state, group.assignor) == ("g", GroupState.STABLE, "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    assert group.coordinator == script.leaders[script.partition("g")][0]
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack, member.topic_pattern) == ("m", None, None, None)
    assert (member.assignment, member.target) == ((T0,), (T0, T1))
    with pytest.raises(GroupIdNotFoundError):
        await admin.describe_groups(["g", "nope"])


async def test_offsets_are_set_and_read_and_deleted(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    assert await admin.list_group_offsets("g") == {}
    await admin.alter_group_offsets("g", {T1: OffsetAndMetadata(7, "by hand", 3), T0: 5})
    assert await admin.list_group_offsets("g") == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(7, "by hand", 3)}
    assert await admin.list_group_offsets("g", [T1]) == {T1: OffsetAndMetadata(7, "by hand", 3)}
    assert await admin.list_group_offsets("g", []) == {}
    await admin.delete_group_offsets("g", [T1])
    assert await admin.list_group_offsets("g") == {T0: OffsetAndMetadata(5)}


@pytest.mark.parametrize("knows_offsets", [True, False])
async def test_groups_are_described_with_what_they_have_committed(
    script: ScriptedCoordinators, admin: AsyncAdmin, knows_offsets: bool
) -> None:
    script.knows_offsets = knows_offsets
    await admin.alter_group_offsets("g", {T1: OffsetAndMetadata(7, "by hand", 3), T0: 5})
    script.groups["empty"] = ScriptedGroup()
    empty, group = await admin.describe_groups(["empty", "g"], include_offsets=True)
    assert group.offsets == {T0: OffsetAndMetadata(5), T1: OffsetAndMetadata(7, "by hand", 3)}
    assert (empty.group_id, empty.offsets) == ("empty", {})
    assert script.count("FetchOffsets") == (0 if knows_offsets else 2), "an older coordinator is asked apart"
    [group] = await admin.describe_groups(["g"])
    assert group.offsets is None, "it was not requested"


@pytest.mark.parametrize("offset", [4, 101])
async def test_an_offset_outside_the_log_is_refused_and_nothing_is_changed(
    script: ScriptedCoordinators, admin: AsyncAdmin, offset: int
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"{offset} is not in t-1: it has 5 to 100"):
        await admin.alter_group_offsets("g", {T0: 5, T1: offset})
    assert script.groups == {}
    await admin.alter_group_offsets("g", {T0: 5, T1: 100})


async def test_offsets_of_an_active_group_stay(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    script.groups = {"g": active()}
    with pytest.raises(NonEmptyGroupError, match="stop them first"):
        await admin.alter_group_offsets("g", {T0: 5})
    script.groups["g"].subscribed = True
    with pytest.raises(GroupSubscribedToTopicError):
        await admin.delete_group_offsets("g", [T0])
    with pytest.raises(NonEmptyGroupError):
        await admin.delete_groups(["g"])


async def test_a_refused_partition_does_not_keep_the_others(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    with pytest.raises(OffsetMetadataTooLargeError):
        await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(5, "x" * 5000), T1: 6})
    assert await admin.list_group_offsets("g") == {T1: OffsetAndMetadata(6)}


async def test_a_topic_that_was_created_anew_is_known_by_its_new_id(
    script: ScriptedCoordinators, admin: AsyncAdmin
) -> None:
    await admin.alter_group_offsets("g", {T0: 5})
    script.cluster.topic_id = b"fedcba9876543210"
    await admin.alter_group_offsets("g", {T0: 6})
    assert script.groups["g"].offsets[0].topic_id == b"fedcba9876543210"
    script.cluster.topic_id = b"0000111122223333"
    await admin.delete_group_offsets("g", [T0])
    assert script.deleted_ids == {b"0000111122223333"}


@pytest.mark.parametrize("method", ["CommitOffsets", "DeleteOffsets"])
async def test_a_change_of_offsets_that_is_asked_for_again_means_the_same_topic(
    script: ScriptedCoordinators, admin: AsyncAdmin, method: str
) -> None:
    """Its first answer is lost; before it is asked for again, the topic is deleted and another one has its name."""
    await admin.alter_group_offsets("g", {T0: 5})
    requests = []

    def lose_the_answer(question: Asked) -> errors_pb2.Error | None:
        if question.method != method:
            return None
        requests.append(question)
        if len(requests) > 1:
            return None
        script.cluster.topic_id, script.cluster.first_group = b"fedcba9876543210", 2000
        return error(Code.REQUEST_TIMED_OUT, definite=False)

    script.refuse = lose_the_answer
    if method == "DeleteOffsets":
        await admin.delete_group_offsets("g", [T0])
        assert script.deleted_ids == {TOPIC_ID}
    else:
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted during the call") as caught:
            await admin.alter_group_offsets("g", {T0: 6})
        assert not caught.value.definite, "the first attempt may have been carried out"
        assert (script.groups["g"].offsets[0].topic_id, script.groups["g"].offsets[0].offset) == (TOPIC_ID, 5)
    assert len(requests) == 2


async def test_groups_are_deleted_and_a_lost_answer_is_no_failure(
    script: ScriptedCoordinators, admin: AsyncAdmin
) -> None:
    script.groups = {group_id: ScriptedGroup() for group_id in "abc"}
    first = True

    def lose_the_answer(asked: Asked) -> errors_pb2.Error | None:
        nonlocal first
        if asked.method != "DeleteGroups" or not first:
            return None
        first = False
        script.groups.clear()
        return error(Code.REQUEST_TIMED_OUT, definite=False)

    script.refuse = lose_the_answer
    script.leaders = [(1, 1)] * 3
    await admin.delete_groups(["a"])
    with pytest.raises(GroupIdNotFoundError):
        await admin.delete_groups(["a"])


async def test_a_refusal_after_a_lost_answer_is_not_said_to_be_without_effect(
    script: ScriptedCoordinators, admin: AsyncAdmin
) -> None:
    def lose_the_answer_as_a_member_joins(asked: Asked) -> errors_pb2.Error | None:
        if asked.method != "CommitOffsets" or script.groups.get("g", ScriptedGroup()).members:
            return None
        script.groups["g"] = active()
        return error(Code.REQUEST_TIMED_OUT, definite=False)

    script.refuse = lose_the_answer_as_a_member_joins
    with pytest.raises(NonEmptyGroupError) as refused:
        await admin.alter_group_offsets("g", {T0: 5})
    assert not refused.value.definite
    with pytest.raises(NonEmptyGroupError) as refused:
        await admin.alter_group_offsets("g", {T0: 5})
    assert refused.value.definite


async def test_a_coordinator_that_fails_over_is_followed(script: ScriptedCoordinators, admin: AsyncAdmin) -> None:
    await admin.alter_group_offsets("g", {T0: 5})
    leader = script.leaders[script.partition("g")][0]
    script.elect(script.partition("g"), leader % 3 + 1)
    script.cluster.logs[0].leader = script.cluster.logs[1].leader = leader % 3 + 1
    await script.cluster.stop_node(leader)
    assert await admin.list_group_offsets("g") == {T0: OffsetAndMetadata(5)}
    await admin.alter_group_offsets("g", {T0: 6})
    [group] = await admin.describe_groups(["g"])
    assert group.coordinator == leader % 3 + 1
    await admin.delete_groups(["g"])


async def test_the_synchronous_client_has_it_all(script: ScriptedCoordinators) -> None:
    def use() -> None:
        with Admin(bootstrap_servers=script.cluster.bootstrap_servers) as admin:
            admin.alter_group_offsets("g", {T0: 5, T1: 6})
            admin.delete_group_offsets("g", [T1])
            assert admin.list_group_offsets("g", [T0]) == {T0: OffsetAndMetadata(5)}
            assert [group.group_id for group in admin.list_groups()] == ["g"]
            assert admin.describe_groups(["g"])[0].state is GroupState.EMPTY
            admin.delete_groups(["g"])

    await asyncio.to_thread(use)
