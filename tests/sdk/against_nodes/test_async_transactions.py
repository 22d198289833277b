"""Transactions of the asyncio producer on real nodes, also where a task is cancelled or a leader is killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from command_line import leader_of

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    IllegalArgumentError,
    IllegalStateError,
    NewTopic,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortedError,
)
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

RECORDS = 300
#: Until everything is copied, whatever happens in the meantime.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


async def topic(cluster: LocalCluster, name: str, partitions: int = 2) -> str:
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, partitions, 3)])
    return name


def producer(cluster: LocalCluster, name: str) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)


async def committed(cluster: LocalCluster, name: str, count: int) -> list[bytes]:
    """Returns the committed records, at least ``count`` and all that follow within a second."""
    found: list[bytes] = []
    servers = cluster.bootstrap_servers
    async with AsyncConsumer(name, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        for _ in range(60):
            polled = await consumer.poll(1_000)
            found += [each.value for records in polled.values() for each in records]
            if not polled and len(found) >= count:
                break
    return sorted(found)


async def test_a_block_commits_all_partitions_and_an_exception_aborts(cluster: LocalCluster) -> None:
    name = await topic(cluster, "blocks")
    async with producer(cluster, "blocks") as sending:
        async with sending.transaction() as tx:
            await tx.send(name, b"a", partition=0)
            await sending.send(name, b"b", partition=1)
        with pytest.raises(KeyError):  # noqa: PT012 - the block is what raises
            async with sending.transaction() as tx:
                await tx.send(name, b"lost", partition=0)
                await sending.flush()
                raise KeyError
        async with sending.transaction():
            pass
        async with sending.transaction() as tx:
            await tx.send(name, b"c", partition=0)
        with pytest.raises(IllegalStateError, match="send needs an open transaction"):
            await tx.send(name, b"outside")
    assert await committed(cluster, name, 3) == [b"a", b"b", b"c"]


async def test_a_new_instance_fences_the_former_one(cluster: LocalCluster) -> None:
    name = await topic(cluster, "fenced")
    async with producer(cluster, "one") as zombie, producer(cluster, "one") as newer:
        with pytest.raises(ProducerFencedError):  # noqa: PT012 - the block is what raises
            async with zombie.transaction() as tx:
                await tx.send(name, b"lost", partition=0)
                await zombie.flush()
                async with newer.transaction() as other:
                    await other.send(name, b"kept", partition=0)
    assert await committed(cluster, name, 1) == [b"kept"]


async def test_a_task_that_is_cancelled_in_the_block_aborts(cluster: LocalCluster) -> None:
    name = await topic(cluster, "cancelled")
    async with producer(cluster, "cancelled") as sending:
        written = asyncio.Event()

        async def stuck() -> None:
            async with sending.transaction() as tx:
                await tx.send(name, b"lost", partition=0)
                await sending.flush()
                written.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stuck())
        await asyncio.wait_for(written.wait(), PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The abort is complete: nothing waits for a timeout.
        async with sending.transaction() as tx:
            await tx.send(name, b"kept", partition=0)
    assert await committed(cluster, name, 1) == [b"kept"]


async def test_a_consumer_of_the_other_kind_is_refused(cluster: LocalCluster) -> None:
    async with producer(cluster, "kinds") as sending:
        with pytest.raises(IllegalArgumentError, match="give an AsyncConsumer"):
            sending.transaction(object())  # type: ignore[arg-type]


class Copying:
    """Copies a topic of numbered records in transactions."""

    def __init__(self, cluster: LocalCluster, sending: AsyncProducer, consumer: AsyncConsumer, sink: str) -> None:
        self.cluster, self.sending, self.consumer, self.sink = cluster, sending, consumer, sink
        self.aborted = 0

    async def batch(self) -> None:
        """Copies what the next poll returns. A batch that is aborted is returned again."""
        records = [each for part in (await self.consumer.poll(1_000, max_records=20)).values() for each in part]
        if not records:
            return
        try:
            async with self.sending.transaction(self.consumer) as tx:
                for each in records:
                    await tx.send(self.sink, each.value)
        except TransactionAbortedError:
            self.aborted += 1

    async def is_done(self, source: str) -> bool:
        async with self.sending.transaction():
            pass  # Ends what a cancelled task has left.
        return await self.consumer.committed(TopicPartition(source, 0)) == RECORDS


@asynccontextmanager
async def copying(cluster: LocalCluster, name: str) -> AsyncIterator[Copying]:
    """A source of numbered records, whose copy must have each of them once in the end."""
    source, sink = await topic(cluster, f"{name}-in", 1), await topic(cluster, f"{name}-out", 1)
    everything = [b"%04d" % number for number in range(RECORDS)]
    async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as filling:
        for value in everything:
            await filling.send(source, value)
    consumer = AsyncConsumer(
        source,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with producer(cluster, name) as sending, consumer:
        made = Copying(cluster, sending, consumer, sink)
        yield made
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(TransactionAbortedError):
                if await made.is_done(source):
                    break
            assert time.monotonic() < deadline, "not everything is copied"
            await made.batch()
    assert await committed(cluster, sink, RECORDS) == everything


async def test_records_are_copied_once_by_a_task_that_is_cancelled_anywhere(cluster: LocalCluster) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with copying(cluster, "anywhere") as made:
        cancelled = 0
        for _ in range(40):
            task = asyncio.create_task(made.batch())
            done, _ = await asyncio.wait([task], timeout=chance.random() * 0.05)
            if not done:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                cancelled += task.cancelled()
        print(f"{cancelled} of 40 batches cancelled, {made.aborted} aborted")
        assert cancelled


async def test_records_are_copied_once_while_leaders_are_killed(cluster: LocalCluster) -> None:
    async with copying(cluster, "killed") as made:
        for turn in range(9):
            killing = turn % 3 == 1
            batch = asyncio.create_task(made.batch())
            if killing:
                await asyncio.sleep(0.01)
                victim = await asyncio.to_thread(leader_of, cluster, made.sink)
                await asyncio.to_thread(cluster.kill, victim)
                await asyncio.to_thread(cluster.start, victim)
            await batch
