"""Members that send only changed fields, as Kafka's clients do."""

from __future__ import annotations

import pytest
from group_samples import GROUP, Client, Coordinator, PartitionId, Topics, partitions, request, until_stable

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.member import UNRELEASED, UNREVOKED
from quorumlog.server.groups.records import partition_lists, partitions_of
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

NOTHING_SAID = pb.HeartbeatOmissions(
    instance_id=True, rack=True, rebalance_timeout_ms=True, topics=True, topic_pattern=True, assignor=True, owned=True
)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(Topics(t=4, u=2))


def beat(
    member_id: str, epoch: int, owned: set[PartitionId] | None = None, **fields: object
) -> pb.GroupHeartbeatRequest:
    """Returns a heartbeat in which only these fields are present."""
    made = pb.GroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)  # type: ignore[arg-type]
    made.omitted.CopyFrom(NOTHING_SAID)
    for name in fields:
        if name in pb.HeartbeatOmissions.DESCRIPTOR.fields_by_name:
            setattr(made.omitted, name, False)
    if owned is not None:
        made.owned.extend(partition_lists(owned))
        made.omitted.owned = False
    return made


def join(coordinator: Coordinator, member_id: str, **fields: object) -> pb.GroupHeartbeatResponse:
    """Joins as Kafka's clients do, with all fields present."""
    said: dict[str, object] = {"topics": ["t"], "rebalance_timeout_ms": 60_000, "full": True, **fields}
    made = pb.GroupHeartbeatRequest(group_id=GROUP, member_id=member_id, **said)  # type: ignore[arg-type]
    made.omitted.CopyFrom(pb.HeartbeatOmissions())
    return coordinator.heartbeat(made)


def refused(answer: pb.GroupHeartbeatResponse) -> str:
    return ErrorCode.Name(answer.error.code)


def test_what_is_left_out_is_as_before(coordinator: Coordinator) -> None:
    wishes = {"topic_pattern": "u", "assignor": "range", "rack": "r", "instance_id": "i"}
    reported = join(coordinator, "k", **wishes)
    member = coordinator.group.members["k"]
    commands = len(coordinator.commands)
    assert coordinator.heartbeat(beat("k", reported.member_epoch)).error.code == ErrorCode.NONE
    assert (coordinator.group.members["k"], len(coordinator.commands)) == (member, commands)
    coordinator.heartbeat(beat("k", reported.member_epoch, topics=["u"], rack="s"))
    changed = coordinator.group.members["k"]
    assert (changed.subscription.topics, changed.rack) == (("u",), "s")
    assert (changed.subscription.pattern, changed.subscription.assignor) == ("u", "range")
    assert (changed.instance_id, changed.rebalance_timeout_ms) == ("i", 60_000)
    # An empty expression is present, and means no expression.
    coordinator.heartbeat(beat("k", changed.member_epoch, topic_pattern=""))
    assert coordinator.group.members["k"].subscription.pattern == ""


def test_of_two_heartbeats_that_are_decided_together_the_second_leaves_out_what_the_first_says(
    coordinator: Coordinator,
) -> None:
    epoch = join(coordinator, "k").member_epoch
    first = beat("k", epoch, topics=["u"])
    coordinator.heartbeats(first, beat("k", epoch, rack="r"))
    member = coordinator.group.members["k"]
    assert (member.subscription.topics, member.rack) == (("u",), "r")


def test_a_member_that_joins_again_leaves_nothing_out(coordinator: Coordinator) -> None:
    join(coordinator, "k", topic_pattern="u", rack="r")
    again = beat("k", 0, topics=["t"], rebalance_timeout_ms=1_000)
    coordinator.heartbeat(again)
    member = coordinator.group.members["k"]
    assert (member.subscription.pattern, member.rack) == ("", "")
    without = beat("other", 0, topics=["t"])
    assert refused(coordinator.heartbeat(without)) == "INVALID_REQUEST"


def test_the_session_is_the_nodes_for_who_asks_for_none(coordinator: Coordinator) -> None:
    reported = join(coordinator, "k")
    assert coordinator.group.members["k"].session_timeout_ms == 45_000
    assert reported.heartbeat_interval_ms == 3_000
    short = ConsumerGroupLimits(min_session_timeout_ms=600, max_session_timeout_ms=900)
    other = Coordinator(Topics(t=1), short)
    assert join(other, "k").heartbeat_interval_ms == 300
    assert other.group.members["k"].session_timeout_ms == 900


def test_who_asks_for_more_time_than_members_may_have_gets_that(coordinator: Coordinator) -> None:
    """A rebalance timeout above the maximum is lowered to it: brokers accept any, and many clients set
    ``max.poll.interval.ms`` to the largest number."""
    most = ConsumerGroupLimits().max_rebalance_timeout_ms
    reported = join(coordinator, "k", rebalance_timeout_ms=(1 << 31) - 1)
    assert (refused(reported), coordinator.group.members["k"].rebalance_timeout_ms) == ("NONE", most)
    coordinator.heartbeat(beat("k", reported.member_epoch, rebalance_timeout_ms=(1 << 31) - 1))
    assert coordinator.group.members["k"].rebalance_timeout_ms == most


