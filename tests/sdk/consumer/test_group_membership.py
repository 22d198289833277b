"""The member's protocol without a network: transcripts of a member and its coordinator, and random ones."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.sdk.consumer.group_membership import (
    AssignmentChange,
    GroupMembership,
    GroupPartition,
    MemberHeartbeat,
    MembershipConfig,
    MembershipState,
    as_topic_partitions,
)
from quorumlog.sdk.errors import GroupMaxSizeReachedError, UnreleasedInstanceIdError
from quorumlog.v1 import errors_pb2, groups_pb2

TOPIC = b"0123456789abcdef"
Code = errors_pb2.ErrorCode


def parts(*numbers: int) -> frozenset[GroupPartition]:
    return frozenset(GroupPartition(TOPIC, number) for number in numbers)


def answer(epoch: int, *numbers: int, told: bool = True, version: int = 0) -> groups_pb2.GroupHeartbeatResponse:
    """The coordinator's word on the epoch and, if ``told``, the assignment."""
    response = groups_pb2.GroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=3000)
    if told:
        response.assignment.SetInParent()
        response.assignment.version = version
        for topic in as_topic_partitions(parts(*numbers)):
            topic.topic, topic.first_partitions = "t", 4
            response.assignment.topics.append(topic)
    return response


def refusal(code: errors_pb2.ErrorCode.ValueType, *, retriable: bool = False) -> groups_pb2.GroupHeartbeatResponse:
    return groups_pb2.GroupHeartbeatResponse(error=errors_pb2.Error(code=code, message="no", retriable=retriable))


def member(**config: object) -> GroupMembership:
    numbers = itertools.count(1)
    made = GroupMembership(
        MembershipConfig("g", **config),  # type: ignore[arg-type]
        lambda: f"m{next(numbers)}",
        lambda failures: 0.02 * failures,
    )
    made.subscribe(["t"])
    return made


def sent(membership: GroupMembership, now_s: float) -> MemberHeartbeat:
    heartbeat = membership.heartbeat(now_s)
    assert heartbeat is not None
    return heartbeat


def owned(heartbeat: MemberHeartbeat) -> list[int]:
    return [number for topic in heartbeat.request.owned for number in topic.partitions]


def joined(*numbers: int, **config: object) -> GroupMembership:
    """A member since time 0, with these partitions."""
    membership = member(**config)
    membership.join(0)
    assert membership.heard(sent(membership, 0), answer(1, *numbers), 0.01).gained == parts(*numbers)
    return membership


def test_a_member_joins_with_epoch_0_and_waits_at_the_coordinator_from_then_on() -> None:
    membership = member()
    assert membership.heartbeat(0) is None and membership.next_at_s() is None
    membership.join(0)
    first = sent(membership, 0)
    assert (first.request.member_id, first.request.member_epoch, first.request.full) == ("m1", 0, True)
    assert list(first.request.topics) == ["t"] and not first.request.owned
    assert membership.heartbeat(0.5) is None, "one at a time"
    assert membership.heard(first, answer(1, 0, 1), 0.6) == AssignmentChange(gained=parts(0, 1))
    assert membership.state is MembershipState.MEMBER
    waits = sent(membership, 0.6)
    assert (waits.request.member_epoch, waits.request.full, waits.request.max_wait_ms) == (1, False, 3000)
    assert owned(waits) == [0, 1]
    assert membership.heard(waits, answer(1, told=False), 3.6) == AssignmentChange()
    assert membership.heartbeat(3.6) is not None


def test_what_is_taken_away_is_owned_until_it_is_released_and_that_is_told_at_once() -> None:
    membership = joined(0, 1)
    assert membership.heard(sent(membership, 1), answer(1, 0), 1.1) == AssignmentChange(revoked=parts(1))
    assert owned(sent(membership, 1.1)) == [0, 1], "not given up yet"
    assert membership.heartbeat(1.2) is None
    assert membership.release(parts(1)) == AssignmentChange()
    reported = sent(membership, 1.2)
    assert owned(reported) == [0]
    assert membership.heard(reported, answer(2, 0, 2), 1.3) == AssignmentChange(gained=parts(2))
    assert membership.member_epoch == 2


def test_heartbeats_repeat_the_version_of_the_assignment_that_was_taken_up_last() -> None:
    membership = member()
    membership.join(0)
    first = sent(membership, 0)
    assert first.request.assignment_version == 0
    membership.heard(first, answer(1, 0, version=7), 0.1)
    second = sent(membership, 0.1)
    assert second.request.assignment_version == 7
    membership.heard(second, answer(1, told=False), 3.1)
    third = sent(membership, 3.1)
    assert third.request.assignment_version == 7, "an answer without news has no version"
    membership.heard(third, answer(1, 0, 1, version=9), 3.2)
    fourth = sent(membership, 3.2)
    assert fourth.request.assignment_version == 9
    membership.heard(fourth, refusal(Code.UNKNOWN_MEMBER_ID), 3.3)
    assert sent(membership, 4.0).request.assignment_version == 0, "it joins again"


