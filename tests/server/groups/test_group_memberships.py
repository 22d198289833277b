"""Membership as in KIP-848, heartbeat by heartbeat: members join, leave, are fenced and return."""

from __future__ import annotations

import pytest
from group_samples import GROUP, ORIGIN, Client, Coordinator, Topics, partitions, request, until_stable

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.heartbeat_decisions import heartbeat, nothing_new
from quorumlog.server.groups.member import UNRELEASED, UNREVOKED
from quorumlog.server.groups.member_changes import expire_rebalance, expire_session
from quorumlog.server.groups.records import partitions_of
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(Topics(t=4))


def joined(coordinator: Coordinator, *names: str) -> list[Client]:
    clients = [Client(coordinator, name) for name in names]
    until_stable(clients)
    return clients


def refused(answer: pb.GroupHeartbeatResponse | None) -> str:
    assert answer is not None
    assert answer.error.definite
    return ErrorCode.Name(answer.error.code)


# -- joining and leaving ----------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    answer = coordinator.heartbeat(request("a", 0))
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 1, 3_000)
    assert partitions_of(answer.assignment.topics) == partitions("t", 0, 1, 2, 3)
    assert answer.assignment.topics[0].topic == "t"
    assert coordinator.group.state == pb.GROUP_STABLE


def test_a_second_member_waits_for_what_the_first_releases(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b")
    b.beat()
    assert (b.epoch, b.owned) == (2, set())
    assert coordinator.group.members["b"].state == UNRELEASED
    a.beat()
    assert (a.epoch, len(a.to_revoke)) == (1, 2), "it stays in its epoch until it has given up"
    assert coordinator.group.members["a"].state == UNREVOKED
    assert b.beat() is None
    assert a.beat() is None, "still at it"
    moved = set(a.to_revoke)
    a.revoke()
    a.beat()
    assert (a.epoch, len(a.owned)) == (2, 2)
    b.beat()
    assert b.owned == moved
    assert coordinator.group.state == pb.GROUP_STABLE


def test_what_stays_is_not_interrupted(coordinator: Coordinator) -> None:
    a, b = joined(coordinator, "a", "b")
    since = dict(coordinator.group.members["a"].assigned)
    joined_later = [a, b, Client(coordinator, "c")]
    until_stable(joined_later)
    kept = coordinator.group.members["a"].assigned
    assert kept.items() <= since.items()


def test_a_member_that_leaves_is_succeeded_at_once(coordinator: Coordinator) -> None:
    a, b = joined(coordinator, "a", "b")
    freed = set(a.owned)
    assert a.leave().member_epoch == -1
    b.beat()
    assert b.owned >= freed
    assert coordinator.group.state == pb.GROUP_STABLE


def test_leaving_twice_is_leaving(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    a.leave()
    assert a.leave().member_epoch == -1
    assert coordinator.group.state == pb.GROUP_EMPTY
    assert coordinator.group.header.empty_since_ms == coordinator.wall_ms
    assert coordinator.group.header.assignor == ""


def test_members_beyond_the_partitions_are_idle(coordinator: Coordinator) -> None:
    clients = joined(coordinator, *"abcdef")
    assert sorted(len(client.owned) for client in clients) == [0, 0, 1, 1, 1, 1]


def test_members_that_join_together_make_one_epoch(coordinator: Coordinator) -> None:
    answers = coordinator.heartbeats(*(request(name, 0) for name in "abcd"))
    assert [answer and answer.member_epoch for answer in answers] == [1, 1, 1, 1]
    assert [answer and len(answer.assignment.topics) for answer in answers] == [1, 1, 1, 1]
    assert len(coordinator.commands) == 1


# -- answers that are lost --------------------------------------------------------------------------------------------


def test_a_join_whose_answer_was_lost_is_answered_again(coordinator: Coordinator) -> None:
    first = coordinator.heartbeat(request("a", 0))
    assert coordinator.heartbeat(request("a", 0)) == first
    assert len(coordinator.commands) == 1


@pytest.mark.parametrize("is_old", [False, True])
def test_an_answer_that_was_lost_is_told_again(coordinator: Coordinator, is_old: bool) -> None:
    a, b = joined(coordinator, "a", "b")
    if is_old:
        a.is_old, a.version = True, 0
    Client(coordinator, "c").beat()
    a.beat()
    a.revoke()
    lost = coordinator.heartbeat(a.request())
    assert lost.member_epoch == 3
    assert coordinator.heartbeat(a.request()) == lost
    # Repeated heartbeats change nothing, even when others join in between: it does not fall two epochs behind.
    Client(coordinator, "d").beat()
    assert coordinator.heartbeat(a.request()) == lost
    b.beat()
    a.beat()
    until_stable([a])


def waits_for_two(coordinator: Coordinator, *, is_old: bool) -> tuple[Client, pb.GroupHeartbeatRequest, Client]:
    """Returns a member that has two partitions and must release one, a heartbeat of it from before it had any, and the
    member that waits for the one."""
    (x,) = joined(coordinator, "x")
    m = Client(coordinator, "m", is_old=is_old)
    m.beat()
    late = m.request(full=True)
    until_stable([x, m])
    assert len(m.owned) == 2
    z = Client(coordinator, "z", topics=("t",))
    z.beat()
    while not m.to_revoke:
        x.beat()
        x.revoke()
        m.beat()
    return m, late, z


@pytest.mark.parametrize("is_old", [False, True])
def test_a_heartbeat_from_before_a_revocation_releases_nothing_at_the_next_coordinator(
    coordinator: Coordinator, is_old: bool
) -> None:
    m, late, z = waits_for_two(coordinator, is_old=is_old)
    coordinator.restart()
    reported, _ = coordinator.heartbeats(late, z.request())
    assert reported is not None
    z.beat(full=True)
    assert z.owned.isdisjoint(m.owned), "m has not released it"
    assert coordinator.group.members["m"].revoking.keys() == m.to_revoke
    m.revoke()
    m.beat()
    until_stable([m, z])
    assert sorted(z.owned | m.owned) == sorted(
        coordinator.group.holders.keys() - set(coordinator.group.members["x"].assigned)
    )


def test_a_heartbeat_of_an_older_assignment_in_the_same_epoch_is_told_the_newest_and_changes_no_wish(
    coordinator: Coordinator,
) -> None:
    (x,) = joined(coordinator, "x")
    m = Client(coordinator, "m")
    m.beat()
    late = m.request(topics=("u",))
    until_stable([x, m])
    assert late.member_epoch == m.epoch
    before = len(coordinator.commands)
    reported = coordinator.heartbeat(late)
    assert partitions_of(reported.assignment.topics) == m.owned
    assert reported.assignment.version == m.version > late.assignment_version > 0
    assert len(coordinator.commands) == before


def test_a_version_always_tells_the_same_whether_or_not_the_group_reads_the_topic(coordinator: Coordinator) -> None:
    coordinator.topics.put("u", 2)
    a = Client(coordinator, "a", topics=("t", "u"))
    b = Client(coordinator, "b", topics=("t",))
    a.beat()
    b.beat()
    a.beat()
    assert a.to_revoke and partitions("u", 0, 1) <= a.owned
    version, owned = a.version, set(a.owned)
    a.wishes["topics"] = ("t",)
    reported = a.beat(full=True)
    assert reported is not None
    assert "u" not in {topic.name for topic in coordinator.group.header.topics.values()}
    assert (a.version, a.owned) == (version, owned)
    assert partitions("u", 0, 1) <= partitions_of(reported.assignment.topics), (
        "it is to give them up in the next version"
    )
    until_stable([a, b])
    assert partitions("u", 0, 1).isdisjoint(a.owned)


def test_the_version_of_an_assignment_outlives_the_coordinator(coordinator: Coordinator) -> None:
    a, b = joined(coordinator, "a", "b")
    coordinator.restart()
    for client in (a, b):
        assert coordinator.group.members[client.member_id].assignment_version == client.version > 0
        assert client.beat() is None, "no assignment has to be sent again"


def test_an_old_client_is_given_nothing_within_an_epoch(coordinator: Coordinator) -> None:
    (x,) = joined(coordinator, "x")
    m = Client(coordinator, "m", is_old=True)
    had = {m.epoch: set(m.owned)}
    for _ in range(6):
        for client in (x, m):
            client.beat()
            client.revoke()
        assert m.owned <= had.setdefault(m.epoch, set(m.owned))
    assert len(m.owned) == 2
    assert until_stable([x, m]) <= 1


def test_a_late_join_releases_nothing(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    Client(coordinator, "b").beat()
    a.beat()
    again = coordinator.heartbeat(request("a", 0))
    assert again.member_epoch == 1
    assert coordinator.group.members["a"].revoking.keys() == a.to_revoke
    assert coordinator.group.members["b"].assigned == {}


def test_a_full_heartbeat_is_told_everything_at_once(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    assert a.beat() is None
    answer = a.beat(full=True)
    assert answer is not None
    assert partitions_of(answer.assignment.topics) == a.owned
    assert len(coordinator.commands) == 1


def test_a_heartbeat_that_may_not_wait_is_answered(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    one = a.request()
    one.max_wait_ms = 0
    answer = coordinator.heartbeat(one)
    assert answer.member_epoch == 1
    assert not answer.HasField("assignment")
    assert nothing_new(coordinator.group, one, coordinator.limits) == answer


def test_a_heartbeat_without_news_changes_nothing_in_the_draft(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    draft = Draft(coordinator.table, coordinator.topics, coordinator.limits, 0)
    assert heartbeat(draft, a.request(), ORIGIN) is None
    assert not draft.changed(GROUP)
    assert draft.command() is None
    assert draft.size_bytes == 0


# -- fencing ----------------------------------------------------------------------------------------------------------


def test_an_unknown_member_joins_anew(coordinator: Coordinator) -> None:
    assert refused(coordinator.heartbeat(request("a", 1))) == "UNKNOWN_MEMBER_ID"
    joined(coordinator, "b")
    assert refused(coordinator.heartbeat(request("a", 1))) == "UNKNOWN_MEMBER_ID"


def test_epochs_that_do_not_fit_are_fenced(coordinator: Coordinator) -> None:
    a, b = joined(coordinator, "a", "b")
    joined(coordinator, "c")
    until_stable([a, b])
    assert refused(coordinator.heartbeat(request("a", 9))) == "FENCED_MEMBER_EPOCH"
    assert refused(coordinator.heartbeat(request("a", 1))) == "FENCED_MEMBER_EPOCH"
    owned_by_another = b.owned
    assert refused(coordinator.heartbeat(request("a", 2, owned=owned_by_another))) == "FENCED_MEMBER_EPOCH"


def test_a_silent_member_goes(coordinator: Coordinator) -> None:
    a, b = joined(coordinator, "a", "b")
    assert coordinator.decide(lambda draft: expire_session(draft, GROUP, "a"))
    assert not coordinator.decide(lambda draft: expire_session(draft, GROUP, "a"))
    assert not coordinator.decide(lambda draft: expire_session(draft, "other", "a"))
    b.beat()
    assert len(b.owned) == 4
    assert refused(coordinator.heartbeat(a.request())) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_does_not_give_up_in_time_goes(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b")
    b.beat()
    a.beat()
    epoch = coordinator.group.members["a"].member_epoch
    assert not coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, "a", epoch + 1))
    assert not coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, "b", 2))
    assert coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, "a", epoch))
    assert not coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, "a", epoch))
    b.beat()
    assert len(b.owned) == 4


