"""The clients against a real cluster of three node processes: what users rely on, end to end."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    Admin,
    Consumer,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTimestampError,
    InvalidTopicError,
    LogDescription,
    NetworkError,
    NewTopic,
    OffsetAndTimestamp,
    Producer,
    QuorumlogError,
    RecordFuture,
    RecordMetadata,
    RecordTooLargeError,
    TopicAlreadyExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    errors,
)
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA
from quorumlog.sdk.records.partitioner import partition_for_key
from tests.support.command_line import leader_of

pytestmark = pytest.mark.cluster
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as made:
        yield made


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A fresh topic of three partitions."""
    return new_topic(cluster, partitions=3)


def new_topic(cluster: LocalCluster, partitions: int, configs: dict[str, object] | None = None) -> str:
    name = f"topic-{next(_numbers)}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        # Some records bear times long past: retention would be right to remove them.
        admin.create_topics([NewTopic(name, partitions, 3, {"retention.ms": -1, **(configs or {})})])
    return name


def test_topics_are_seen_at_every_node_when_asked_for_linearizably(cluster: LocalCluster) -> None:
    admins = [Admin(bootstrap_servers=cluster.address(node)) for node in cluster.node_ids]
    try:
        for turn in range(6):
            name = f"seen-{turn}"
            admins[turn % 3].create_topics([NewTopic(name, 1, 3)])
            for admin in admins:
                (described,) = admin.describe_topics([name], linearizable=True)
                assert described.name == name
        with pytest.raises(UnknownTopicOrPartitionError):
            admins[0].describe_topics(["never-created"], linearizable=True)
        assert {broker.node_id for broker in admins[1].describe_cluster(linearizable=True).brokers} == {1, 2, 3}
    finally:
        for admin in admins:
            admin.close()


def read_all(cluster: LocalCluster, topic: str) -> pa.Table:
    """Everything in a topic, up to its ends now."""
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        tables: list[pa.Table] = []
        deadline = time.monotonic() + 60
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, f"not at {ends} after 60 s"
            tables.append(consumer.poll_arrow(timeout_ms=1000))
    return pa.concat_tables([CONSUMED_SCHEMA.empty_table(), *tables])


def assert_dense(table: pa.Table, partitions: int) -> None:
    """Offsets of every partition are 0, 1, 2, …"""
    for partition in range(partitions):
        offsets = [
            row["offset"] for row in table.select(["partition", "offset"]).to_pylist() if row["partition"] == partition
        ]
        assert offsets == list(range(len(offsets)))


def test_a_record_comes_back_as_it_was_sent(cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = producer.send(
            topic, value=b"value", key=b"key", headers=[("a", b"1"), ("a", None)], timestamp_ms=1_700_000_000_123
        )
        place = sent.result(timeout=60)
        assert place == RecordMetadata(topic, partition_for_key(b"key", 3), 0, 1_700_000_000_123)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, consumer_timeout_ms=60_000) as consumer:
        record = next(iter(consumer))
    assert record[:6] == (topic, place.partition, 0, 1_700_000_000_123, b"key", b"value")
    assert record.headers == [("a", b"1"), ("a", None)]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_many_records_come_back_once_and_in_order(cluster: LocalCluster, topic: str, compression: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=compression) as producer:
        handles = [producer.send(topic, b"%d" % i, key=b"k%d" % (i % 100)) for i in range(20_000)]
        producer.flush(timeout=60)
        places = [handle.result(timeout=0) for handle in handles]
    table = read_all(cluster, topic)
    assert_dense(table, 3)
    where = {
        int(row["value"]): (row["partition"], row["offset"])
        for row in table.select(["value", "partition", "offset"]).to_pylist()
    }
    assert table.num_rows == len(where) == 20_000
    assert all(where[i] == (place.partition, place.offset) for i, place in enumerate(places))
    for key in range(100):
        offsets = [places[i].offset for i in range(key, 20_000, 100)]
        assert offsets == sorted(offsets)