def test_a_member_that_is_not_there_is_told_so_whatever_it_leaves_out(coordinator: Coordinator) -> None:
    assert refused(coordinator.heartbeat(beat("k", 5))) == "UNKNOWN_MEMBER_ID"
    join(coordinator, "other")
    assert refused(coordinator.heartbeat(beat("k", 5))) == "UNKNOWN_MEMBER_ID"


def test_who_says_nothing_of_what_it_owns_has_released_nothing(coordinator: Coordinator) -> None:
    epoch = join(coordinator, "k").member_epoch
    sdk = Client(coordinator, "sdk")
    sdk.beat()
    reported = coordinator.heartbeat(beat("k", epoch))
    kept = partitions_of(reported.assignment.topics)
    assert len(kept) == 2 and reported.member_epoch == epoch
    for _ in range(3):
        still = coordinator.heartbeat(beat("k", epoch))
        assert (still.member_epoch, coordinator.group.members["k"].state) == (epoch, UNREVOKED)
        assert not still.HasField("assignment")
    sdk.beat()
    assert not sdk.owned
    after = coordinator.heartbeat(beat("k", epoch, owned=kept))
    assert after.member_epoch > epoch
    until_stable([sdk])
    assert sdk.owned == partitions("t", 0, 1, 2, 3) - kept


def test_what_a_member_was_not_told_to_release_it_has_whatever_it_says(coordinator: Coordinator) -> None:
    """A member keeps what it was not asked to release, even if its heartbeat omits it: a heartbeat that is retried
    after an error does not list partitions that the member is just taking up."""
    epoch = join(coordinator, "k").member_epoch
    sdk = Client(coordinator, "sdk")
    sdk.beat()
    said = {"topics": ["t"], "rebalance_timeout_ms": 60_000, "full": True}
    reported = coordinator.heartbeat(beat("k", epoch, owned=set(), **said))
    kept = partitions_of(reported.assignment.topics)
    sdk.beat()
    assert len(kept) == 2 and not sdk.owned
    assert len(coordinator.group.members["k"].revoking) == 2
    coordinator.heartbeat(beat("k", epoch, owned=kept))
    until_stable([sdk])
    assert sdk.owned == partitions("t", 0, 1, 2, 3) - kept


def test_a_member_that_waits_for_partitions_is_to_be_heard_soon(coordinator: Coordinator) -> None:
    sdk = Client(coordinator, "sdk")
    until_stable([sdk])
    waiting = join(coordinator, "k")
    assert (coordinator.group.members["k"].state, waiting.heartbeat_interval_ms) == (UNRELEASED, 500)
    until_stable([sdk])
    epoch = waiting.member_epoch
    for _ in range(3):
        reported = coordinator.heartbeat(beat("k", epoch))
        epoch = reported.member_epoch
    assert len(coordinator.group.members["k"].assigned) == 2
    assert coordinator.heartbeat(beat("k", epoch)).heartbeat_interval_ms == 3_000


def test_a_lost_answer_is_told_again_to_who_says_all_and_fences_who_does_not(coordinator: Coordinator) -> None:
    sdk = Client(coordinator, "sdk")
    until_stable([sdk])
    epoch = join(coordinator, "k").member_epoch
    until_stable([sdk])
    for _ in range(3):
        epoch = coordinator.heartbeat(beat("k", epoch)).member_epoch
    member = coordinator.group.members["k"]
    assert member.previous_epoch < member.member_epoch
    said = {"topics": ["t"], "rebalance_timeout_ms": 60_000, "full": True}
    again = coordinator.heartbeat(beat("k", member.previous_epoch, owned=set(), **said))
    assert (again.member_epoch, len(partitions_of(again.assignment.topics))) == (member.member_epoch, 2)
    assert refused(coordinator.heartbeat(beat("k", member.previous_epoch))) == "FENCED_MEMBER_EPOCH"


def test_a_static_member_leaves_and_comes_back_without_repeating_its_name(coordinator: Coordinator) -> None:
    join(coordinator, "k", instance_id="i")
    owned = coordinator.group.members["k"].assigned.keys()
    left = coordinator.heartbeat(beat("k", -2))
    assert (left.error.code, coordinator.group.members["k"].is_present) == (ErrorCode.NONE, False)
    reported = join(coordinator, "k2", instance_id="i")
    assert partitions_of(reported.assignment.topics) == owned
    assert refused(coordinator.heartbeat(beat("k", 1, instance_id="i"))) == "FENCED_INSTANCE_ID"
    assert refused(join(coordinator, "k3", instance_id="i")) == "UNRELEASED_INSTANCE_ID"


def test_both_kinds_of_client_share_a_group(coordinator: Coordinator) -> None:
    sdk = Client(coordinator, "sdk")
    until_stable([sdk])
    epoch, owned = join(coordinator, "k").member_epoch, set[PartitionId]()
    for _ in range(4):
        until_stable([sdk])
        reported = coordinator.heartbeat(beat("k", epoch, owned))
        epoch = reported.member_epoch
        if reported.HasField("assignment"):
            owned = partitions_of(reported.assignment.topics)
    assert len(owned) == 2 and owned | sdk.owned == partitions("t", 0, 1, 2, 3)
    assert coordinator.group.state == pb.GROUP_STABLE
    coordinator.heartbeat(request("sdk", -1))
    reported = coordinator.heartbeat(beat("k", epoch))
    assert partitions_of(reported.assignment.topics) == partitions("t", 0, 1, 2, 3)
