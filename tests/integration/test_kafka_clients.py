"""Kafka's own clients on real nodes: what they write every client reads, what they ask for is done, or refused in words
that they support, and bytes that are not a request harm no one."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import struct
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KpTopicPartition

import quorumlog.sdk as quorumlog
from quorumlog.local import LocalCluster
from tests.support.command_line import until

pytestmark = pytest.mark.cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Key, value, headers: with nulls, with a header without a value, with a record of some size.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", [("trace", b"1"), ("none", None)]),
    (None, b"without a key", []),
    (b"gone", None, []),
    (b"", b"", [("", b"")]),
    (b"large", bytes(300_000), []),
]
DEADLINE_S = 60.0
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"kafka_max_connections_per_ip": 60, "kafka_auto_create_topics_enable": "false"}
    with LocalCluster(nodes=3, kafka=True, settings=settings) as running:
        yield running
        for node in running.node_ids:
            assert running.is_running(node), running.log_path(node).read_text()[-2_000:]
            assert "fault=failed" not in running.log_path(node).read_text()


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"topic-{next(_numbers)}"
    created(admin, NewTopic(name, 2, 3))
    return name


def created(admin: AdminClient, *topics: NewTopic) -> None:
    for future in admin.create_topics(list(topics)).values():
        future.result(DEADLINE_S)


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    return int(refused.value.args[0].code())


def write(cluster: LocalCluster, topic: str, **settings: object) -> None:
    """The records, into partition 0, by librdkafka."""
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0, **settings})
    failures: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for key, value, headers in RECORDS:
        producer.produce(topic, value, key, 0, headers=headers, on_delivery=told)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def read(cluster: LocalCluster, topic: str, records: int) -> list[tuple[object, object, list[tuple[str, object]]]]:
    """So many records of partition 0 from its beginning, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": "nobody",
            "log_level": 0,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[object, object, list[tuple[str, object]]]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < records and time.monotonic() < deadline:
            for message in consumer.consume(records - len(found), 0.2):
                assert message.error() is None, message.error()
                found.append((message.key(), message.value(), list(message.headers() or [])))
        return found
    finally:
        consumer.close()


def read_by_ours(cluster: LocalCluster, topic: str, records: int) -> list[tuple[object, object, list[Any]]]:
    consumer = quorumlog.Consumer(bootstrap_servers=cluster.bootstrap_servers)
    try:
        place = quorumlog.TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[tuple[object, object, list[Any]]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < records and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=200).values():
                found += [(each.key, each.value, list(each.headers)) for each in batch]
        return found
    finally:
        consumer.close()


# -- records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_what_librdkafka_writes_it_reads_and_ours_reads_the_same(cluster: LocalCluster, topic: str, codec: str) -> None:
    write(cluster, topic, **{"compression.type": codec})
    assert read(cluster, topic, len(RECORDS)) == RECORDS
    assert read_by_ours(cluster, topic, len(RECORDS)) == RECORDS


def test_what_ours_writes_kafkas_clients_read(cluster: LocalCluster, topic: str) -> None:
    with quorumlog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for key, value, headers in RECORDS:
            producer.send(topic, value, key=key, headers=headers, partition=0)
        producer.flush()
    assert read(cluster, topic, len(RECORDS)) == RECORDS


def test_an_idempotent_producer_writes_each_record_once(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic, **{"enable.idempotence": True})
    write(cluster, topic, **{"enable.idempotence": True})
    assert read(cluster, topic, 2 * len(RECORDS)) == RECORDS * 2


def test_a_producer_without_acknowledgements_writes(cluster: LocalCluster, topic: str) -> None:
    write(cluster, topic)  # What is sent without waiting may be lost while a new topic has no leader yet.
    write(cluster, topic, acks=0)
    assert read(cluster, topic, 2 * len(RECORDS)) == RECORDS * 2


async def test_aiokafka_writes_and_reads(cluster: LocalCluster, topic: str) -> None:
    servers = cluster.kafka_bootstrap_servers
    async with AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, compression_type="gzip"
    ) as producer:
        for key, value, _ in RECORDS:
            await producer.send_and_wait(topic, value, key=key, partition=0)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    try:
        place = AioTopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        found = []
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < len(RECORDS):
                record = await consumer.getone()
                found.append((record.key, record.value))
    finally:
        await consumer.stop()
    assert found == [(key, value) for key, value, _ in RECORDS]


