"""``on_corrupt``: consumers raise at a batch that cannot be read and say where to continue, or skip it and say so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from scripted_cluster import ScriptedCluster
from scripted_members import ScriptedMembers
from scripted_reading import TP, consumer_on, fill, read, values
from unreadable_batches import UNREADABLE, unreadable_batch

from quorumlog.sdk import Consumer
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.errors import CorruptRecordError, IllegalArgumentError, UnreadableBatchError
from quorumlog.sdk.metrics.figures import FETCHES
from quorumlog.sdk.types import TopicPartition

#: Offsets of the readable records: 0 to 4, 8 and 9, 13 and 14; each gap is an unreadable batch.
READABLE = [0, 1, 2, 3, 4, 8, 9, 13, 14]


def fill_with_gaps(cluster: ScriptedCluster, *kinds: str) -> None:
    """Readable batches with an unreadable one between them, and one at the end, where three kinds are given."""
    fill(cluster, 5)
    for kind, start in zip(kinds, (8, 13, 18), strict=False):
        cluster.logs[0].append(unreadable_batch(kind))
        if start < 18:
            fill(cluster, 2, start=start)


async def skipping_to_the_end(consumer: AsyncConsumer, end: int) -> list[int]:
    """The offsets of all records, until the position is the end of the log."""
    offsets: list[int] = []
    async with asyncio.timeout(30):
        while await consumer.position(TP) < end:
            polled = await consumer.poll(timeout_ms=20)
            offsets += [record.offset for records in polled.values() for record in records]
    return offsets


def skips(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_poll_raises_and_seeking_continues(cluster: ScriptedCluster, kind: str) -> None:
    fill_with_gaps(cluster, kind)
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 5)) == [0, 1, 2, 3, 4]
        for _ in range(3):
            with pytest.raises(UnreadableBatchError, match="seek to offset 8") as raised:
                await read(consumer, 1)
            assert await consumer.position(TP) == 5, "the same until the application decides"
        assert raised.value.partition == TP
        await consumer.seek(raised.value.partition, raised.value.next_offset)
        assert values(await read(consumer, 2)) == [8, 9]
        assert consumer.metrics()[FETCHES]["batches-skipped-total"] == 0


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_skip_returns_all_readable_records(
    cluster: ScriptedCluster, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill_with_gaps(cluster, kind, kind, kind)
    async with consumer_on(cluster, "t", on_corrupt="skip") as consumer:
        assert await skipping_to_the_end(consumer, 18) == READABLE
        figures = consumer.metrics()[FETCHES]
    assert (figures["batches-skipped-total"], figures["records-skipped-total"]) == (3, 9)
    assert figures["records-lag-max"] == 0
    said = skips(caplog)
    assert [message.partition(" cannot")[0] for message in said] == [
        "t-0: offsets 5 to 7",
        "t-0: offsets 10 to 12",
        "t-0: offsets 15 to 17",
    ]


async def test_arrow_and_iteration_skip_too(cluster: ScriptedCluster) -> None:
    fill_with_gaps(cluster, *list(UNREADABLE)[:3])
    async with consumer_on(cluster, "t", on_corrupt="skip") as consumer:
        offsets: list[int] = []
        async with asyncio.timeout(30):
            while await consumer.position(TP) < 18:
                offsets += (await consumer.poll_arrow(timeout_ms=20)).column("offset").to_pylist()
        assert offsets == READABLE
        await consumer.seek(TP, 6)  # In the middle of an unreadable batch.
        async with asyncio.timeout(30):
            iterated = [(await anext(consumer)).offset for _ in range(4)]
    assert iterated == [8, 9, 13, 14]


async def test_the_other_client_raises_and_skips(cluster: ScriptedCluster) -> None:
    fill_with_gaps(cluster, *list(UNREADABLE)[:3])

    def iterate(**options: Any) -> tuple[list[int], list[int]]:
        offsets, errors = [], []
        with Consumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, consumer_timeout_ms=1_000, **options
        ) as consumer:
            while True:
                try:
                    for record in consumer:
                        offsets.append(record.offset)  # noqa: PERF401 - what came before an error counts
                    return offsets, errors
                except UnreadableBatchError as error:
                    errors.append(error.first_offset)
                    consumer.seek(error.partition, error.next_offset)

    assert await asyncio.to_thread(iterate) == (READABLE, [5, 10, 15])
    assert await asyncio.to_thread(iterate, on_corrupt="skip") == (READABLE, [])

    def poll_arrow() -> list[int]:
        offsets: list[int] = []
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, on_corrupt="skip") as consumer:
            consumer.assign([TP])
            while consumer.position(TP) < 18:
                offsets += consumer.poll_arrow(timeout_ms=1_000).column("offset").to_pylist()
        return offsets

    assert await asyncio.to_thread(poll_arrow) == READABLE


async def test_skipping_keeps_what_is_given_back(cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """A poll whose deserializer raises has handed out nothing: records before a skipped batch come again."""
    fill_with_gaps(cluster, "cut off", "not Arrow", "more records")
    broken = False

    def value(content: bytes) -> int:
        if broken and int(content) in (3, 8):
            raise ValueError(content)
        return int(content)

    async with consumer_on(cluster, "t", on_corrupt="skip", value_deserializer=value, max_poll_records=50) as consumer:
        offsets: list[int] = []
        async with asyncio.timeout(30):
            while await consumer.position(TP) < 18:
                broken = not broken
                try:
                    polled = await consumer.poll(timeout_ms=20)
                except ValueError:
                    continue
                offsets += [record.offset for record in polled.get(TP, ())]
    assert offsets == READABLE
    assert len(skips(caplog)) == 3, "once for each batch"


async def test_an_iteration_left_midway_loses_nothing(cluster: ScriptedCluster) -> None:
    fill_with_gaps(cluster, "cut off", "not Arrow", "more records")
    async with consumer_on(cluster, "t", on_corrupt="skip") as consumer:
        offsets: list[int] = []
        async with asyncio.timeout(30):
            while len(offsets) < len(READABLE):
                offsets.append((await anext(consumer)).offset)
                assert await consumer.position(TP) >= offsets[-1] + 1
                polled = await consumer.poll(timeout_ms=0, max_records=1)  # Gives back what the iteration had left.
                offsets += [record.offset for records in polled.values() for record in records]
    assert offsets == READABLE


async def test_a_group_commits_beyond_a_skipped_batch() -> None:
    cluster = ScriptedCluster()
    members = ScriptedMembers(cluster)
    await cluster.start()
    fill_with_gaps(cluster, "cut off", "not Arrow", "more records")
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "on_corrupt": "skip"}
    async with consumer_on(cluster, "t", **options) as consumer:
        seen: list[int] = []
        async with asyncio.timeout(30):
            while not seen or consumer.metrics()[FETCHES]["batches-skipped-total"] < 3:
                polled = await consumer.poll(timeout_ms=20)
                seen += [record.offset for records in polled.values() for record in records]
        await consumer.commit()
    assert seen == READABLE
    assert members.committed(0) == 18
    await cluster.stop()


async def test_damage_is_reported_also_when_skipping(cluster: ScriptedCluster) -> None:
    fill(cluster, 5)
    fill(cluster, 5, start=5)
    damaged = bytearray(cluster.logs[0].entries[1])
    damaged[-3] ^= 1
    whole, cluster.logs[0].entries[1] = cluster.logs[0].entries[1], bytes(damaged)
    async with consumer_on(cluster, "t", on_corrupt="skip") as consumer:
        assert values(await read(consumer, 5)) == [0, 1, 2, 3, 4]
        with pytest.raises(CorruptRecordError, match="checksum"):
            await read(consumer, 1)
        assert consumer.metrics()[FETCHES]["batches-skipped-total"] == 0
        cluster.logs[0].entries[1] = whole
        assert values(await read(consumer, 5)) == [5, 6, 7, 8, 9]


async def test_other_partitions_are_read_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    cluster = ScriptedCluster(partitions=2)
    await cluster.start()
    cluster.logs[0].append(unreadable_batch("cut off"))
    fill(cluster, 50, partition=1)
    async with consumer_on(cluster, "t", max_poll_records=10) as consumer:
        errors, seen = 0, 0
        async with asyncio.timeout(30):
            while seen < 50 or not errors:
                try:
                    polled = await consumer.poll(timeout_ms=1_000)
                    seen += len(polled.get(TopicPartition("t", 1), ()))
                except UnreadableBatchError:
                    errors += 1
    assert seen == 50
    await cluster.stop()


@pytest.mark.parametrize("value", ["ignore", None, True, ""])
def test_an_unknown_choice_is_rejected(value: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="choose raise or skip"):
        AsyncConsumer("t", on_corrupt=value)
