"""A consumer's part in its group, beside a coordinator that the test answers for: what is left, and return to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hand_driven_cluster import TOPIC_ID, Code, HandDrivenCluster, Question, turn
from scripted_cluster import error as refusal

from quorumlog.sdk.consumer.assignment import Assignment, ReadOffsets
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.consumer.group_consumer import GroupConsumer
from quorumlog.sdk.consumer.group_membership import GroupPartition, MembershipState, as_topic_partitions
from quorumlog.sdk.consumer.subscription import Rebalance, RebalanceStep, Subscription
from quorumlog.sdk.errors import CommitFailedError, GroupMaxSizeReachedError, IllegalStateError, NetworkError
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition
from quorumlog.v1 import groups_pb2

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
SESSION_S = 10.0


def at(**offsets: int) -> ReadOffsets:
    """Returns how far the application has come: ``p0=5``."""
    done = {TopicPartition("t", int(name[1:])): OffsetAndMetadata(offset) for name, offset in offsets.items()}
    return ReadOffsets(done)


class Bench:
    """A member of group ``g``; node 1 coordinates it."""

    def __init__(self, **options: Any) -> None:
        self.cluster = HandDrivenCluster()
        self.config = ConsumerConfig(
            **{"group_id": "g", "session_timeout_ms": SESSION_S * 1000, "auto_commit_interval_ms": 1000} | options
        )
        self.assignment = Assignment(1000, self.cluster.clock)
        self.wakes = 0
        self.group = GroupConsumer(
            self.config, self.cluster, self.assignment, self.cluster.runtime, ConsumerMetrics(0.0), self._wake
        )
        self.cluster.show(1, 1, 1)

    def _wake(self) -> None:
        self.wakes += 1

    def calls(self, name: str, node: int = 1) -> list[Question[Any]]:
        return self.cluster.nodes[node].groups.asked(name)

    def looked_for(self) -> list[Question[Any]]:
        """The unanswered questions who coordinates."""
        return [question for node in self.cluster.nodes for question in self.calls("FindCoordinators", node)]

    def beats(self, node: int = 1) -> list[Question[groups_pb2.GroupHeartbeatRequest]]:
        return self.cluster.nodes[node].heartbeats.unanswered

    async def name_coordinator(self, node: int = 1, epoch: int = 1) -> None:
        found = groups_pb2.GroupCoordinator(
            group_id="g", partition=0, node_id=node, host="127.0.0.1", port=node, leader_epoch=epoch
        )
        for question in self.looked_for():
            question.answer.set_result(groups_pb2.FindCoordinatorsResponse(coordinators=[found]))
        await turn(20)

    async def assign(self, *numbers: int, epoch: int = 1, topic_id: bytes = TOPIC_ID, node: int = 1) -> None:
        """The coordinator answers the newest heartbeat with an assignment."""
        response = groups_pb2.GroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=3000)
        response.assignment.SetInParent()
        for topic in as_topic_partitions(GroupPartition(topic_id, number) for number in numbers):
            topic.topic, topic.first_partitions = "t", 2
            response.assignment.topics.append(topic)
        self.beats(node)[-1].answer.set_result(response)
        await turn(20)

    async def nothing_new(self, epoch: int = 1, node: int = 1) -> None:
        response = groups_pb2.GroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=3000)
        self.beats(node)[-1].answer.set_result(response)
        await turn(20)

    async def show_committed(self, topic_id: bytes = TOPIC_ID, **offsets: int) -> None:
        """The coordinator answers what is committed."""
        (question,) = self.calls("FetchOffsets")
        response = groups_pb2.FetchOffsetsResponse()
        for name, offset in offsets.items():
            response.offsets.add(topic_id=topic_id, partition=int(name[1:]), offset=offset, leader_epoch=-1)
        question.answer.set_result(response)
        await turn(20)

    async def join(self, *numbers: int, **committed: int) -> None:
        """Becomes a member with the assigned partitions."""
        self.group.subscribe(Subscription(("t",)))
        await turn()
        await self.name_coordinator()
        await self.assign(*numbers)
        await self.show_committed(**committed)
        step = await self.group.next_step(at())
        assert step is not None and step.kind is Rebalance.ASSIGNED
        await self.group.finished(step)
        assert {tp.partition for tp in self.assignment.states} == set(numbers)

    async def step(self, done: ReadOffsets | None = None) -> RebalanceStep | None:
        return await self.group.next_step(at() if done is None else done)

    async def store(self, node: int = 1, error: Any = None) -> dict[int, int]:
        """The coordinator answers a commit; returns what it was about."""
        (question,) = self.calls("CommitOffsets", node)
        response = groups_pb2.CommitOffsetsResponse(error=error)
        for offset in question.request.offsets if error is None else ():
            response.results.add(topic_id=offset.topic_id, partition=offset.partition)
        question.answer.set_result(response)
        await turn(20)
        return {offset.partition: offset.offset for offset in question.request.offsets}

    def owned(self) -> list[int]:
        """Returns the partitions that the newest heartbeat names as the member's."""
        return [number for topic in self.beats()[-1].request.owned for number in topic.partitions]

    async def after(self, seconds: float) -> None:
        self.cluster.clock.now_s += seconds
        self.group._session.pump()
        await turn(20)

    async def end(self) -> None:
        self.group._session.close()
        for task in list(self.cluster._background):
            task.cancel()
        await turn()


