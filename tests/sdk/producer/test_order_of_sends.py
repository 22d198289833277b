"""Sends that wait, for their topic or for memory, continue in the order in which they were called."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from scripted_cluster import Produced, ScriptedCluster

from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.errors import BufferExhaustedError, IllegalArgumentError, UnknownTopicOrPartitionError
from quorumlog.sdk.records.record_batch import decode
from quorumlog.v1 import errors_pb2

COUNT = 40
#: Room for a few records of 3,000 bytes, each a batch of its own.
SMALL: dict[str, Any] = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1, "linger_ms": 0}


def written(cluster: ScriptedCluster) -> list[int]:
    return [int(value) for entry in cluster.logs[0].entries for value in decode(entry).columns.column(1).to_pylist()]


def requested(cluster: ScriptedCluster) -> int:
    return sum(node.metadata_requests for node in cluster.nodes.values())


async def test_first_sends_keep_their_order(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one metadata request."""
    monkeypatch.setattr("quorumlog.sdk.cluster.cluster._HEDGE_AFTER_S", 60.0)

    async def answer(_: int) -> None:
        # The later a request, the sooner its answer.
        await asyncio.sleep(0.2 / requested(cluster))

    cluster.on_metadata = answer
    async with asyncio.timeout(60):
        producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
        handles = await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(COUNT)))
        assert requested(cluster) == 1
        await asyncio.gather(*handles)
        await producer.close()
    assert written(cluster) == list(range(COUNT))


async def test_later_sends_never_overtake(cluster: ScriptedCluster) -> None:
    """A send that is called between the answer and the moment when the first one continues goes behind it."""
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
    sending: list[asyncio.Task[Any]] = []
    while "t" not in producer._core.accumulator.topics or len(sending) < COUNT:
        assert len(sending) < 100_000, "the topic never becomes known"
        sending.append(asyncio.create_task(producer.send("t", b"%d" % len(sending))))
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await asyncio.gather(*sending)
        await producer.close()
    assert written(cluster) == list(range(len(sending)))
    assert producer._waiting == {}


async def test_sends_into_full_memory_keep_their_order(cluster: ScriptedCluster) -> None:
    """Also those that are called when there is room again."""
    free = asyncio.Event()

    async def hold(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await free.wait()
        return None

    cluster.on_produce = hold
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **SMALL)
    sending = [asyncio.create_task(producer.send("t", b"%03000d" % number)) for number in range(COUNT)]
    await asyncio.wait(sending, timeout=0.2)
    assert not all(task.done() for task in sending), "memory is full"
    free.set()
    while len(sending) < 3 * COUNT:
        sending.append(asyncio.create_task(producer.send("t", b"%03000d" % len(sending))))
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        await asyncio.gather(*sending)
        await producer.close()
    assert written(cluster) == list(range(len(sending)))


async def test_unknown_topics_fail_all_waiting_sends(cluster: ScriptedCluster) -> None:
    """One look-up answers them all: they fail together, not one after the other's grace period."""
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
    loop = asyncio.get_running_loop()
    ended: list[float] = []

    async def send(number: int) -> None:
        try:
            await producer.send("absent", b"%d" % number)
        finally:
            ended.append(loop.time())

    failures = await asyncio.gather(*(send(number) for number in range(COUNT)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {UnknownTopicOrPartitionError}
    # After one look-up, however long its grace period is.
    assert requested(cluster) < COUNT
    assert ended[-1] - ended[0] < 1.5
    await producer.close()


async def test_cancelled_sends_hold_up_no_other(cluster: ScriptedCluster) -> None:
    answered = asyncio.Event()

    async def answer(_: int) -> None:
        await answered.wait()

    cluster.on_metadata = answer
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
    sending = [asyncio.create_task(producer.send("t", b"%d" % number)) for number in range(4)]
    await asyncio.sleep(0)
    sending[0].cancel()
    sending[2].cancel()
    answered.set()
    async with asyncio.timeout(60):
        await asyncio.wait(sending)
        await producer.close()
    assert written(cluster) == [1, 3]


async def test_sends_wait_for_room_together(cluster: ScriptedCluster) -> None:
    """``max_block_ms`` counts from each call, not from its turn."""
    held = asyncio.Event()

    async def hold(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await held.wait()
        return None

    cluster.on_produce = hold
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **SMALL)
    while producer._core.accumulator.free_bytes > 5_000:
        await producer.send("t", b"0" * 3000)
    producer._core.config = replace(producer._core.config, max_block_ms=500)
    began = asyncio.get_running_loop().time()
    failures = await asyncio.gather(*(producer.send("t", b"0" * 3000) for _ in range(COUNT)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {BufferExhaustedError}
    assert asyncio.get_running_loop().time() - began < 0.5 * COUNT / 2, "they waited one after the other"
    held.set()
    await producer.close()


async def test_names_are_checked_before_waiting(cluster: ScriptedCluster) -> None:
    async def never(_: int) -> None:
        await asyncio.get_running_loop().create_future()

    cluster.on_metadata = never
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
    waiting = asyncio.create_task(producer.send("t", b"1"))
    await asyncio.sleep(0)
    for bad in (None, 7, ["t"], ""):
        with pytest.raises(IllegalArgumentError):
            async with asyncio.timeout(30):
                await producer.send(bad, b"1")  # type: ignore[arg-type]
    await producer.close(timeout=0.1)
    with pytest.raises(Exception, match="closed"):
        await waiting
