"""Join rounds of classic groups: the members of a generation, its start, its leader, and its assignments."""

from __future__ import annotations

import pytest
from classic_rig import DELAY_MS, GROUP, ORIGIN, REBALANCE_MS, SESSION_MS, ClassicRig, code, join_request

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import groups_pb2 as pb


@pytest.fixture
def rig() -> ClassicRig:
    return ClassicRig()


# -- the first round --------------------------------------------------------------------------------------------------


def test_a_member_alone_leads_and_gets_what_it_assigns(rig: ClassicRig) -> None:
    call = rig.join()
    assert rig.is_waiting(call) and rig.state == "PREPARING_REBALANCE"
    rig.pass_ms(DELAY_MS)
    answer = rig.joined(call)
    assert (answer.generation, answer.protocol, answer.protocol_type) == (1, "range", "consumer")
    assert answer.leader == answer.member_id and answer.member_id.startswith("app-")
    assert [(row.member_id, row.metadata) for row in answer.members] == [(answer.member_id, b"m")]
    assert rig.state == "COMPLETING_REBALANCE"
    synced = rig.synced(rig.sync(answer.member_id, 1, {answer.member_id: b"all"}))
    assert (synced.assignment, synced.protocol, synced.protocol_type) == (b"all", "range", "consumer")
    assert rig.state == "STABLE"


def test_the_first_round_waits_for_others_again_with_each_that_comes(rig: ClassicRig) -> None:
    first = rig.join()
    rig.pass_ms(DELAY_MS - 100)
    second = rig.join()
    rig.pass_ms(DELAY_MS - 100)
    third = rig.join()
    assert all(rig.is_waiting(call) for call in (first, second, third))
    rig.pass_ms(3 * DELAY_MS)
    assert {rig.joined(call).generation for call in (first, second, third)} == {1}
    assert len(rig.classic.members) == 3


def test_the_first_round_ends_when_nobody_else_comes(rig: ClassicRig) -> None:
    call = rig.join()
    rig.pass_ms(DELAY_MS - 1)
    assert rig.is_waiting(call)
    rig.pass_ms(1)
    assert not rig.is_waiting(call)


def test_the_first_round_lasts_no_longer_than_its_members_allow(rig: ClassicRig) -> None:
    first = rig.join(rebalance_ms=800)
    for _ in range(3):
        assert rig.is_waiting(first)
        rig.pass_ms(290)
        rig.join(rebalance_ms=800)
    assert not rig.is_waiting(first)


def test_only_the_leader_is_told_of_the_others(rig: ClassicRig) -> None:
    calls = [rig.join(protocols=[("range", name)]) for name in (b"one", b"two")]
    rig.pass_ms(3 * DELAY_MS)
    leader, other = (rig.joined(call) for call in calls)
    assert leader.leader == other.leader == leader.member_id
    assert sorted(row.metadata for row in leader.members) == [b"one", b"two"]
    assert not other.members


def test_nothing_is_answered_before_the_log_has_it(rig: ClassicRig) -> None:
    rig.holds = True
    call = rig.join()
    rig.apply()
    rig.pass_ms(3 * DELAY_MS)
    assert rig.is_waiting(call), "a generation that the log does not have"
    rig.apply()
    member = rig.joined(call).member_id
    synced = rig.sync(member, 1, {member: b"all"})
    assert rig.is_waiting(synced), "an assignment that the log does not have"
    rig.apply()
    assert rig.synced(synced).assignment == b"all"


def test_parts_are_told_once_the_log_has_them_also_where_the_next_round_begins_by_the_same_entry(
    rig: ClassicRig,
) -> None:
    calls = [rig.join(), rig.join()]
    rig.pass_ms(3 * DELAY_MS)
    leader, other = (rig.joined(call).member_id for call in calls)
    rig.holds = True
    rig.send(join_request(group="another"))  # Requests that arrive until that is applied are decided together.
    synced = [rig.sync(other, 1), rig.sync(leader, 1, {leader: b"one", other: b"two"})]
    rig.join()
    rig.apply()
    rig.decide()
    assert rig.state == "COMPLETING_REBALANCE" and all(rig.is_waiting(call) for call in synced)
    rig.apply()
    assert [rig.synced(call).assignment for call in synced] == [b"two", b"one"]
    assert rig.state == "PREPARING_REBALANCE" and rig.classic.generation == 1
    assert rig.classic.assignments == {leader: b"one", other: b"two"}
    assert rig.beat(leader, 1) == rig.beat(other, 1) == "REBALANCE_IN_PROGRESS"


