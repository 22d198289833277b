"""Loads the cluster below the SDK: ready-made batches on the Produce stream, so that only the servers are measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Any

import grpc

from bench.bare_node import OPTIONS
from bench.figures import Figures, summarize
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions
from quorumlog.v1 import data_plane_pb2 as wire
from quorumlog.v1 import data_plane_pb2_grpc
from quorumlog.wire.entry import Codec, build_batch

ACKS_ALL = -1
TIMEOUT_MS = 30_000
#: How long the client waits for every partition of a new topic to have a leader.
LEADERS_WITHIN_S = 15.0
#: How often a run is started that a move of leadership spoils, and the pause before the next.
ATTEMPTS = 4
PAUSE_S = 1.0


class RefusedError(Exception):
    """The cluster refused what the benchmark asked for."""


def _channel(address: str, tls: SecurityOptions | None) -> grpc.aio.Channel:
    files = None if not tls else ClientSecurity(**tls).files()
    if files is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    return grpc.aio.secure_channel(address, files.credentials(), options=OPTIONS)


async def find_leaders(bootstrap: str, topic: str, tls: SecurityOptions | None = None) -> tuple[bytes, list[str]]:
    """The topic's id, and the address of each partition's leader.

    Arguments:
        bootstrap: ``host:port``, several separated by commas; the first is asked.
        tls: how nodes are reached; without TLS unless given.
    """
    deadline = time.monotonic() + LEADERS_WITHIN_S
    async with _channel(bootstrap.split(",", maxsplit=1)[0], tls) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        while True:
            metadata = await stub.Metadata(wire.MetadataRequest(topics=[topic]), timeout=5)
            nodes = {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata.brokers}
            (found,) = metadata.topics
            leaders = [nodes.get(partition.leader, "") for partition in found.partitions]
            if leaders and all(leaders):
                return found.topic_id, leaders
            if time.monotonic() > deadline:
                raise RefusedError(f"topic {topic} has no leader for every partition: {found.error.message}")
            await asyncio.sleep(0.05)


async def produce(
    bootstrap: str, topic: str, *, size: int, count: int, window: int, tls: SecurityOptions | None = None
) -> Figures:
    """Sends ``count`` batches of ``size`` bytes round robin, ``window`` of them unacknowledged at a time.

    On a busy machine a leadership may move in the middle. Such a run is measured again from its beginning: it would
    have measured the move.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await _produce_once(bootstrap, topic, size, count, window, tls)
        except RefusedError:
            await asyncio.sleep(PAUSE_S)
    return await _produce_once(bootstrap, topic, size, count, window, tls)


async def _produce_once(
    bootstrap: str, topic: str, size: int, count: int, window: int, tls: SecurityOptions | None
) -> Figures:
    topic_id, leaders = await find_leaders(bootstrap, topic, tls)
    run = _RawRun(topic_id, size, count, window)
    channels = {address: _channel(address, tls) for address in set(leaders)}
    calls = {address: data_plane_pb2_grpc.DataPlaneStub(channel).Produce(None) for address, channel in channels.items()}
    readers = [asyncio.create_task(run.receive(call)) for call in calls.values()]
    begin = time.perf_counter()
    for number in range(count):
        await run.free.acquire()
        if run.error is not None:
            break
        partition = number % len(leaders)
        await calls[leaders[partition]].write(run.request(number, partition))
    await run.done.wait()
    elapsed = time.perf_counter() - begin
    await _close(readers, calls.values(), channels.values())
    if run.error is not None:
        raise RefusedError(run.error)
    return summarize(elapsed, count, count * size, run.latencies)


async def _close(readers: list[asyncio.Task[None]], calls: Iterable[Any], channels: Iterable[Any]) -> None:
    for call in calls:
        call.cancel()
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for channel in channels:
        await channel.close()


class _RawRun:
    """The state of one run: what is under way, and what returned."""

    def __init__(self, topic_id: bytes, size: int, count: int, window: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._topic_id = topic_id
        self._count = count
        self._batch = build_batch(
            os.urandom(size), record_count=1, codec=Codec.NONE, base_timestamp_ms=now_ms, max_timestamp_ms=now_ms
        )
        self._sent: dict[int, float] = {}
        self.latencies: list[float] = []
        self.free = asyncio.Semaphore(window)
        self.done = asyncio.Event()
        self.error: str | None = None

    def request(self, number: int, partition: int) -> wire.ProduceRequest:
        """The request that carries one batch."""
        batch = wire.PartitionBatch(topic_id=self._topic_id, partition=partition, batch=self._batch)
        self._sent[number] = time.perf_counter()
        return wire.ProduceRequest(correlation_id=number, acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, batches=[batch])

    async def receive(self, call: Any) -> None:
        """Takes one node's answers."""
        try:
            async for response in call:
                self._take(response)
        except grpc.aio.AioRpcError as problem:
            self._fail(problem.details() or str(problem.code()))

    def _take(self, response: wire.ProduceResponse) -> None:
        for result in response.results:
            if result.HasField("error"):
                self._fail(result.error.message)
                return
        self.latencies.append(time.perf_counter() - self._sent.pop(response.correlation_id))
        self.free.release()
        if len(self.latencies) == self._count:
            self.done.set()

    def _fail(self, message: str) -> None:
        self.error = message
        self.done.set()
        self.free.release()
