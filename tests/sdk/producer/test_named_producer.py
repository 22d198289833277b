"""Named producers against a real node: claims, fencing, replays of an epoch, and what makes two runs equal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncProducer
from quorumlog.sdk.errors import (
    DuplicateSequenceMismatchError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    ProducerFencedError,
    ProducerNameInUseError,
    ProducerNameNotFoundError,
    QuorumlogError,
)
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import data_plane_pb2_grpc
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID

pytestmark = pytest.mark.cluster
_numbers = itertools.count()
#: The same in each run, and not so old that retention removes it.
BASE_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as made:
        yield made


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"named-{next(_numbers)}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1, {})])
    return name


def values(cluster: LocalCluster, topic: str) -> list[list[bytes]]:
    """Returns the records of each partition, from its start."""
    partitions = [TopicPartition(topic, number) for number in (0, 1)]
    found: list[list[bytes]] = [[], []]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for partition, records in consumer.poll(timeout_ms=500).items():
                found[partition.partition].extend(record.value or b"" for record in records)
    return found


def write(cluster: LocalCluster, topic: str, epoch: int | None, contents: list[bytes]) -> None:
    """One run of the producer named as the topic: each value to partition 0, flushed after every second one."""
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, producer_name=topic, producer_epoch=epoch) as producer:
        handles = []
        for number, content in enumerate(contents):
            handles.append(producer.send(topic, content, partition=0, timestamp_ms=BASE_MS + number))
            if number % 2:
                producer.flush(60)
        producer.flush(60)
        for handle in handles:
            handle.result(60)
        if epoch is not None:
            producer.end_epoch(60)


RUN = [b"%d" % number for number in range(30)]


def test_a_replay_adds_nothing_and_goes_on_where_the_first_run_broke_off(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic, 7, RUN[:20])
    write(cluster, topic, 7, RUN)
    write(cluster, topic, 7, RUN)
    write(cluster, topic, 8, RUN)
    assert values(cluster, topic) == [[*RUN, *RUN], []]


def test_who_knows_what_the_log_has_goes_on_behind_that(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic, 7, RUN[:20])
    options = {"producer_name": topic, "producer_epoch": 7}
    for records, rest in ((20, RUN[20:]), (30, [])):
        with Producer(
            bootstrap_servers=cluster.bootstrap_servers, epoch_records={(topic, 0): records}, **options
        ) as producer:
            for content in rest:
                producer.send(topic, content, partition=0, timestamp_ms=BASE_MS)
            producer.end_epoch(60)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, epoch_records={(topic, 0): 20}, **options) as late:
        handle = late.send(topic, b"other", partition=0, timestamp_ms=BASE_MS)
        late.flush(60)
        with pytest.raises(DuplicateSequenceMismatchError):
            handle.result(60)
    assert values(cluster, topic) == [RUN, []]


def claim(cluster: LocalCluster, name: str, epoch: int) -> int:
    """Claims a name's epoch; returns the name's id."""
    with grpc.insecure_channel(cluster.bootstrap_servers.partition(",")[0]) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        answer = stub.InitProducerId(pb.InitProducerIdRequest(name=name, epoch=epoch, timeout_ms=60_000), timeout=60)
    assert answer.producer_epoch == epoch, answer
    return int(answer.producer_id)


def test_who_has_claimed_the_epoch_need_not_claim_it_again_and_is_fenced_like_others(
    cluster: LocalCluster, topic: str
) -> None:
    known = claim(cluster, topic, 7)
    options = {"producer_name": topic, "producer_epoch": 7, "producer_id": known}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        first = producer.send(topic, b"first", partition=0, timestamp_ms=BASE_MS)
        producer.flush(60)
        first.result(60)
        assert claim(cluster, topic, 8) == known
        late = producer.send(topic, b"late", partition=0, timestamp_ms=BASE_MS)
        producer.flush(60)
        with pytest.raises(InvalidProducerEpochError):
            late.result(60)
    write(cluster, topic, 8, [b"second"])
    assert values(cluster, topic) == [[b"first", b"second"], []]


def test_a_replay_with_another_record_is_refused_in_one_line(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic, 7, RUN)
    with pytest.raises(DuplicateSequenceMismatchError, match="the replay differs from what was sent first") as caught:
        write(cluster, topic, 7, [*RUN[:4], b"other", *RUN[5:]])
    assert "\n" not in caught.value.message
    assert values(cluster, topic) == [RUN, []]


def test_a_shorter_replay_is_noticed_when_the_epoch_ends(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic, 7, RUN)
    with pytest.raises(DuplicateSequenceMismatchError, match=r"has 30 records in .*-0, but this replay sent only 28"):
        write(cluster, topic, 7, RUN[:28])


def test_whoever_claims_a_name_fences_the_former_holder(cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name=topic) as former:
        former.send(topic, b"a", partition=0).result(60)
        former.send(topic, b"b", partition=1).result(60)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name=topic) as latter:
            latter.send(topic, b"c", partition=0).result(60)
            with pytest.raises(ProducerFencedError, match="another instance has taken over") as caught:
                former.send(topic, b"d", partition=1).result(60)
            assert (caught.value.definite, caught.value.retriable) == (True, False)
            with pytest.raises(InvalidProducerEpochError):
                former.send(topic, b"e", partition=0)
            latter.send(topic, b"f", partition=0).result(60)
    with pytest.raises(InvalidProducerEpochError, match="was claimed with epoch 1; epoch 0 is fenced"):
        write(cluster, topic, 0, [b"g"])
    assert values(cluster, topic) == [[b"a", b"c", b"f"], [b"b"]]


async def test_an_async_producer_replays_tables(cluster: LocalCluster, topic: str) -> None:
    table = pa.table(
        {
            "key": pa.array([b"%d" % (number % 10) for number in range(2_000)], pa.binary()),
            "value": pa.array([b"%08d" % number for number in range(2_000)], pa.binary()),
            "timestamp": pa.array([BASE_MS * 1_000] * 2_000, pa.timestamp("us", tz="UTC")),
        }
    )
    for _ in range(2):
        async with AsyncProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            producer_name=topic,
            producer_epoch=1 << 60,
            compression_type="zstd",
            batch_size=10_000,
            max_request_size=10_000,
        ) as producer:
            for piece in (table.slice(0, 700), table.slice(700)):
                await (await producer.send_arrow(topic, piece))
            await producer.end_epoch(60)
    assert sum(len(each) for each in values(cluster, topic)) == 2_000


@pytest.mark.parametrize("lingers", [0, 5])
def test_batches_of_a_given_epoch_are_cut_by_flush_alone(cluster: LocalCluster, topic: str, lingers: float) -> None:
    options = {"producer_name": topic, "producer_epoch": 3, "linger_ms": lingers}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        handles = [producer.send(topic, b"%d" % number, key=b"k", timestamp_ms=BASE_MS + number) for number in range(5)]
        with pytest.raises(QuorumlogError, match="no acknowledgement"):
            handles[0].result(0.3)
        producer.flush(60)
        assert [handle.result(1).offset for handle in handles] == [0, 1, 2, 3, 4]


def test_what_could_not_be_replayed_is_refused_before_it_is_sent(cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, producer_name="n", producer_epoch=1) as producer:
        for arguments, missing in (
            ({"key": b"k"}, "no timestamp_ms"),
            ({"timestamp_ms": 5}, "neither a key nor a partition"),
        ):
            with pytest.raises(IllegalArgumentError, match=missing):
                producer.send(topic, b"v", **arguments)
        for table, missing in (
            (pa.table({"key": [b"k"], "value": [b"v"]}), "no timestamp"),
            (pa.table({"value": [b"v"], "timestamp": pa.array([5], pa.timestamp("us", "UTC"))}), "neither a key"),
        ):
            with pytest.raises(IllegalArgumentError, match=missing):
                producer.send_arrow(topic, table)
        assert producer.send(topic, b"v", partition=0, timestamp_ms=5).done() is False
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as unnamed, pytest.raises(IllegalStateError):
        unnamed.end_epoch(1)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"producer_name": ""}, "producer_name is ''"),
        ({"producer_name": "a\nb"}, "1 to 249 printable characters"),
        ({"producer_name": "n", "acks": 1}, "producer_name needs acks='all'"),
        ({"producer_epoch": 1}, "producer_epoch needs a producer_name"),
        ({"producer_name": "n", "producer_epoch": 1 << 63}, "from 0 to 2\\^63 - 1"),
        ({"producer_name": "n", "producer_epoch": -1}, "from 0 to 2\\^63 - 1"),
        ({"producer_name": "n", "producer_epoch": "7"}, "producer_epoch is '7'"),
        ({"producer_name": "n", "epoch_records": {}}, "epoch_records needs a producer_epoch"),
        ({"producer_name": "n", "producer_id": FIRST_NAMED_PRODUCER_ID}, "producer_id needs a producer_epoch"),
        ({"producer_name": "n", "producer_epoch": 7, "producer_id": 3}, "producer_id is 3: give the id that a claim"),
        ({"producer_name": "n", "producer_epoch": 7, "epoch_records": {("t", 0): -1}}, "epoch_records is {.*}: give"),
    ],
)
def test_a_wrong_identity_is_one_clear_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(IllegalArgumentError, match=line) as caught:
        Producer(**options)
    assert "\n" not in caught.value.message


def test_a_topic_that_is_created_anew_is_written_from_its_start_by_named_and_unnamed_producers(
    cluster: LocalCluster, topic: str
) -> None:
    with (
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as unnamed,
    ):
        unnamed.send(topic, b"before", partition=1).result(60)
        write(cluster, topic, 7, RUN)
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 2, 1, {})])
        write(cluster, topic, 7, RUN)
        write(cluster, topic, 7, RUN)
        unnamed.send(topic, b"after", partition=1).result(60)
    assert values(cluster, topic) == [RUN, [b"after"]]


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
async def test_work_that_breaks_off_cuts_no_batch_and_can_be_replayed(
    cluster: LocalCluster, topic: str, kind: type
) -> None:
    contents = [b"%03d" % number for number in range(300)]
    options = {"producer_name": topic, "producer_epoch": 1, "batch_size": 2048}

    async def send(count: int) -> None:
        made = kind(bootstrap_servers=cluster.bootstrap_servers, **options)
        async with made if kind is AsyncProducer else contextlib.nullcontext():
            with made if kind is Producer else contextlib.nullcontext():
                for value in contents[:count]:
                    handle = made.send(topic, value, partition=0, timestamp_ms=BASE_MS)
                    if kind is AsyncProducer:
                        await handle
                if count < len(contents):
                    raise InterruptedError
                ended = made.end_epoch()
                if kind is AsyncProducer:
                    await ended

    for broken_off_at in (299, 150, 1, 250):
        with pytest.raises(InterruptedError):
            await send(broken_off_at)
    await send(len(contents))
    assert values(cluster, topic)[0] == contents


def test_a_deleted_name_is_refused_to_its_holder_and_new_to_whoever_claims_it_next(
    cluster: LocalCluster, topic: str
) -> None:
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers, producer_name=topic) as former:
        former.send(topic, b"a", partition=0).result(60)
        (listed,) = admin.list_producers(topic)
        assert (listed.name, listed.producer_epoch) == (topic, 0)
        assert abs(listed.claimed_ms - time.time_ns() // 1_000_000) < 60_000
        with pytest.raises(ProducerNameInUseError, match="it is in use and stays"):
            admin.delete_producers([topic], claimed_before_ms=listed.claimed_ms)
        admin.delete_producers([topic], claimed_before_ms=listed.claimed_ms + 1)
        assert admin.list_producers(topic) == []
        with pytest.raises(ProducerNameNotFoundError, match="does not exist"):
            admin.delete_producers([topic])
        with pytest.raises(InvalidProducerEpochError, match=r"the name of producer .* was deleted"):
            former.send(topic, b"b", partition=0).result(60)
        with Producer(bootstrap_servers=servers, producer_name=topic) as latter:
            latter.send(topic, b"c", partition=0).result(60)
        (again,) = admin.list_producers(topic)
        assert (again.producer_id > listed.producer_id, again.producer_epoch) == (True, 0)
    assert values(cluster, topic) == [[b"a", b"c"], []]


async def test_names_beyond_one_page_are_listed_and_deleted(cluster: LocalCluster) -> None:
    names = [f"page-{number:04}" for number in range(1_010)]
    async with (
        AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        grpc.aio.insecure_channel(cluster.address(1)) as channel,
    ):
        node = data_plane_pb2_grpc.DataPlaneStub(channel)
        # A node accepts a hundred calls at once on a connection.
        for first in range(0, len(names), 50):
            some = names[first : first + 50]
            requests = (pb.InitProducerIdRequest(name=name, epoch=1, timeout_ms=60_000) for name in some)
            claimed = await asyncio.gather(*(node.InitProducerId(request) for request in requests))
            assert not any(answer.HasField("error") for answer in claimed)
        assert [each.name for each in await admin.list_producers("page-")] == names
        await admin.delete_producers(names[1:])
        assert [each.name for each in await admin.list_producers("page-")] == names[:1]