def test_arrow_tables_go_in_and_come_out_without_loss(cluster: LocalCluster, topic: str) -> None:
    table = pa.table({"key": [b"k%d" % (i % 50) for i in range(50_000)], "value": [b"%d" % i for i in range(50_000)]})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        placed = producer.send_arrow(topic, table).result(timeout=60)
        unkeyed = producer.send_arrow(topic, table.select(["value"]), partition=1).result(timeout=60)
    assert sum(batch.record_count for batch in placed + unkeyed) == 100_000
    assert {batch.partition for batch in unkeyed} == {1}
    got = read_all(cluster, topic)
    assert_dense(got, 3)
    keyed = got.filter(pa.compute.is_valid(got.column("key")))
    for row in keyed.slice(0, 2000).to_pylist():
        assert row["partition"] == partition_for_key(row["key"], 3)
    assert sorted(keyed.column("value").to_pylist()) == sorted(table.column("value").to_pylist())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_all_kinds_of_acks_deliver_while_nothing_fails(cluster: LocalCluster, topic: str, acks: object) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks=acks) as producer:  # type: ignore[arg-type]
        places = [producer.send(topic, b"%d" % i, partition=0) for i in range(1000)]
        producer.flush(timeout=60)
        offsets = [place.result(timeout=0).offset for place in places]
    assert offsets == ([-1] * 1000 if acks == 0 else list(range(1000)))
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen: list[int] = []
        deadline = time.monotonic() + 60
        while len(seen) < 1000 and time.monotonic() < deadline:
            seen += [int(record.value) for part in consumer.poll(timeout_ms=500).values() for record in part]
    assert seen == list(range(1000))


def test_offsets_and_seeks(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, partitions=1)
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1) as producer:
        for i in range(10):
            producer.send(topic, b"%d" % i, timestamp_ms=1_700_000_000_000 + i * 1000).result(timeout=60)
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 10}
        for after_ms, expected in ((-5, 0), (0, 0), (1, 1), (4500, 5), (9000, 9)):
            at = consumer.offsets_for_times({tp: 1_700_000_000_000 + after_ms})[tp]
            assert at == OffsetAndTimestamp(expected, 1_700_000_000_000 + expected * 1000)
        assert consumer.offsets_for_times({tp: 1_700_000_009_001}) == {tp: None}
        consumer.seek(tp, 7)
        # A poll hands out what has been decoded by then, which may be one batch of three.
        assert [next(consumer).value for _ in range(3)] == [b"7", b"8", b"9"]
        assert consumer.position(tp) == 10
        assert consumer.highwater(tp) == 10


def test_append_time_is_what_both_sides_see(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        place = producer.send(topic, b"v", timestamp_ms=1).result(timeout=60)
    assert before - 1000 <= place.timestamp <= time.time() * 1000 + 1000
    (row,) = read_all(cluster, topic).to_pylist()
    assert int(row["timestamp"].timestamp() * 1000 + 0.5) == place.timestamp
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.offsets_for_times({tp: 1}) == {tp: OffsetAndTimestamp(0, place.timestamp)}
        assert consumer.offsets_for_times({tp: place.timestamp + 1}) == {tp: None}


async def test_the_asyncio_clients_do_the_same(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    topic = f"topic-{next(_numbers)}"
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 3)])
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        handles = [await producer.send(topic, b"%d" % i, partition=i % 2) for i in range(1000)]
        places = await asyncio.wait_for(asyncio.gather(*handles), 60)
    assert [place.offset for place in places] == [i // 2 for i in range(1000)]
    seen: list[int] = []
    async with AsyncConsumer(topic, bootstrap_servers=servers, consumer_timeout_ms=60_000) as consumer:
        async for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 1000:
                break
    assert sorted(seen) == list(range(1000))


#: Records under way, some hundred batches.
AHEAD = 2000


async def test_who_watches_all_nodes_sees_topics_come_and_go_and_where_every_log_ends(cluster: LocalCluster) -> None:
    name, servers = f"topic-{next(_numbers)}", cluster.bootstrap_servers
    leaders: dict[TopicPartition, int | None] = {}
    logs: dict[TopicPartition, LogDescription] = {}

    async def follow(admin: AsyncAdmin, node: int) -> None:
        async for change in admin.watch_cluster(cluster.address(node)):
            for each in change.topics:
                leaders.update((TopicPartition(each.name, one.partition), one.leader) for one in each.partitions)
            for gone in change.gone_topics:
                for number in range(3):
                    leaders.pop(TopicPartition(gone, number), None)
            logs.update(change.logs)

    async def until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.02)

    async with AsyncAdmin(bootstrap_servers=servers) as admin, AsyncProducer(bootstrap_servers=servers) as producer:
        watches = [asyncio.create_task(follow(admin, node)) for node in cluster.node_ids]
        await admin.create_topics([NewTopic(name, 3, 3)])
        for number in range(3):
            await producer.send_and_wait(name, b"v", partition=number)
        places = [TopicPartition(name, number) for number in range(3)]
        await until(lambda: all(leaders.get(tp) is not None for tp in places), "its leaders are not reported")
        await until(
            lambda: all(tp in logs and logs[tp].high_watermark == 1 for tp in places), "its ends are not reported"
        )
        assert all((logs[tp].size_bytes or 0) > 0 and logs[tp].log_start_offset == 0 for tp in places)
        await admin.delete_topics([name])
        await until(lambda: not leaders.keys() & set(places), "it is not reported as deleted")
        for watch in watches:
            watch.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*watches, return_exceptions=True)
        )


