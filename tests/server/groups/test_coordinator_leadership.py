"""One decision at a time, calls decided together, answers when they are so: a leader without Raft under it."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import Message

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.groups.committed_offsets import commit_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_shard import GROUP_COORDINATORS
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.parked_heartbeats import HeartbeatCall
from quorumlog.server.groups.shard_leader import LeadershipOptions, ShardLeader
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL, SECOND_FEATURE_LEVEL
from quorumlog.server.step.request_context import UNKNOWN_CLIENT
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from tests.support.classic_rig import ImageOfTopics, RaftOfNothing

SECOND = 1_000_000
TOPIC_ID = b"t" * 16
GRACE = 1_200_000
RETENTION_MS = 604_800_000


@dataclass
class CoordinatorWithoutRaft:
    """A coordinator whose commands are applied when the test requests it."""

    kind = GROUP_COORDINATORS
    raft: RaftOfNothing = field(default_factory=RaftOfNothing)
    table: GroupTable = field(default_factory=GroupTable)
    proposed: list[GroupCommand] = field(default_factory=list)
    takes: bool = True

    def propose(self, now: int, command: GroupCommand) -> int | None:
        if not self.takes:
            return None
        self.proposed.append(command)
        return len(self.proposed)

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        return error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=definite)


@dataclass
class Commit:
    """The call of a client that commits offsets."""

    number: int
    request: groups_pb2.CommitOffsetsRequest
    replies: dict[int, Message]

    @property
    def key(self) -> str:
        return self.request.group_id

    def decide(self, draft: Draft) -> Message:
        return commit_offsets(draft, self.request)

    def answer(self, response: Message) -> None:
        self.replies[self.number] = response

    def refuse(self, problem: errors_pb2.Error) -> None:
        self.replies[self.number] = groups_pb2.CommitOffsetsResponse(error=problem)


@dataclass
class Read:
    """The call of a client that reads."""

    answers: list[Message]
    key: str = "g"

    def decide(self, draft: Draft) -> Message:
        return groups_pb2.FetchOffsetsResponse()

    def answer(self, response: Message) -> None:
        self.answers.append(response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self.answers.append(problem)


class Rig:
    """A leadership of a coordinator, with one topic of four partitions."""

    def __init__(self, table: GroupTable | None = None, max_calls: int = 100, max_parked: int = 100) -> None:
        self.image = image = MetadataImage()
        topic = log.CreateTopic(name="t", topic_id=TOPIC_ID, partitions=[log.ReplicaSet(replicas=[1])] * 4)
        image.apply(1, log.MetadataCommand(create_topic=topic))
        self.led = CoordinatorWithoutRaft(table=table or GroupTable())
        self.clock = AwakeClock(0, 100_000)
        self.replies: dict[int, Message] = {}
        options = LeadershipOptions(ConsumerGroupLimits(), max_calls, max_parked, RETENTION_MS, GRACE)
        self.leadership = ShardLeader(self.led, self.clock, ImageOfTopics(image), options)  # type: ignore[arg-type]
        self.requests = 0

    def beat(self, member_id: str, epoch: int, number: int = 0, **fields: object) -> int:
        self.requests += 1
        request = groups_pb2.GroupHeartbeatRequest(
            correlation_id=number or self.requests,
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            topics=["t"],
            session_timeout_ms=9_000,
            rebalance_timeout_ms=5_000,
            **fields,
        )
        wait_us = request.max_wait_ms * 1000
        now = self.clock.awake_us
        reply = self.replies.__setitem__
        self.leadership.heartbeat(HeartbeatCall(self.requests, request, UNKNOWN_CLIENT, now, now + wait_us, reply))
        return self.requests

    def commit(self, group_id: str, offset: int) -> int:
        self.requests += 1
        request = groups_pb2.CommitOffsetsRequest(group_id=group_id, member_epoch=-1)
        request.offsets.add(topic_id=TOPIC_ID, offset=offset, leader_epoch=-1)
        self.leadership.queue.submit(Commit(self.requests, request, self.replies))
        return self.requests

    def apply(self) -> None:
        """Applies the newest command."""
        command = self.led.proposed[-1]
        changed = self.led.table.apply(command)
        self.leadership.applied(len(self.led.proposed), self.led.raft.term, command, changed)

    def step(self, seconds: float = 0) -> None:
        """Advances the time in steps, as a node does."""
        end = self.clock.now + int(seconds * SECOND)
        while True:
            self.clock.step(min(end, self.clock.now + 100_000), 1_000)
            self.leadership.do_what_is_due()
            if self.clock.now >= end:
                return

    def heartbeat(self, number: int) -> groups_pb2.GroupHeartbeatResponse:
        answer = self.replies[number]
        assert isinstance(answer, groups_pb2.GroupHeartbeatResponse)
        return answer

    def joined(self, member_id: str = "a") -> groups_pb2.GroupHeartbeatResponse:
        number = self.beat(member_id, 0, full=True)
        self.step()
        self.apply()
        return self.heartbeat(number)


def test_calls_that_come_while_a_decision_is_on_its_way_are_decided_together_after_it() -> None:
    rig = Rig()
    first = rig.commit("g1", 1)
    rig.step()
    later = [rig.commit("g1", 2), rig.commit("g2", 1), rig.commit("g2", 2)]
    rig.step()
    assert len(rig.led.proposed) == 1
    assert not rig.replies, "nothing is so yet"
    rig.apply()
    assert list(rig.replies) == [first]
    rig.step()
    assert len(rig.led.proposed) == 2
    rig.apply()
    assert sorted(rig.replies) == [first, *later]
    assert rig.led.table.groups["g2"].offsets[TOPIC_ID, 0].offset == 2


def test_a_call_that_changes_nothing_is_answered_at_once_and_one_of_a_changed_group_with_the_change() -> None:
    rig = Rig()
    member = rig.joined()
    quiet = rig.beat("a", member.member_epoch, owned=member.assignment.topics)
    other = rig.commit("other", 1)
    rig.step()
    assert rig.heartbeat(quiet).member_epoch == member.member_epoch
    assert other not in rig.replies
    rig.apply()
    assert other in rig.replies
    again = rig.beat("a", member.member_epoch, owned=member.assignment.topics)
    joins = rig.beat("b", 0, full=True)
    rig.step()
    assert again not in rig.replies, "its answer has not been committed"
    rig.apply()
    assert {again, joins} <= set(rig.replies)


def test_members_that_arrive_together_cost_one_write() -> None:
    rig = Rig()
    joins = [rig.beat(f"m{number}", 0, full=True) for number in range(4)]
    rig.step()
    rig.apply()
    assert len(rig.led.proposed) == 1
    assert sorted(len(rig.heartbeat(number).assignment.topics[0].partitions) for number in joins) == [1, 1, 1, 1]


def test_topics_that_come_while_a_groups_first_join_is_on_its_way_are_looked_for_in_it() -> None:
    rig = Rig()
    waiting = rig.beat("a", 0, full=True)
    rig.step()
    more = log.AddPartitions(topic_id=TOPIC_ID, first_number=4, partitions=[log.ReplicaSet(replicas=[1])])
    rig.image.apply(2, log.MetadataCommand(add_partitions=more))
    rig.leadership.topics_changed(is_deletion=False)
    rig.apply()
    assert rig.heartbeat(waiting).member_epoch == 1
    rig.step()
    assert rig.led.proposed[-1].changes[0].header.topics[0].partitions == 5


def test_a_decision_that_raft_does_not_take_is_made_again() -> None:
    rig = Rig()
    rig.led.takes = False
    number = rig.commit("g", 1)
    rig.step()
    assert not rig.replies
    rig.led.takes = True
    rig.step(0.1)
    rig.apply()
    assert number in rig.replies


def test_when_a_leadership_ends_everybody_is_told_whether_it_may_have_taken_effect() -> None:
    rig = Rig()
    member = rig.joined()
    parked = rig.beat("a", member.member_epoch, max_wait_ms=3_000, owned=member.assignment.topics)
    rig.step()
    on_its_way = rig.commit("other", 1)
    rig.step()
    queued = rig.commit("other", 2)
    rig.leadership.end()
    reported = {number: rig.replies[number].error for number in (parked, on_its_way, queued)}  # type: ignore[attr-defined]
    assert {problem.code for problem in reported.values()} == {ErrorCode.NOT_COORDINATOR}
    assert [reported[number].definite for number in (parked, on_its_way, queued)] == [True, False, True]


def test_what_another_leader_left_in_the_log_answers_nobody_here() -> None:
    rig = Rig()
    number = rig.commit("g", 1)
    rig.step()
    command = rig.led.proposed[-1]
    rig.leadership.applied(1, rig.led.raft.term + 1, command, rig.led.table.apply(command))
    assert number not in rig.replies


def test_a_heartbeat_without_news_waits_for_its_time_and_no_longer_than_a_third_of_the_session() -> None:
    rig = Rig()
    member = rig.joined()
    number = rig.beat("a", member.member_epoch, max_wait_ms=60_000, owned=member.assignment.topics)
    rig.step(2.9)
    assert number not in rig.replies
    rig.step(0.2)
    assert not rig.heartbeat(number).HasField("assignment")
    assert rig.heartbeat(number).heartbeat_interval_ms == 3_000


def test_a_newer_heartbeat_has_the_older_one_answered_and_a_late_one_is_dropped() -> None:
    rig = Rig()
    member = rig.joined()
    older = rig.beat("a", member.member_epoch, number=10, max_wait_ms=3_000, owned=member.assignment.topics)
    rig.step()
    newer = rig.beat("a", member.member_epoch, number=11, max_wait_ms=3_000, owned=member.assignment.topics)
    assert older in rig.replies
    late = rig.beat("a", member.member_epoch, number=9, max_wait_ms=3_000)
    rig.step()
    assert rig.heartbeat(late).error.code == ErrorCode.INVALID_REQUEST
    assert newer not in rig.replies


def test_two_heartbeats_of_a_member_never_wait_together_though_its_number_was_forgotten() -> None:
    """Two heartbeats of a member are never parked together, even if its number was forgotten: numbers are kept of
    a limited number of members, and a client can displace them with heartbeats of others."""
    rig = Rig(max_parked=2)
    member = rig.joined()
    rig.leadership.queue.confirm_by(1)  # nothing is decided before that
    first = rig.beat("a", member.member_epoch, number=50, max_wait_ms=3_000, owned=member.assignment.topics)
    for other in ("v", "w", "x", "y", "z"):
        rig.beat(other, 7)
    second = rig.beat("a", member.member_epoch, number=50, max_wait_ms=3_000, owned=member.assignment.topics)
    rig.led.raft.confirmed_round = 1
    rig.step()
    assert not rig.heartbeat(first).HasField("error")
    assert second not in rig.replies
    assert rig.leadership.parked == 1


def test_news_reach_those_who_wait_and_leave_those_alone_whom_they_do_not_concern() -> None:
    rig = Rig()
    member = rig.joined()
    waiting = rig.beat("a", member.member_epoch, max_wait_ms=3_000, owned=member.assignment.topics)
    rig.step()
    rig.joined("b")
    rig.step()
    rig.apply()
    assert list(rig.heartbeat(waiting).assignment.topics[0].partitions) == [0, 1]


def test_too_many_calls_and_too_many_waiting_heartbeats_are_refused() -> None:
    rig = Rig(max_calls=1, max_parked=0)
    first, second = rig.commit("g", 1), rig.commit("g", 2)
    assert rig.replies[second].error.code == ErrorCode.SERVER_BUSY  # type: ignore[attr-defined]
    rig.step()
    rig.apply()
    assert first in rig.replies


def test_a_new_leader_gives_a_session_more_than_the_one_before_may_have_gone_on() -> None:
    table = Rig()
    table.joined()
    rig = Rig(table.led.table)
    rig.step(9 + GRACE / SECOND - 0.1)
    assert not rig.led.proposed
    rig.step(0.2)
    assert list(rig.led.proposed[0].changes[0].removed_members) == ["a"]


def test_a_leader_in_doubt_says_nothing_until_a_quorum_has_confirmed_it() -> None:
    rig = Rig()
    member = rig.joined()
    rig.leadership.queue.confirm_by(7)
    number = rig.beat("a", member.member_epoch, owned=member.assignment.topics)
    rig.step()
    assert number not in rig.replies
    assert rig.leadership.queue.decision_due is None
    rig.led.raft.confirmed_round = 7
    rig.step()
    assert number in rig.replies


def test_a_read_waits_for_its_confirmation_and_for_what_was_committed_when_it_came() -> None:
    rig = Rig()
    rig.led.raft.commit_index = 5
    answers: list[Message] = []
    rig.leadership.queue.read(Read(answers), confirming_round=2)
    for confirmed, applied, expected in ((1, 5, 0), (2, 4, 0), (2, 5, 1)):
        rig.led.raft.confirmed_round, rig.led.raft.applied_index = confirmed, applied
        rig.leadership.queue.after_round()
        assert len(answers) == expected


def test_versions_of_a_new_group_begin_after_the_log_once_all_nodes_take_that() -> None:
    rig = Rig()
    rig.led.raft.applied_index = 70
    for name, level, version in (("former", FIRST_FEATURE_LEVEL, 1), ("newer", SECOND_FEATURE_LEVEL, 71)):
        rig.image.feature_level = level
        rig.commit(name, 1)
        rig.step()
        rig.apply()
        (change,) = rig.led.proposed[-1].changes
        assert (change.base_version, change.version) == (0, version)
        assert rig.led.table.groups[name].version == version


def test_a_client_that_numbers_nothing_is_heard_in_the_order_in_which_it_comes_and_gets_an_id() -> None:
    rig = Rig()
    omitted = groups_pb2.HeartbeatOmissions()
    joins = [rig.beat("", 0, 9, omitted=omitted, full=True), rig.beat("", 0, 3, omitted=omitted, full=True)]
    rig.step()
    rig.apply()
    first, second = (rig.heartbeat(number).member_id for number in joins)
    assert first.startswith(f"{rig.led.raft.term}-") and first != second
    rig.step()
    again = rig.beat(first, 1, 2, omitted=omitted)
    rig.step()
    assert rig.heartbeat(again).error.code == ErrorCode.NONE
    numbered = [rig.beat("c", 0, 5, full=True), rig.beat("c", 0, 5, full=True), rig.beat("", 0, 6, full=True)]
    rig.step()
    rig.apply()
    assert [rig.heartbeat(number).error.code for number in numbered] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
