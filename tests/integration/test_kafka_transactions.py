"""Transactions of Kafka's own clients on real nodes: what commits, what aborts, who is fenced, and kills in between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from command_line import leader_of
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaProducer
from kafka.errors import ProducerFencedError

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk import Producer as OwnProducer

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
PARTITIONS = 2
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as running:
        yield running
        for node in running.node_ids:
            assert "fault=failed" not in running.log_path(node).read_text()


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"topic-{next(_numbers)}"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 3)])
    return name


def producer_of(cluster: LocalCluster, name: str) -> Producer:
    """Returns a transactional producer of librdkafka, ready for its first transaction."""
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "transactional.id": name, "log_level": 0}
    # Without it, a call that serves callbacks fails with an error that is fatal, instead of those that it concerns.
    producer = Producer({**settings, "error_cb": lambda _: None})
    producer.init_transactions(DEADLINE_S)
    return producer


def send(producer: Producer, topic: str, *values: str) -> None:
    """Starts a transaction that has records in each partition."""
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)


def read(cluster: LocalCluster, topic: str, level: str = "read_committed") -> list[str]:
    """Returns the values that a consumer of librdkafka reads up to the end of each partition, in alphabetical order."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": "readers",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values, ended = [], set()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, (values, ended)
            message = consumer.poll(0.5)
            if message is None:
                continue
            problem = message.error()
            if problem is None:
                value = message.value()
                assert value is not None
                values.append(value.decode())
            elif problem.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(values)


def test_readers_get_committed_records_only(cluster: LocalCluster, topic: str) -> None:
    producer = producer_of(cluster, topic)
    send(producer, topic, "a1", "a2", "a3")
    producer.commit_transaction(DEADLINE_S)
    send(producer, topic, "b1", "b2", "b3")
    producer.flush(DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    send(producer, topic, "c1")
    producer.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["a1", "a2", "a3", "c1"]
    assert read(cluster, topic, "read_uncommitted") == ["a1", "a2", "a3", "b1", "b2", "b3", "c1"]
    send(producer, topic, "d1", "d2")
    assert producer.flush(DEADLINE_S) == 0
    assert read(cluster, topic) == ["a1", "a2", "a3", "c1"], "the transaction is open"
    producer.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["a1", "a2", "a3", "c1", "d1", "d2"]


def test_former_instances_cannot_commit(cluster: LocalCluster, topic: str) -> None:
    former = producer_of(cluster, topic)
    send(former, topic, "old1", "old2")
    assert former.flush(DEADLINE_S) == 0
    present = producer_of(cluster, topic)
    with pytest.raises(KafkaException) as problem:
        former.commit_transaction(DEADLINE_S)
    assert problem.value.args[0].code() == KafkaError._FENCED
    send(present, topic, "new")
    present.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["new"]


def test_timeouts_must_be_allowed(cluster: LocalCluster) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "transactional.id": "slow",
            "transaction.timeout.ms": 2_000_000_000,
            "log_level": 0,
        }
    )
    with pytest.raises(KafkaException) as problem:
        producer.init_transactions(DEADLINE_S)
    assert problem.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# The sequences of librdkafka's own test 0103.


def watermark(cluster: LocalCluster, topic: str, level: str) -> int:
    """Returns the end of partition 0 that a consumer of librdkafka receives."""
    consumer = consumer_of(cluster, topic, level)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_S)
        return int(end)
    finally:
        consumer.close()


def consumer_of(cluster: LocalCluster, group: str, level: str = "read_committed") -> Consumer:
    """Returns a consumer of librdkafka without partitions."""
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "group.id": group, "isolation.level": level}
    return Consumer({**settings, "enable.auto.commit": False})


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("offset", [None, 5])
def test_transactions_without_records(cluster: LocalCluster, topic: str, offset: int | None, commits: bool) -> None:
    producer, consumer = producer_of(cluster, topic), consumer_of(cluster, topic)
    try:
        for _ in range(2):
            producer.begin_transaction()
            if offset is not None:
                offsets = [TopicPartition(topic, 0, offset)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
            (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
        [committed] = consumer.committed([TopicPartition(topic, 0)], DEADLINE_S)
        assert committed.offset == (offset if commits and offset is not None else OFFSET_INVALID)
    finally:
        consumer.close()
    send(producer, topic, "a")
    producer.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["a"]


@pytest.mark.parametrize("commits", [True, False])
def test_ends_depend_on_the_isolation_level(cluster: LocalCluster, topic: str, commits: bool) -> None:
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, "a", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert [watermark(cluster, topic, level) for level in ("read_uncommitted", "read_committed")] == [3, 0]
    (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
    ends = [watermark(cluster, topic, level) for level in ("read_uncommitted", "read_committed")]
    assert ends == [4, 4], "the marker takes an offset"


@pytest.mark.parametrize("sends", [True, False])
def test_fenced_instances_fail_for_good(cluster: LocalCluster, topic: str, sends: bool) -> None:
    """Another instance starts while a transaction is open; the former one continues to send, or commits at once."""
    former = producer_of(cluster, topic)
    send(former, topic, "old1")
    assert former.flush(DEADLINE_S) == 0
    present = producer_of(cluster, topic)
    if sends:
        former.produce(topic, "old2", partition=0)
        # confluent-kafka raises a fatal error from whatever serves callbacks, or else from the next call.
        with contextlib.suppress(KafkaException):
            former.flush(DEADLINE_S)
    with pytest.raises(KafkaException) as problem:
        former.commit_transaction(DEADLINE_S)
    error = problem.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    for value in ("new1", "new2"):
        send(present, topic, value)
        present.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["new1", "new2"]


def test_transactions_end_after_their_timeout(cluster: LocalCluster, topic: str) -> None:
    """The producer learns that it is too late; its next instance continues."""
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "transactional.id": topic, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000})
    producer.init_transactions(DEADLINE_S)
    send(producer, topic, "late")
    assert producer.flush(DEADLINE_S) == 0
    deadline = time.monotonic() + DEADLINE_S
    while watermark(cluster, topic, "read_committed") < 2:
        assert time.monotonic() < deadline, "the transaction is still open"
        time.sleep(0.2)
    with pytest.raises(KafkaException) as problem:
        producer.commit_transaction(DEADLINE_S)
    error = problem.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    following = producer_of(cluster, topic)
    send(following, topic, "new")
    following.commit_transaction(DEADLINE_S)
    assert read(cluster, topic) == ["new"]


async def test_aiokafka_commits_and_aborts(cluster: LocalCluster, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.kafka_bootstrap_servers, transactional_id=topic)
    async with asyncio.timeout(DEADLINE_S), producer:
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    assert await asyncio.to_thread(read, cluster, topic) == ["a", "c"]


def test_kafka_python_commits_and_aborts(cluster: LocalCluster, topic: str) -> None:
    servers = cluster.kafka_bootstrap_servers.split(",")
    producer, former = (KafkaProducer(bootstrap_servers=servers, transactional_id=topic) for _ in range(2))
    try:
        former.init_transactions()
        producer.init_transactions()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).get(DEADLINE_S)
            (producer.commit_transaction if commit else producer.abort_transaction)()
        former.begin_transaction()
        with pytest.raises(ProducerFencedError):
            former.send(topic, b"d", partition=0).get(DEADLINE_S)
    finally:
        producer.close(DEADLINE_S)
        former.close(0)
    assert read(cluster, topic) == ["a", "c"]


