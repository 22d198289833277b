"""Fills the logs of a scripted cluster, and reads them with the consumer."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scripted_cluster import ScriptedCluster

from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.records.record_batch import batch_from_columns, encode
from quorumlog.sdk.types import ConsumerRecord, TopicPartition
from quorumlog.wire.entry import Codec, build_batch

TP = TopicPartition("t", 0)


def fill(
    cluster: ScriptedCluster,
    count: int,
    *,
    per_batch: int = 10,
    partition: int = 0,
    start: int = 0,
    codec: Codec = Codec.NONE,
    size: int = 0,
) -> None:
    """Writes values ``start`` to ``start + count - 1`` into a log, as numbers of at least ``size`` digits."""
    for first in range(start, start + count, per_batch):
        values = [b"%0*d" % (size, i) for i in range(first, min(first + per_batch, start + count))]
        made = encode(batch_from_columns([], values, array("q", [1_000_000] * len(values)), {}), codec)
        batch = build_batch(
            made.payload, record_count=len(values), codec=codec, base_timestamp_ms=1, max_timestamp_ms=1
        )
        cluster.logs[partition].append(batch)


@asynccontextmanager
async def consumer_on(cluster: ScriptedCluster, *topics: str, **options: Any) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        yield consumer


async def read(consumer: AsyncConsumer, count: int, limit_s: float = 30.0) -> list[ConsumerRecord]:
    """Polls until it has ``count`` records."""
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(limit_s):
        while len(records) < count:
            for part in (await consumer.poll(timeout_ms=200, max_records=count - len(records))).values():
                records.extend(part)
    return records


async def until_fetched(consumer: AsyncConsumer, records: int) -> None:
    """Waits until so many records are there for the next poll."""
    async with asyncio.timeout(30):
        states = consumer._core.assignment.states.values()
        while sum(rows.columns.num_rows for state in states for rows in state.queued) < records:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value) for record in records]