def test_a_watch_without_asyncio_begins_with_everything(cluster: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        first = next(admin.watch_cluster())
        assert first.is_whole and first.cluster is not None and len(first.cluster.brokers) == 3
        assert topic in {each.name for each in first.topics}
        with pytest.raises(IllegalArgumentError, match="one node"):
            admin.watch_cluster(cluster.bootstrap_servers)
        with pytest.raises(NetworkError):
            next(admin.watch_cluster("127.0.0.1:1"))


def test_the_way_of_a_record_is_told_by_leader_and_followers(cluster: LocalCluster, topic: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(3):
            reported = producer.explain(topic, b"v", partition=1)
        assert (reported.metadata.offset, reported.attempts, reported.untraced) == (2, 1, "")
        assert reported.leader is not None and reported.decided_by in cluster.node_ids
        durable = [each for each in reported.leader.replicas if each.durable_us is not None]
        assert len(reported.leader.replicas) == 3 and len(durable) >= 2
        assert all(each.sync_us is not None and 0 < each.sync_us <= (each.durable_us or 0) for each in durable)
        assert 0 < (reported.leader.committed_us or 0) <= reported.leader.answered_us
        assert reported.sent_us + reported.leader.answered_us <= reported.answered_us + 1_000, (
            "two clocks, one millisecond"
        )
    with (
        Producer(bootstrap_servers=cluster.bootstrap_servers, acks=0) as unanswered,
        pytest.raises(IllegalStateError, match="acks=0"),
    ):
        unanswered.explain(topic, b"v")


def test_killing_the_leader_under_load_loses_and_doubles_nothing_and_keeps_order() -> None:
    with LocalCluster(nodes=3) as cluster:
        topic = new_topic(cluster, partitions=2)
        stop = threading.Event()
        handles: dict[int, list[RecordFuture]] = {0: [], 1: []}

        def load(producer: Producer, partition: int) -> None:
            for i in itertools.count():
                handles[partition].append(producer.send(topic, b"%d" % i, partition=partition))
                if i >= AHEAD:  # Else a slow machine has minutes of records to make up for in the end.
                    handles[partition][i - AHEAD].exception(60)
                if i % 20 == 0 and stop.wait(0.001):
                    return

        with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, batch_size=2000) as producer:
            threads = [threading.Thread(target=load, args=(producer, partition)) for partition in (0, 1)]
            for thread in threads:
                thread.start()
            for _ in range(2):
                wait_for(lambda: all(handles[p] and handles[p][0].done() for p in (0, 1)), "the first acknowledgement")
                leader = leader_of(cluster, topic)
                cluster.kill(leader)
                marks = {p: len(handles[p]) for p in (0, 1)}
                wait_for(
                    lambda marks=marks: all(len(handles[p]) > marks[p] and handles[p][marks[p]].done() for p in (0, 1)),  # type: ignore[misc]
                    "an acknowledgement after the kill",
                )
                cluster.start(leader)
            stop.set()
            for thread in threads:
                thread.join()
            producer.flush(timeout=60)
        table = read_all(cluster, topic)
    assert_dense(table, 2)
    for partition in (0, 1):
        rows = table.filter(pa.compute.equal(table.column("partition"), partition))
        assert [int(value) for value in rows.column("value").to_pylist()] == list(range(len(handles[partition])))
        assert [handle.result(timeout=0).offset for handle in handles[partition]] == list(
            range(len(handles[partition]))
        )


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {limit_s} s"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("mistake", "kind", "line"),
    [
        (
            lambda p, t: p.send("no-such-topic", b"v"),
            UnknownTopicOrPartitionError,
            "topic 'no-such-topic' does not exist",
        ),
        (
            lambda p, t: p.send(t, b"v", partition=3),
            InvalidPartitionsError,
            "topic 'topic-.*' has no partition 3: it has 0 to 2",
        ),
        (lambda p, t: p.send(t, b"v" * 2_000_000), RecordTooLargeError, "more than max_request_size"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(
    cluster: LocalCluster, topic: str, mistake: Callable[[Producer, str], object], kind: type[QuorumlogError], line: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(kind, match=line) as reported:
            mistake(producer, topic)
        assert "\n" not in reported.value.message
        assert reported.value.definite
        assert producer.send(topic, b"v").result(timeout=60).offset == 0


def test_what_the_nodes_refuse_fails_alone_and_definitely(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, partitions=1, configs={"max.message.bytes": 50_000})
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1) as producer:
        handles = [producer.send(topic, b"v" * (60_000 if i == 3 else 100)) for i in range(8)]
        tomorrow = int(time.time() * 1000) + 86_400_000
        ahead = producer.send(topic, b"v", timestamp_ms=tomorrow)
        after = producer.send(topic, b"v")
        too_large = handles.pop(3).exception(timeout=60)
        assert isinstance(too_large, RecordTooLargeError)
        assert too_large.definite
        assert "max.message.bytes" in too_large.message
        assert [handle.result(timeout=60).offset for handle in handles] == list(range(7))
        early = ahead.exception(timeout=60)
        assert isinstance(early, InvalidTimestampError)
        assert early.definite
        assert f"{tomorrow} ms" in early.message
        assert after.result(timeout=60).offset == 7


def test_times_are_taken_up_to_an_hour_ahead_also_in_arrow(cluster: LocalCluster) -> None:
    topic = new_topic(cluster, partitions=1)

    def table(ahead_s: float) -> pa.Table:
        when = pa.scalar(int((time.time() + ahead_s) * 1e6), pa.timestamp("us", tz="UTC"))
        return pa.table({"value": [b"v"], "timestamp": pa.array([when])})

    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        soon = producer.send(topic, b"v", timestamp_ms=int(time.time() * 1000) + 3_590_000)
        assert soon.result(timeout=60).offset == 0
        assert producer.send_arrow(topic, table(3_590)).result(timeout=60)[0].base_offset == 1
        with pytest.raises(InvalidTimestampError, match="more than an hour ahead") as refused:
            producer.send_arrow(topic, table(3_610)).result(timeout=60)
        assert refused.value.definite


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (NewTopic("ok", 1, 4), InvalidReplicationFactorError),
        (NewTopic("ok", 1, 5), InvalidReplicationFactorError),
        (NewTopic("ok", 0, 3), InvalidPartitionsError),
        (NewTopic("not ok", 1, 3), InvalidTopicError),
        (NewTopic("ok", 1, 3, {"retention.sm": 1}), errors.InvalidConfigError),
        (NewTopic("ok", 1, 3, {"retention.ms": "long"}), errors.InvalidConfigError),
    ],
)
def test_impossible_topics_are_refused_in_one_line(
    cluster: LocalCluster, wanted: NewTopic, kind: type[Exception]
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(kind) as reported:
            admin.create_topics([wanted])
        assert "\n" not in str(reported.value)
        assert len(str(reported.value)) > 15
        assert "ok" not in admin.list_topics()


def test_a_topic_is_created_once(cluster: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin, pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 3)])


