"""Loads the bare path: with the same sizes and windows as the cluster."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from bench.bare_node import NUMBER, OPTIONS, READ, REQUEST, SERVICE, unchanged
from bench.figures import Figures, summarize


async def produce(address: str, *, size: int, count: int, window: int, partitions: int) -> Figures:
    """Sends ``count`` batches of ``size`` bytes, ``window`` of them unacknowledged at a time."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call = channel.stream_stream(f"/{SERVICE}/Produce", unchanged, unchanged)(None)
        payload = os.urandom(size)
        free = asyncio.Semaphore(window)
        sent: dict[int, float] = {}
        latencies: list[float] = []
        reader = asyncio.create_task(_acknowledgements(call, count, free, sent, latencies))
        begin = time.perf_counter()
        for number in range(count):
            await free.acquire()
            sent[number] = time.perf_counter()
            await call.write(REQUEST.pack(number % partitions, number) + payload)
        await reader
        elapsed = time.perf_counter() - begin
        call.cancel()
    return summarize(elapsed, count, count * size, latencies)


async def _acknowledgements(
    call: Any, count: int, free: asyncio.Semaphore, sent: dict[int, float], latencies: list[float]
) -> None:
    answers: AsyncIterator[bytes] = call
    async for answer in answers:
        now = time.perf_counter()
        for (number,) in NUMBER.iter_unpack(answer):
            latencies.append(now - sent.pop(number))
            free.release()
        if len(latencies) == count:
            return


async def read(address: str, *, size: int, count: int) -> Figures:
    """Reads ``count`` blobs of ``size`` bytes."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call = channel.stream_stream(f"/{SERVICE}/Read", unchanged, unchanged)(None)
        begin = time.perf_counter()
        await call.write(READ.pack(count, size))
        received = 0
        async for blob in call:
            received += len(blob)
            if received == count * size:
                break
        elapsed = time.perf_counter() - begin
        call.cancel()
    return summarize(elapsed, count, received, [])