def test_each_time_to_give_up_has_an_epoch_of_its_own(coordinator: Coordinator) -> None:
    (a,) = joined(coordinator, "a")
    b = Client(coordinator, "b")
    b.beat()
    a.beat()
    a.revoke()
    c = Client(coordinator, "c")
    c.beat()
    a.beat()
    assert a.to_revoke, "the third member wants its part"
    assert coordinator.group.members["a"].state == UNREVOKED
    assert not coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, "a", 1))
    a.revoke()
    until_stable([a, b, c])
    assert sorted(len(client.owned) for client in (a, b, c)) == [1, 1, 2]


# -- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(coordinator: Coordinator) -> None:
    a, b = Client(coordinator, "a", instance="one"), Client(coordinator, "b")
    until_stable([a, b])
    had, epoch = set(a.owned), a.epoch
    assert a.leave(-2).member_epoch == -2
    assert a.leave(-2).member_epoch == -2, "leaving twice is leaving"
    assert not coordinator.group.members["a"].is_present
    assert b.beat() is None
    again = Client(coordinator, "a2", instance="one")
    again.beat()
    assert (again.owned, again.epoch) == (had, epoch)
    assert b.beat() is None
    assert coordinator.group.state == pb.GROUP_STABLE


def test_the_same_process_of_a_static_member_may_come_back(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a", instance="one")
    until_stable([a])
    a.leave(-2)
    late = coordinator.heartbeat(request("a", 1, instance="one"))
    assert refused(late) == "FENCED_MEMBER_EPOCH"
    a.epoch = 0
    a.beat()
    assert (len(a.owned), a.epoch) == (4, 1)


def test_a_static_member_that_stays_away_goes(coordinator: Coordinator) -> None:
    a, b = Client(coordinator, "a", instance="one"), Client(coordinator, "b")
    until_stable([a, b])
    a.leave(-2)
    assert coordinator.decide(lambda draft: expire_session(draft, GROUP, "a"))
    b.beat()
    assert len(b.owned) == 4


def test_what_an_absent_static_member_is_to_lose_is_free_at_once(coordinator: Coordinator) -> None:
    a, b = Client(coordinator, "a", instance="one"), Client(coordinator, "b")
    until_stable([a, b])
    a.leave(-2)
    c = Client(coordinator, "c")
    until_stable([b, c])
    assert len(b.owned) + len(c.owned) + len(coordinator.group.members["a"].assigned) == 4
    assert coordinator.group.state == pb.GROUP_STABLE


def test_a_static_name_has_one_process(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a", instance="one")
    until_stable([a])
    second = coordinator.heartbeat(request("a2", 0, instance="one"))
    assert refused(second) == "UNRELEASED_INSTANCE_ID"
    assert second.error.retriable
    # The refused process closes: no member leaves by that.
    for epoch in (-1, -2):
        assert refused(coordinator.heartbeat(request("a2", epoch, instance="one"))) == "FENCED_INSTANCE_ID"
    assert a.beat() is None
    a.leave(-2)
    coordinator.heartbeat(request("a2", 0, instance="one"))
    assert refused(coordinator.heartbeat(a.request())) == "FENCED_INSTANCE_ID"


def test_a_static_member_may_join_leave_and_be_succeeded_in_one_draft(coordinator: Coordinator) -> None:
    answers = coordinator.heartbeats(
        request("a", 0, instance="one"), request("a", -2, instance="one"), request("a2", 0, instance="one")
    )
    assert coordinator.group.members.keys() == {"a2"}
    assert answers[-1] is not None
    assert partitions_of(answers[-1].assignment.topics) == partitions("t", 0, 1, 2, 3)


def test_a_member_keeps_its_static_name(coordinator: Coordinator) -> None:
    a = Client(coordinator, "a", instance="one")
    until_stable([a])
    for epoch in (0, 1, -1):
        owned = a.owned if epoch == 1 else ()
        assert refused(coordinator.heartbeat(request("a", epoch, instance="two", owned=owned))) == "INVALID_REQUEST"
    assert a.beat() is None


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, "INVALID_GROUP_ID"),
        ({"group_id": "g" * 250}, "INVALID_GROUP_ID"),
        ({"group_id": "g\n"}, "INVALID_GROUP_ID"),
        ({"member_id": "\x1b"}, "INVALID_REQUEST"),
        ({"instance_id": "\x1b"}, "INVALID_REQUEST"),
        ({"rack": "\n"}, "INVALID_REQUEST"),
        ({"rack": "r" * 250}, "INVALID_REQUEST"),
        ({"member_id": ""}, "INVALID_REQUEST"),
        ({"member_id": "m" * 65}, "INVALID_REQUEST"),
        ({"instance_id": "i" * 250}, "INVALID_REQUEST"),
        ({"member_epoch": -3}, "INVALID_REQUEST"),
        ({"member_epoch": -2}, "INVALID_REQUEST"),
        ({"owned": [pb.TopicPartitions(topic_id=b"t")]}, "INVALID_REQUEST"),
        ({"session_timeout_ms": 999}, "INVALID_REQUEST"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": 0}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": 86_400_001}, "INVALID_REQUEST"),
        ({"topics": ["t"] * 1_001}, "INVALID_REQUEST"),
        ({"topics": [""]}, "INVALID_TOPIC"),
        ({"topics": ["__groups"]}, "INVALID_TOPIC"),
        ({"topics": ["__consumer_offsets"]}, "INVALID_TOPIC"),
        ({"topics": ["t" * 250]}, "INVALID_TOPIC"),
        ({"topic_pattern": "("}, "INVALID_REGULAR_EXPRESSION"),
        ({"topic_pattern": "a" * 1_001}, "INVALID_REGULAR_EXPRESSION"),
        ({"topic_pattern": "((a{100}){100}){100}"}, "INVALID_REGULAR_EXPRESSION"),
        ({"topic_pattern": r"(?P<a>x)\1"}, "INVALID_REGULAR_EXPRESSION"),
        ({"assignor": "sticky"}, "UNSUPPORTED_ASSIGNOR"),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused_in_one_line(
    coordinator: Coordinator, changes: dict[str, object], code: str
) -> None:
    one = request("a", 0)
    for name, value in changes.items():
        if isinstance(value, list):
            one.ClearField(name)  # type: ignore[arg-type]
            getattr(one, name).extend(value)
        else:
            setattr(one, name, value)
    answer = coordinator.heartbeat(one)
    assert refused(answer) == code
    assert answer.error.message.isprintable()
    assert not coordinator.table.groups