def test_kafka_python_writes_and_reads(cluster: LocalCluster, topic: str) -> None:
    servers = cluster.kafka_bootstrap_servers.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, compression_type="gzip")
    for key, value, _ in RECORDS:
        producer.send(topic, value, key, partition=0)
    producer.flush(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    place = KpTopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: list[tuple[object, object]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < len(RECORDS) and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=200).values():
            found += [(each.key, each.value) for each in batch]
    consumer.close()
    assert found == [(key, value) for key, value, _ in RECORDS]


def test_a_compacted_topic_refuses_a_record_without_a_key(cluster: LocalCluster, admin: AdminClient) -> None:
    name = f"compacted-{next(_numbers)}"
    created(admin, NewTopic(name, 1, 3, config={"cleanup.policy": "compact"}))
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0, "linger.ms": 0})
    reported: dict[bytes, KafkaError | None] = {}
    for key, value in ((b"key", b"kept"), (None, b"refused")):
        producer.produce(name, value, key, on_delivery=lambda error, message: reported.update({message.value(): error}))
        assert producer.flush(DEADLINE_S) == 0
    refused = reported[b"refused"]
    assert reported[b"kept"] is None
    assert refused is not None
    assert refused.code() == KafkaError.INVALID_RECORD


def test_places_are_found_by_time_beginning_end_and_latest_record(
    cluster: LocalCluster, admin: AdminClient, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})
    begin_ms = int(time.time() * 1_000) - 60_000  # What is much older is deleted at once.
    for at, time_ms in enumerate((1_000, 5_000, 3_000)):
        producer.produce(topic, b"%d" % at, partition=0, timestamp=begin_ms + time_ms)
        assert producer.flush(DEADLINE_S) == 0

    def offset(spec: OffsetSpec) -> int:
        (future,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        return int(future.result(DEADLINE_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.for_timestamp(begin_ms + 2_000)) == 1
    assert offset(OffsetSpec.for_timestamp(begin_ms + 6_000)) == -1
    assert offset(OffsetSpec.max_timestamp()) == 1


# -- groups -------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_topic(cluster: LocalCluster, topic: str) -> str:
    """A topic with ten records in each of its two partitions."""
    with quorumlog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()
    return topic


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.partition: each.offset for each in future.result(DEADLINE_S).topic_partitions}


def test_librdkafkas_members_share_a_topic_commit_and_take_over(
    cluster: LocalCluster, admin: AdminClient, full_topic: str
) -> None:
    group = f"group-{next(_numbers)}"
    settings = {
        "bootstrap.servers": cluster.kafka_bootstrap_servers,
        "group.id": group,
        "log_level": 0,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,
        "enable.auto.commit": False,
    }
    members = [Consumer(settings), Consumer(settings)]
    try:
        values: list[object] = []

        def consume() -> None:
            for member in members:
                values.extend(message.value() for message in member.consume(10, 0.05))

        def is_shared() -> bool:
            consume()
            own = [member.assignment() for member in members]
            if len(set(values)) < 20 or [len(each) for each in own] != [1, 1]:
                return False
            # Who came first may have read all of it alone: the other one reads its half again then.
            places = [member.position(each)[0] for member, each in zip(members, own, strict=True)]
            return [place.offset for place in places] == [10, 10]

        for member in members:
            member.subscribe([full_topic])
        until(is_shared, "each member has read one partition")
        delivered = len(values)
        for member in members:
            member.commit(asynchronous=False)
        assert committed(admin, group) == {0: 10, 1: 10}
        (described,) = admin.describe_consumer_groups([group]).values()
        assert len(described.result(DEADLINE_S).members) == 2
        assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
        members.pop().close()

        def took_over() -> bool:
            consume()
            return len(members[0].assignment()) == 2

        until(took_over, "the one that stays has both partitions")
        assert len(values) == delivered, "nothing was delivered again"
    finally:
        for member in members:
            member.close()
    assert group in {each.group_id for each in admin.list_consumer_groups().result(DEADLINE_S).valid}
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)


