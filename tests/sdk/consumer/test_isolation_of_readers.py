"""Consumers where the log has transactions: offsets without a record, the last stable offset, isolation levels."""

from __future__ import annotations

import asyncio

import pytest
from scripted_cluster import ScriptedCluster
from scripted_reading import TP, consumer_on, fill, read, until_fetched, values

from quorumlog.sdk import Consumer
from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState
from quorumlog.sdk.errors import IllegalArgumentError, UnreadableBatchError
from quorumlog.sdk.metrics.figures import FETCHES
from quorumlog.v1 import data_plane_pb2
from tests.support.kafka_batches import KafkaRow, kafka_batch, stored_kafka_entry


async def read_to(consumer: AsyncConsumer, end: int) -> list[int]:
    """The offsets of all records, until the position is ``end``."""
    offsets: list[int] = []
    async with asyncio.timeout(30):
        while await consumer.position(TP) < end:
            polled = await consumer.poll(timeout_ms=20)
            offsets += [record.offset for records in polled.values() for record in records]
    return offsets


async def test_position_passes_a_marker_with_its_records(cluster: ScriptedCluster) -> None:
    fill(cluster, 3)
    cluster.logs[0].cover(1)
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 3)) == [0, 1, 2]
        assert await consumer.position(TP) == 4
        assert consumer.metrics()[FETCHES]["records-lag-max"] == 0


async def test_position_passes_a_marker_that_comes_alone(cluster: ScriptedCluster) -> None:
    fill(cluster, 3)
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 3)) == [0, 1, 2]
        cluster.logs[0].cover(5)
        assert await read_to(consumer, 8) == []
        fill(cluster, 2, start=8)
        assert values(await read(consumer, 2)) == [8, 9]


async def test_offsets_may_be_left_out_between_batches(cluster: ScriptedCluster) -> None:
    log = cluster.logs[0]
    log.leave_out(2)
    fill(cluster, 2, start=2)
    log.leave_out(3)
    fill(cluster, 1, start=7)
    log.cover(2)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_to(consumer, 10) == [2, 3, 7]


async def test_log_of_markers_only_is_read_to_its_end(cluster: ScriptedCluster) -> None:
    cluster.logs[0].cover(1)
    cluster.logs[0].cover(4)
    async with consumer_on(cluster, "t") as consumer:
        assert await read_to(consumer, 5) == []
        assert await consumer.end_offsets([TP]) == {TP: 5}


async def test_batches_cover_offsets_behind_their_records(cluster: ScriptedCluster) -> None:
    """As the last batch of a restored log, where a marker was."""
    rows: list[KafkaRow] = [(None, b"0", 1, []), (None, b"1", 1, [])]
    cluster.logs[0].entries.append(stored_kafka_entry(kafka_batch(rows), 0, last_offset=4))
    cluster.logs[0].next_offset = 5
    for start, expected in ((0, [0, 1]), (1, [1]), (2, []), (4, [])):
        async with consumer_on(cluster, "t") as consumer:
            await consumer.start()
            await consumer.seek(TP, start)
            assert await read_to(consumer, 5) == expected


async def test_limited_polls_stop_before_the_marker(cluster: ScriptedCluster) -> None:
    fill(cluster, 3)
    cluster.logs[0].cover(1)
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 2)) == [0, 1]
        assert await consumer.position(TP) == 2
        assert values(await read(consumer, 1)) == [2]
        assert await consumer.position(TP) == 4


async def test_iteration_passes_a_marker_behind_its_last_record(cluster: ScriptedCluster) -> None:
    fill(cluster, 2)
    cluster.logs[0].cover(1)
    async with consumer_on(cluster, "t", consumer_timeout_ms=300) as consumer:
        assert (await anext(consumer)).offset == 0
        assert await consumer.position(TP) == 1
        assert [record.offset async for record in consumer] == [1]
        assert await consumer.position(TP) == 3


