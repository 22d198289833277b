"""RabbitMQ streams by rstream. A stream stands for a partition."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from functools import partial

from rstream import ConfirmationStatus, Consumer, ConsumerOffsetSpecification, MessageContext, OffsetType, Producer

from bench.figures import Figures, summarize
from bench.peers.clients.kill_watch import EVERY_S, KillWatch
from bench.peers.clients.target import PATIENCE_S, SILENCE_S, LoadFailedError, Target

_LOGIN = {"username": "guest", "password": "guest"}
#: Bytes of a frame that carries a batch at most, less than what the server accepts (1 MiB).
_BATCH_BYTES = 512 << 10
_BATCH_RECORDS = 1_000
#: Batches that are not confirmed, at most.
_UNDER_WAY = 16


def _streams(target: Target) -> list[str]:
    return [f"{target.topic}-{number}" for number in range(target.partitions)]


def _ports(target: Target) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in target.servers.split(",")]


def _producer(target: Target, port: int | None = None) -> Producer:
    """Returns a producer that connects to a server, by default the first, and finds the leader from there."""
    return Producer("127.0.0.1", port or _ports(target)[0], **_LOGIN)


def create(target: Target) -> None:
    """Makes a stream for each partition, with replicas on all servers, as is the default."""
    asyncio.run(_create(target))


async def _create(target: Target) -> None:
    async with _producer(target) as producer:
        for stream in _streams(target):
            await producer.create_stream(stream)


def leader(target: Target) -> str:
    """The port of the first stream's leader."""
    return asyncio.run(_leader(target))


async def _leader(target: Target) -> str:
    async with _producer(target) as producer:
        client = await producer.default_client
        found, _ = await client.query_leader_and_replicas(_streams(target)[0])
        return str(found.port)


class _Confirmations:
    """Lets only so many batches be under way, and notes what was refused."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(_UNDER_WAY)
        self.refused = 0
        self._left: dict[int, int] = {}

    def expect(self, batch: int, records: int) -> None:
        """A batch is sent."""
        self._left[batch] = records

    def __call__(self, batch: int, confirmation: ConfirmationStatus) -> None:
        self.refused += not confirmation.is_confirmed
        self._left[batch] -= 1
        if not self._left[batch]:
            del self._left[batch]
            self.free.release()


def produce(target: Target, size: int, count: int) -> Figures:
    """``send_batch`` of as many records as a frame takes, up to a thousand, round robin over the streams."""
    return asyncio.run(_produce(target, size, count))


async def _produce(target: Target, size: int, count: int) -> Figures:
    value, streams, confirmations = os.urandom(size), itertools.cycle(_streams(target)), _Confirmations()
    at_once = max(1, min(_BATCH_RECORDS, _BATCH_BYTES // size))
    async with _producer(target) as producer:
        for stream in _streams(target):
            await producer.send_wait(stream, value, timeout=int(PATIENCE_S))
        begin, sent = time.perf_counter(), 0
        while sent < count:
            await confirmations.free.acquire()
            batch = [value] * min(at_once, count - sent)
            confirmations.expect(sent, len(batch))
            await producer.send_batch(next(streams), batch, on_publish_confirm=partial(confirmations, sent))
            sent += len(batch)
        for _ in range(_UNDER_WAY):
            await asyncio.wait_for(confirmations.free.acquire(), PATIENCE_S)
        elapsed = time.perf_counter() - begin
    if confirmations.refused:
        raise LoadFailedError(f"{confirmations.refused} of {count} records were refused")
    return summarize(elapsed, count, count * size, [])


def singly(target: Target, size: int, count: int) -> Figures:
    """``send_wait``, one at a time."""
    return asyncio.run(_singly(target, size, count))


async def _singly(target: Target, size: int, count: int) -> Figures:
    value, stream, latencies = os.urandom(size), _streams(target)[0], []
    async with _producer(target) as producer:
        for _ in range(20):
            await producer.send_wait(stream, value, timeout=int(PATIENCE_S))
        begin = time.perf_counter()
        for _ in range(count):
            sent = time.perf_counter()
            await producer.send_wait(stream, value, timeout=int(PATIENCE_S))
            latencies.append(time.perf_counter() - sent)
        elapsed = time.perf_counter() - begin
    return summarize(elapsed, count, count * size, latencies)


def consume(target: Target, size: int, count: int) -> Figures:
    """A subscription with a callback per message."""
    return asyncio.run(_consume(target, size, count))


async def _consume(target: Target, size: int, count: int) -> Figures:
    received, done = 0, asyncio.Event()

    def take(message: bytes, _: MessageContext) -> None:
        nonlocal received
        received += len(message) == size
        if received == count:
            done.set()

    begin = time.perf_counter()
    async with Consumer("127.0.0.1", _ports(target)[0], **_LOGIN) as consumer:
        await consumer.subscribe(
            _streams(target)[0], take, offset_specification=ConsumerOffsetSpecification(OffsetType.FIRST, None)
        )
        seen = -1
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), SILENCE_S)
            except TimeoutError:
                if received == seen:
                    raise LoadFailedError(f"{received} of {count} records came, then no more") from None
                seen = received
        elapsed = time.perf_counter() - begin
    return summarize(elapsed, count, count * size, [])


def steady(target: Target, size: int) -> dict[str, object]:
    """A record every few milliseconds until a killed server has been got over."""
    logging.disable()
    return asyncio.run(_steady(target, size))


async def _steady(target: Target, size: int) -> dict[str, object]:
    """The client asks only the server that it was given for the new leader: so that is one that stays."""
    value, stream, watch = os.urandom(size), _streams(target)[0], KillWatch()
    led = await _leader(target)
    staying = next(port for port in _ports(target) if str(port) != led)
    under_way: set[asyncio.Task[None]] = set()
    async with _producer(target, staying) as producer:

        async def send(sent_ns: int) -> None:
            try:
                await producer.send_wait(stream, value, timeout=int(PATIENCE_S))
                watch.acknowledged(sent_ns)
            except Exception:  # The client has no one error for a connection that is lost.
                watch.failed()

        while not watch.over():
            task = asyncio.create_task(send(time.monotonic_ns()))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(EVERY_S)
        for task in under_way:
            task.cancel()
    return watch.result()