@pytest.mark.parametrize("restarted", [0, 1], ids=["first", "last"])
def test_a_static_member_that_starts_anew_has_nobody_join_again(
    cluster: LocalCluster, full_topic: str, restarted: int
) -> None:
    """Cooperative members report their partitions: a restarted member owns nothing, and still gets the same."""
    group = f"group-{next(_numbers)}"

    def member(number: int) -> Consumer:
        made = Consumer(
            {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "group.id": group,
                "log_level": 0,
                "group.instance.id": f"member-{number}",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
            }
        )
        made.subscribe([full_topic])
        return made

    def is_shared() -> bool:
        for each in members:
            each.poll(0.05)
        return [len(each.assignment()) for each in members] == [1, 1]

    members = [member(0), member(1)]
    try:
        until(is_shared, "each member has one partition")
        with quorumlog.Admin(bootstrap_servers=cluster.bootstrap_servers) as ours:
            (before,) = ours.describe_groups([group])
            members[restarted].close()
            members[restarted] = member(restarted)
            until(is_shared, "the restarted member has its partition again")
            (after,) = ours.describe_groups([group])
        assert (after.generation, after.state) == (before.generation, before.state)
        assert {each.member_id for each in after.members} != {each.member_id for each in before.members}
    finally:
        for each in members:
            each.close()


async def test_aiokafkas_members_share_a_topic(cluster: LocalCluster, admin: AdminClient, full_topic: str) -> None:
    group = f"group-{next(_numbers)}"
    options = {"bootstrap_servers": cluster.kafka_bootstrap_servers, "group_id": group}
    members = [AIOKafkaConsumer(full_topic, auto_offset_reset="earliest", **options) for _ in range(2)]
    await asyncio.gather(*(member.start() for member in members))
    values: set[object] = set()
    async with asyncio.timeout(DEADLINE_S):
        while len(values) < 20 or [len(member.assignment()) for member in members] != [1, 1]:
            for member in members:
                for batch in (await member.getmany(timeout_ms=50)).values():
                    values |= {each.value for each in batch}
    for member in members:
        await member.commit()
        await member.stop()
    assert committed(admin, group) == {0: 10, 1: 10}


def test_kafka_pythons_member_goes_on_where_the_group_was(
    cluster: LocalCluster, admin: AdminClient, full_topic: str
) -> None:
    group = f"group-{next(_numbers)}"

    def read_as_member(records: int) -> list[object]:
        member = KafkaConsumer(
            full_topic,
            bootstrap_servers=cluster.kafka_bootstrap_servers.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=records,
        )
        values: list[object] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < records and time.monotonic() < deadline:
            for batch in member.poll(timeout_ms=200, max_records=records - len(values)).values():
                values += [each.value for each in batch]
        member.commit()
        member.close()
        return values

    assert sorted(read_as_member(12) + read_as_member(8)) == sorted(b"%d" % number for number in range(20))
    assert committed(admin, group) == {0: 10, 1: 10}


def test_offsets_that_a_kafka_group_commits_ours_go_on_from(
    cluster: LocalCluster, admin: AdminClient, full_topic: str
) -> None:
    group = f"group-{next(_numbers)}"
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "group.id": group, "log_level": 0}
    outsider = Consumer(settings)
    outsider.commit(offsets=[TopicPartition(full_topic, 0, 7), TopicPartition(full_topic, 1, 9)], asynchronous=False)
    outsider.close()
    assert committed(admin, group) == {0: 7, 1: 9}
    ours = quorumlog.Consumer(
        full_topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    )
    try:
        offsets: set[tuple[int, int]] = set()

        def is_read() -> bool:
            for batch in ours.poll(timeout_ms=100).values():
                offsets.update((each.partition, each.offset) for each in batch)
            return len(offsets) == 4

        until(is_read, "what the group has not read yet is read")
        assert offsets == {(0, 7), (0, 8), (0, 9), (1, 9)}
    finally:
        ours.close()


# -- administration -----------------------------------------------------------------------------------------------