def test_what_is_given_back_before_it_was_released_stays() -> None:
    membership = joined(0, 1)
    membership.heard(sent(membership, 1), answer(1, 0), 1.1)
    assert membership.heard(sent(membership, 1.2), answer(3, 0, 1), 1.3) == AssignmentChange()
    assert membership.release(parts(1)) == AssignmentChange(gained=parts(1))
    assert membership.owned == parts(0, 1)


@pytest.mark.parametrize("code", [Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_thrown_out_has_lost_everything_and_joins_anew(code: int) -> None:
    membership = joined(0, 1)
    assert membership.heard(sent(membership, 1), refusal(code), 1.1) == AssignmentChange(lost=parts(0, 1))  # type: ignore[arg-type]
    again = sent(membership, 1.2)
    assert (again.request.member_id, again.request.member_epoch, owned(again)) == ("m1", 0, [])


def test_silence_for_a_session_timeout_counts_from_when_the_last_answered_heartbeat_was_sent() -> None:
    membership = joined(0, session_timeout_ms=6000)
    heard = sent(membership, 10.0 - 6.0)
    assert membership.heard(heard, answer(1, told=False), 5.5) == AssignmentChange()
    late = sent(membership, 5.5)
    assert membership.session_ends_s == 10.0
    assert membership.check_session(9.99) == AssignmentChange()
    assert membership.heard(late, answer(1, 0), 10.0) == AssignmentChange(lost=parts(0)), "the answer comes too late"
    again = sent(membership, 10.0)
    assert (again.request.member_id, again.request.member_epoch, owned(again)) == ("m1", 0, [])
    assert membership.heard(again, answer(1, 0), 10.1) == AssignmentChange(gained=parts(0))


def test_an_answer_to_a_join_that_was_sent_a_session_ago_gives_nothing() -> None:
    membership = member(session_timeout_ms=6000)
    membership.join(0)
    request = sent(membership, 0)
    assert membership.heard(request, answer(1, 0), 6.0) == AssignmentChange(), "others may have it by now"
    assert (membership.state, membership.owned) == (MembershipState.JOINING, frozenset())
    again = sent(membership, 6.0)
    assert (again.request.member_id, again.request.member_epoch, owned(again)) == ("m1", 0, [])
    assert membership.heard(again, answer(1, 0), 11.99) == AssignmentChange(gained=parts(0))
    assert membership.session_ends_s == 12.0


def test_a_lost_answer_is_asked_for_again_in_full() -> None:
    membership = joined(0)
    lost = sent(membership, 1)
    membership.unanswered(lost, 1.5)
    assert membership.heartbeat(1.5) is None
    again = sent(membership, 1.6)
    assert again.request.full and again.request.member_epoch == 1
    assert membership.heard(lost, answer(7, 0, 1, 2), 1.7) == AssignmentChange(), "the late answer is ignored"
    assert membership.heard(again, answer(2, 0, 1), 1.8) == AssignmentChange(gained=parts(1))


@pytest.mark.parametrize("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.SERVER_BUSY])
def test_a_coordinator_that_cannot_answer_is_asked_again_and_nothing_is_lost(code: int) -> None:
    membership = joined(0)
    assert membership.heard(sent(membership, 1), refusal(code, retriable=True), 1) == AssignmentChange()  # type: ignore[arg-type]
    assert not membership.is_due(1.01)
    membership.unreachable(1.02)
    assert not membership.is_due(1.03), "failures in a row are waited for longer"
    again = sent(membership, 1.06)
    assert again.request.full and again.request.member_epoch == 1 and owned(again) == [0]


def test_an_overdue_answer_is_noticed() -> None:
    membership = joined(0)
    silent = sent(membership, 1)
    assert membership.next_at_s() == silent.answer_by_s == 5.0
    assert membership.overdue(4.9) is None and membership.overdue(5.0) is silent


def test_only_the_answer_to_the_newest_heartbeat_counts_and_that_one_tells_all() -> None:
    membership = joined(0)
    earlier = sent(membership, 1)
    membership.subscribe(["t", "u"])
    newest = sent(membership, 1.1)
    assert newest.request.full
    assert membership.heard(earlier, answer(2, 0, 1), 1.2) == AssignmentChange()
    assert membership.member_epoch == 1
    assert membership.heard(newest, answer(2, 0, 1), 1.3) == AssignmentChange(gained=parts(1))


def test_a_coordinator_that_parks_nobody_is_not_played_ping_pong_with() -> None:
    membership = joined(0)
    membership.heard(sent(membership, 1), answer(1, told=False), 1.01)
    assert membership.heartbeat(1.02) is None
    assert membership.heartbeat(1.32) is not None


def test_leaving_is_told_only_to_who_may_know_the_member() -> None:
    membership = member()
    membership.join(0)
    assert membership.leave(0) is None
    for config, epoch in (({}, -1), ({"instance_id": "i"}, -2)):
        membership = joined(0, **config)
        leaving = membership.leave(5)
        assert leaving is not None and leaving.request.member_epoch == epoch
        assert not membership.owned and membership.heartbeat(6) is None
        assert membership.leave(7) is None
        membership.join(8)
        assert sent(membership, 8).request.member_id == "m2"


def test_a_refusal_for_good_is_said_and_may_be_tried_again() -> None:
    membership = member()
    membership.join(0)
    membership.heard(sent(membership, 0), refusal(Code.GROUP_MAX_SIZE_REACHED), 0.1)
    assert membership.state is MembershipState.REFUSED
    assert isinstance(membership.error, GroupMaxSizeReachedError)
    assert membership.heartbeat(9) is None
    membership.join(9)
    assert sent(membership, 9).request.member_id == "m1"


def test_a_static_members_name_is_waited_for_as_long_as_a_killed_process_holds_it() -> None:
    membership = member(instance_id="i", session_timeout_ms=6000, heartbeat_interval_ms=1000)
    membership.join(0)
    now_s, attempts = 0.0, 0
    while membership.state is MembershipState.JOINING:
        heartbeat = membership.heartbeat(now_s)
        if heartbeat is not None:
            attempts += 1
            membership.heard(heartbeat, refusal(Code.UNRELEASED_INSTANCE_ID, retriable=True), now_s)
        now_s = max(now_s + 0.01, membership.next_at_s() or 0.0)
    assert isinstance(membership.error, UnreleasedInstanceIdError)
    assert 9 <= now_s < 10.1 and attempts <= 11


def test_a_static_members_name_is_waited_for_anew_when_another_coordinator_leads() -> None:
    """It gives the former process, which may have been killed, a whole session from its own beginning."""
    membership = member(instance_id="i", session_timeout_ms=6000, heartbeat_interval_ms=1000)
    membership.join(0)
    now_s, moved = 0.0, False
    while membership.state is MembershipState.JOINING:
        if now_s > 7 and not moved:
            membership.coordinator_changed()
            moved = True
        heartbeat = membership.heartbeat(now_s)
        if heartbeat is not None:
            membership.heard(heartbeat, refusal(Code.UNRELEASED_INSTANCE_ID, retriable=True), now_s)
        now_s = max(now_s + 0.01, membership.next_at_s() or 0.0)
    assert 16 <= now_s < 18.1


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_happens_nothing_is_read_that_the_coordinator_has_not_given(data: st.DataObject) -> None:
    """``given`` has the partitions that the coordinator sent and no heartbeat confirmed yet; the member may work on no
    others."""
    membership = joined(0, 1, session_timeout_ms=9000)
    now_s, epoch = 1.0, 1
    given_away = set(membership.owned)
    flying: list[MemberHeartbeat] = []
    for _ in range(data.draw(st.integers(1, 25))):
        now_s += data.draw(st.sampled_from([0.0, 0.02, 1.0, 4.0]))
        what = data.draw(st.sampled_from(["send", "answer", "error", "fence", "lose", "release", "tick", "stream"]))
        change = AssignmentChange()
        if what == "send" and (heartbeat := membership.heartbeat(now_s)) is not None:
            flying.append(heartbeat)
        elif what == "release":
            change = membership.release(membership.owned - membership.assigned)
            given_away = set(membership.owned)
        elif what == "tick":
            change = membership.check_session(now_s)
        elif what == "stream":
            membership.unreachable(now_s)
        elif flying:
            heartbeat = flying.pop(0)
            if what == "answer":
                epoch += 1
                numbers = data.draw(st.sets(st.integers(0, 3)))
                change = membership.heard(heartbeat, answer(epoch, *numbers), now_s)
                if membership.member_epoch == epoch:
                    given_away |= parts(*numbers)
            elif what == "error":
                change = membership.heard(heartbeat, refusal(Code.SERVER_BUSY, retriable=True), now_s)
            elif what == "fence":
                change = membership.heard(heartbeat, refusal(Code.FENCED_MEMBER_EPOCH), now_s)
            else:
                membership.unanswered(heartbeat, now_s)
        if change.lost:
            assert not membership.owned
            given_away.clear()
        assert membership.owned <= given_away
        assert membership.assigned <= membership.owned
        assert not change.gained & change.revoked
        membership.check_session(now_s)
        if membership.state is not MembershipState.MEMBER:
            assert not membership.owned
            given_away.clear()
        else:
            assert now_s < membership.session_ends_s
        due = membership.next_at_s()
        assert due is not None, "it never gives up"