# --- the coordinator --------------------------------------------------------------------------------------------------


async def test_a_coordinator_that_is_paused_is_looked_for_anew_and_not_waited_for() -> None:
    bench = Bench(heartbeat_interval_ms=1000)
    await bench.join(0)
    wait_s = bench.beats()[0].request.max_wait_ms / 1000
    await bench.after(wait_s + 0.9)
    assert bench.looked_for() == []
    await bench.after(0.2)
    await bench.after(0.2)
    assert len(bench.looked_for()) == 1
    await bench.name_coordinator(2, epoch=2)
    assert bench.beats(2)[0].request.full
    assert bench.group.membership.state is MembershipState.MEMBER
    await bench.end()


async def test_a_stream_that_breaks_has_the_coordinator_looked_for_anew() -> None:
    bench = Bench()
    await bench.join(0)
    bench.cluster.nodes[1].heartbeats.lose()
    await turn()
    await bench.after(0.2)
    assert len(bench.looked_for()) == 1, "and once"
    await bench.after(0.2)
    assert len(bench.looked_for()) == 1
    bench.looked_for()[0].answer.set_exception(NetworkError("down"))
    for _ in range(20):
        await bench.after(0.2)
        for question in bench.looked_for():
            question.answer.set_exception(NetworkError("down"))
    await bench.name_coordinator()
    await bench.end()


async def test_what_an_older_node_says_of_the_coordinator_is_not_believed() -> None:
    bench = Bench()
    await bench.join(0)
    coordinators = bench.group._session._coordinators

    def heard(node: int, epoch: int) -> groups_pb2.GroupCoordinator:
        return groups_pb2.GroupCoordinator(
            group_id="g", partition=0, node_id=node, host="127.0.0.1", port=node, leader_epoch=epoch
        )

    coordinators._take(heard(2, 5))
    assert coordinators.known("g") is bench.cluster.nodes[2]
    coordinators._take(heard(3, 4))
    assert coordinators.known("g") is bench.cluster.nodes[2]
    coordinators._take(heard(-1, 6))
    assert coordinators.known("g") is bench.cluster.nodes[2]
    coordinators._take(heard(3, 6))
    assert coordinators.known("g") is bench.cluster.nodes[3]
    coordinators.learn_from("g", refusal(Code.NOT_COORDINATOR, leader=(1, 6)))
    assert coordinators.known("g") is None, "the hint is no newer than what led there"
    coordinators.learn_from("g", refusal(Code.NOT_COORDINATOR, leader=(2, 7)))
    assert coordinators.known("g") is bench.cluster.nodes[2]
    coordinators.learn_from("g", refusal(Code.STALE_MEMBER_EPOCH, leader=(1, 9)))
    assert coordinators.known("g") is bench.cluster.nodes[2], "that error is none about who coordinates"
    await bench.end()