def test_a_forked_child_refuses_clients_instead_of_hanging_and_the_parents_go_on(
    cluster: LocalCluster, topic: str
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"parent", partition=0).result(timeout=60)
        child = os.fork()
        if child == 0:
            refusals = 0
            try:
                producer.send(topic, b"child", partition=0)
            except errors.ForkedClientError:
                refusals += 1
            try:
                Admin(bootstrap_servers=cluster.bootstrap_servers).list_topics()
            except errors.ForkedClientError as refusal:
                refusals += "'spawn' or 'forkserver'" in refusal.message
            os._exit(refusals)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert producer.send(topic, b"parent", partition=0).result(timeout=60).offset == 1


def test_a_child_of_a_process_that_has_not_connected_makes_clients_of_its_own(cluster: LocalCluster) -> None:
    program = f"""
import os
from quorumlog.sdk import Admin, Consumer, Producer
unused = Admin(bootstrap_servers={cluster.bootstrap_servers!r})
child = os.fork()
if child == 0:
    Admin(bootstrap_servers={cluster.bootstrap_servers!r}).list_topics()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    # Python 3.12 and later warn of every fork in a process with threads, whatever started the threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_program_that_ends_without_closing_loses_nothing_and_complains_of_nothing(
    cluster: LocalCluster, topic: str
) -> None:
    program = f"""
from quorumlog.sdk import Admin, Consumer, Producer
servers = {cluster.bootstrap_servers!r}
producer = Producer(bootstrap_servers=servers, linger_ms=1000)
handles = [producer.send({topic!r}, b"kept") for _ in range(100)]
dropped = Producer(bootstrap_servers=servers, linger_ms=1000).send({topic!r}, b"dropped")
consumer = Consumer({topic!r}, bootstrap_servers=servers)
consumer.poll(timeout_ms=10)
Admin(bootstrap_servers=servers).list_topics()
dropped.result(timeout=60)
"""
    # Python 3.12 and later warn of every fork in a process with threads, whatever started the threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    values = read_all(cluster, topic).column("value").to_pylist()
    assert (values.count(b"kept"), values.count(b"dropped")) == (100, 1)
