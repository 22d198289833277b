"""Members of classic groups: sessions, leaving, static members, commits, and failover to another coordinator."""

from __future__ import annotations

import struct

import pytest
from classic_rig import (
    DELAY_MS,
    GRACE_MS,
    GROUP,
    ORIGIN,
    SESSION_MS,
    TOPIC_ID,
    ClassicRig,
    code,
    join_request,
)
from google.protobuf.message import Message

from quorumlog.server.groups.administration import delete_group, describe, listing
from quorumlog.server.groups.classic.calls import ClassicRequest
from quorumlog.server.groups.committed_offsets import commit_offsets, delete_offsets, fetch_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.heartbeat_decisions import heartbeats
from quorumlog.server.groups.periodic_checks import expire_offsets
from quorumlog.v1 import errors_pb2
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode


@pytest.fixture
def rig() -> ClassicRig:
    return ClassicRig()


# -- staying ----------------------------------------------------------------------------------------------------------


def test_a_member_stays_for_as_long_as_it_is_heard(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    for _ in range(5):
        rig.pass_ms(SESSION_MS - 1_000)
        assert rig.beat(a, generation) == "NONE"
    rig.pass_ms(SESSION_MS)
    assert rig.state == "EMPTY" and rig.beat(a, generation) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_falls_silent_makes_the_others_join_again(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    for _ in range(2):
        rig.pass_ms(SESSION_MS // 2)
        assert rig.beat(a, generation) in ("NONE", "REBALANCE_IN_PROGRESS")
    assert list(rig.classic.members) == [a]
    assert rig.joined(rig.join(a)).generation == generation + 1
    assert rig.beat(b, generation) == "UNKNOWN_MEMBER_ID"


def test_who_waits_is_not_silent(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    call = rig.join(a)
    for _ in range(3):
        rig.pass_ms(SESSION_MS - 1_000)
        assert rig.beat(b, generation) == "REBALANCE_IN_PROGRESS"
    other = rig.join(b)
    assert rig.joined(call).generation == rig.joined(other).generation


def test_whoever_joined_has_a_whole_session_from_then_on(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.pass_ms(SESSION_MS - 1_000)
    rig.rejoin([a, b])
    rig.pass_ms(SESSION_MS - 1_000)
    assert rig.beat(a, generation + 1) == "NONE"


def test_a_heartbeat_of_another_generation_is_refused(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    for other in (generation - 1, generation + 1, -1, -(1 << 31), (1 << 31) - 1):
        assert rig.beat(a, other) == "ILLEGAL_GENERATION"
    assert rig.beat("", generation) == "UNKNOWN_MEMBER_ID"
    assert rig.beat("stranger", generation) == "UNKNOWN_MEMBER_ID"


def test_a_heartbeat_in_a_group_that_is_none_is_refused(rig: ClassicRig) -> None:
    assert rig.beat("a", 1) == "UNKNOWN_MEMBER_ID"
    assert code(rig.synced(rig.sync("a", 1))) == "UNKNOWN_MEMBER_ID"


def test_heartbeats_are_taken_while_the_leader_assigns(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    rig.rejoin(members)
    assert rig.beat(members[1], generation + 1) == "NONE"


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_several_members_leave_at_once(rig: ClassicRig) -> None:
    (a, b, c), generation = rig.form("a", "b", "c")
    assert rig.leave((a, ""), (b, ""), (b, ""), ("stranger", ""), ("", "nobody"), ("", "")) == [
        "NONE",
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
    ]
    assert list(rig.classic.members) == [c]
    assert rig.beat(c, generation) == "REBALANCE_IN_PROGRESS"


def test_the_last_one_leaves_the_group_empty_and_the_generation_counts_on(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    assert rig.leave((a, "")) == ["NONE"]
    assert rig.state == "EMPTY" and rig.classic.generation == generation + 1
    assert rig.table.groups[GROUP].header.empty_since_ms
    (_,), later = rig.form("b")
    assert later == generation + 2 and not rig.table.groups[GROUP].header.empty_since_ms


def test_who_leaves_while_it_waits_is_told(rig: ClassicRig) -> None:
    (a, b), _ = rig.form("a", "b")
    waiting = rig.join(a)
    assert rig.leave((a, "")) == ["NONE"]
    assert code(rig.joined(waiting)) == "UNKNOWN_MEMBER_ID"
    assert rig.joined(rig.join(b)).leader == b


def test_a_member_that_leaves_is_waited_for_no_more(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    waiting = rig.join(a)
    rig.leave((b, ""))
    assert rig.joined(waiting).generation == generation + 1


def test_who_was_given_an_id_leaves(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    named = rig.joined(rig.join(named_first=True)).member_id
    waiting = rig.join(a)
    assert rig.leave((named, "")) == ["NONE"]
    assert not rig.is_waiting(waiting)


# -- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one")
    answer = rig.joined(rig.join(instance="one", can_skip=True))
    assert answer.member_id != a and answer.generation == generation
    assert answer.skip_assignment and answer.leader == answer.member_id
    assert [row.member_id for row in answer.members] == [answer.member_id]
    assert rig.synced(rig.sync(answer.member_id, generation, instance_id="one")).assignment == a.encode()
    assert rig.state == "STABLE"


def test_an_older_client_that_led_is_not_told_that_it_leads(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a", instance="one")
    answer = rig.joined(rig.join(instance="one"))
    assert answer.leader == a != answer.member_id and not answer.members and not answer.skip_assignment


def test_a_static_member_is_fenced_by_the_next_of_its_name(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one")
    other = rig.joined(rig.join(instance="one")).member_id
    assert rig.beat(a, generation, "one") == "FENCED_INSTANCE_ID"
    assert rig.beat(a, generation) == "UNKNOWN_MEMBER_ID"
    assert code(rig.synced(rig.sync(a, generation, instance_id="one"))) == "FENCED_INSTANCE_ID"
    assert code(rig.joined(rig.join(a, instance="one"))) == "FENCED_INSTANCE_ID"
    assert rig.leave((a, "one")) == ["FENCED_INSTANCE_ID"]
    assert commit(rig, a, generation, "one") == "FENCED_INSTANCE_ID"
    assert rig.beat(other, generation, "one") == "NONE"


def test_a_static_member_that_waits_is_fenced_too(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a", instance="one")
    newcomer = rig.join()
    waiting = rig.join(a, instance="one")
    assert rig.joined(waiting).generation == rig.joined(newcomer).generation
    third = rig.join()
    waiting = rig.join(a, instance="one", protocols=[("range", b"other")])
    assert not rig.is_waiting(waiting) or rig.is_waiting(third)


def test_of_two_that_join_under_one_name_the_later_stays(rig: ClassicRig) -> None:
    first, second = rig.join(instance="one"), rig.join(instance="one")
    assert code(rig.joined(first)) == "FENCED_INSTANCE_ID"
    rig.pass_ms(3 * DELAY_MS)
    assert list(rig.classic.members) == [rig.joined(second).member_id]


def test_a_static_member_with_other_wishes_begins_a_round(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one")
    call = rig.join(instance="one", protocols=[("range", b"other")])
    assert rig.joined(call).generation == generation + 1
    assert a not in rig.classic.members


def consumer(*topics: str, owns: int = 0, generation: int = -1) -> bytes:
    """Returns the subscription of a consumer (ConsumerProtocolSubscription, version 2).

    Arguments:
        owns: number of partitions of its first topic that it owns.
    """
    names = [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    owned = struct.pack(f">i{owns}i", owns, *range(owns))
    return b"".join(
        (
            struct.pack(">hi", 2, len(topics)),
            *names,
            struct.pack(">i", -1),
            struct.pack(">i", 1),
            names[0],
            owned,
            struct.pack(">i", generation),
        )
    )


def test_a_static_consumer_that_starts_anew_owns_nothing_and_comes_back_all_the_same(rig: ClassicRig) -> None:
    before = [("range", consumer("t", generation=7)), ("cooperative-sticky", consumer("t", owns=3, generation=7))]
    (a,), generation = rig.form("a", instance="one", protocols=before)
    anew = [("range", consumer("t")), ("cooperative-sticky", consumer("t"))]
    answer = rig.joined(rig.join(instance="one", protocols=anew, can_skip=True))
    assert (answer.generation, answer.skip_assignment) == (generation, True)
    assert answer.members[0].metadata == consumer("t"), "what it says now is what counts"
    assert rig.synced(rig.sync(answer.member_id, generation, instance_id="one")).assignment == a.encode()


@pytest.mark.parametrize(
    "wishes",
    [
        {"protocols": [("range", consumer("t", "u"))]},
        {"protocols": [("range", b"no consumer")]},
        {"protocols": [("sticky", consumer("t"))]},
        {"protocols": [("range", consumer("t")), ("sticky", consumer("t"))]},
        {"protocols": [("range", consumer("t"))], "kind": "connect"},
    ],
    ids=["topics", "no consumer", "other protocol", "one more", "other type"],
)
def test_a_static_consumer_that_wants_something_else_begins_a_round(rig: ClassicRig, wishes: dict[str, object]) -> None:
    _, generation = rig.form("a", instance="one", protocols=[("range", consumer("t", generation=7))])
    assert rig.joined(rig.join(instance="one", **wishes)).generation == generation + 1


def test_a_static_member_that_is_away_stays_until_its_session_ends(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one", session_ms=100_000, rebalance_ms=5_000)
    newcomer = rig.join(session_ms=100_000, rebalance_ms=5_000)
    rig.pass_ms(5_000)
    assert rig.joined(newcomer).generation == generation + 1
    assert set(rig.classic.members) == {a, rig.joined(newcomer).member_id}


def test_static_members_keep_a_round_that_nobody_joins(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one", session_ms=100_000, rebalance_ms=5_000)
    lost = rig.join(session_ms=100_000, rebalance_ms=5_000)
    rig.hang_up(lost)
    rig.pass_ms(20_000)
    assert list(rig.classic.members) == [a] and rig.state == "PREPARING_REBALANCE"
    assert rig.joined(rig.join(a, instance="one")).generation == generation + 1


def test_a_static_member_is_removed_by_its_name(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a", instance="one")
    assert rig.leave(("", "one")) == ["NONE"]
    assert rig.state == "EMPTY"
    assert code(rig.joined(rig.join(a, instance="one"))) == "UNKNOWN_MEMBER_ID"


# -- commits ----------------------------------------------------------------------------------------------------------


def commit(rig: ClassicRig, member_id: str, generation: int, instance_id: str = "", offset: int = 5) -> str:
    request = pb.CommitOffsetsRequest(
        group_id=GROUP, member_id=member_id, member_epoch=generation, instance_id=instance_id
    )
    request.offsets.add(topic_id=TOPIC_ID, partition=0, offset=offset, leader_epoch=-1)
    response = rig.decide_other(lambda draft: commit_offsets(draft, request))
    return code(response) if response.HasField("error") else code(response.results[0])


def test_a_member_commits_in_its_generation(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    assert commit(rig, a, generation) == "NONE"
    assert commit(rig, a, generation - 1) == "ILLEGAL_GENERATION"
    assert commit(rig, a, generation + 1) == "ILLEGAL_GENERATION"
    assert commit(rig, "stranger", generation) == "UNKNOWN_MEMBER_ID"
    assert commit(rig, a, -1) == "ILLEGAL_GENERATION"
    assert rig.table.groups[GROUP].offsets[TOPIC_ID, 0].offset == 5


def test_a_member_commits_before_it_joins_again_and_not_before_it_is_assigned(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.join(a)
    assert commit(rig, b, generation) == "NONE"
    rig.join(b)
    assert commit(rig, b, generation) == "ILLEGAL_GENERATION"
    assert commit(rig, b, generation + 1) == "REBALANCE_IN_PROGRESS"


def test_who_is_no_member_commits_while_there_are_none(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    assert commit(rig, "", -1) == "UNKNOWN_MEMBER_ID"
    rig.leave((a, ""))
    assert commit(rig, "", -1) == "NONE"
    assert commit(rig, a, 1) == "UNKNOWN_MEMBER_ID"


def test_a_commit_is_a_sign_of_life(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    for _ in range(3):
        rig.pass_ms(SESSION_MS - 1_000)
        rig.leadership.classic.heard(GROUP, a)
        assert commit(rig, a, generation) == "NONE"


def test_anybody_may_look_at_committed_offsets(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    commit(rig, a, generation)
    for member, epoch in ((a, generation), (a, 77), ("stranger", 1), ("", -1)):
        request = pb.FetchOffsetsRequest(group_id=GROUP, member_id=member, member_epoch=epoch)
        assert [row.offset for row in fetch_offsets(rig.draft(), request).offsets] == [5]


SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t" + b"\xff\xff\xff\xff"


def test_offsets_of_topics_that_members_read_stay(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", protocols=[("range", SUBSCRIPTION)])
    commit(rig, a, generation)
    request = pb.DeleteOffsetsRequest(group_id=GROUP)
    request.topics.add(topic_id=TOPIC_ID, partitions=[0])
    response = rig.decide_other(lambda draft: delete_offsets(draft, request))
    assert code(response.results[0]) == "GROUP_SUBSCRIBED_TO_TOPIC"
    rig.decide_other(lambda draft: expire_offsets(draft, GROUP, -1_000_000_000))
    assert rig.table.groups[GROUP].offsets


def test_offsets_of_topics_that_no_member_reads_go(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", protocols=[("range", SUBSCRIPTION.replace(b"t", b"u"))])
    commit(rig, a, generation)
    rig.decide_other(lambda draft: expire_offsets(draft, GROUP, -1_000_000_000))
    assert not rig.table.groups[GROUP].offsets


@pytest.mark.parametrize(
    ("kind", "expected"), [("consumer", "GROUP_SUBSCRIBED_TO_TOPIC"), ("connect", "NON_EMPTY_GROUP")]
)
def test_where_nobody_can_tell_what_members_read_offsets_stay(rig: ClassicRig, kind: str, expected: str) -> None:
    (a,), generation = rig.form("a", kind=kind)
    commit(rig, a, generation)
    request = pb.DeleteOffsetsRequest(group_id=GROUP)
    request.topics.add(topic_id=TOPIC_ID, partitions=[0])
    response = rig.decide_other(lambda draft: delete_offsets(draft, request))
    assert (code(response) if response.HasField("error") else code(response.results[0])) == expected
    rig.decide_other(lambda draft: expire_offsets(draft, GROUP, -1_000_000_000))
    assert rig.table.groups[GROUP].offsets


# -- the two kinds ----------------------------------------------------------------------------------------------------


JOINING = pb.GroupHeartbeatRequest(
    group_id=GROUP, member_id="consumer", topics=["t"], session_timeout_ms=10_000, rebalance_timeout_ms=5_000, full=True
)


def heartbeat(rig: ClassicRig, epoch: int = 0) -> str:
    request = pb.GroupHeartbeatRequest()
    request.CopyFrom(JOINING)
    request.member_epoch = epoch
    (answer,) = rig.decide_other(lambda draft: heartbeats(draft, [(request, ORIGIN)]))
    assert answer is not None
    return code(answer)


def test_a_group_changes_its_kind_only_while_it_has_no_members(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    assert heartbeat(rig) == "INCONSISTENT_GROUP_PROTOCOL"
    rig.leave((a, ""))
    assert heartbeat(rig) == "NONE"
    assert rig.table.groups[GROUP].kind == pb.GROUP_KIND_CONSUMER
    assert code(rig.joined(rig.join())) == "INCONSISTENT_GROUP_PROTOCOL"
    assert heartbeat(rig, -1) == "NONE"
    rig.form("b")
    assert rig.table.groups[GROUP].kind == pb.GROUP_KIND_CLASSIC


def test_a_group_in_its_first_round_is_classic(rig: ClassicRig) -> None:
    rig.join()
    assert heartbeat(rig) == "INCONSISTENT_GROUP_PROTOCOL"
    assert delete(rig) == "NON_EMPTY_GROUP"


def delete(rig: ClassicRig) -> str:
    problem = rig.decide_other(lambda draft: delete_group(draft, GROUP))
    return ErrorCode.Name(problem.code) if problem is not None else "NONE"


def test_a_classic_group_is_deleted_once_it_is_empty(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    assert delete(rig) == "NON_EMPTY_GROUP"
    rig.leave((a, ""))
    assert delete(rig) == "NONE"
    assert GROUP not in rig.table.groups
    rig.form("b")


def decide_of(rig: ClassicRig, draft: Draft, *requests: ClassicRequest) -> list[int]:
    """Has requests decided on a draft, and returns the numbers of their calls."""
    calls = [rig.call(request) for request in requests]
    for call in calls:
        answer = rig.leadership.classic.decide(draft, call)
        if answer is not None:
            call.answer(answer)
    return [call.request_id for call in calls]


def leaving(member: str) -> pb.LeaveClassicGroupRequest:
    return pb.LeaveClassicGroupRequest(group_id=GROUP, members=[pb.LeavingClassicMember(member_id=member)])


def test_a_group_is_deleted_by_the_entry_in_which_its_last_members_leave(rig: ClassicRig) -> None:
    (a, b), _ = rig.form("a", "b")

    def leave_and_delete(draft: Draft) -> errors_pb2.Error | None:
        decide_of(rig, draft, leaving(a), leaving(b))
        return delete_group(draft, GROUP)

    assert rig.decide_other(leave_and_delete) is None
    assert GROUP not in rig.table.groups
    assert not rig.leadership.classic.members, "the sessions of removed members continue"
    rig.pass_ms(2 * SESSION_MS)
    rig.form("c")


def test_a_group_begins_anew_in_the_entry_in_which_it_is_deleted(rig: ClassicRig) -> None:
    (a,), first = rig.form("a")
    for generation in (first + 1, first + 2):
        rig.rejoin([a])
        rig.share([a], generation, a)

    def leave_delete_and_join(draft: Draft) -> int:
        decide_of(rig, draft, leaving(a))
        assert delete_group(draft, GROUP) is None
        (number,) = decide_of(rig, draft, join_request())
        return number

    again = rig.decide_other(leave_delete_and_join)
    assert not rig.leadership.classic.members, "the session of a removed member continues"
    rig.pass_ms(4 * DELAY_MS)
    assert rig.joined(again).generation == first
    assert list(rig.classic.members) == [rig.joined(again).member_id]


def test_a_group_changes_its_kind_in_the_entry_in_which_its_last_member_leaves(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")

    def leave_and_join(draft: Draft) -> list[Message | None]:
        decide_of(rig, draft, leaving(a))
        return list(heartbeats(draft, [(JOINING, ORIGIN)]))

    (answer,) = rig.decide_other(leave_and_join)
    assert answer is not None and code(answer) == "NONE"
    assert rig.table.groups[GROUP].kind == pb.GROUP_KIND_CONSUMER
    assert not rig.leadership.classic.members, "the session of a removed member continues"


def test_an_empty_group_without_offsets_expires(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    rig.decide_other(lambda draft: expire_offsets(draft, GROUP, 0))
    assert GROUP in rig.table.groups
    rig.leave((a, ""))
    rig.decide_other(lambda draft: expire_offsets(draft, GROUP, 0))
    assert GROUP not in rig.table.groups


def test_descriptions_tell_all_of_a_classic_group(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    described = describe(rig.draft(), GROUP, 2)
    assert (described.kind, described.state) == (pb.GROUP_KIND_CLASSIC, pb.GROUP_STABLE)
    assert (described.protocol_type, described.protocol, described.generation) == ("consumer", "range", generation)
    assert (described.leader, described.coordinator) == (a, 2)
    assert [(each.member_id, each.classic_metadata, each.classic_assignment) for each in described.members] == [
        (each, b"m", each.encode()) for each in sorted((a, b))
    ]
    assert {(each.client_id, each.host) for each in described.members} == {("app", "127.0.0.1")}
    row = listing(rig.table.groups[GROUP])
    assert (row.kind, row.protocol_type, row.members) == (pb.GROUP_KIND_CLASSIC, "consumer", 2)


# -- another coordinator ----------------------------------------------------------------------------------------------


def test_members_stay_when_the_coordinator_changes(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.pass_ms(SESSION_MS - 1_000)
    rig.fail_over()
    rig.pass_ms(SESSION_MS - 1_000)
    assert rig.beat(a, generation) == rig.beat(b, generation) == "NONE"
    assert rig.synced(rig.sync(b, generation)).assignment == b.encode()


def test_sessions_begin_anew_with_the_next_coordinator_and_end(rig: ClassicRig) -> None:
    rig.form("a", "b")
    rig.fail_over()
    rig.pass_ms(SESSION_MS + GRACE_MS)
    assert rig.state == "EMPTY"


def test_a_round_goes_on_with_the_next_coordinator(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    waiting = rig.join(a)
    rig.fail_over()
    assert code(rig.replies[waiting]) == "NOT_COORDINATOR" and rig.state == "PREPARING_REBALANCE"
    calls = [rig.join(a), rig.join(b)]
    assert {rig.joined(call).generation for call in calls} == {generation + 1}


def test_a_round_without_members_ends_with_the_next_coordinator(rig: ClassicRig) -> None:
    rig.join()
    rig.fail_over()
    rig.pass_ms(2 * DELAY_MS)
    assert rig.state == "EMPTY"


def test_members_that_have_joined_are_assigned_by_way_of_the_next_coordinator(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    rig.rejoin(members)
    waiting = rig.sync(members[1], generation + 1)
    rig.fail_over()
    assert code(rig.replies[waiting]) == "NOT_COORDINATOR"
    rig.share(members, generation + 1, members[0])
    assert rig.state == "STABLE"


def test_a_generation_never_comes_twice(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    seen = {generation}
    for _ in range(3):
        answers = rig.rejoin(members)
        rig.fail_over()
        assert answers[0].generation not in seen
        seen.add(answers[0].generation)
        rig.pass_ms(100)
        rig.join(members[0], protocols=[("range", b"again")])
        rig.join(members[1], protocols=[("range", b"again")])
        seen.add(rig.classic.generation)
    assert len(seen) >= 4


def test_an_assignment_that_the_log_lost_was_told_to_nobody(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    rig.rejoin(members)
    rig.holds = True
    calls = [rig.sync(members[1], generation + 1), rig.sync(members[0], generation + 1, {members[1]: b"all"})]
    rig.holds = False
    rig.fail_over()
    assert {code(rig.replies[call]) for call in calls} == {"NOT_COORDINATOR"}
    assert rig.state == "COMPLETING_REBALANCE"


def test_nobody_is_left_out_while_a_former_coordinator_may_go_on(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b", rebalance_ms=700)
    rig.fail_over()
    call = rig.join(a, rebalance_ms=700)
    rig.pass_ms(GRACE_MS - 100)
    assert rig.is_waiting(call)
    other = rig.join(b)
    assert rig.joined(call).generation == rig.joined(other).generation == generation + 1


def test_what_the_log_does_not_take_is_decided_again(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.takes = False
    calls = [rig.join(a), rig.join(b), rig.join()]
    rig.pass_ms(1_000)
    assert all(rig.is_waiting(call) for call in calls) and rig.state == "STABLE"
    rig.takes = True
    rig.pass_ms(100)
    assert {rig.joined(call).generation for call in calls} == {generation + 1}


def test_members_whose_sessions_end_while_the_log_takes_nothing_go_later(rig: ClassicRig) -> None:
    rig.form("a", "b")
    rig.takes = False
    rig.pass_ms(SESSION_MS)
    rig.takes = True
    rig.pass_ms(2 * SESSION_MS + GRACE_MS)
    assert rig.state == "EMPTY"


# -- permissions ------------------------------------------------------------------------------------------------------


class Rules:
    """An authorizer that permits all principals except those in ``refused``."""

    enforced = False

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def may(self, principal: str, *asked: object) -> bool:
        return principal not in self.refused


def test_who_may_no_more_while_it_waits_has_not_joined() -> None:
    rules = Rules()
    rig = ClassicRig(authorizer=rules)  # type: ignore[arg-type]
    call = rig.send(join_request())
    rules.refused.add(ORIGIN.principal)
    rig.pass_ms(DELAY_MS)
    assert code(rig.joined(call)) == "GROUP_AUTHORIZATION_FAILED" and rig.state == "EMPTY"


def test_who_may_no_more_while_it_waits_is_not_told_its_part() -> None:
    rules = Rules()
    rig = ClassicRig(authorizer=rules)  # type: ignore[arg-type]
    members, generation = rig.form("a", "b")
    rig.rejoin(members)
    waiting = rig.sync(members[1], generation + 1)
    rules.refused.add(ORIGIN.principal)
    rig.sync(members[0], generation + 1, {members[1]: b"all"})
    assert code(rig.synced(waiting)) == "GROUP_AUTHORIZATION_FAILED"