async def test_a_coordinator_that_does_not_answer_a_commit_is_looked_for_anew() -> None:
    bench = Bench()
    await bench.join(0)
    committing = asyncio.ensure_future(bench.group.commit(at(p0=5)))
    await turn()
    bench.calls("CommitOffsets")[0].answer.set_exception(NetworkError("down"))
    async with asyncio.timeout(30):
        while not bench.looked_for():  # noqa: ASYNC110 - the pause between attempts is the machine's
            await asyncio.sleep(0.002)
        await bench.name_coordinator(2, epoch=2)
        assert await bench.store(2) == {0: 5}
        await committing
    await bench.end()


# --- the application that polls ---------------------------------------------------------------------------------------


async def test_one_long_poll_is_no_absence_and_time_counts_from_its_end() -> None:
    bench = Bench(max_poll_interval_ms=60)
    await bench.join(0)
    bench.cluster.clock.follow_the_machine()
    poll = object()
    bench.group.begin_poll(poll)
    await asyncio.sleep(0.2)
    assert bench.group.membership.state is MembershipState.MEMBER
    waited_until = bench.cluster.clock()
    bench.group.end_poll(poll)
    assert bench.group._last_poll_s >= waited_until, "it was away from then on, and not from when the poll started"
    async with asyncio.timeout(30):
        while bench.group.membership.state is MembershipState.MEMBER:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    assert bench.group.pending, "the application is notified at its next poll"
    assert (await bench.step()) == RebalanceStep(Rebalance.LOST, frozenset({P0}))
    assert bench.assignment.take_fetched(10) == ([], False)
    async with asyncio.timeout(30):  # The group is notified.
        while all(beat.request.member_epoch != -1 for beat in bench.beats()):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    await bench.end()


async def test_a_poll_right_after_an_absence_joins_again_though_nobody_was_told_of_the_leaving_yet() -> None:
    bench = Bench(max_poll_interval_ms=60)
    await bench.join(0)
    bench.group._last_poll_s -= 1
    bench.group._watch_polls()
    assert bench.group.membership.state is MembershipState.OUT, "before anything else runs"
    assert bench.group.pending
    await turn(20)
    await bench.end()


async def test_a_poll_within_a_poll_is_refused_and_the_first_goes_on_to_its_end() -> None:
    bench = Bench()
    first, second = object(), object()
    bench.group.begin_poll(first)
    with pytest.raises(IllegalStateError, match="another poll is under way"):
        bench.group.begin_poll(second)
    bench.group.end_poll(second)
    assert bench.group._polling is first
    bench.group.end_poll(first)
    assert bench.group._polling is None
    await bench.end()


async def test_what_is_done_is_committed_after_each_interval_and_not_at_each_poll() -> None:
    bench = Bench(auto_commit_interval_ms=1000)
    assert not bench.group.came_back()
    bench.cluster.clock.now_s += 1.0
    assert bench.group.came_back()
    assert not bench.group.came_back()
    bench.cluster.clock.now_s += 0.999
    assert not bench.group.came_back()
    bench.cluster.clock.now_s += 0.002
    assert bench.group.came_back()
    by_hand = Bench(enable_auto_commit=False)
    by_hand.cluster.clock.now_s += 100
    assert not by_hand.group.came_back()


async def test_what_was_taken_out_is_not_handed_on_when_the_group_has_moved_or_the_session_has_ended() -> None:
    bench = Bench()
    await bench.join(0, 1)
    assert not bench.group.out_of_date()
    await bench.assign(0)
    assert bench.group.out_of_date()
    bench = Bench()
    await bench.join(0, 1)
    bench.cluster.clock.now_s += SESSION_S
    assert bench.group.out_of_date()
    await bench.end()


# --- commits ----------------------------------------------------------------------------------------------------------


