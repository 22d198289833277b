"""Whatever moment a client is closed at, or the task that uses it is cancelled: nothing is logged, nothing hangs, and
nothing of it is left on the loop.

A moment is a step of the event loop since the client was made. The tests try the first ones and some later ones; with
``QUORUMLOG_EVERY_MOMENT=400`` they try the first 400, each.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from scripted_reading import fill

from quorumlog.sdk import ClientClosedError, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

pytestmark = pytest.mark.filterwarnings("error")

EVERY = int(os.environ.get("QUORUMLOG_EVERY_MOMENT", "0"))
MOMENTS = range(EVERY) if EVERY else [*range(6), 8, 12, 16, 24, 32, 48, 80, 140]
#: Nothing here waits for anything that takes time, on a machine that has some.
LIMIT_S = 30.0

Client = AsyncProducer | AsyncConsumer | AsyncAdmin


class Use(NamedTuple):
    """A client, and what its application does with it until it is closed."""

    make: Callable[..., Any]
    options: dict[str, Any]
    work: Callable[[Any], Awaitable[None]]


async def send(producer: AsyncProducer) -> None:
    while True:
        handles = [await producer.send("t", b"value", key=b"%d" % number, timestamp_ms=1) for number in range(4)]
        for handle in handles:
            await handle


async def send_and_flush(producer: AsyncProducer) -> None:
    while True:
        await producer.send("t", b"value")
        await producer.flush()


async def poll(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(60_000)


async def assign_and_poll(consumer: AsyncConsumer) -> None:
    await consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    await poll(consumer)


async def subscribe_by_pattern(consumer: AsyncConsumer) -> None:
    await consumer.subscribe(pattern="t.*")
    await poll(consumer)


async def iterate_and_commit(consumer: AsyncConsumer) -> None:
    async for _ in consumer:
        consumer.commit_async()
        await consumer.commit()


async def look_up(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.assign([TopicPartition("t", 0)])
        await consumer.position(TopicPartition("t", 0))
        await consumer.end_offsets([TopicPartition("t", 1)])


async def administer(admin: AsyncAdmin) -> None:
    while True:
        await admin.describe_topics(["t"])
        await admin.list_topics()


USES = {
    "a producer": Use(AsyncProducer, {}, send),
    "a lingering producer": Use(AsyncProducer, {"linger_ms": 5, "enable_idempotence": False}, send_and_flush),
    "a producer without acknowledgements": Use(AsyncProducer, {"acks": 0, "enable_idempotence": False}, send),
    "a named producer": Use(AsyncProducer, {"producer_name": "n"}, send),
    "an epoch": Use(AsyncProducer, {"producer_name": "n", "producer_epoch": 1}, send),
    "a consumer of partitions": Use(AsyncConsumer, {}, assign_and_poll),
    "a consumer of topics": Use(lambda **options: AsyncConsumer("t", **options), {"max_poll_records": 1}, poll),
    "look-ups": Use(AsyncConsumer, {}, look_up),
    "a member": Use(
        lambda **options: AsyncConsumer("t", **options),
        {"group_id": "g", "auto_commit_interval_ms": 1, "max_poll_records": 1},
        poll,
    ),
    "a member by pattern": Use(AsyncConsumer, {"group_id": "g"}, subscribe_by_pattern),
    "a member that commits": Use(
        lambda **options: AsyncConsumer("t", **options),
        {"group_id": "g", "enable_auto_commit": False},
        iterate_and_commit,
    ),
    "an administrator": Use(AsyncAdmin, {}, administer),
}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    """Two nodes that lead one partition of ``t`` each; node 1 coordinates groups."""
    made = ScriptedCluster(nodes=2, partitions=2)
    ScriptedMembers(made)
    await made.start()
    for partition in range(2):
        fill(made, 20, partition=partition)
    yield made
    await made.stop()


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    """Objects that existed before are left out of the search for leaks, and so are their warnings."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def left_over(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """The tasks of clients that are still on the loop."""
    return [task for task in asyncio.all_tasks() - before if "/sdk/" in repr(task) and "tests" not in repr(task)]


async def started(cluster: ScriptedCluster, use: Use, moment: int) -> tuple[Any, asyncio.Task[None]]:
    """A client in use since some steps of the loop."""
    options = dict(use.options)
    if "group_id" in options:
        options["group_id"] = f"g{moment}"
    client = use.make(bootstrap_servers=cluster.bootstrap_servers, **options)
    using = asyncio.get_running_loop().create_task(use.work(client))
    for _ in range(moment):
        await asyncio.sleep(0)
    return client, using


def check_silence(caplog: pytest.LogCaptureFixture, moment: int) -> None:
    if EVERY or moment == MOMENTS[-1]:
        gc.collect()
    said = [
        record.getMessage() + (record.exc_text or "")
        for record in caplog.records
        # gRPC's server in the stand-in logs answers to clients that have given up. Nodes leave that out.
        if record.levelno >= logging.WARNING and "raised in core by servicer method" not in record.getMessage()
    ]
    assert said == [], f"after {moment} steps"


@pytest.mark.parametrize("name", USES)
async def test_a_close_at_any_moment(cluster: ScriptedCluster, name: str, caplog: pytest.LogCaptureFixture) -> None:
    for moment in MOMENTS:
        before = asyncio.all_tasks()
        client, using = await started(cluster, USES[name], moment)
        async with asyncio.timeout(LIMIT_S):
            await client.close()
        done, _ = await asyncio.wait([using], timeout=LIMIT_S)
        assert done, f"after {moment} steps the application hangs: {using}"
        assert not using.cancelled(), f"after {moment} steps the application is cancelled"
        with suppress(ClientClosedError):
            using.result()
        assert left_over(before) == [], f"after {moment} steps"
        check_silence(caplog, moment)


@pytest.mark.parametrize("name", USES)
async def test_a_cancellation_at_any_moment(
    cluster: ScriptedCluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for moment in MOMENTS:
        before = asyncio.all_tasks()
        client, using = await started(cluster, USES[name], moment)
        using.cancel()
        done, _ = await asyncio.wait([using], timeout=LIMIT_S)
        assert done, f"after {moment} steps the application hangs: {using}"
        assert using.cancelled(), f"after {moment} steps: {using}"
        async with asyncio.timeout(LIMIT_S):
            await client.close()
        assert left_over(before) == [], f"after {moment} steps"
        check_silence(caplog, moment)


@pytest.mark.parametrize("name", USES)
async def test_a_close_that_is_cancelled_at_any_moment(
    cluster: ScriptedCluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for moment in MOMENTS:
        before = asyncio.all_tasks()
        client, using = await started(cluster, USES[name], 60)
        closing = asyncio.get_running_loop().create_task(client.close())
        for _ in range(moment):
            await asyncio.sleep(0)
        closing.cancel()
        done, _ = await asyncio.wait([closing], timeout=LIMIT_S)
        assert done, f"after {moment} steps the close hangs: {closing}"
        async with asyncio.timeout(LIMIT_S):
            await client.close()
        done, _ = await asyncio.wait([using], timeout=LIMIT_S)
        assert done, f"after {moment} steps the application hangs: {using}"
        using.exception()
        if ending := left_over(before):  # It does not wait for what it has cancelled.
            _, left = await asyncio.wait(ending, timeout=LIMIT_S)
            assert left == set(), f"after {moment} steps"
        check_silence(caplog, moment)


async def test_a_cancellation_beside_news_is_not_lost(cluster: ScriptedCluster) -> None:
    consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="latest")
    await consumer.assign([TopicPartition("t", 0)])
    await consumer.position(TopicPartition("t", 0))
    for steps in range(6):
        polling = asyncio.get_running_loop().create_task(consumer.poll(60_000))
        await asyncio.wait([polling], timeout=0.01)
        consumer._core.assignment.notify()
        for _ in range(steps):
            await asyncio.sleep(0)
        polling.cancel()
        done, _ = await asyncio.wait([polling], timeout=LIMIT_S)
        assert done, f"cancelled {steps} steps after a change a poll continues"
    await consumer.close()
