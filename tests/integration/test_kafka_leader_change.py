"""Kafka's consumers while the leader of what they read is killed: they ask whether their position is still in the log,
and read on. And their sessions of fetches, on real nodes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest
from command_line import leader_of
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KpTopicPartition

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk import TopicPartition as OwnTopicPartition
from quorumlog.sdk.errors import ElectionNotNeededError

pytestmark = pytest.mark.cluster

TOPIC = "orders"
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # Leaders are killed here. What is led on a busy machine must not move on its own in the meantime.
    with LocalCluster(nodes=3, kafka=True, settings={"election_timeout_ms": 3_000}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3), NewTopic("many", 40, 3)])
        yield running
        for node in running.node_ids:
            assert "fault=failed" not in running.log_path(node).read_text()


def write(cluster: LocalCluster, first: int, count: int) -> None:
    """Records that say their numbers, each acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(TOPIC, value=b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0


def leaders_of(cluster: LocalCluster, topic: str) -> set[int | None]:
    """The nodes that lead partitions of a topic, as metadata reports."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        [described] = admin.describe_topics([topic])
    return {partition.leader for partition in described.partitions}


def led_by_the_preferred(cluster: LocalCluster, topic: str, partitions: int) -> bool:
    """Hands a topic's partitions to their preferred leaders; whether each of them is led by its own then."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        elected = admin.elect_leaders([OwnTopicPartition(topic, number) for number in range(partitions)])
    return all(problem is None or isinstance(problem, ElectionNotNeededError) for problem in elected.values())


def within_deadline(condition: Callable[[], bool], what: str) -> None:
    """Asks until it is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"


def test_a_consumer_of_librdkafka_looks_whether_its_position_is_there_and_reads_on(cluster: LocalCluster) -> None:
    told: list[str] = []

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = record.getMessage()
            if "OffsetForLeaderEpoch" in line:
                told.append(line)

    log = logging.Logger("librdkafka", logging.DEBUG)
    log.addHandler(Told())
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "debug": "protocol",
            "topic.metadata.refresh.interval.ms": 500,
        },
        logger=log,
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    read: list[int] = []

    def read_up_to(count: int) -> None:
        def is_there() -> bool:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                assert message.offset() == len(read)
                read.append(int(message.value() or b"-1"))
            return len(read) >= count

        within_deadline(is_there, f"{count} records, {len(read)} are there")

    for turn in range(2):
        write(cluster, 500 * turn, 500)
        read_up_to(500 * (turn + 1))
        leader = leader_of(cluster, TOPIC)
        cluster.kill(leader)
        within_deadline(lambda leader=leader: cluster.leader(TOPIC, 0) not in (None, leader), "another leader")  # type: ignore[misc]
        cluster.start(leader)
        cluster.wait_ready()
    write(cluster, 1_000, 500)
    read_up_to(1_500)
    within_deadline(
        lambda: consumer.poll(0.2) is None and any(line for line in told if "Sent" in line),
        "a look at where epochs end",
    )
    consumer.close()
    assert read == [*range(1_500)]
    # The reported position keeps it where it is: another position would have been read from.
    assert any("Received" in line for line in told), told


def test_a_consumer_of_kafka_python_reads_many_partitions_in_sessions(cluster: LocalCluster) -> None:
    # To a node that was killed leaderships return later by themselves: none shall move while they are read.
    within_deadline(lambda: led_by_the_preferred(cluster, "many", 40), "the preferred leaders")
    # Nodes apply it one after the other, and each look is at another one.
    within_deadline(lambda: leaders_of(cluster, "many") == set(cluster.node_ids), "each node leads some")
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "enable.idempotence": True})
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.kafka_bootstrap_servers.split(","),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    partitions = [KpTopicPartition("many", number) for number in range(40)]
    consumer.assign(partitions)
    read: dict[int, list[bytes | None]] = {number: [] for number in range(40)}

    def read_up_to(count: int) -> None:
        def is_there() -> bool:
            for place, records in consumer.poll(timeout_ms=200).items():
                read[place.partition] += [record.value for record in records]
            return sum(map(len, read.values())) >= count

        within_deadline(is_there, f"{count} records")

    for turn in range(5):
        for number in range(turn, 40, 5):
            producer.produce("many", value=b"%d" % turn, partition=number)
        assert producer.flush(DEADLINE_S) == 0
        read_up_to(8 * (turn + 1))
    assert read == {number: [b"%d" % (number % 5)] for number in range(40)}
    sessions = {node: handler.next_metadata for node, handler in consumer._fetcher._session_handlers.items()}
    assert sessions.keys() == leaders_of(cluster, "many")
    assert all(session.session_id for session in sessions.values()), sessions
    assert all(session.epoch > 1 for session in sessions.values()), sessions
    # Some are forgotten, others come, and one is read again from its beginning.
    consumer.assign(partitions[:10])
    consumer.seek_to_beginning(partitions[0])
    read[0] = []
    within_deadline(lambda: bool(consumer.poll(timeout_ms=200).get(partitions[0])), "the first partition again")
    assert all(handler.next_metadata.session_id for handler in consumer._fetcher._session_handlers.values())
    consumer.close()