async def test_an_idle_consumer_does_not_commit_for_ever() -> None:
    bench = Bench()
    await bench.join(0, 1, p1=7)
    bench.group.commit_done(at(p0=5, p1=7))
    await turn()
    assert await bench.store() == {0: 5}, "what is committed already is not a change"
    for _ in range(3):
        bench.group.commit_done(at(p0=5, p1=7))
        await turn()
        assert bench.calls("CommitOffsets") == []
    await bench.end()


async def test_a_commit_follows_a_seek_back() -> None:
    bench = Bench()
    await bench.join(0, p0=9)
    with bench.assignment.lock:
        bench.assignment.states[P0].move(3, "earliest")
    closing = asyncio.ensure_future(bench.group.commit_finally(at(p0=3), 5.0))
    await turn()
    assert await bench.store() == {0: 3}
    await closing
    await bench.end()


async def test_a_commit_that_failed_is_news_again_and_one_at_a_time_is_under_way() -> None:
    bench = Bench()
    await bench.join(0)
    bench.group.commit_done(at(p0=5))
    await turn()
    bench.group.commit_done(at(p0=6))
    await turn()
    assert len(bench.calls("CommitOffsets")) == 1
    await bench.store(error=refusal(Code.INVALID_REQUEST, retriable=False))
    assert bench.assignment.states[P0].committed == -1
    bench.group.commit_done(at(p0=6))
    await turn()
    assert await bench.store() == {0: 6}
    assert bench.assignment.states[P0].committed == 6
    await bench.end()


async def test_commits_are_numbered_and_made_in_the_member_s_name_and_epoch() -> None:
    bench = Bench()
    await bench.join(0)
    member = bench.group.membership
    for number, offset in ((1, 5), (2, 6)):
        committing = asyncio.ensure_future(bench.group.commit(at(p0=offset)))
        await turn()
        request = bench.calls("CommitOffsets")[0].request
        assert (request.member_id, request.member_epoch, request.number) == (member.member_id, 1, number)
        assert request.group_id == "g" and request.timeout_ms > 0
        await bench.store()
        await committing
    await bench.end()


async def test_what_is_not_this_member_s_is_not_committed() -> None:
    bench = Bench()
    await bench.join(0)
    with pytest.raises(CommitFailedError, match="t-1 is not assigned to this member"):
        await bench.group.commit(at(p1=5))
    await bench.after(SESSION_S)
    with pytest.raises(CommitFailedError, match="this member was out of the group"):
        await bench.group.commit(at(p0=5))
    assert bench.calls("CommitOffsets") == []
    await bench.end()


async def test_the_last_commit_waits_for_what_was_asked_for_before() -> None:
    bench = Bench()
    await bench.join(0)
    earlier = asyncio.ensure_future(bench.group.commit(at(p0=9)))
    last = asyncio.ensure_future(bench.group.commit_finally(at(p0=7), 5.0))
    await turn()
    assert await bench.store() == {0: 9}
    assert not last.done()
    assert await bench.store() == {0: 7}
    await asyncio.gather(earlier, last)
    await bench.end()


