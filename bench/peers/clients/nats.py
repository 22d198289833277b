"""NATS JetStream by nats-py. A stream stands for a partition, and has a subject of the same name."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time

import nats as nats_py
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import StorageType, StreamConfig
from nats.js.client import JetStreamContext

from bench.figures import Figures, summarize
from bench.peers.clients.kill_watch import EVERY_S, KillWatch
from bench.peers.clients.target import PATIENCE_S, SILENCE_S, LoadFailedError, Target

#: Bytes under way at most: the client's own limit counts records, and a server drops what it cannot buffer.
_WINDOW_BYTES = 32 << 20
_MOST_UNDER_WAY = 4_000


def _streams(target: Target) -> list[str]:
    return [f"{target.topic}-{number}" for number in range(target.partitions)]


async def _connect(target: Target) -> tuple[Client, JetStreamContext]:
    async def ignore(_: Exception) -> None:
        """A server that is killed is what some loads are about; a failure is reported by the call itself."""

    servers = [f"nats://{address}" for address in target.servers.split(",")]
    client = await nats_py.connect(servers, max_reconnect_attempts=-1, error_cb=ignore, pending_size=2 * _WINDOW_BYTES)
    return client, client.jetstream(timeout=PATIENCE_S, publish_async_max_pending=_MOST_UNDER_WAY)


def create(target: Target) -> None:
    """Makes a stream of three replicas on disk for each partition."""
    asyncio.run(_create(target))


async def _create(target: Target) -> None:
    client, jetstream = await _connect(target)
    for stream in _streams(target):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                await jetstream.add_stream(
                    StreamConfig(name=stream, subjects=[stream], num_replicas=3, storage=StorageType.FILE)
                )
                break
            except Error:
                # Right after the start, the cluster of servers has no leader that could place it.
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)
    await client.close()


def leader(target: Target) -> str:
    """The name of the first stream's leader."""
    return asyncio.run(_leader(target))


async def _leader(target: Target) -> str:
    client, jetstream = await _connect(target)
    info = await jetstream.stream_info(_streams(target)[0])
    await client.close()
    if info.cluster is None or info.cluster.leader is None:
        raise LoadFailedError(f"stream {_streams(target)[0]} has no leader")
    return info.cluster.leader


def produce(target: Target, size: int, count: int) -> Figures:
    """``publish_async``, round robin over the streams."""
    return asyncio.run(_produce(target, size, count))


async def _produce(target: Target, size: int, count: int) -> Figures:
    client, jetstream = await _connect(target)
    value, subjects = os.urandom(size), itertools.cycle(_streams(target))
    for subject in _streams(target):
        await jetstream.publish(subject, value)
    free = asyncio.Semaphore(min(_MOST_UNDER_WAY, _WINDOW_BYTES // size))
    failures: list[BaseException] = []

    def done(future: asyncio.Future[object]) -> None:
        free.release()
        failure = future.exception()
        if failure is not None:
            failures.append(failure)

    begin = time.perf_counter()
    for _ in range(count):
        await free.acquire()
        future = await jetstream.publish_async(next(subjects), value, wait_stall=PATIENCE_S)
        future.add_done_callback(done)
        if failures:
            raise LoadFailedError(f"a record was not acknowledged: {failures[0]!r}")
    await asyncio.wait_for(jetstream.publish_async_completed(), PATIENCE_S)
    elapsed = time.perf_counter() - begin
    await client.close()
    return summarize(elapsed, count, count * size, [])


def singly(target: Target, size: int, count: int) -> Figures:
    """``publish``, one at a time."""
    return asyncio.run(_singly(target, size, count))


async def _singly(target: Target, size: int, count: int) -> Figures:
    client, jetstream = await _connect(target)
    value, subject, latencies = os.urandom(size), _streams(target)[0], []
    for _ in range(20):
        await jetstream.publish(subject, value)
    begin = time.perf_counter()
    for _ in range(count):
        sent = time.perf_counter()
        await jetstream.publish(subject, value)
        latencies.append(time.perf_counter() - sent)
    elapsed = time.perf_counter() - begin
    await client.close()
    return summarize(elapsed, count, count * size, latencies)


def consume(target: Target, size: int, count: int) -> Figures:
    """An ordered consumer, as the client sets it up."""
    return asyncio.run(_consume(target, size, count))


async def _consume(target: Target, size: int, count: int) -> Figures:
    client, jetstream = await _connect(target)
    received = 0
    begin = time.perf_counter()
    subscription = await jetstream.subscribe(_streams(target)[0], ordered_consumer=True)
    while received < count:
        try:
            message = await subscription.next_msg(timeout=SILENCE_S)
        except Error as problem:
            raise LoadFailedError(f"{received} of {count} records came: {problem!r}") from None
        received += len(message.data) == size
    elapsed = time.perf_counter() - begin
    await client.close()
    return summarize(elapsed, received, received * size, [])


def steady(target: Target, size: int) -> dict[str, object]:
    """A record every few milliseconds until a killed server has been got over."""
    return asyncio.run(_steady(target, size))


async def _steady(target: Target, size: int) -> dict[str, object]:
    client, jetstream = await _connect(target)
    value, subject, watch = os.urandom(size), _streams(target)[0], KillWatch()

    async def send(sent_ns: int) -> None:
        try:
            await jetstream.publish(subject, value, timeout=5)
            watch.acknowledged(sent_ns)
        except (Error, OSError):
            watch.failed()

    under_way: set[asyncio.Task[None]] = set()
    while not watch.over():
        task = asyncio.create_task(send(time.monotonic_ns()))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        await asyncio.sleep(EVERY_S)
    for task in under_way:
        task.cancel()
    with contextlib.suppress(Error, OSError):
        await client.close()
    return watch.result()