def test_topics_are_created_described_grown_changed_emptied_and_deleted(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    name = f"administered-{next(_numbers)}"
    created(admin, NewTopic(name, 1, config={"retention.ms": "60000", "segment.bytes": "1000000"}))
    resource = ConfigResource("topic", name)

    def described() -> dict[str, str]:
        (future,) = admin.describe_configs([resource]).values()
        return {key: entry.value for key, entry in future.result(DEADLINE_S).items()}

    assert described()["retention.ms"] == "60000"
    assert described()["max.message.bytes"] == "1048588"
    changed = ConfigResource("topic", name)
    changed.add_incremental_config(ConfigEntry("retention.ms", "70000", incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([changed])[changed].result(DEADLINE_S)
    until(lambda: described()["retention.ms"] == "70000", "the changed value is reported")
    admin.create_partitions([NewPartitions(name, 3)])[name].result(DEADLINE_S)
    until(
        lambda: len(admin.list_topics(name, DEADLINE_S).topics[name].partitions) == 3, "three partitions are reported"
    )
    write(cluster, name)
    place = TopicPartition(name, 0, 2)
    assert admin.delete_records([place])[place].result(DEADLINE_S).low_watermark == 2
    admin.delete_topics([name])[name].result(DEADLINE_S)
    until(lambda: name not in admin.list_topics(timeout=DEADLINE_S).topics, "the topic is gone")


def test_patterns_find_underscored_topics(cluster: LocalCluster, admin: AdminClient) -> None:
    """A consumer that subscribes to a pattern reads a tool's topic whose name starts with ``__``."""
    name = f"__debezium-heartbeat.{next(_numbers)}"
    created(admin, NewTopic(name, 1, 3))
    write(cluster, name)
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "group.id": name, "log_level": 0}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    found: list[object] = []
    try:
        consumer.subscribe(["^__debezium.*"])
        until(lambda: bool(found.extend(consumer.consume(10, 0.2)) or len(found) >= len(RECORDS)), "records arrive")
    finally:
        consumer.close()
    with quorumlog.Admin(bootstrap_servers=cluster.bootstrap_servers) as ours:
        listed = ours.list_topics()
    assert name in listed
    assert "__groups" not in listed


def test_what_is_not_done_is_refused_in_kafkas_words(cluster: LocalCluster, admin: AdminClient, topic: str) -> None:
    def creation(new: NewTopic) -> int:
        return code_of(admin.create_topics([new])[new.topic])

    assert creation(NewTopic(topic, 1, 3)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert creation(NewTopic("__consumer_offsets", 1, 3)) == KafkaError.TOPIC_EXCEPTION
    assert creation(NewTopic("wide", 1, 5)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert creation(NewTopic("unclean", 1, 3, config={"unclean.leader.election.enable": "true"})) == (
        KafkaError.INVALID_CONFIG
    )
    assert code_of(admin.delete_topics(["nowhere"])["nowhere"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    node = ConfigResource("broker", "1")
    node.add_incremental_config(ConfigEntry("log.retention.ms", "1", incremental_operation=AlterConfigOpType.SET))
    assert code_of(admin.incremental_alter_configs([node])[node]) == KafkaError.INVALID_CONFIG


def test_a_topic_that_is_mentioned_is_not_created(cluster: LocalCluster, admin: AdminClient) -> None:
    reported = admin.list_topics("mentioned", DEADLINE_S).topics["mentioned"]
    assert reported.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "mentioned" not in admin.list_topics(timeout=DEADLINE_S).topics


# -- hostile input ------------------------------------------------------------------------------------------------


def connect(cluster: LocalCluster) -> socket.socket:
    host, _, port = cluster.kafka_bootstrap_servers.split(",")[0].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def is_closed(connection: socket.socket) -> bool:
    """True if the other side has closed the connection; waits for something to arrive."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_bytes_that_are_no_request_end_their_connection_alone_with_one_line(cluster: LocalCluster, topic: str) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    hostile = [
        struct.pack(">i", -1),
        struct.pack(">i", (1 << 31) - 1),
        struct.pack(">ihh", 4, 0, 3),
        struct.pack(">ihhih", 10, 3, 9, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        *(struct.pack(">i", 60) + chance.randbytes(60) for _ in range(20)),
    ]
    log = cluster.log_path(1)
    told_before = log.read_text().count("kafka_connection_ended")
    for frame in hostile:
        with connect(cluster) as connection:
            connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
            assert is_closed(connection), f"seed {seed}: {frame.hex()}"
    reported = log.read_text().count("kafka_connection_ended") - told_before
    assert 1 <= reported <= len(hostile), f"seed {seed}"
    write(cluster, topic)


def test_connections_beyond_the_limits_are_closed_and_the_others_go_on(cluster: LocalCluster, topic: str) -> None:
    open_ones = [connect(cluster) for _ in range(80)]
    try:
        # No one says anything on them: what can be read is their end.
        until(lambda: len(select.select(open_ones, [], [], 0)[0]) >= 20, "20 connections are closed")
    finally:
        for one in open_ones:
            one.close()
    write(cluster, topic)