async def test_the_last_commit_is_given_up_in_time(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    await bench.join(0)
    async with asyncio.timeout(30):
        await bench.group.commit_finally(at(p0=7), 0.02)
    assert "the last commit did not complete in time" in caplog.text
    await bench.end()


# --- taken away, given back, lost -------------------------------------------------------------------------------------


async def test_what_is_taken_away_and_given_back_before_it_was_released_goes_on_and_nobody_is_told() -> None:
    bench = Bench(enable_auto_commit=False)
    await bench.join(0, 1, p1=4)
    state = bench.assignment.states[P1]
    await bench.assign(0)
    assert state.revoked and bench.group.pending
    await bench.assign(0, 1, epoch=2)
    assert not state.revoked
    assert bench.assignment.states[P1] is state and state.position == 4
    assert await bench.step() is None
    assert not bench.group.pending and bench.calls("FetchOffsets") == []
    await bench.end()


async def test_what_is_given_back_while_it_is_told_as_revoked_is_looked_up_and_told_again() -> None:
    bench = Bench(enable_auto_commit=False)
    await bench.join(0, 1)
    await bench.assign(0)
    step = await bench.step()
    assert step == RebalanceStep(Rebalance.REVOKED, frozenset({P1}))
    await bench.assign(0, 1, epoch=2)
    assert await bench.step() is step, "its notification is completed"
    bench.group.begins(step)
    await bench.group.finished(step)
    assert P1 not in bench.assignment.states
    await turn(20)
    await bench.show_committed(p1=6)
    assert await bench.step() == RebalanceStep(Rebalance.ASSIGNED, frozenset({P1}))
    assert bench.assignment.states[P1].position == 6
    assert bench.owned() == [0, 1]
    await bench.end()


async def test_what_goes_is_committed_before_it_is_released_and_what_stays_is_not_waited_for() -> None:
    bench = Bench()
    await bench.join(0, 1)
    await bench.assign(0)
    assert bench.owned() == [0, 1]
    assert await bench.step(at(p0=3, p1=5)) is None, "the poll continues while the commit is in flight"
    await turn()
    assert bench.owned() == [0, 1], "no other member may start before it is committed"
    assert await bench.store() == {1: 5}
    step = await bench.step()
    assert step == RebalanceStep(Rebalance.REVOKED, frozenset({P1}))
    await bench.group.finished(step)
    await turn()
    assert bench.owned() == [0] and set(bench.assignment.states) == {P0}
    assert not bench.group.pending
    await bench.end()


async def test_a_commit_under_way_is_waited_for_before_what_goes_is_committed() -> None:
    bench = Bench()
    await bench.join(0, 1)
    bench.group.commit_done(at(p1=4))
    await turn()
    await bench.assign(0)
    assert await bench.step(at(p1=5)) is None
    await turn()
    assert await bench.store() == {1: 4}
    assert bench.group.pending, "and then looked at again"
    assert await bench.step(at(p1=5)) is None
    await turn()
    assert await bench.store() == {1: 5}
    step = await bench.step()
    assert step is not None and step.kind is Rebalance.REVOKED
    await bench.end()


async def test_what_is_taken_away_before_it_was_told_is_released_at_once() -> None:
    bench = Bench()
    await bench.join(0)
    await bench.assign(0, 1)
    assert bench.calls("FetchOffsets")
    await bench.assign(0, epoch=2)
    assert bench.owned() == [0]
    await bench.show_committed(p1=5)
    assert await bench.step() is None and P1 not in bench.assignment.states
    await bench.end()


async def test_a_member_that_hears_nothing_for_its_session_has_lost_all_and_says_so_once() -> None:
    bench = Bench()
    await bench.join(0, 1)
    assert bench.assignment.valid_until_s == bench.cluster.clock.now_s + SESSION_S
    await bench.after(SESSION_S - 0.01)
    assert not bench.group._lost
    await bench.after(0.02)
    assert all(state.revoked for state in bench.assignment.states.values())
    step = await bench.step(at(p0=3))
    assert step == RebalanceStep(Rebalance.LOST, frozenset({P0, P1}))
    await bench.group.finished(step)
    assert bench.calls("CommitOffsets") == [] and not bench.assignment.states
    assert await bench.step() is None
    await bench.end()


async def test_a_step_that_was_not_told_to_its_end_is_told_again() -> None:
    bench = Bench(enable_auto_commit=False)
    await bench.join(0, 1)
    await bench.assign(0)
    step = await bench.step()
    assert step is not None and bench.group.pending
    assert await bench.step() is step
    await bench.group.finished(step)
    assert await bench.step() is None
    await bench.end()


async def test_a_refusal_for_good_is_raised_once_and_then_tried_again() -> None:
    bench = Bench()
    bench.group.subscribe(Subscription(("t",)))
    await turn()
    await bench.name_coordinator()
    refused = groups_pb2.GroupHeartbeatResponse(error=refusal(Code.GROUP_MAX_SIZE_REACHED, retriable=False))
    bench.beats()[0].answer.set_result(refused)
    await turn()
    assert bench.group.pending and bench.beats() == []
    with pytest.raises(GroupMaxSizeReachedError):
        await bench.step()
    await turn()
    assert len(bench.beats()) == 1 and await bench.step() is None
    await bench.end()


# --- where partitions start -------------------------------------------------------------------------------------------


async def test_partitions_begin_where_was_committed_or_as_the_policy_says_and_new_ones_at_their_first_record() -> None:
    bench = Bench(auto_offset_reset="latest")
    await bench.join(0, 1, 2, p1=8)
    begin = {tp.partition: (state.position, state.reset) for tp, state in bench.assignment.states.items()}
    assert begin[1] == (8, "latest") and begin[0] == (None, "latest")
    assert begin[2] == (None, "earliest"), "the topic has gained it since the group started to read"
    assert all(state.pinned and state.topic_id == TOPIC_ID for state in bench.assignment.states.values())
    assert bench.wakes == 1
    await bench.end()


async def test_a_topic_that_was_made_anew_takes_the_place_of_the_former_once_that_is_given_up() -> None:
    bench = Bench(enable_auto_commit=False, auto_offset_reset="latest")
    await bench.join(0, p0=9)
    another = b"another-topic-id"
    await bench.assign(0, topic_id=another, epoch=2)
    await bench.show_committed()
    step = await bench.step()
    assert step == RebalanceStep(Rebalance.REVOKED, frozenset({P0}))
    await bench.group.finished(step)
    assert await bench.step() == RebalanceStep(Rebalance.ASSIGNED, frozenset({P0}))
    state = bench.assignment.states[P0]
    assert (state.topic_id, state.position, state.reset) == (another, None, "earliest")
    await bench.end()


async def test_a_look_up_that_fails_is_made_again_until_it_is_answered() -> None:
    bench = Bench()
    bench.group.subscribe(Subscription(("t",)))
    await turn()
    await bench.name_coordinator()
    await bench.assign(0)
    bench.calls("FetchOffsets")[0].answer.set_exception(NetworkError("down"))
    async with asyncio.timeout(30):
        while not bench.calls("FetchOffsets"):
            await asyncio.sleep(0.002)
            await bench.name_coordinator()
    await bench.show_committed(p0=5)
    assert await bench.step() == RebalanceStep(Rebalance.ASSIGNED, frozenset({P0}))
    assert bench.assignment.states[P0].position == 5
    await bench.end()


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_who_leaves_says_so_and_has_nothing_left() -> None:
    bench = Bench()
    await bench.join(0, 1)
    assert await bench.group.farewell() == RebalanceStep(Rebalance.REVOKED, frozenset({P0, P1}))
    leaving = asyncio.ensure_future(bench.group.close(1.0))
    await turn()
    goodbye = bench.beats()[-1]
    assert goodbye.request.member_epoch == -1
    assert not bench.assignment.states and bench.group.subscription is None and not bench.group.pending
    goodbye.answer.set_result(groups_pb2.GroupHeartbeatResponse(member_epoch=-1))
    await leaving
    assert await bench.group.farewell() is None
    beats = len(bench.cluster.nodes[1].heartbeats.questions)
    await bench.after(30)
    assert len(bench.cluster.nodes[1].heartbeats.questions) == beats
    await turn()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_listener_that_ends_it_all_is_not_told_again_of_what_it_is_being_told() -> None:
    bench = Bench(enable_auto_commit=False)
    await bench.join(0, 1)
    await bench.assign(0)
    step = await bench.step()
    assert step is not None
    bench.group.begins(step)
    assert await bench.group.farewell() == RebalanceStep(Rebalance.REVOKED, frozenset({P0}))
    await bench.end()


async def test_what_was_lost_is_told_as_lost_at_the_end_too() -> None:
    bench = Bench()
    await bench.join(0)
    await bench.after(SESSION_S)
    assert await bench.group.farewell() == RebalanceStep(Rebalance.LOST, frozenset({P0}))
    await bench.end()