def test_groups_and_members_have_limits() -> None:
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(groups=2, members=2))
    coordinator.heartbeats(request("a", 0), request("b", 0))
    assert refused(coordinator.heartbeat(request("c", 0))) == "GROUP_MAX_SIZE_REACHED"
    assert not coordinator.heartbeat(request("a", 0)).HasField("error")
    answers = coordinator.heartbeats(request("a", 0, group="g2"), request("a", 0, group="g3"))
    assert [answer and answer.HasField("error") for answer in answers] == [False, True]
    assert refused(answers[1]) == "GROUP_MAX_SIZE_REACHED"
    assert sorted(coordinator.table.groups) == ["g", "g2"]


def test_what_members_say_in_all_groups_together_has_a_limit() -> None:
    """Subscriptions of all members have a shared limit: each may have a quarter of a megabyte, and there may be ten
    million."""
    coordinator = Coordinator(Topics(t=4), ConsumerGroupLimits(coordinator_bytes=900))
    wordy = request("a", 0, topics=["t", *("x" * 100 + str(number) for number in range(8))])
    assert not coordinator.heartbeat(wordy).HasField("error")
    assert refused(coordinator.heartbeat(request("b", 0, group="g2"))) == "GROUP_MAX_SIZE_REACHED"
    assert not coordinator.heartbeat(wordy).HasField("error"), "an existing member continues"
    more = request("a", 0, topics=[*wordy.topics, "y" * 100])
    assert refused(coordinator.heartbeat(more)) == "GROUP_MAX_SIZE_REACHED"
    assert not coordinator.heartbeat(request("a", 0)).HasField("error"), "it may say less"
    assert not coordinator.heartbeat(request("b", 0, group="g2")).HasField("error")


def test_what_was_said_in_a_former_group_of_the_name_releases_nothing_in_the_next(coordinator: Coordinator) -> None:
    """A late heartbeat from a deleted group releases nothing in the next group of the name, even in the same epoch."""
    (a,) = joined(coordinator, "a")
    late = a.request(owned=())
    a.leave()
    coordinator.decide(lambda draft: draft.edit(GROUP).delete())
    assert GROUP not in coordinator.table.groups
    (again,) = joined(coordinator, "a")
    assert again.epoch == late.member_epoch
    b = Client(coordinator, "b")
    b.beat()
    reported = coordinator.heartbeat(late)
    assert partitions_of(reported.assignment.topics) == again.owned, "it receives the newest"
    b.beat()
    assert again.owned.isdisjoint(b.owned)
    assert again.version > late.assignment_version > 0
    coordinator.restart()
    until_stable([again, b])
