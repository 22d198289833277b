"""``send_many``: the records of a list, as if each were sent in turn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from scripted_cluster import Code, Produced, ScriptedCluster, error

from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.errors import (
    BufferExhaustedError,
    ClientClosedError,
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidRecordError,
    QuorumlogError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.producer.accumulator import TopicBuffers
from quorumlog.sdk.producer.async_producer import ProducerCore
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.delivery import ArrowFuture, BatchRows, Delivery, RecordFuture, RecordsFuture, SentRecords
from quorumlog.sdk.producer.record_intake import _MANY_KEYS
from quorumlog.sdk.records.record_batch import decode
from quorumlog.v1 import errors_pb2

#: Room for a few records of 3,000 bytes, each a batch of its own.
SMALL: dict[str, Any] = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1, "linger_ms": 0}
LIMIT_S = 60.0
#: Key, value, headers, timestamp.
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None, int]


class SilentLoop:
    """A loop that never runs: the test looks at batches before they are sent."""

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        pass


class Intake:
    """A producer without nodes, on a topic of several partitions."""

    def __init__(self, partitions: int, *, compacted: bool = False, **options: Any) -> None:
        self.core = ProducerCore(build_config(ProducerConfig, {"bootstrap_servers": "127.0.0.1:1", **options}))
        self.buffers = self.core.accumulator.topics["t"] = TopicBuffers("t")
        self.buffers.resize(partitions)
        self.buffers.available = list(range(partitions))
        self.buffers.compacted = compacted
        self.core.bind(cast(Any, SilentLoop()), thread_id=-1)

    def send_each(self, records: list[Record], partition: int | None) -> None:
        for key, value, headers, timestamp in records:
            assert self.core.intake.try_send("t", value, key, headers, partition, timestamp) is not None

    def send_list(self, records: list[Record], partition: int | None) -> None:
        keys, values, headers, timestamps = (list(column) for column in zip(*records, strict=True))
        sending = self.core.intake.begin_many("t", values, keys, headers, partition, timestamps)
        while not sending.is_complete:
            assert sending.add_some() is not None
        assert len(sending.future()) == len(records)

    def batches(self) -> list[ProducerBatch]:
        return [batch for buffer in self.buffers.partitions for batch in buffer.waiting]

    def content(self) -> list[tuple[Any, ...]]:
        """All batches: where they are, and what they hold."""
        return [
            (
                batch.partition,
                [*batch.keys] or [None] * len(batch.values),
                batch.values,
                [*batch.timestamps_ns],
                {row: pairs for row, pairs in batch.headers.items() if pairs},
            )
            for batch in self.batches()
        ]


def used_bytes(batch: ProducerBatch) -> int:
    return batch.used_bytes if batch.closed else batch.reserved_bytes - batch.room


def random_records(rng: random.Random) -> list[Record]:
    keyless = rng.choice([0.0, 0.3, 1.0])
    with_headers = rng.choice([0.0, 0.2])
    return [
        (
            None if rng.random() < keyless else b"key-%d" % rng.randrange(20),
            None if rng.random() < 0.05 else rng.randbytes(rng.choice([0, 10, 100, 3_000])),
            [("number", b"%d" % number)] if rng.random() < with_headers else None,
            number,
        )
        for number in range(rng.randrange(1, 400))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_lists_become_the_same_batches(seed: int) -> None:
    """Records are in the same batches, in the same order, whether they are sent one by one or as lists."""
    rng = random.Random(seed)
    options: dict[str, Any] = {
        "partitioner": rng.choice(["sticky", "round_robin", lambda key, every, _: every[len(key or b"") % len(every)]]),
        "batch_size": rng.choice([1, 5_000, 20_000, 100_000]),
    }
    partitions = rng.randrange(1, 6)
    singly, listed = (Intake(partitions, **options) for _ in range(2))
    for _ in range(rng.randrange(1, 4)):
        records = random_records(rng)
        partition = rng.choice([None, None, rng.randrange(partitions)])
        singly.send_each(records, partition)
        rng.choice([listed.send_list, listed.send_list, listed.send_each])(records, partition)
    assert listed.content() == singly.content()
    assert [*map(used_bytes, listed.batches())] == [*map(used_bytes, singly.batches())], "as much memory is counted"
    reserved = sum(batch.reserved_bytes for batch in listed.batches())
    assert listed.core.accumulator.free_bytes == listed.core.config.buffer_memory - reserved


def test_long_lists_go_where_sends_go() -> None:
    """Their keys are hashed by Arrow."""
    rng = random.Random(5)
    records: list[Record] = [
        (None if number % 1_000 == 999 else rng.randbytes(rng.randrange(12)), b"%d" % number, None, number)
        for number in range(_MANY_KEYS + 100)
    ]
    singly, listed = (Intake(5) for _ in range(2))
    singly.send_each(records, None)
    listed.send_list(records, None)
    assert listed.content() == singly.content()


@pytest.mark.parametrize("seed", range(10))
def test_replayable_lists_are_cut_like_sends(seed: int) -> None:
    rng = random.Random(seed)
    options = {"producer_name": "etl", "producer_epoch": 1, "batch_size": rng.choice([5_000, 20_000])}
    singly, listed = (Intake(3, **options) for _ in range(2))
    for _ in range(3):
        records = [(key or b"", value, headers, at) for key, value, headers, at in random_records(rng)]
        singly.send_each(records, None)
        listed.send_list(records, None)
    assert listed.content() == singly.content()


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"values": b"abc"}, IllegalArgumentError, "values is bytes: give a list"),
        ({"values": 5}, IllegalArgumentError, "values is int: give a list"),
        ({"values": [b"v", "text"]}, IllegalArgumentError, r"values\[1\] is str, not bytes"),
        ({"values": [b"v"], "keys": [5]}, IllegalArgumentError, r"keys\[0\] is int, not bytes"),
        ({"values": [b"v"], "keys": []}, IllegalArgumentError, "keys has 0 elements and values has 1"),
        ({"values": [b"v"], "headers": [["h"]]}, IllegalArgumentError, "header 'h' is not a pair"),
        ({"values": [b"v"], "headers": {"h": b"v"}}, IllegalArgumentError, "headers is dict: give a list"),
        ({"values": [b"v"] * 2, "timestamps_ms": [1, -1]}, IllegalArgumentError, r"timestamps_ms\[1\] is -1"),
        ({"values": [b"v"], "partition": 3}, InvalidPartitionsError, "has no partition 3: it has 0 to 2"),
        ({"values": [b"v", bytes(1_100_000)]}, RecordTooLargeError, r"values\[1\] takes .* more than max_request_size"),
    ],
)
def test_wrong_records_send_none(given: dict[str, Any], kind: type[QuorumlogError], words: str) -> None:
    rig = Intake(3)
    arguments = {"keys": None, "headers": None, "partition": None, "timestamps_ms": None} | given
    with pytest.raises(kind, match=words):
        rig.core.intake.begin_many("t", **arguments)
    assert rig.batches() == []


def test_compacted_topics_need_every_key() -> None:
    rig = Intake(3, compacted=True)
    for keys in (None, [b"k", None]):
        with pytest.raises(InvalidRecordError, match="compacted"):
            rig.core.intake.begin_many("t", [b"1", b"2"], keys, None, None, None)
    assert rig.core.intake.begin_many("t", [], None, None, None, None).is_complete


def test_replays_need_all_details() -> None:
    rig = Intake(3, producer_name="etl", producer_epoch=1)
    for keys, times in ((None, [1]), ([b"k"], None), ([None], [1])):
        with pytest.raises(IllegalArgumentError, match="which a replay with the same producer_epoch needs"):
            rig.core.intake.begin_many("t", [b"v"], keys, None, None, times)


def test_serializers_apply_to_each_record() -> None:
    rig = Intake(1, key_serializer=str.encode, value_serializer=lambda number: b"%d" % number)
    sending = rig.core.intake.begin_many("t", (n for n in range(3)), ["a", None, "c"], None, None, [1, 2, 3])
    while not sending.is_complete:
        sending.add_some()
    assert rig.content() == [(0, [b"a", None, b"c"], [b"0", b"1", b"2"], [10**6, 2 * 10**6, 3 * 10**6], {})]


def test_recreated_topics_refuse_lost_partitions() -> None:
    rig = Intake(3)
    sending = rig.core.intake.begin_many("t", [b"v"], None, None, 2, None)
    rig.core.accumulator.drop_partitions(rig.buffers, 1)
    with pytest.raises(InvalidPartitionsError, match="has no partition 2"):
        sending.add_some()


def test_raised_errors_leave_outcomes_alone() -> None:
    """The error of a batch gathers no frames, which would keep what its callers had, its handles among it."""
    delivery = Delivery("t", 0, -1)
    kept = RecordTooLargeError("too large", retriable=True, definite=False)
    kept.__cause__ = ValueError("why")
    delivery.resolve(kept)
    future = RecordFuture(delivery, 0)
    many = RecordsFuture([SentRecords(delivery, 0, range(1))])
    arrow = ArrowFuture([BatchRows(delivery, 0, 1)])
    for call in (future.result, many.result, arrow.result):
        with pytest.raises(RecordTooLargeError, match="too large") as raised:
            call(0)
        assert (raised.value.retriable, raised.value.definite, raised.value.__cause__) == (True, False, kept.__cause__)
    shown = future.exception(0)
    assert isinstance(shown, RecordTooLargeError) and shown is not kept
    assert kept.__traceback__ is None


# --- with nodes ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def producer_on(cluster: ScriptedCluster, **options: Any) -> AsyncIterator[AsyncProducer]:
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield producer
    finally:
        await producer.close(timeout=0.2)


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%04d" % number for number in range(start, start + count)]


def written(cluster: ScriptedCluster) -> list[bytes]:
    return [value for entry in cluster.logs[0].entries for value in decode(entry).columns.column(1).to_pylist()]


async def test_listed_records_have_their_places(cluster: ScriptedCluster) -> None:
    async with producer_on(cluster, batch_size=20_000) as producer:
        sent = await producer.send_many("t", numbers(5_000), timestamps_ms=range(5_000))
        metadata = await sent
        assert [(each.topic, each.partition, each.offset, each.timestamp) for each in metadata] == [
            ("t", 0, number, number) for number in range(5_000)
        ]
        assert sent.done() and len(sent) == 5_000 and sent.result(0) == metadata
        assert [each.result(0).offset for each in sent.futures()] == list(range(5_000))
        nothing = await producer.send_many("t", [])
        assert (nothing.done(), len(nothing), await nothing) == (True, 0, [])
    assert written(cluster) == numbers(5_000)
    assert len(cluster.logs[0].entries) > 3


async def test_a_refused_batch_fails_its_records(cluster: ScriptedCluster) -> None:
    async def refuse_second(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        refused = produced.arrival == 1
        return error(Code.TOPIC_AUTHORIZATION_FAILED, retriable=False) if refused else None

    cluster.on_produce = refuse_second
    async with producer_on(cluster, batch_size=1_500, enable_idempotence=False, max_in_flight=1) as producer:
        sent = await producer.send_many("t", numbers(30))
        with pytest.raises(TopicAuthorizationFailedError):
            await sent
        await producer.flush()
        failed = [row for row, each in enumerate(sent.futures()) if each.failed()]
        with pytest.raises(TopicAuthorizationFailedError):
            sent.result(0)
    assert 0 < len(failed) < 30
    assert written(cluster) == [value for row, value in enumerate(numbers(30)) if row not in failed]


async def test_full_memory_fails_the_rest(cluster: ScriptedCluster) -> None:
    """The first records are sent; the others fail, and are certainly not in the log."""
    held = asyncio.Event()

    async def hold(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await held.wait()
        return None

    cluster.on_produce = hold
    async with producer_on(cluster, max_block_ms=300, **SMALL) as producer:
        values = [each + bytes(3_000) for each in numbers(20)]
        sent = await producer.send_many("t", values)
        with pytest.raises(BufferExhaustedError, match="stayed full"):
            await producer.send_many("t", values)
        held.set()
        outcomes = await asyncio.gather(*sent.futures(), return_exceptions=True)
        with pytest.raises(BufferExhaustedError):
            await sent
    taken = len(written(cluster))
    assert 0 < taken < 20 and written(cluster) == values[:taken]
    assert [outcome.offset for outcome in outcomes[:taken]] == list(range(taken))
    assert all(isinstance(each, BufferExhaustedError) and each.definite for each in outcomes[taken:])


async def test_closing_fails_the_rest(cluster: ScriptedCluster) -> None:
    async def hold(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await asyncio.get_running_loop().create_future()
        return None

    cluster.on_produce = hold
    producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, **SMALL)
    sending = asyncio.create_task(producer.send_many("t", [bytes(3_000)] * 20))
    async with asyncio.timeout(LIMIT_S):
        while not cluster.arrivals:  # noqa: ASYNC110 - what is waited for happens in the scripted servers
            await asyncio.sleep(0.005)
        await producer.close(timeout=0.05)
        outcomes = await asyncio.gather(*(await sending).futures(), return_exceptions=True)
    assert len(outcomes) == 20
    assert {type(each) for each in outcomes} == {ClientClosedError}
    assert cast(ClientClosedError, outcomes[-1]).definite and not cast(ClientClosedError, outcomes[0]).definite
    with pytest.raises(ClientClosedError):
        await producer.send_many("t", [b"v"])


async def test_unknown_topics_take_no_list(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlog.sdk.cluster.cluster._UNKNOWN_TOPIC_GRACE_S", 0)
    async with producer_on(cluster) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_many("absent", [b"v"])


async def test_cancelled_lists_hold_up_no_other(cluster: ScriptedCluster) -> None:
    held = asyncio.Event()

    async def hold(_: ScriptedCluster, produced: Produced) -> errors_pb2.Error | None:
        await held.wait()
        return None

    cluster.on_produce = hold
    async with producer_on(cluster, **SMALL) as producer:
        values = [each + bytes(3_000) for each in numbers(20)]
        sending = asyncio.create_task(producer.send_many("t", values))
        while not cluster.arrivals:  # noqa: ASYNC110 - what is waited for happens in the scripted servers
            await asyncio.sleep(0.005)
        sending.cancel()
        await asyncio.wait([sending])
        held.set()
        await (await producer.send("t", b"last"))
    *first, last = written(cluster)
    assert last == b"last" and 0 < len(first) < 20 and first == values[: len(first)]