def test_who_leaves_together_with_its_assignment_leaves_the_others_their_parts(rig: ClassicRig) -> None:
    calls = [rig.join(), rig.join()]
    rig.pass_ms(3 * DELAY_MS)
    leader, other = (rig.joined(call).member_id for call in calls)
    rig.holds = True
    rig.send(join_request(group="another"))
    synced = [rig.sync(other, 1), rig.sync(leader, 1, {leader: b"one", other: b"two"})]
    row = pb.LeavingClassicMember(member_id=leader)
    rig.send(pb.LeaveClassicGroupRequest(group_id=GROUP, members=[row]))
    rig.apply()
    rig.decide()
    rig.apply()
    assert [rig.synced(call).assignment for call in synced] == [b"two", b"one"]
    assert rig.state == "PREPARING_REBALANCE" and rig.classic.assignments == {other: b"two"}


# -- the next rounds --------------------------------------------------------------------------------------------------


def test_a_new_member_makes_all_others_join_again(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    newcomer = rig.join()
    assert rig.is_waiting(newcomer) and rig.state == "PREPARING_REBALANCE"
    assert rig.beat(a, generation) == rig.beat(b, generation) == "REBALANCE_IN_PROGRESS"
    calls = [rig.join(a), rig.join(b)]
    answers = [rig.joined(call) for call in (*calls, newcomer)]
    assert {answer.generation for answer in answers} == {generation + 1}
    assert {answer.leader for answer in answers} == {a}, "the leader stays"


def test_a_round_ends_early_when_all_have_joined(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b", "c")
    assert {answer.generation for answer in rig.rejoin(members)} == {generation + 1}


def test_who_does_not_join_in_time_is_left_out(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b", session_ms=600_000)
    call = rig.join(a)
    rig.pass_ms(REBALANCE_MS - 1_000)
    assert rig.is_waiting(call)
    rig.pass_ms(1_000)
    answer = rig.joined(call)
    assert answer.generation == generation + 1 and [row.member_id for row in answer.members] == [a]
    assert rig.beat(b, generation) == "UNKNOWN_MEMBER_ID"


def test_another_member_leads_when_the_leader_does_not_come_back(rig: ClassicRig) -> None:
    (a, b, c), _ = rig.form("a", "b", "c")
    rig.leave((a, ""))
    answers = rig.rejoin([b, c])
    assert {answer.leader for answer in answers} == {b}


def test_a_follower_that_joins_with_the_same_wishes_disturbs_nobody(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    answer = rig.joined(rig.join(b))
    assert (answer.generation, answer.leader, len(answer.members)) == (generation, a, 0)
    assert rig.state == "STABLE"


def test_a_follower_with_other_wishes_begins_a_round(rig: ClassicRig) -> None:
    (_, b), _ = rig.form("a", "b")
    call = rig.join(b, protocols=[("range", b"other")])
    assert rig.is_waiting(call) and rig.state == "PREPARING_REBALANCE"


def test_a_leader_that_joins_begins_a_round(rig: ClassicRig) -> None:
    (a, _), _ = rig.form("a", "b")
    assert rig.is_waiting(rig.join(a)) and rig.state == "PREPARING_REBALANCE"


def test_a_join_whose_answer_was_lost_is_told_the_same_again(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    first = rig.rejoin(members)
    assert [rig.joined(rig.join(member)) for member in members] == first
    assert rig.state == "COMPLETING_REBALANCE" and rig.classic.generation == generation + 1


def test_a_second_join_of_a_member_takes_the_place_of_the_first(rig: ClassicRig) -> None:
    (a, b), _ = rig.form("a", "b")
    first, second = rig.join(a), rig.join(a)
    assert code(rig.joined(first)) == "REBALANCE_IN_PROGRESS" and rig.is_waiting(second)
    rig.join(b)
    assert rig.joined(second).member_id == a


def test_who_hung_up_while_it_waited_has_not_joined(rig: ClassicRig) -> None:
    lost, call = rig.join(), rig.join()
    rig.hang_up(lost)
    rig.pass_ms(4 * DELAY_MS)
    assert list(rig.classic.members) == [rig.joined(call).member_id]


def test_who_hung_up_is_forgotten_at_once(rig: ClassicRig) -> None:
    rig.hang_up(rig.join())
    rounds = rig.leadership.classic.rounds
    assert (len(rounds), rounds.waiting_bytes) == (0, 0)


def test_whose_call_was_given_up_in_silence_has_not_joined(rig: ClassicRig) -> None:
    lost, call = rig.join(), rig.join()
    rig._open.discard(lost)
    rig.pass_ms(4 * DELAY_MS)
    assert list(rig.classic.members) == [rig.joined(call).member_id]


def test_a_join_is_answered_by_its_time(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b", session_ms=600_000)
    call = rig.send(join_request(a), wait_ms=2_000)
    rig.pass_ms(2_000)
    assert code(rig.joined(call)) == "REBALANCE_IN_PROGRESS"
    assert rig.state == "PREPARING_REBALANCE"
    again, other = rig.join(a), rig.join(b)
    assert rig.joined(again).generation == rig.joined(other).generation == generation + 1


def test_a_round_that_nobody_joins_leaves_the_group_empty(rig: ClassicRig) -> None:
    call = rig.join()
    rig.hang_up(call)
    rig.pass_ms(2 * DELAY_MS)
    assert rig.state == "EMPTY"


# -- the protocol -----------------------------------------------------------------------------------------------------


def test_the_protocol_is_one_that_all_know_and_most_like(rig: ClassicRig) -> None:
    both = [("sticky", b"s"), ("range", b"r")]
    calls = [rig.join(protocols=p) for p in (both, both, [("range", b"r"), ("sticky", b"s")])]
    rig.pass_ms(4 * DELAY_MS)
    assert {rig.joined(call).protocol for call in calls} == {"sticky"}
    assert {row.metadata for row in rig.joined(calls[0]).members} == {b"s"}


def test_a_protocol_that_one_does_not_know_is_not_chosen(rig: ClassicRig) -> None:
    both = [("sticky", b"s"), ("range", b"r")]
    calls = [rig.join(protocols=p) for p in (both, both, [("range", b"r")])]
    rig.pass_ms(4 * DELAY_MS)
    assert {rig.joined(call).protocol for call in calls} == {"range"}


def test_a_member_that_shares_no_protocol_is_refused(rig: ClassicRig) -> None:
    waiting = rig.join()
    assert code(rig.joined(rig.join(protocols=[("sticky", b"")]))) == "INCONSISTENT_GROUP_PROTOCOL"
    rig.pass_ms(DELAY_MS)
    rig.joined(waiting)
    assert code(rig.joined(rig.join(protocols=[("sticky", b"")]))) == "INCONSISTENT_GROUP_PROTOCOL"
    assert code(rig.joined(rig.join(kind="connect"))) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_member_alone_may_change_all_its_protocols(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    assert rig.joined(rig.join(a, protocols=[("sticky", b"")])).protocol == "sticky"


def test_who_waited_with_another_protocol_and_left_does_not_stop_the_round(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a", instance="one", session_ms=600_000)
    newcomer = rig.join(protocols=[("range", b""), ("sticky", b"")])
    lost = rig.join(a, instance="one", protocols=[("sticky", b"")])
    third = rig.joined(lost)
    assert third.protocol == "sticky" and rig.joined(newcomer).generation == generation + 1


def test_all_of_a_round_are_of_the_type_that_a_member_alone_came_back_with(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    named = rig.joined(rig.join(named_first=True)).member_id
    rig.join(a, kind="connect")
    assert code(rig.joined(rig.join(named, kind="consumer"))) == "INCONSISTENT_GROUP_PROTOCOL"
    assert rig.joined(rig.join(named, kind="connect")).protocol_type == "connect"


def test_an_empty_group_takes_any_protocol_type(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    rig.leave((a, ""))
    call = rig.join(kind="connect", protocols=[("default", b"")])
    rig.pass_ms(DELAY_MS)
    assert rig.joined(call).protocol_type == "connect"


def test_of_two_protocols_of_one_name_the_first_counts(rig: ClassicRig) -> None:
    call = rig.join(protocols=[("range", b"first"), ("range", b"second")])
    rig.pass_ms(DELAY_MS)
    assert [row.metadata for row in rig.joined(call).members] == [b"first"]


# -- ids assigned before joining --------------------------------------------------------------------------------------


def test_a_new_member_comes_back_with_the_id_that_it_was_given(rig: ClassicRig) -> None:
    answer = rig.joined(rig.join(named_first=True))
    assert code(answer) == "MEMBER_ID_REQUIRED" and answer.member_id and answer.generation == -1
    assert GROUP not in rig.table.groups, "it counts before it has returned with its id"
    call = rig.join(answer.member_id, named_first=True)
    rig.pass_ms(DELAY_MS)
    assert rig.joined(call).member_id == answer.member_id


def test_given_ids_last_a_session(rig: ClassicRig) -> None:
    """An assigned id is valid for one session: a slow client can still join with it, and an unused one expires."""
    early, late = (rig.joined(rig.join(named_first=True)).member_id for _ in range(2))
    rig.pass_ms(SESSION_MS - 1)
    call = rig.join(early, named_first=True)
    rig.pass_ms(DELAY_MS)
    joined = rig.joined(call)
    assert (code(joined), joined.member_id) == ("NONE", early)
    assert code(rig.joined(rig.join(late, named_first=True))) == "UNKNOWN_MEMBER_ID"


def test_a_round_waits_for_who_was_given_an_id(rig: ClassicRig) -> None:
    (a,), generation = rig.form("a")
    named = rig.joined(rig.join(named_first=True)).member_id
    call = rig.join(a)
    assert rig.is_waiting(call)
    other = rig.join(named)
    assert rig.joined(call).generation == rig.joined(other).generation == generation + 1


def test_a_round_does_not_wait_for_ever_for_who_was_given_an_id(rig: ClassicRig) -> None:
    (a,), _ = rig.form("a")
    named = rig.joined(rig.join(named_first=True)).member_id
    call = rig.join(a)
    rig.pass_ms(SESSION_MS)
    assert not rig.is_waiting(call)
    assert code(rig.joined(rig.join(named))) == "UNKNOWN_MEMBER_ID"


def test_an_id_that_nobody_was_given_is_unknown(rig: ClassicRig) -> None:
    assert code(rig.joined(rig.join("somebody"))) == "UNKNOWN_MEMBER_ID"
    rig.form("a")
    assert code(rig.joined(rig.join("somebody"))) == "UNKNOWN_MEMBER_ID"


def test_no_two_members_are_given_one_id(rig: ClassicRig) -> None:
    given = [rig.joined(rig.join(named_first=True)).member_id for _ in range(3)]
    rig.fail_over()
    given += [rig.joined(rig.join(named_first=True)).member_id for _ in range(3)]
    assert len(set(given)) == 6


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"session_ms": 0}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": -1}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": (1 << 31) - 1}, "INVALID_SESSION_TIMEOUT"),
        ({"kind": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": []}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": [("", b"")]}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": [("x" * 250, b"")]}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": [(str(each), b"") for each in range(101)]}, "INVALID_REQUEST"),
        ({"protocols": [("range", bytes(1 << 20))]}, "GROUP_MAX_SIZE_REACHED"),
        ({"instance": "x" * 250}, "INVALID_REQUEST"),
        ({"instance": "line\nbreak"}, "INVALID_REQUEST"),
        ({"member_id": "x" * 400}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "\0"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(rig: ClassicRig, wrong: dict[str, object], expected: str) -> None:
    assert code(rig.joined(rig.join(**wrong))) == expected  # type: ignore[arg-type]
    assert not rig.table.groups


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_any_rebalance_timeout_ends_a_round(rig: ClassicRig, rebalance_ms: int) -> None:
    (a, _), generation = rig.form("a", "b", rebalance_ms=rebalance_ms) if rebalance_ms > 0 else rig.form("a", "b")
    call = rig.join(a, rebalance_ms=rebalance_ms)
    rig.pass_ms(SESSION_MS + REBALANCE_MS)
    assert rig.joined(call).generation == generation + 1


def test_a_group_takes_so_many_members_and_no_more() -> None:
    rig = ClassicRig(limits=ConsumerGroupLimits(members=2))
    rig.form("a", "b")
    assert code(rig.joined(rig.join())) == "GROUP_MAX_SIZE_REACHED"
    assert code(rig.joined(rig.join(named_first=True))) == "GROUP_MAX_SIZE_REACHED"


def test_members_of_a_group_say_so_much_of_themselves_and_no_more() -> None:
    rig = ClassicRig(limits=ConsumerGroupLimits(classic_group_bytes=1_000))
    rig.join(protocols=[("range", bytes(600))])
    assert code(rig.joined(rig.join(protocols=[("range", bytes(600))]))) == "GROUP_MAX_SIZE_REACHED"


def test_an_assignment_beyond_the_limit_is_refused() -> None:
    rig = ClassicRig(limits=ConsumerGroupLimits(classic_group_bytes=1_000))
    call = rig.join()
    rig.pass_ms(DELAY_MS)
    member = rig.joined(call).member_id
    assert code(rig.synced(rig.sync(member, 1, {member: bytes(1_001)}))) == "GROUP_MAX_SIZE_REACHED"
    assert rig.synced(rig.sync(member, 1, {member: bytes(1_000)})).assignment == bytes(1_000)


def test_what_members_of_all_classic_groups_say_has_a_limit() -> None:
    """Classic groups have a shared limit in bytes: each may have eight megabytes, and there may be ten thousand of
    them."""
    rig = ClassicRig(limits=ConsumerGroupLimits(coordinator_bytes=972))
    (a,), _ = rig.form("a", protocols=[("range", bytes(900))])
    assert code(rig.joined(rig.join(group="two"))) == "GROUP_MAX_SIZE_REACHED"
    again = rig.join(a, protocols=[("range", bytes(900))])
    rig.pass_ms(SESSION_MS)
    assert code(rig.joined(again)) == "NONE", "an existing member continues"


def test_assignments_of_all_classic_groups_have_a_limit() -> None:
    rig = ClassicRig(limits=ConsumerGroupLimits(coordinator_bytes=1_000))
    call = rig.join()
    rig.pass_ms(DELAY_MS)
    member = rig.joined(call).member_id
    assert code(rig.synced(rig.sync(member, 1, {member: bytes(17 << 10)}))) == "GROUP_MAX_SIZE_REACHED"
    assert rig.synced(rig.sync(member, 1, {member: bytes(16 << 10)})).assignment == bytes(16 << 10)


def test_so_many_calls_wait_at_a_coordinator_and_no_more() -> None:
    rig = ClassicRig(max_parked=2)
    rig.join(), rig.join()
    assert code(rig.joined(rig.join())) == "SERVER_BUSY"


def test_so_many_ids_are_given_and_no_more() -> None:
    rig = ClassicRig(max_parked=2)
    answers = [rig.joined(rig.join(named_first=True)) for _ in range(3)]
    assert [code(answer) for answer in answers] == ["MEMBER_ID_REQUIRED", "MEMBER_ID_REQUIRED", "SERVER_BUSY"]


def test_a_coordinator_keeps_so_many_groups_and_no_more() -> None:
    rig = ClassicRig(limits=ConsumerGroupLimits(groups=1))
    rig.join(group="one")
    assert code(rig.joined(rig.join(group="two"))) == "GROUP_MAX_SIZE_REACHED"


def test_there_are_no_classic_groups_before_all_nodes_know_them() -> None:
    rig = ClassicRig(level=FIRST_FEATURE_LEVEL)
    assert code(rig.joined(rig.join())) == "UNSUPPORTED_VERSION"
    assert not rig.table.groups


def test_a_client_without_a_name_gets_an_id_all_the_same(rig: ClassicRig) -> None:
    call = rig.send(join_request(), client=RequestContext("\n\n", ORIGIN.host))
    rig.pass_ms(DELAY_MS)
    assert rig.joined(call).member_id.startswith("member-")


# -- syncing ----------------------------------------------------------------------------------------------------------


def test_followers_wait_for_what_their_leader_assigns(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    a, b = members
    rig.rejoin(members)
    waiting = rig.sync(b, generation + 1)
    assert rig.is_waiting(waiting)
    rig.sync(a, generation + 1, {b: b"half"})
    assert rig.synced(waiting).assignment == b"half"
    assert rig.synced(rig.sync(a, generation + 1)).assignment == b"", "who is not named has nothing"


def test_an_assignment_of_strangers_counts_for_nothing(rig: ClassicRig) -> None:
    members, generation = rig.form("a")
    rig.rejoin(members)
    rig.sync(members[0], generation + 1, {"stranger": b"all"})
    assert rig.classic.assignments == {}


def test_followers_assign_nothing(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.rejoin([a, b])
    assert rig.is_waiting(rig.sync(b, generation + 1, {b: b"all"}))
    assert rig.state == "COMPLETING_REBALANCE"


def test_who_syncs_again_is_told_the_same(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    assert rig.synced(rig.sync(b, generation)).assignment == b.encode()
    assert rig.synced(rig.sync(a, generation, {b: b"other"})).assignment == a.encode(), "it was assigned already"
    assert rig.classic.assignments[b] == b.encode()


def test_a_sync_of_another_generation_is_refused(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    for other in (generation - 1, generation + 1, -1, (1 << 31) - 1):
        assert code(rig.synced(rig.sync(a, other))) == "ILLEGAL_GENERATION"
    assert code(rig.synced(rig.sync("stranger", generation))) == "UNKNOWN_MEMBER_ID"
    assert code(rig.synced(rig.sync(b, generation, protocol="other"))) == "INCONSISTENT_GROUP_PROTOCOL"
    assert code(rig.synced(rig.sync(b, generation, protocol_type="other"))) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_sync_while_others_are_to_join_is_told_to_join(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.join(a)
    assert code(rig.synced(rig.sync(b, generation))) == "REBALANCE_IN_PROGRESS"


def test_syncs_that_wait_are_told_of_a_new_round(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b")
    rig.rejoin([a, b])
    waiting = rig.sync(b, generation + 1)
    rig.join()
    assert code(rig.synced(waiting)) == "REBALANCE_IN_PROGRESS"


def test_a_leader_that_does_not_assign_in_time_is_left_out(rig: ClassicRig) -> None:
    (a, b), generation = rig.form("a", "b", session_ms=600_000, rebalance_ms=20_000)
    calls = [rig.join(each, session_ms=600_000, rebalance_ms=20_000) for each in (a, b)]
    rig.joined(calls[0])
    waiting = rig.sync(b, generation + 1)
    rig.pass_ms(20_000)
    assert code(rig.synced(waiting)) == "REBALANCE_IN_PROGRESS"
    assert list(rig.classic.members) == [b]
    assert rig.joined(rig.join(b)).leader == b


def test_a_sync_is_answered_by_its_time(rig: ClassicRig) -> None:
    members, generation = rig.form("a", "b")
    rig.rejoin(members)
    request = pb.SyncClassicGroupRequest(group_id=GROUP, member_id=members[1], generation=generation + 1)
    waiting = rig.send(request, wait_ms=1_000)
    rig.pass_ms(1_000)
    assert code(rig.synced(waiting)) == "REBALANCE_IN_PROGRESS"
