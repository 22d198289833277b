"""Habits of kafka-python that a user expects of a consumer, and the ways in which they could go wrong."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_cluster import TOPIC_ID, Code, ScriptedCluster, error
from scripted_reading import TP, consumer_on, fill, read, until_fetched, values

from quorumlog.sdk.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import Codec

P1 = TopicPartition("t", 1)


@asynccontextmanager
async def several(partitions: int, nodes: int = 1) -> AsyncIterator[ScriptedCluster]:
    made = ScriptedCluster(nodes=nodes, partitions=partitions)
    await made.start()
    yield made
    await made.stop()


async def test_an_idle_session_asks_and_answers_in_a_few_bytes() -> None:
    async with several(1000) as cluster, consumer_on(cluster, "t", fetch_max_wait_ms=20) as consumer:
        await consumer.poll(timeout_ms=300)
        while len(cluster.raw_fetches) < 4:
            await consumer.poll(timeout_ms=50)
        first, *rest = cluster.raw_fetches
        assert len(first.partitions) == 1000 and first.ByteSize() > 25_000
        assert all(request.ByteSize() < 30 for request in rest)
        assert [request.session_epoch for request in cluster.raw_fetches] == list(range(1, 2 + len(rest)))


async def test_a_session_says_what_a_seek_and_a_pause_change_and_nothing_else() -> None:
    async with several(3) as cluster, consumer_on(cluster, "t", fetch_max_wait_ms=5000) as consumer:
        for partition in range(3):
            fill(cluster, 10, partition=partition)
        await read(consumer, 30)
        count = len(cluster.raw_fetches)
        consumer.pause(P1)
        await consumer.seek(TP, 5)
        assert values(await read(consumer, 5)) == [5, 6, 7, 8, 9]
        changed = [request for request in list(cluster.raw_fetches)[count:] if request.partitions]
        (named,) = changed[0].partitions
        assert (named.partition, named.fetch_offset) == (0, 5)
        assert [gone.partition for gone in changed[0].forgotten] == [1]
        assert [len(request.partitions) for request in changed] == [1]


async def test_a_session_that_the_node_does_not_know_begins_anew_unseen(cluster: ScriptedCluster) -> None:
    fill(cluster, 300)
    count = 0

    def refuse_some(request: data_plane_pb2.FetchRequest) -> Any:
        nonlocal count
        count += 1
        return error(Code.INVALID_FETCH_SESSION_EPOCH) if request.session_epoch > 1 and count % 3 == 0 else None

    cluster.on_session = refuse_some
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=2048) as consumer:
        assert values(await read(consumer, 300)) == list(range(300))
    assert len([1 for request in cluster.raw_fetches if request.session_epoch == 1]) > 3


async def test_a_node_without_room_for_sessions_is_asked_without_one(cluster: ScriptedCluster) -> None:
    cluster.on_session = lambda request: error(Code.TOO_MANY_FETCH_SESSIONS)
    fill(cluster, 300)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=2048) as consumer:
        assert values(await read(consumer, 300)) == list(range(300))
    assert [request.session_epoch for request in cluster.raw_fetches][:3] == [1, 0, 0]


async def test_a_broken_connection_loses_and_doubles_nothing(cluster: ScriptedCluster) -> None:
    fill(cluster, 200)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=2048, fetch_max_wait_ms=50) as consumer:
        seen: list[int] = []
        for turn in range(4):
            seen += values(await read(consumer, 50 if turn else 40))
            await cluster.stop_node(1)
            await cluster.start_node(1)
        seen += values(await read(consumer, 10))
        assert seen == list(range(200))


async def test_no_node_starves_because_another_has_many_idle_partitions() -> None:
    async with several(80, nodes=2) as cluster:
        late = 78 if cluster.logs[78].leader == 2 else 79
        options = {"fetch_max_bytes": 8 << 20, "max_partition_fetch_bytes": 1 << 20, "fetch_max_wait_ms": 60_000}
        async with consumer_on(cluster, "t", **options) as consumer:
            await consumer.poll(timeout_ms=200)
            for partition in (late, 79 - (late - 78)):
                fill(cluster, 10, partition=partition)
            assert len(await read(consumer, 20, limit_s=30)) == 20, "in half of the time that a fetch waits"


async def test_breaking_off_an_iteration_loses_nothing(cluster: ScriptedCluster) -> None:
    fill(cluster, 100)
    async with consumer_on(cluster, "t", consumer_timeout_ms=2000) as consumer:
        await until_fetched(consumer, 100)
        seen: list[int] = []
        for stop in (3, 10, 11, 60):
            async for record in consumer:
                seen += values([record])
                assert await consumer.position(TP) == record.offset + 1
                if len(seen) == stop:
                    break
        assert values((await consumer.poll(timeout_ms=2000, max_records=5))[TP]) == [60, 61, 62, 63, 64]
        async for record in consumer:
            seen += values([record])
            if record.offset == 70:
                break
        assert seen == [*range(60), *range(65, 71)]
        table = await consumer.poll_arrow(timeout_ms=2000)
        assert table.column("offset")[0].as_py() == 71


async def test_seeking_one_partition_amid_an_iteration_leaves_the_others_alone() -> None:
    async with several(2) as cluster:
        fill(cluster, 50, partition=0)
        fill(cluster, 50, partition=1)
        async with consumer_on(cluster, "t", consumer_timeout_ms=30_000, max_poll_records=100) as consumer:
            await until_fetched(consumer, 100)
            seen: dict[int, list[int]] = {0: [], 1: []}
            sought = False
            async for record in consumer:
                seen[record.partition].append(record.offset)
                if not sought and record.offset == 20:
                    sought = True
                    await consumer.seek(TopicPartition("t", record.partition), 0)
                    again = record.partition
                if sum(map(len, seen.values())) == 21 + 50 + 50:
                    break
            assert seen[again] == [*range(21), *range(50)]
            assert seen[1 - again] == list(range(50))


async def test_pausing_amid_an_iteration_takes_effect_at_once_and_loses_nothing() -> None:
    async with several(2) as cluster:
        fill(cluster, 20, partition=0)
        async with consumer_on(cluster, "t", consumer_timeout_ms=200) as consumer:
            await until_fetched(consumer, 20)
            async for record in consumer:
                if record.offset == 4:
                    consumer.pause(TP)
            assert await consumer.position(TP) == 5
            consumer.resume(TP)
            assert [record.offset async for record in consumer] == list(range(5, 20))


async def test_a_pause_keeps_what_was_fetched_and_a_seek_while_paused_holds() -> None:
    async with several(1) as cluster:
        fill(cluster, 20)
        async with consumer_on(cluster, "t") as consumer:
            await until_fetched(consumer, 20)
            consumer.pause(TP)
            count = len(cluster.raw_fetches)
            assert await consumer.poll(timeout_ms=30) == {}
            consumer.resume(TP)
            assert values((await consumer.poll(timeout_ms=0))[TP]) == list(range(20))
            named = [request for request in list(cluster.raw_fetches)[count:] if request.partitions]
            assert all(request.partitions[0].fetch_offset == 20 for request in named)
            consumer.pause(TP)
            await consumer.seek(TP, 15)
            assert await consumer.poll(timeout_ms=50) == {}
            assert await consumer.position(TP) == 15
            consumer.resume(TP)
            assert values(await read(consumer, 5)) == [15, 16, 17, 18, 19]


async def test_paused_partitions_full_of_data_do_not_starve_the_others() -> None:
    async with several(5) as cluster:
        for partition in range(5):
            fill(cluster, 300, partition=partition)
        options = {"max_partition_fetch_bytes": 16_384, "fetch_max_bytes": 4 * 16_384, "fetch_max_wait_ms": 20}
        async with consumer_on(cluster, "t", **options) as consumer:
            await until_fetched(consumer, 300)
            paused = [TopicPartition("t", number) for number in range(4)]
            consumer.pause(*paused)
            assert len([r for r in await read(consumer, 300) if r.partition == 4]) == 300
            consumer.resume(*paused)
            rest = await read(consumer, 1200)
            for number in range(4):
                offsets = [record.offset for record in rest if record.partition == number]
                assert offsets == list(range(300))


async def test_poll_with_no_time_returns_at_once_what_is_there(cluster: ScriptedCluster) -> None:
    async with consumer_on(cluster, "t") as consumer:
        assert await consumer.poll(timeout_ms=0) == {}
        fill(cluster, 5)
        await until_fetched(consumer, 5)
        assert values((await consumer.poll())[TP]) == [0, 1, 2, 3, 4]


async def test_partitions_take_turns_when_a_poll_is_smaller_than_what_is_there() -> None:
    async with several(4) as cluster:
        for partition in range(4):
            fill(cluster, 100, partition=partition)
        async with consumer_on(cluster, "t", max_poll_records=10) as consumer:
            await until_fetched(consumer, 400)
            first = [tp.partition for _ in range(8) for tp in await consumer.poll(timeout_ms=100)]
            assert sorted(first[:4]) == [0, 1, 2, 3]


async def test_a_deserializer_that_fails_loses_nothing(cluster: ScriptedCluster) -> None:
    fill(cluster, 20)
    poison = True

    def deserialize(value: bytes) -> int:
        if poison and value == b"7":
            raise ValueError("no number")
        return int(value)

    async with consumer_on(cluster, "t", value_deserializer=deserialize, consumer_timeout_ms=300) as consumer:
        for _ in range(2):
            with pytest.raises(ValueError, match="no number"):
                await consumer.poll(timeout_ms=30_000)
            assert await consumer.position(TP) == 0
        with pytest.raises(ValueError, match="no number"):
            async for _ in consumer:
                pass
        poison = False
        assert [record.value async for record in consumer] == list(range(20))


async def test_a_failed_partition_is_told_of_while_others_have_data_all_the_time() -> None:
    async with several(2) as cluster:
        fill(cluster, 2000, partition=0)
        fill(cluster, 10, partition=1)
        cluster.logs[1].log_start = 5
        async with consumer_on(cluster, "t", auto_offset_reset="none", max_poll_records=1) as consumer:
            await consumer.assign([TP, P1])
            await consumer.seek(TP, 0)
            await consumer.seek(P1, 2)
            with pytest.raises(OffsetOutOfRangeError, match=r"offset 2 of t-1 .* the log has 5 to 9, and 10"):
                await read(consumer, 1000)
            await consumer.seek(P1, 5)
            while P1 not in (polled := await consumer.poll(timeout_ms=30_000)):
                assert polled
            assert values(polled[P1]) == [5]


async def test_a_log_start_that_moves_past_a_reader_is_followed_by_policy(cluster: ScriptedCluster) -> None:
    fill(cluster, 1000)
    async with consumer_on(cluster, "t", max_partition_fetch_bytes=1024, max_poll_records=10) as consumer:
        seen = values(await read(consumer, 10))
        cluster.logs[0].log_start = 600
        while seen[-1] < 999:
            seen += values(await read(consumer, 1))
        # What had been fetched ahead may still come; then the log continues where it starts now.
        (jump,) = [(a, b) for a, b in itertools.pairwise(seen) if b != a + 1]
        assert jump[0] < 200 and jump[1] == 600


async def test_a_deleted_topic_is_reported_and_one_created_anew_is_read_from_its_beginning(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorumlog.sdk.consumer.fetcher._UNKNOWN_TOPIC_S", 0.3)
    fill(cluster, 30)
    async with consumer_on(cluster, "t", auto_offset_reset="latest", fetch_max_wait_ms=20) as consumer:
        await consumer.seek(TP, 20)
        assert values(await read(consumer, 10)) == list(range(20, 30))

        async def gone(node_id: int, request: data_plane_pb2.FetchRequest) -> data_plane_pb2.FetchResponse | None:
            response = data_plane_pb2.FetchResponse()
            for wanted in request.partitions:
                if wanted.topic_id == TOPIC_ID:
                    result = response.results.add(topic_id=TOPIC_ID, partition=wanted.partition)
                    result.error.CopyFrom(error(Code.UNKNOWN_TOPIC_OR_PARTITION, retriable=False))
            return response if response.results else await cluster.fetch(node_id, request)

        cluster.on_fetch = gone
        with pytest.raises(UnknownTopicOrPartitionError):
            await read(consumer, 1)
        cluster.logs[0] = type(cluster.logs[0])(leader=1)
        fill(cluster, 40, start=1000)
        cluster.topic_id = b"another-topic-id"
        assert values(await read(consumer, 40)) == list(range(1000, 1040))


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
async def test_memory_is_bounded_by_what_batches_become_when_they_are_decompressed(
    cluster: ScriptedCluster, codec: Codec
) -> None:
    fill(cluster, 2000, per_batch=20, codec=codec, size=10_000)
    compressed = sum(map(len, cluster.logs[0].entries))
    assert compressed < 1 << 20
    limit = 2 << 20
    async with consumer_on(
        cluster, "t", fetch_max_bytes=limit, max_partition_fetch_bytes=limit, max_poll_records=20
    ) as consumer:
        held = 0
        for _ in range(100):
            assert await consumer.poll(timeout_ms=30_000)
            states = consumer._core.assignment.states.values()
            columns = [rows.columns for state in states for rows in state.queued]
            held = max(held, sum(batch.get_total_buffer_size() for batch in columns))
        assert 0 < held <= limit + 20 * 10_100 + compressed


async def test_names_of_kafka_python_are_there(cluster: ScriptedCluster) -> None:
    fill(cluster, 3)
    async with consumer_on(cluster) as consumer:
        assert consumer.assignment() == set()
        assert await consumer.topics() == {"t"}
        assert await consumer.partitions_for_topic("t") == {0}
        await consumer.assign([TP])
        assert consumer.assignment() == {TP}
        await read(consumer, 3)
        assert consumer.highwater(TP) == 3
