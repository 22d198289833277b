"""A consumer and its group where things go wrong: lost answers, silence, refusals, work that takes too long.

The coordinator is the nodes' own state machine, in the test's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from scripted_cluster import Code, LoseStream, ScriptedCluster, StaySilent, error
from scripted_members import ScriptedMembers
from scripted_reading import fill

from quorumlog.sdk import (
    CommitFailedError,
    ConsumerRebalanceListener,
    GroupMaxSizeReachedError,
    IllegalStateError,
    RequestTimedOutError,
    TopicPartition,
)
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.consumer.group_membership import GroupMembership
from quorumlog.sdk.errors import UnknownServerError
from quorumlog.v1 import errors_pb2, groups_pb2

PARTITIONS = 4
P0 = TopicPartition("t", 0)
#: A member that is silent for so long is removed; nothing else in these tests takes so long.
SHORT = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 100}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """Two nodes that lead two partitions of ``t`` each, with 20 records in every one."""
    made = ScriptedCluster(nodes=2, partitions=PARTITIONS)
    made.members = ScriptedMembers(made)  # type: ignore[attr-defined]
    await made.start()
    for partition in range(PARTITIONS):
        fill(made, 20, partition=partition)
    yield made
    await made.stop()


@pytest.fixture
def members(cluster: ScriptedCluster) -> ScriptedMembers:
    found: ScriptedMembers = cluster.members  # type: ignore[attr-defined]
    return found


class Notes(ConsumerRebalanceListener):
    """Records its calls, and raises the given error."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.raises: Exception | None = None

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        self.told.append((what, sorted(tp.partition for tp in partitions)))
        if self.raises is not None:
            raise self.raises

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._note("revoked", revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._note("lost", lost)


@asynccontextmanager
async def member(cluster: ScriptedCluster, notes: Notes | None = None, **options: Any) -> AsyncIterator[AsyncConsumer]:
    options = {"request_timeout_ms": 5_000} | options
    consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options)
    async with consumer:
        await consumer.subscribe(["t"], listener=notes)
        yield consumer


async def until(reached: Callable[[], bool], *consumers: AsyncConsumer) -> list[tuple[int, int]]:
    """Polls consumers until it is so; what they returned: partitions and offsets."""
    seen: list[tuple[int, int]] = []
    async with asyncio.timeout(60):
        while not reached():
            for consumer in consumers:
                for tp, records in (await consumer.poll(timeout_ms=5)).items():
                    seen += [(tp.partition, record.offset) for record in records]
            if not consumers:
                await asyncio.sleep(0.005)
    return seen


def has(consumer: AsyncConsumer, count: int) -> Callable[[], bool]:
    return lambda: len(consumer.assignment()) == count


async def test_a_lost_answer_to_a_join_makes_no_second_member(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    lost = 2

    def lose(request: groups_pb2.GroupHeartbeatRequest, response: groups_pb2.GroupHeartbeatResponse) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            raise LoseStream

    members.on_answer = lose
    async with member(cluster) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        assert [*members.group.members] == [consumer.group_metadata().member_id]
        assert consumer.group_metadata().generation_id == members.group.group_epoch


async def test_partitions_change_hands_once_whatever_answers_are_lost(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    count = 0

    def lose_some(request: groups_pb2.GroupHeartbeatRequest, response: groups_pb2.GroupHeartbeatResponse) -> None:
        nonlocal count
        count += 1
        if count % 3 == 1:
            raise LoseStream

    often = {"heartbeat_interval_ms": 50}
    async with member(cluster, **often) as first, member(cluster, **often) as second:
        seen = await until(has(first, PARTITIONS), first)
        members.on_answer = lose_some

        def shared() -> bool:
            assert not first.assignment() & second.assignment()
            return len(first.assignment()) == len(second.assignment()) == 2

        seen += await until(shared, first, second)
        seen += await until(lambda: count > 12, first, second)
        members.on_answer = lambda request, response: None
        fill_to(cluster, 30)
        async with asyncio.timeout(60):
            while len(set(seen)) < PARTITIONS * 30:
                polls = [await consumer.poll(timeout_ms=5) for consumer in (first, second)]
                seen += [(tp.partition, one.offset) for poll in polls for tp, all_ in poll.items() for one in all_]
        assert len(seen) == PARTITIONS * 30, "none twice"


def fill_to(cluster: ScriptedCluster, count: int) -> None:
    for partition in range(PARTITIONS):
        fill(cluster, count - cluster.logs[partition].next_offset, partition=partition)


async def test_what_is_taken_away_in_mid_iteration_is_not_handed_out_any_more(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    options = {"consumer_timeout_ms": 50, "max_poll_records": 8}
    async with member(cluster, notes, **options) as first, member(cluster, **options) as second:
        handed: list[tuple[int, int]] = []

        async def step(consumer: AsyncConsumer) -> int:
            record = await anext(consumer, None)
            if record is not None:
                handed.append((record.partition, record.offset))
            return len(handed)

        while await step(first) < 20:
            pass
        await second.poll()
        await until(lambda: len(members.group.members) == 2)
        await until(lambda: first._core.group.pending)  # type: ignore[union-attr]
        held = [tp.partition for tp, state in first._core.assignment.states.items() if state.revoked]
        before = [offset for number, offset in handed if number in held]
        async with asyncio.timeout(60):
            while len(notes.told) < 2:
                await step(first)
        assert notes.told[1] == ("revoked", held) and len(held) == 2
        assert [offset for number, offset in handed if number in held] == before
        done = [sum(number == one for one, _ in handed) for number in held]
        assert [members.committed(number) or 0 for number in held] == done, "all that was handed out, nothing else"
        async with asyncio.timeout(60):
            while len(handed) < PARTITIONS * 20:
                await step(first)
                await step(second)
        assert sorted(handed) == [(number, offset) for number in range(PARTITIONS) for offset in range(20)]


async def test_silence_stops_a_member_by_its_own_clock(cluster: ScriptedCluster, members: ScriptedMembers) -> None:
    notes = Notes()
    async with member(cluster, notes, enable_auto_commit=False, max_poll_records=1, **SHORT) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        await consumer.commit({P0: 5})
        members.on_heartbeat = silent
        await until(lambda: notes.told[-1][0] == "lost", consumer)
        assert notes.told == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3])]
        assert consumer.assignment() == set() and await consumer.poll(timeout_ms=50) == {}
        with pytest.raises(CommitFailedError, match="is not assigned"):
            await consumer.commit({P0: 6})
        members.on_heartbeat = lambda request: None
        await until(has(consumer, PARTITIONS), consumer)
        assert await consumer.position(P0) >= 5, "it continues where it has committed"