def commit_or_abort(producer: Producer, send_all: Callable[[], None]) -> bool:
    """Runs one transaction. Returns True if it is committed; otherwise it is aborted, and may be run again."""
    try:
        send_all()
        producer.commit_transaction(DEADLINE_S)
    except KafkaException as problem:
        error = problem.args[0]
        assert error.txn_requires_abort(), error
        producer.abort_transaction(DEADLINE_S)
        return False
    return True


def test_transactions_continue_while_coordinators_are_killed(cluster: LocalCluster, topic: str) -> None:
    """The leader of each coordinator and of each partition is killed once, in the middle of a transaction."""
    producer = producer_of(cluster, topic)
    committed = []
    for number in range(12):
        values = [f"{number:02}-{place}" for place in range(4)]
        killed = cluster.node_ids[number // 4] if number % 4 == 1 else None

        def send_all(values: list[str] = values, killed: int | None = killed) -> None:
            send(producer, topic, *values)
            if killed is not None:
                producer.flush(DEADLINE_S)
                cluster.kill(killed)

        while not commit_or_abort(producer, send_all):
            pass
        committed += values
        if killed is not None:
            cluster.start(killed)
    assert read(cluster, topic) == committed
    assert leader_of(cluster, topic) in cluster.node_ids


def copy_in_transactions(cluster: LocalCluster, source: str, target: str, kill_at: int | None, most: int) -> int:
    """Copies up to ``most`` records from one topic into another, exactly once. Returns the number of records that were
    committed; every fifth transaction is aborted on purpose, and a node is killed in the middle of one."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": target,
            # The next instance waits as long for a member that has not left.
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    producer = producer_of(cluster, target)
    copied, deadline = 0, time.monotonic() + 2 * DEADLINE_S
    for number in itertools.count():
        if copied >= most:
            break
        messages = []
        while not messages:
            assert time.monotonic() < deadline, (copied, most)
            messages = [each for each in consumer.consume(50, 1.0) if each.error() is None]
        producer.begin_transaction()

        def send_all(messages: list[Message] = messages, killed: bool = number == kill_at) -> None:
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
            if killed:
                cluster.kill(leader_of(cluster, source))

        if number % 5 != 3 and commit_or_abort(producer, send_all):
            copied += len(messages)
            continue
        if number % 5 == 3:
            send_all()
            producer.abort_transaction(DEADLINE_S)
        for each in consumer.committed(consumer.assignment(), DEADLINE_S):
            consumer.seek(TopicPartition(source, each.partition, max(each.offset, 0)))
    return copied


def test_offsets_are_committed_with_the_records(cluster: LocalCluster, topic: str) -> None:
    """A copy is stopped in the middle, without leaving its group, and continued by another instance; a node is killed
    in between. Each record is copied once."""
    values = [f"{number:04}" for number in range(1_000)]
    target = f"{topic}-copy"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(target, PARTITIONS, 3)])
    with OwnProducer(bootstrap_servers=cluster.bootstrap_servers) as own:
        for number, value in enumerate(values):
            own.send(topic, value.encode(), partition=number % PARTITIONS)
    first = copy_in_transactions(cluster, topic, target, kill_at=2, most=300)
    for node in cluster.node_ids:
        if not cluster.is_running(node):
            cluster.start(node)
    second = copy_in_transactions(cluster, topic, target, kill_at=None, most=len(values) - first)
    assert first + second == len(values)
    assert read(cluster, target) == values
