"""The producer against a scripted cluster: what it does about errors, losses, silence and moving leaders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest
from scripted_cluster import Code, LoseStream, Produced, ScriptedCluster, StaySilent, error

from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.errors import (
    BufferExhaustedError,
    ClientClosedError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidTimestampError,
    NoBrokersAvailableError,
    QuorumlogError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.records.record_batch import decode
from quorumlog.v1 import errors_pb2


@asynccontextmanager
async def producer_on(cluster: ScriptedCluster, **options: Any) -> AsyncIterator[AsyncProducer]:
    """A producer of single-record batches, closed afterwards without waiting for what is stuck."""
    options = {"linger_ms": 0, "batch_size": 1, "bootstrap_servers": cluster.bootstrap_servers} | options
    producer = AsyncProducer(**options)
    try:
        yield producer
    finally:
        await producer.close(timeout=0.2)


async def send_many(producer: AsyncProducer, count: int, start: int = 0) -> list[RecordFuture]:
    return [await producer.send("t", b"%d" % i) for i in range(start, start + count)]


def values_in(cluster: ScriptedCluster, partition: int = 0) -> list[int]:
    return [
        int(value) for entry in cluster.logs[partition].entries for value in decode(entry).columns.column(1).to_pylist()
    ]


async def settled(*handles: RecordFuture, limit_s: float = 60.0) -> list[Any]:
    async with asyncio.timeout(limit_s):
        return await asyncio.gather(*handles, return_exceptions=True)


async def test_records_are_acknowledged_with_their_place(cluster: ScriptedCluster) -> None:
    async with producer_on(cluster, batch_size=100_000, linger_ms=5) as producer:
        handles = [await producer.send("t", b"%d" % i, timestamp_ms=1000 + i) for i in range(10)]
        metadata = await settled(*handles)
        assert [(m.topic, m.partition, m.offset, m.timestamp) for m in metadata] == [
            ("t", 0, i, 1000 + i) for i in range(10)
        ]
    assert len(cluster.logs[0].entries) == 1


@pytest.mark.parametrize(
    "answer",
    [
        error(Code.SERVER_BUSY),
        error(Code.NOT_ENOUGH_REPLICAS),
        error(Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, definite=False),
        error(Code.LEADER_NOT_AVAILABLE),
        error(Code.STORAGE_ERROR),
        error(Code.REQUEST_TIMED_OUT, definite=False),
    ],
    ids=lambda answer: Code.Name(answer.code),
)
async def test_retriable_errors_go_unnoticed_and_order_is_kept(
    cluster: ScriptedCluster, answer: errors_pb2.Error
) -> None:
    async def refuse_some(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        return answer if produced.arrival % 3 == 0 and produced.arrival < 30 else None

    cluster.on_produce = refuse_some
    async with producer_on(cluster) as producer:
        metadata = await settled(*await send_many(producer, 40))
    assert [m.offset for m in metadata] == list(range(40))
    assert values_in(cluster) == list(range(40))


@pytest.mark.parametrize("appended", [True, False])
async def test_a_lost_stream_loses_and_doubles_nothing(cluster: ScriptedCluster, appended: bool) -> None:
    async def lose_some(scripted: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if produced.arrival in (3, 4, 11, 25):
            if appended:
                scripted.logs[0].append(produced.batch)
            raise LoseStream
        return None

    cluster.on_produce = lose_some
    async with producer_on(cluster) as producer:
        metadata = await settled(*await send_many(producer, 30))
    assert values_in(cluster) == list(range(30))
    assert [m.offset for m in metadata] == list(range(30))


async def test_a_new_leader_that_is_named_is_followed_at_once(three_nodes: ScriptedCluster) -> None:
    three_nodes.shown_leaders = [(1, 1)]  # Metadata lags: only the hint is correct.
    async with producer_on(three_nodes, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as producer:
        await settled(*await send_many(producer, 3))
        three_nodes.elect(0, leader=3)
        begun = time.monotonic()
        await settled(*await send_many(producer, 3, start=3))
        assert time.monotonic() - begun < 30, "without the pause that comes before another attempt"
    assert values_in(three_nodes) == list(range(6))
    assert three_nodes.arrivals[-1].node_id == 3


async def test_when_the_leaders_node_dies_the_other_replicas_name_the_new_one(three_nodes: ScriptedCluster) -> None:
    three_nodes.shown_leaders = [(1, 1)]
    async with producer_on(three_nodes) as producer:
        await settled(*await send_many(producer, 3))
        await three_nodes.stop_node(1)
        three_nodes.elect(0, leader=2)
        begun = time.monotonic()
        await settled(*await send_many(producer, 20, start=3))
        assert time.monotonic() - begun < 20
    assert values_in(three_nodes) == list(range(23))


async def test_a_first_send_outlives_nodes_that_are_away_longer_than_a_topic_may_be_unknown(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorumlog.sdk.cluster.cluster._UNKNOWN_TOPIC_GRACE_S", 0)
    async with producer_on(cluster) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("nope", b"x")
        await cluster.stop_node(1)
        node = producer._core.cluster.connection(cluster.bootstrap_servers)
        sending = asyncio.create_task(producer.send("t", b"0"))
        async with asyncio.timeout(30):
            while not node.suspect and not sending.done():  # noqa: ASYNC110 - until an attempt has failed
                await asyncio.sleep(0.01)
        await cluster.start_node(1)
        async with asyncio.timeout(30):
            await (await sending)
    assert values_in(cluster) == [0]


async def test_a_leader_that_has_fallen_silent_is_left_when_a_replica_names_another(
    three_nodes: ScriptedCluster,
) -> None:
    async def silent_one(scripted: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if produced.node_id == 1:
            raise StaySilent
        return None

    three_nodes.shown_leaders = [(1, 1)]  # The controller is silent too: its image stays as it was.
    async with producer_on(three_nodes) as producer:
        await settled(*await send_many(producer, 3))
        three_nodes.on_produce = silent_one
        handles = await send_many(producer, 3, start=3)
        await asyncio.wait_for(_until(lambda: len(three_nodes.arrivals) >= 6), 30)
        three_nodes.elect(0, leader=2)
        await settled(*handles, limit_s=20)
    assert values_in(three_nodes) == list(range(6))


async def test_a_leader_that_has_fallen_silent_is_left_when_metadata_names_another(
    three_nodes: ScriptedCluster,
) -> None:
    async def silent_one(scripted: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if produced.node_id == 1:
            raise StaySilent
        return None

    async with producer_on(three_nodes) as producer:
        await settled(*await send_many(producer, 3))
        three_nodes.on_produce = silent_one
        handles = await send_many(producer, 3, start=3)
        await asyncio.wait_for(_until(lambda: len(three_nodes.arrivals) >= 6), 30)
        three_nodes.elect(0, leader=2)
        await settled(*handles, limit_s=20)
    assert values_in(three_nodes) == list(range(6))


@pytest.mark.scenario("26")
async def test_a_send_that_may_have_happened_is_never_reported_as_a_definite_failure(
    cluster: ScriptedCluster,
) -> None:
    """A send times out, its retries are refused definitely, and only then the first attempt takes effect."""
    first: list[Produced] = []

    async def silence_then_refuse(scripted: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if not first:
            first.append(produced)
            raise StaySilent
        return error(Code.INVALID_TIMESTAMP, retriable=False)

    cluster.on_produce = silence_then_refuse
    async with producer_on(cluster, request_timeout_ms=200, delivery_timeout_ms=2_000) as producer:
        begun = time.monotonic()
        (failure,) = await settled(await producer.send("t", b"0"))
    assert 1.9 < time.monotonic() - begun < 20
    assert isinstance(failure, QuorumlogError)
    assert not failure.definite
    assert len(cluster.arrivals) > 2, "it was sent again in the meantime"
    cluster.logs[0].append(first[0].batch)
    assert values_in(cluster) == [0]


@pytest.mark.scenario("26")
async def test_when_the_first_attempt_takes_effect_in_time_its_send_succeeds(cluster: ScriptedCluster) -> None:
    async def refuse_until_late(scripted: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if produced.arrival == 0:
            raise StaySilent
        if produced.arrival < 4:
            return error(Code.NOT_ENOUGH_REPLICAS)
        if produced.arrival == 4:
            scripted.logs[0].append(scripted.arrivals[0].batch)  # The straggler gets there first.
        return None

    cluster.on_produce = refuse_until_late
    async with producer_on(cluster, request_timeout_ms=200) as producer:
        metadata = await settled(*await send_many(producer, 2))
    assert [m.offset for m in metadata] == [0, 1]
    assert values_in(cluster) == [0, 1]


async def test_a_definite_refusal_of_the_first_attempt_is_reported_at_once(cluster: ScriptedCluster) -> None:
    async def refuse_seven(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        refused = b"7" in decode(produced.batch).columns.column(1).to_pylist()
        return error(Code.INVALID_TIMESTAMP, retriable=False) if refused else None

    cluster.on_produce = refuse_seven
    async with producer_on(cluster) as producer:
        outcomes = await settled(*await send_many(producer, 12))
    assert isinstance(outcomes[7], InvalidTimestampError)
    assert outcomes[7].definite
    assert [m.offset for i, m in enumerate(outcomes) if i != 7] == list(range(11))
    assert values_in(cluster) == [i for i in range(12) if i != 7]


async def test_a_log_that_has_forgotten_the_producer_is_written_to_under_a_fresh_identity(
    cluster: ScriptedCluster,
) -> None:
    async with producer_on(cluster) as producer:
        await settled(*await send_many(producer, 3))
        cluster.logs[0].next_sequence.clear()
        cluster.logs[0].remembered.clear()
        await settled(*await send_many(producer, 3, start=3))
    assert values_in(cluster) == list(range(6))
    assert len({header.producer_id for header in cluster.logs[0].headers()}) == 2


async def test_what_was_never_sent_fails_definitely_when_its_time_is_over(cluster: ScriptedCluster) -> None:
    cluster.logs[0].leader = -1
    async with producer_on(cluster, delivery_timeout_ms=300) as producer:
        (failure,) = await settled(await producer.send("t", b"0"))
    assert isinstance(failure, RequestTimedOutError)
    assert failure.definite


async def test_up_to_five_batches_fly_and_no_more(cluster: ScriptedCluster) -> None:
    flying = most = 0

    async def slowly(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        nonlocal flying, most
        # Requests wait in the stream while one is being looked at; what the client has not sent cannot be looked at.
        most = max(most, len(cluster.arrivals) - len(cluster.logs[0].entries))
        return None

    cluster.on_produce = slowly
    async with producer_on(cluster) as producer:
        await settled(*await send_many(producer, 60))
    assert 1 <= most <= 5
    assert values_in(cluster) == list(range(60))


async def test_one_request_carries_the_batches_of_several_partitions() -> None:
    cluster = ScriptedCluster(partitions=4)
    await cluster.start()
    async with producer_on(cluster, batch_size=100_000, linger_ms=20) as producer:
        handles = [await producer.send("t", b"%d" % i, partition=i % 4) for i in range(40)]
        await settled(*handles)
    assert max(len(request.batches) for request in cluster.requests) == 4
    assert [values_in(cluster, p) for p in range(4)] == [list(range(p, 40, 4)) for p in range(4)]
    await cluster.stop()


@pytest.mark.parametrize("acks", [0, 1])
async def test_fewer_acks_mean_no_sequences(cluster: ScriptedCluster, acks: int) -> None:
    async with producer_on(cluster, acks=acks) as producer:
        metadata = await settled(*await send_many(producer, 5))
        await asyncio.wait_for(_until(lambda: len(values_in(cluster)) == 5), 30)
    assert [m.offset for m in metadata] == ([-1] * 5 if acks == 0 else list(range(5)))
    assert {header.producer_id for header in cluster.logs[0].headers()} == {-1}
    assert {request.acks for request in cluster.requests} == {acks}


async def test_full_memory_makes_senders_wait_and_then_says_so(cluster: ScriptedCluster) -> None:
    async def never(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        raise StaySilent

    cluster.on_produce = never
    options = {"buffer_memory": 300_000, "max_request_size": 200_000, "batch_size": 50_000, "max_block_ms": 200}
    async with producer_on(cluster, **options) as producer:
        with pytest.raises(BufferExhaustedError, match="stayed full for"):
            await asyncio.gather(*(producer.send("t", b"x" * 45_000) for _ in range(10)))


async def test_memory_freed_by_acknowledgements_lets_waiting_senders_go_on(cluster: ScriptedCluster) -> None:
    options = {"buffer_memory": 150_000, "max_request_size": 100_000, "batch_size": 50_000}
    async with producer_on(cluster, **options) as producer:
        handles = [await producer.send("t", b"x" * 40_000) for _ in range(50)]
        metadata = await settled(*handles)
    assert [m.offset for m in metadata] == list(range(50))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
async def test_arrow_tables_arrive_in_order_whatever_the_codec(cluster: ScriptedCluster, compression: str) -> None:
    table = pa.table({"value": [b"%d" % i for i in range(30_000)], "key": [b"k"] * 30_000})
    async with producer_on(cluster, compression_type=compression, batch_size=20_000) as producer:
        placed = await (await producer.send_arrow("t", table))
    assert sum(batch.record_count for batch in placed) == 30_000
    assert [batch.base_offset for batch in placed] == [
        sum(batch.record_count for batch in placed[:i]) for i in range(len(placed))
    ]
    assert values_in(cluster) == list(range(30_000))


async def test_small_tables_share_batches_and_each_is_told_where_its_rows_went(cluster: ScriptedCluster) -> None:
    tables = [pa.table({"value": [b"%d" % (10 * each + row) for row in range(10)]}) for each in range(50)]
    async with producer_on(cluster, batch_size=100_000) as producer:
        sent = [await producer.send_arrow("t", table) for table in tables]
        placed = [await each for each in sent]
    assert [(part.base_offset, part.record_count) for (part,) in placed] == [(10 * each, 10) for each in range(50)]
    assert values_in(cluster) == list(range(500))
    assert len(cluster.logs[0].headers()) < 50


async def test_no_batch_is_larger_than_the_topic_takes(cluster: ScriptedCluster) -> None:
    cluster.configs = {"max.message.bytes": "6000"}
    table = pa.table({"value": [b"%0100d" % number for number in range(500)]})
    async with producer_on(cluster, batch_size=100_000) as producer:
        await (await producer.send_arrow("t", table))
        await settled(*[await producer.send("t", b"%0100d" % number) for number in range(500, 1000)])
    assert values_in(cluster) == list(range(1000))
    assert max(map(len, cluster.logs[0].entries)) <= 6_000


async def test_on_a_compacted_topic_a_record_without_a_key_is_refused_before_it_is_sent(
    cluster: ScriptedCluster,
) -> None:
    cluster.configs = {"cleanup.policy": "compact"}
    async with producer_on(cluster) as producer:
        with pytest.raises(InvalidRecordError, match=r"topic 't' is compacted.*: give every record a key"):
            await producer.send("t", b"value")
        with pytest.raises(InvalidRecordError, match=r"topic 't' is compacted"):
            await producer.send_arrow("t", pa.table({"value": [b"1", b"2"], "key": [b"k", None]}))
        await settled(await producer.send("t", b"1", key=b"k"), await producer.send("t", None, key=b"k"))
    assert [header.attributes for header in cluster.logs[0].headers()] == [0, 0]


async def test_closing_flushes_and_what_is_stuck_fails_honestly(cluster: ScriptedCluster) -> None:
    async def never(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        raise StaySilent

    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
    sent = await producer.send("t", b"0")
    await producer.close()
    assert (await sent).offset == 0
    cluster.on_produce = never
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    stuck = await producer.send("t", b"1")
    await asyncio.wait_for(_until(lambda: len(cluster.arrivals) == 2), 30)
    await producer.close(timeout=0.05)
    (failure,) = await settled(stuck)
    assert isinstance(failure, ClientClosedError)
    assert not failure.definite
    with pytest.raises(ClientClosedError):
        await producer.send("t", b"2")


async def test_a_defect_in_the_sender_fails_whoever_waits_instead_of_keeping_them_waiting(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise TypeError("a defect")

    async with producer_on(cluster) as producer:
        await settled(*await send_many(producer, 1))
        monkeypatch.setattr("quorumlog.sdk.producer.batch.encode", broken)
        (failure,) = await settled(await producer.send("t", b"1"))
        assert isinstance(failure, QuorumlogError)
        with pytest.raises(IllegalStateError, match=r"has failed and accepts no more records: TypeError\('a defect'\)"):
            await producer.send("t", b"2")
        with pytest.raises(IllegalStateError):
            await producer.flush(timeout=5)


async def test_mistakes_are_told_in_one_line_and_at_once(cluster: ScriptedCluster) -> None:
    async with producer_on(cluster) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'nope' does not exist: create it first"):
            await producer.send("nope", b"v")
        with pytest.raises(InvalidPartitionsError, match="topic 't' has no partition 1: it has 0 to 0"):
            await producer.send("t", b"v", partition=1)
        with pytest.raises(RecordTooLargeError, match="more than max_request_size \\(1048576\\)"):
            await producer.send("t", b"v" * 1_100_000)
        with pytest.raises(RecordTooLargeError, match="a row takes"):
            await producer.send_arrow("t", pa.table({"value": [b"v" * 1_100_000]}))
        with pytest.raises(IllegalArgumentError, match="value is str, not bytes"):
            await producer.send("t", "text")
        for wrong in (-1, 1 << 63, 1.5):
            with pytest.raises(IllegalArgumentError, match=f"timestamp_ms is {wrong}"):
                await producer.send("t", b"v", timestamp_ms=wrong)  # type: ignore[arg-type]
        with pytest.raises(IllegalArgumentError, match="header 'h' is not a pair"):
            await producer.send("t", b"v", headers=["h"])  # type: ignore[list-item]
        handle = await producer.send("t", b"v")
        if not handle.done():
            with pytest.raises(QuorumlogError, match="await the handle"):
                handle.result()
    lost = AsyncProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    with pytest.raises(NoBrokersAvailableError, match=r"no quorumlog node answered at 127\.0\.0\.1:1"):
        await lost.send("t", b"v")
    await lost.close()


async def _until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the scripted servers
        await asyncio.sleep(0.005)


async def test_a_log_that_has_forgotten_the_producer_gets_a_fresh_identity_and_order_is_kept(
    cluster: ScriptedCluster,
) -> None:
    """It expired there, or was evicted, or the topic was created again."""
    async with producer_on(cluster) as producer:
        await settled(*await send_many(producer, 3))
        forgotten = cluster.logs[0].headers()[-1].producer_id

        async def forget(cluster: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
            if produced.header.producer_id == forgotten:
                return error(Code.UNKNOWN_PRODUCER_ID, retriable=False)
            return None

        cluster.on_produce = forget
        outcomes = await settled(*await send_many(producer, 20, start=3))
        assert [metadata.offset for metadata in outcomes] == list(range(3, 23))
    assert values_in(cluster) == list(range(23))
    fresh = [header for header in cluster.logs[0].headers() if header.producer_id != forgotten]
    assert [header.base_sequence for header in fresh] == list(range(20))
    assert len({header.producer_id for header in fresh}) == 1


async def test_what_may_be_in_a_log_that_has_forgotten_the_producer_fails_indefinitely_and_the_rest_goes_on(
    cluster: ScriptedCluster,
) -> None:
    lost: list[int] = []

    async def lose_then_forget(cluster: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if not lost:
            lost.append(produced.header.producer_id)
            raise LoseStream
        if produced.header.producer_id == lost[0]:
            return error(Code.UNKNOWN_PRODUCER_ID, retriable=False)
        return None

    cluster.on_produce = lose_then_forget
    async with producer_on(cluster, delivery_timeout_ms=2_000, max_in_flight=1) as producer:
        first = await producer.send("t", b"0")
        (outcome,) = await settled(first)
        assert isinstance(outcome, QuorumlogError)
        assert not outcome.definite
        (second,) = await settled(*await send_many(producer, 1, start=1))
        assert second.offset == 0
    assert values_in(cluster) == [1]


async def test_a_named_producer_that_loses_a_record_sends_none_after_it_and_does_not_claim_its_name_again(
    cluster: ScriptedCluster,
) -> None:
    """Another client may have claimed it in the meantime, and must not be fenced by a producer that is broken."""

    async def refuse_the_first(cluster: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        if produced.header.base_sequence == 0:
            return error(Code.INVALID_TIMESTAMP, retriable=False)
        return None

    cluster.on_produce = refuse_the_first
    claims = cluster.producer_ids
    async with producer_on(cluster, producer_name="etl") as producer:
        first, *others = await settled(*await send_many(producer, 4))
        assert isinstance(first, InvalidTimestampError)
        for other in others:
            assert isinstance(other, IllegalStateError)
            assert other.definite
            assert "named producer 'etl' has failed to deliver a record to t-0 and sends none after it" in other.message
        with pytest.raises(IllegalStateError, match="create it again"):
            await producer.send("t", b"more")
    assert cluster.producer_ids == claims + 1
    assert values_in(cluster) == []
