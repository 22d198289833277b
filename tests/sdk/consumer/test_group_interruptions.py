"""A consumer of a group that is broken off: closed by its listener, interrupted while it is notified, failed over
what it has committed, polled by two at a time."""

from __future__ import annotations

import asyncio

import pytest
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from test_group_consumer import P0, PARTITIONS, Notes, cluster, has, member, members, until

from quorumlog.sdk import (
    ClientClosedError,
    ConsumerRebalanceListener,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.consumer.assignment import ReadOffsets

__all__ = ["cluster", "members"]  # The fixtures.


class Ends(ConsumerRebalanceListener):
    """Closes the consumer, or has it unsubscribe, when it loses something."""

    def __init__(self, consumer: AsyncConsumer, how: str) -> None:
        self._end = getattr(consumer, how)
        self.told: list[str] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.told.append(f"revoked {len(revoked)}")
        await self._end()

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.told.append(f"lost {len(lost)}")
        await self._end()


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
async def test_a_listener_may_end_it_when_partitions_go(
    cluster: ScriptedCluster, members: ScriptedMembers, how: str
) -> None:
    async with member(cluster) as consumer, member(cluster) as other:
        listener = Ends(consumer, how)
        await consumer.subscribe(["t"], listener=listener)
        await until(has(consumer, PARTITIONS), consumer)
        with pytest.raises(ClientClosedError if how == "close" else IllegalStateError):
            await until(has(other, PARTITIONS), other, consumer)
        assert listener.told == ["revoked 2", "revoked 2"], "each partition is given up once"
        await until(has(other, PARTITIONS), other)


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
async def test_a_listener_may_end_it_when_partitions_are_lost(
    cluster: ScriptedCluster, members: ScriptedMembers, how: str
) -> None:
    async with member(cluster, heartbeat_interval_ms=50) as consumer:
        listener = Ends(consumer, how)
        await consumer.subscribe(["t"], listener=listener)
        await until(has(consumer, PARTITIONS), consumer)
        members.throw_out(consumer.group_metadata().member_id)
        with pytest.raises(ClientClosedError if how == "close" else IllegalStateError):
            await until(lambda: False, consumer)
        assert listener.told == [f"lost {PARTITIONS}"]


async def test_a_listener_that_raises_keeps_nobody_in_the_group(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        notes.raises = ZeroDivisionError("in the listener")
        with pytest.raises(ZeroDivisionError):
            await consumer.unsubscribe()
        notes.raises = None
        assert not members.group.members and not consumer.subscription()


@pytest.mark.parametrize("thrown_out", [False, True])
async def test_who_closes_is_told_once_of_each_partition_and_of_its_commits_whatever_the_listener_raises(
    cluster: ScriptedCluster, members: ScriptedMembers, thrown_out: bool
) -> None:
    notes = Notes()
    committed: list[dict[TopicPartition, OffsetAndMetadata]] = []
    consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", heartbeat_interval_ms=50)
    await consumer.start()
    await consumer.subscribe(["t"], listener=notes)
    await until(has(consumer, PARTITIONS), consumer)
    consumer.commit_async({P0: 1}, lambda offsets, error: committed.append(offsets))
    if thrown_out:
        group = consumer._core.require_group("this test")
        losses = group._losses
        members.throw_out(consumer.group_metadata().member_id)
        await until(lambda: group._losses > losses)
    notes.raises = ZeroDivisionError("in the listener")
    with pytest.raises(ZeroDivisionError):
        await consumer.close()
    assert [set(offsets) for offsets in committed] == [{P0}]
    assert notes.told[1:] == [("lost" if thrown_out else "revoked", [0, 1, 2, 3])]


async def test_what_was_broken_off_while_it_was_told_is_told_again(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    notes = Notes()
    async with member(cluster, notes) as consumer:
        group = consumer._core.require_group("this test")
        await consumer.poll()
        await until(lambda: group.pending)
        # As Ctrl-C does, between reading the notifications and confirming them.
        assert await group.next_step(ReadOffsets()) is not None
        async with asyncio.timeout(60):
            assert len([await anext(consumer) for _ in range(PARTITIONS * 20)]) == PARTITIONS * 20
        assert notes.told == [("assigned", [0, 1, 2, 3])]


async def test_two_polls_at_a_time_are_refused(cluster: ScriptedCluster, members: ScriptedMembers) -> None:
    async with member(cluster, max_poll_records=1) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        consumer.pause(*consumer.assignment())
        waiting = asyncio.create_task(consumer.poll(timeout_ms=10_000))
        await asyncio.sleep(0)
        # What the one was given would be committed because the other returns for more.
        with pytest.raises(IllegalStateError, match="one thread or task at a time"):
            await consumer.poll()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await consumer.poll() == {}


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_what_the_application_has_committed_is_not_taken_back_when_it_fails(
    cluster: ScriptedCluster, members: ScriptedMembers, one_by_one: bool
) -> None:
    async def fails() -> None:
        async with member(cluster, max_poll_records=5) as consumer:
            await until(has(consumer, PARTITIONS), consumer)
            consumer.pause(*consumer.assignment() - {P0})
            await consumer.seek(P0, 0)
            if one_by_one:
                await anext(consumer)
            else:
                await consumer.poll(timeout_ms=5000)
            consumer.commit_async()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert members.committed(0) == (1 if one_by_one else 5)


async def test_a_close_waits_for_commits_that_were_asked_for(
    cluster: ScriptedCluster, members: ScriptedMembers
) -> None:
    async with member(cluster, enable_auto_commit=False) as consumer:
        await until(has(consumer, PARTITIONS), consumer)
        committing = [consumer.commit_async({P0: offset}) for offset in (1, 2, 3)]
    assert members.committed(0) == 3
    await asyncio.gather(*committing)