async def test_rows_given_back_have_their_marker(cluster: ScriptedCluster) -> None:
    """An interrupted poll gives records back, and the position with them."""
    fill(cluster, 2)
    cluster.logs[0].cover(1)
    async with consumer_on(cluster, "t") as consumer:
        await consumer.start()
        await until_fetched(consumer, 2)
        rows = consumer._core.take_fetched(10)
        assert await consumer.position(TP) == 0, "the records are not returned yet"
        consumer._core.assignment.give_back(rows)
        assert values(await read(consumer, 2)) == [0, 1]
        assert await consumer.position(TP) == 3


async def test_error_behind_a_marker_is_raised_at_once(cluster: ScriptedCluster) -> None:
    """The poll that passes the marker raises it: nothing would wake the next one."""
    cluster.logs[0].cover(1)
    async with consumer_on(cluster, "t") as consumer:
        await consumer.start()
        async with asyncio.timeout(30):
            while not consumer._core.assignment.states[TP].queued:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        consumer._core.assignment.states[TP].error = UnreadableBatchError.of(TP, 1, 1, 1, "test")
        with pytest.raises(UnreadableBatchError):
            await consumer.poll(timeout_ms=0)
        assert await consumer.position(TP) == 1


async def test_committed_readers_end_at_the_last_stable_offset(cluster: ScriptedCluster) -> None:
    fill(cluster, 4)
    fill(cluster, 6, start=4)
    cluster.logs[0].stable = 4
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 4)) == [0, 1, 2, 3]
        assert await consumer.poll(timeout_ms=50) == {}
        assert await consumer.end_offsets([TP]) == {TP: 4}
        assert consumer.metrics()[FETCHES]["records-lag-max"] == 0, "what is open is not late"
        assert consumer.highwater(TP) == 10
        await consumer.seek_to_end(TP)
        assert await consumer.position(TP) == 4
        cluster.logs[0].stable = None
        assert values(await read(consumer, 6)) == [4, 5, 6, 7, 8, 9]
    assert {request.isolation_level for request in cluster.fetches} == {data_plane_pb2.ISOLATION_LEVEL_READ_COMMITTED}


async def test_uncommitted_readers_get_everything(cluster: ScriptedCluster) -> None:
    fill(cluster, 4)
    fill(cluster, 6, start=4)
    cluster.logs[0].stable = 4
    async with consumer_on(cluster, "t", isolation_level="read_uncommitted") as consumer:
        assert values(await read(consumer, 5)) == [0, 1, 2, 3, 4]
        assert consumer._core.assignment.states[TP].lag() == 5
        assert await consumer.end_offsets([TP]) == {TP: 10}
    assert {request.isolation_level for request in cluster.fetches} == {data_plane_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED}


async def test_positions_beyond_the_last_stable_offset_wait(cluster: ScriptedCluster) -> None:
    """A group with readers of uncommitted records may have committed there."""
    fill(cluster, 4)
    fill(cluster, 6, start=4)
    cluster.logs[0].stable = 4
    async with consumer_on(cluster, "t", auto_offset_reset="none") as consumer:
        await consumer.assign([TP])
        await consumer.seek(TP, 7)
        assert await consumer.poll(timeout_ms=100) == {}
        cluster.logs[0].stable = None
        assert values(await read(consumer, 3)) == [7, 8, 9]


def test_lag_of_committed_readers_ends_at_the_last_stable_offset() -> None:
    state = PartitionState(TP, "earliest")
    state.position, state.high_watermark, state.readable_end = 3, 10, 5
    assert state.lag() == 2


def test_states_are_saved_once_in_a_change() -> None:
    """A change that saves a partition again after it has changed it would not be undone completely."""
    assignment = Assignment(1000)
    assignment.add([TP], "earliest")
    state = assignment.states[TP]
    state.position = 1

    def change(saved: object) -> None:
        saved.add(state)  # type: ignore[attr-defined]
        state.position = 2
        saved.add(state)  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assignment.change(change)
    assert state.position == 1


def test_unknown_isolation_levels_are_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="choose read_committed or read_uncommitted"):
        Consumer("t", isolation_level="serializable")  # type: ignore[arg-type]
