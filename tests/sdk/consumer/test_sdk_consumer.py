"""The consumer against a scripted cluster: every record once and in order, whatever the nodes do."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from scripted_cluster import TOPIC_ID, Code, ScriptedCluster, error
from scripted_reading import TP, consumer_on, fill, read, until_fetched, values

from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.errors import (
    CorruptRecordError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2


async def test_all_partitions_are_read_from_the_start_in_order() -> None:
    cluster = ScriptedCluster(nodes=2, partitions=3)
    await cluster.start()
    for partition in range(3):
        fill(cluster, 95, partition=partition, start=partition * 1000)
    async with consumer_on(cluster, "t") as consumer:
        records = await read(consumer, 285)
        assert consumer.assignment() == {TopicPartition("t", p) for p in range(3)}
    for partition in range(3):
        of_this = [record for record in records if record.partition == partition]
        assert [record.offset for record in of_this] == list(range(95))
        assert values(of_this) == list(range(partition * 1000, partition * 1000 + 95))
    await cluster.stop()


async def test_polls_hand_out_what_they_are_asked_for_and_continue_in_the_middle_of_a_batch(
    cluster: ScriptedCluster,
) -> None:
    fill(cluster, 100, per_batch=33)
    async with consumer_on(cluster, "t", max_poll_records=7) as consumer:
        seen: list[int] = []
        while len(seen) < 100:
            polled = await consumer.poll(timeout_ms=30_000)
            assert sum(map(len, polled.values())) <= 7
            seen += values(polled[TP])
            assert await consumer.position(TP) == len(seen)
        assert seen == list(range(100))
        await consumer.seek(TP, 40)
        assert (await consumer.poll_arrow(timeout_ms=30_000, max_records=45)).column("offset").to_pylist() == list(
            range(40, 85)
        )
        assert values(await read(consumer, 5)) == [85, 86, 87, 88, 89]


async def test_a_seek_drops_what_was_fetched_or_is_being_fetched(cluster: ScriptedCluster) -> None:
    fill(cluster, 100)
    async with consumer_on(cluster, "t") as consumer:
        for offset in (90, 5, 57, 0, 99):
            await consumer.seek(TP, offset)
            assert values(await read(consumer, 1)) == [offset]
        await consumer.seek_to_beginning(TP)
        assert values(await read(consumer, 2)) == [0, 1]
        await consumer.seek_to_end(TP)
        assert await consumer.position(TP) == 100
        fill(cluster, 1, start=100)
        assert values(await read(consumer, 1)) == [100]


@pytest.mark.parametrize(
    "answer",
    [
        error(Code.LEADER_NOT_AVAILABLE),
        error(Code.FENCED_LEADER_EPOCH),
        error(Code.UNKNOWN_LEADER_EPOCH),
        error(Code.SERVER_BUSY),
        error(Code.UNKNOWN_TOPIC_OR_PARTITION),
        error(Code.STORAGE_ERROR),
    ],
    ids=lambda answer: Code.Name(answer.code),
)
async def test_passing_errors_are_not_seen_by_the_application(cluster: ScriptedCluster, answer: Any) -> None:
    fill(cluster, 50, per_batch=5)
    count = 0

    async def fail_some(node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
        nonlocal count
        count += 1
        if count % 2:
            response = data_plane_pb2.FetchResponse()
            response.results.add(topic_id=TOPIC_ID, partition=0).error.CopyFrom(answer)
            return response
        return await cluster.fetch(node_id, request)

    cluster.on_fetch = fail_some
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=1024) as consumer:
        assert values(await read(consumer, 50)) == list(range(50))


async def test_leaders_are_followed_and_dead_nodes_left(three_nodes: ScriptedCluster) -> None:
    fill(three_nodes, 20)
    async with consumer_on(three_nodes, "t", fetch_max_wait_ms=100) as consumer:
        assert values(await read(consumer, 20)) == list(range(20))
        three_nodes.elect(0, leader=2)
        fill(three_nodes, 20, start=20)
        assert values(await read(consumer, 20)) == list(range(20, 40))
        await three_nodes.stop_node(2)
        three_nodes.elect(0, leader=3)
        fill(three_nodes, 20, start=40)
        assert values(await read(consumer, 20)) == list(range(40, 60))


async def test_a_leader_that_has_fallen_silent_is_left_when_metadata_names_another(
    three_nodes: ScriptedCluster,
) -> None:
    fill(three_nodes, 5)
    silent = False

    async def fetch(node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
        return None if silent and node_id == 1 else await three_nodes.fetch(node_id, request)

    three_nodes.on_fetch = fetch
    async with consumer_on(three_nodes, "t", fetch_max_wait_ms=50) as consumer:
        await read(consumer, 5)
        silent = True
        three_nodes.elect(0, leader=3)
        fill(three_nodes, 5, start=5)
        assert values(await read(consumer, 5)) == list(range(5, 10))


async def test_damage_is_fetched_again_and_then_reported_and_never_handed_out(cluster: ScriptedCluster) -> None:
    fill(cluster, 20)
    whole = cluster.logs[0].entries[1]
    damaged = whole[:150] + bytes([whole[150] ^ 1]) + whole[151:]
    cluster.logs[0].entries[1] = damaged
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=1024) as consumer:
        assert values(await read(consumer, 10)) == list(range(10))
        with pytest.raises(CorruptRecordError, match="checksum"):
            await read(consumer, 1)
        cluster.logs[0].entries[1] = whole
        assert values(await read(consumer, 10)) == list(range(10, 20))


async def test_a_long_backlog_of_some_partitions_does_not_keep_the_others_waiting() -> None:
    cluster = ScriptedCluster(nodes=1, partitions=4)
    await cluster.start()
    for partition in range(4):
        fill(cluster, 200, partition=partition)

    async def only_the_first(node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
        response = await cluster.fetch(node_id, request)
        for full in [result for result in response.results if result.entries][1:]:
            del full.entries[:]
        return response

    cluster.on_fetch = only_the_first
    cluster.on_session = lambda request: error(Code.TOO_MANY_FETCH_SESSIONS)  # In one, the node sees to it.
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=2000, max_poll_records=10) as consumer:
        records = await read(consumer, 800)
    first_seen = {record.partition: number for number, record in reversed(list(enumerate(records)))}
    assert max(first_seen.values()) < 400, first_seen
    await cluster.stop()


async def test_what_comes_before_the_damage_in_one_answer_is_handed_out(cluster: ScriptedCluster) -> None:
    fill(cluster, 30)
    damaged = bytearray(cluster.logs[0].entries[1])
    damaged[150] ^= 1
    cluster.logs[0].entries[1] = bytes(damaged)
    async with consumer_on(cluster, "t") as consumer:
        assert values(await read(consumer, 10)) == list(range(10))
        with pytest.raises(CorruptRecordError, match=r"t-0 at offset 10: .*checksum.*seek beyond"):
            await read(consumer, 1)
        await consumer.seek(TP, 20)
        assert values(await read(consumer, 10)) == list(range(20, 30))


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 10), ("latest", 30)])
async def test_a_position_below_the_log_start_is_reset_as_configured(
    cluster: ScriptedCluster, reset: Any, expected: int
) -> None:
    fill(cluster, 30)
    cluster.logs[0].log_start = 10
    async with consumer_on(cluster, "t", auto_offset_reset=reset, max_poll_records=1) as consumer:
        await consumer.seek(TP, 3)
        async with asyncio.timeout(30):
            while not (polled := await consumer.poll(timeout_ms=20)) and await consumer.position(TP) == 3:
                continue
        if not polled:
            fill(cluster, 10, start=30)
            polled = {TP: await read(consumer, 1)}
        assert values(polled[TP]) == [expected]


async def test_without_a_reset_the_application_is_told_the_range(cluster: ScriptedCluster) -> None:
    fill(cluster, 30)
    cluster.logs[0].log_start = 10
    async with consumer_on(cluster, "t", auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError, match="t-0 has no position"):
            await consumer.poll(timeout_ms=30_000)
        await consumer.seek(TP, 3)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 3 of t-0 .* the log has 10 to 29, and 30"):
            await consumer.poll(timeout_ms=30_000)
        await consumer.seek(TP, 10)
        assert values(await read(consumer, 20)) == list(range(10, 30))


async def test_a_new_leader_that_does_not_know_the_end_yet_makes_nobody_start_over(cluster: ScriptedCluster) -> None:
    fill(cluster, 20)
    async with consumer_on(cluster, "t", fetch_max_wait_ms=20) as consumer:
        await read(consumer, 20)
        answered = 0

        async def behind(node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
            nonlocal answered
            answered += 1
            if answered > 3:
                return await cluster.fetch(node_id, request)
            response = data_plane_pb2.FetchResponse()
            result = response.results.add(topic_id=TOPIC_ID, partition=0, high_watermark=10, log_start_offset=0)
            result.error.CopyFrom(error(Code.OFFSET_OUT_OF_RANGE, retriable=False))
            return response

        cluster.on_fetch = behind
        async with asyncio.timeout(30):
            while not answered:
                assert await consumer.poll(timeout_ms=5) == {}
        fill(cluster, 5, start=20)
        assert values(await read(consumer, 5)) == list(range(20, 25))
        assert answered > 3


async def test_paused_partitions_stay_silent_and_others_go_on() -> None:
    cluster = ScriptedCluster(partitions=2)
    await cluster.start()
    fill(cluster, 10, partition=0)
    fill(cluster, 10, partition=1, start=100)
    async with consumer_on(cluster, "t") as consumer:
        consumer.pause(TP)
        assert consumer.paused() == {TP}
        assert values(await read(consumer, 10)) == list(range(100, 110))
        assert await consumer.poll(timeout_ms=50) == {}
        consumer.resume(TP)
        assert values(await read(consumer, 10)) == list(range(10))
    await cluster.stop()


async def test_fetching_ahead_is_bounded(cluster: ScriptedCluster) -> None:
    fill(cluster, 2000, per_batch=10)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=8192, fetch_max_bytes=16384) as consumer:
        await read(consumer, 10)
        queued = consumer._core.assignment.queued_bytes()
        assert queued <= 2 * 8192 + 4096
        assert values(await read(consumer, 1990)) == list(range(10, 2000))
    assert max(request.max_bytes for request in cluster.fetches) <= 16384


async def test_when_the_bound_on_all_partitions_was_reached_taking_from_any_goes_on() -> None:
    cluster = ScriptedCluster(partitions=6)
    await cluster.start()
    for partition in range(6):
        fill(cluster, 500, partition=partition)
    options = {"max_partition_fetch_bytes": 8192, "fetch_max_bytes": 6 * 8192, "fetch_max_wait_ms": 20}
    async with consumer_on(cluster, "t", **options) as consumer:
        assert len(await read(consumer, 3000)) == 3000
    await cluster.stop()


async def test_partitions_that_a_topic_gains_are_read_from_their_beginning(cluster: ScriptedCluster) -> None:
    async with consumer_on(cluster, "t", auto_offset_reset="latest", metadata_max_age_ms=50) as consumer:
        await consumer.poll(timeout_ms=20)
        cluster.logs.append(type(cluster.logs[0])(leader=1))
        fill(cluster, 10, partition=1)
        assert values(await read(consumer, 10)) == list(range(10))


async def test_offsets_are_asked_of_the_leaders(three_nodes: ScriptedCluster) -> None:
    fill(three_nodes, 25)
    three_nodes.logs[0].log_start = 5
    three_nodes.shown_leaders = [(2, 1)]  # Metadata is wrong; the contacted node has a newer one.
    three_nodes.elect(0, leader=3)
    async with consumer_on(three_nodes) as consumer:
        assert await consumer.beginning_offsets([TP]) == {TP: 5}
        assert await consumer.end_offsets([TP]) == {TP: 25}
        assert await consumer.partitions_for_topic("t") == {0}


async def test_a_close_between_an_answer_and_its_decoding_is_no_failure(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 10)
    gc.collect()  # Objects that earlier tests have left are reported when they are collected, which need not be here.
    caplog.clear()
    consumer = AsyncConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    async with asyncio.timeout(30):
        while not consumer._core.fetcher._arrived:  # noqa: ASYNC110 - decoding is the next step but one
            await asyncio.sleep(0)
    await consumer.close()
    assert [record.getMessage() for record in caplog.records] == []


async def test_iteration_ends_when_nothing_comes_for_long_enough(cluster: ScriptedCluster) -> None:
    fill(cluster, 12)
    async with consumer_on(cluster, "t", consumer_timeout_ms=1_000, value_deserializer=int) as consumer:
        await until_fetched(consumer, 12)
        assert [record.value async for record in consumer] == list(range(12))


async def test_mistakes_are_told_in_one_line_and_at_once(cluster: ScriptedCluster) -> None:
    with pytest.raises(IllegalArgumentError, match="did you mean 'auto_offset_reset'"):
        AsyncConsumer("t", auto_offset_rest="latest")  # type: ignore[call-arg]
    with pytest.raises(IllegalArgumentError, match="choose earliest, latest or none"):
        AsyncConsumer("t", auto_offset_reset="first")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="which is not host:port"):
        AsyncConsumer("t", bootstrap_servers="127.0.0.1")
    async with consumer_on(cluster) as consumer:
        with pytest.raises(IllegalStateError, match="nothing to read: give it topics, subscribe, or call assign"):
            await consumer.poll()
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' does not exist"):
            await consumer.assign([TopicPartition("nope", 0)])
        with pytest.raises(InvalidPartitionsError, match="topic 't' has no partition 4: it has 0 to 0"):
            await consumer.assign([TopicPartition("t", 4)])
        with pytest.raises(InvalidPartitionsError, match="no partition 4"):
            await consumer.end_offsets([TopicPartition("t", 4)])
        await consumer.assign([TP])
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            await consumer.seek(TopicPartition("t", 1), 0)
        with pytest.raises(IllegalArgumentError, match="offset is -5"):
            await consumer.seek(TP, -5)
        with pytest.raises(IllegalStateError, match="commit needs a consumer group"):
            await consumer.commit()