async def test_a_process_that_stood_still_hands_out_nothing_that_others_may_have(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes, enable_auto_commit=False, max_poll_records=1, **SHORT) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        await until(consumer._core.assignment.has_records, consumer)
        me = consumer.group_metadata().member_id
        time.sleep(SHORT["session_timeout_ms"] / 1000)  # noqa: ASYNC251 - the process is stalled, with its event loop too
        members.throw_out(me)
        assert await consumer.poll(timeout_ms=0) == {}
        reported = len(notes.told)
        again = await until(lambda: len(notes.told) > reported + 1, consumer)
        assert notes.told[reported : reported + 2] == [("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]
        record = await anext(consumer)
        again.append((record.partition, record.offset))
        assert again[0][1] == 0, "nothing of it was committed, all is handed out again"


async def test_a_member_that_was_thrown_out_hears_of_it_and_joins_again(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes, heartbeat_interval_ms=50) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        members.throw_out(consumer.group_metadata().member_id)
        with pytest.raises(CommitFailedError, match="nothing was committed"):
            await consumer.commit({P0: 1})
        await until(lambda: len(notes.told) == 3, consumer)
        assert [what for what, _ in notes.told] == ["assigned", "lost", "assigned"]
        await consumer.commit({P0: 2})
        assert members.committed(0) == 2


async def test_a_coordinator_that_moves_is_followed_and_nothing_changes(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        epoch = consumer.group_metadata().generation_id
        for leader in (2, 1, 2):
            members.leader = (leader, members.leader[1] + 1)
            await consumer.commit({P0: leader})
            asked = len(members.heartbeats)
            await cluster.stop_node(3 - leader)
            await until(lambda asked=asked: len(members.heartbeats) > asked, consumer)  # type: ignore[misc]
            await cluster.start_node(3 - leader)
            assert members.committed(0) == leader
        assert consumer.group_metadata().generation_id == epoch
        assert [what for what, _ in notes.told] == ["assigned"]


async def test_a_stale_epoch_is_committed_again_in_the_newest(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    async with member(cluster, enable_auto_commit=False) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        stale = 3

        def refuse(request: groups_pb2.CommitOffsetsRequest) -> errors_pb2.Error | None:
            nonlocal stale
            stale -= 1
            return error(Code.STALE_MEMBER_EPOCH) if stale >= 0 else None

        members.on_commit = refuse
        await consumer.commit({P0: 7})
        assert members.committed(0) == 7 and stale == -1


async def test_commits_are_stored_in_the_order_of_the_calls(cluster: ScriptedCluster, members: ScriptedMembers) -> None:
    async with member(cluster, enable_auto_commit=False) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        busy = True
        members.on_commit = lambda request: error(Code.SERVER_BUSY) if busy else None
        reported: list[int] = []
        commits = [
            consumer.commit_async({P0: offset}, lambda offsets, error: reported.append(offsets[P0].offset))
            for offset in (3, 9, 6)
        ]
        await until(lambda: bool(members.commits))
        assert reported == []
        busy = False
        await asyncio.gather(*commits)
        assert reported == [], "callbacks are called when the application is there"
        await consumer.poll()
        assert reported == [3, 9, 6] and members.committed(0) == 6


async def test_only_what_was_handed_out_before_the_application_came_back_is_committed(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    async with member(cluster, auto_commit_interval_ms=1, max_poll_records=3) as consumer:
        seen = await until(has(consumer, PARTITIONS), consumer)
        for _ in range(6):
            polled = await consumer.poll(timeout_ms=1000)
            done = {(number, offset) for number, offset in seen}
            for number in range(PARTITIONS):
                committed = members.committed(number) or 0
                assert all((number, offset) in done for offset in range(committed)), (
                    "committed only after the application polled again"
                )
            seen += [(tp.partition, record.offset) for tp, records in polled.items() for record in records]
            await until(consumer._core.group._auto_commit.done)  # type: ignore[union-attr]
        record = await anext(consumer)
        await until(consumer._core.group._auto_commit.done)  # type: ignore[union-attr]
        assert (members.committed(record.partition) or 0) <= record.offset
    assert sum(members.committed(number) or 0 for number in range(PARTITIONS)) == len(seen) + 1, (
        "a close is coming back"
    )


async def test_an_application_that_is_slow_to_release_is_not_disturbed_and_gives_up_at_its_next_poll(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes) as slow, member(cluster) as waits:
        await until(has(slow, PARTITIONS), slow)
        await until(lambda: len(members.group.members) == 2, waits)
        for _ in range(20):
            await waits.poll(timeout_ms=5)
        assert waits.assignment() == set() and len(notes.told) == 1
        await slow.poll()
        await until(has(waits, 2), slow, waits)
        assert notes.told[1][0] == "revoked"


async def test_a_listener_that_raises_is_heard_and_the_group_goes_on(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    notes.raises = ZeroDivisionError("in the listener")
    async with member(cluster, notes) as consumer:
        with pytest.raises(ZeroDivisionError):
            await until(has(consumer, PARTITIONS + 1), consumer)
        assert len(consumer.assignment()) == PARTITIONS
        notes.raises = None
        async with asyncio.timeout(60):
            assert len([await anext(consumer) for _ in range(PARTITIONS * 20)]) == PARTITIONS * 20


async def test_a_listener_may_not_poll(cluster: ScriptedCluster, members: ScriptedMembers) -> None:
    class Polls(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            consumer._core.group.pending = True  # type: ignore[union-attr]
            await consumer.poll()

    async with member(cluster) as consumer:
        await consumer.subscribe(["t"], listener=Polls())
        with pytest.raises(IllegalStateError, match="not poll"):
            await until(has(consumer, PARTITIONS + 1), consumer)


async def test_a_defect_is_told_to_who_polls(
    cluster: ScriptedCluster, members: ScriptedMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(cluster, heartbeat_interval_ms=50) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        monkeypatch.setattr(GroupMembership, "heard", lambda *arguments: 1 // 0)
        with pytest.raises(UnknownServerError, match="the consumer has failed, create a new one: ZeroDivision"):
            await until(has(consumer, 0), consumer)


async def test_a_group_that_is_full_says_so_and_is_asked_again(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    refusals = 3

    def refuse(request: groups_pb2.GroupHeartbeatRequest) -> errors_pb2.Error | None:
        nonlocal refusals
        refusals -= 1
        return error(Code.GROUP_MAX_SIZE_REACHED, retriable=False) if refusals >= 0 else None

    members.on_heartbeat = refuse
    async with member(cluster) as consumer:
        for _ in range(3):
            with pytest.raises(GroupMaxSizeReachedError):
                await until(has(consumer, PARTITIONS), consumer)
        await until(has(consumer, PARTITIONS), consumer)


async def test_a_close_leaves_at_once_and_does_not_wait_for_a_coordinator_that_is_silent(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    async with member(cluster) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
    assert not members.group.members
    async with member(cluster, request_timeout_ms=60_000) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        members.on_heartbeat = silent
        members.on_commit = lambda request: error(Code.SERVER_BUSY)
        began = time.monotonic()
        await consumer.close(timeout=0.3)
        assert time.monotonic() - began < 30, "not for as long as a request may take"


async def test_a_commit_that_finds_no_coordinator_is_given_up_in_time(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    async with member(cluster, enable_auto_commit=False) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        members.on_commit = lambda request: error(Code.COORDINATOR_NOT_AVAILABLE)
        consumer._core.group.commits._limit_s = 0.3  # type: ignore[union-attr]
        with pytest.raises(RequestTimedOutError, match="the commit did not complete"):
            await consumer.commit({P0: 1})


def silent(request: groups_pb2.GroupHeartbeatRequest) -> errors_pb2.Error | None:
    """Answers only members that leave."""
    raise StaySilent
