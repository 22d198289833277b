"""Retention keeps what was just acknowledged, whatever the header of the batch says about its records' times."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import Servers
from exchange import Line
from matrix_clients import CLIENTS

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(900)]

COUNT = 10_000
KEPT_S = 60.0
_PATIENCE_S = 60.0
_CLIENTS = {client.name: client for client in CLIENTS}


def _now(_number: int) -> int:
    return time.time_ns() // 1_000_000


def _last_of_2001(number: int) -> int:
    """KafkaJS compares times as texts: the largest is the one of twelve digits."""
    return _now(number) if number < COUNT - 1 else 999_999_999_999


def _none(_number: int) -> int:
    return -1


WRITERS: dict[str, tuple[str, Callable[[int], int]]] = {
    "sarama without a largest timestamp": ("sarama 1.43", _now),
    "KafkaJS": ("KafkaJS 2.2", _now),
    "KafkaJS with a record of 2001": ("KafkaJS 2.2", _last_of_2001),
    "kafka-python without timestamps": ("kafka-python 3.0", _none),
    "aiokafka without timestamps": ("aiokafka 0.14", _none),
}


def new_topic(servers: Servers, **configs: str) -> str:
    """Creates a topic with one partition and the default configuration but for ``configs``."""
    name = f"retention-{uuid.uuid4().hex[:8]}"
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": servers.kafka})
    admin.create_topics([NewTopic(name, 1, 3, config=named)])[name].result(_PATIENCE_S)
    return name


def records_left(servers: Servers, topic: str) -> int:
    """Reads a topic to its end."""
    consumer = Consumer({"bootstrap.servers": servers.kafka, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count, until = 0, time.monotonic() + _PATIENCE_S
    try:
        while time.monotonic() < until:
            for message in consumer.consume(COUNT, 0.2):
                problem = message.error()
                if problem is None:
                    count += 1
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return count
    finally:
        consumer.close()
    raise AssertionError(f"{topic} was not read to its end within {_PATIENCE_S:g} s")


def expire_a_record(servers: Servers) -> None:
    """Waits until retention has removed the record of a topic that keeps a second."""
    topic = new_topic(servers, retention_ms="1000")
    producer = Producer({"bootstrap.servers": servers.kafka})
    producer.produce(topic, b"")
    assert producer.flush(_PATIENCE_S) == 0
    until = time.monotonic() + _PATIENCE_S
    while records_left(servers, topic):
        assert time.monotonic() < until, "retention does not run"
        time.sleep(0.5)


def test_retention_keeps_recent_records_of_old_clients(servers: Servers) -> None:
    """10,000 records of each client are there after a minute of retention."""
    topics = {}
    for writer, (name, timestamp) in WRITERS.items():
        topics[writer] = new_topic(servers)
        lines = [Line(0, -1, timestamp(number), b"key", b"%d" % number, []) for number in range(COUNT)]
        _CLIENTS[name].write(servers.kafka, topics[writer], "none", lines)
    end = time.monotonic() + KEPT_S
    while time.monotonic() < end:
        if servers.own:  # Apache Kafka looks every five minutes.
            expire_a_record(servers)
        time.sleep(1)
    left = {writer: records_left(servers, topic) for writer, topic in topics.items()}
    print(f"of {COUNT:,} acknowledged records, after {KEPT_S:g} s: {left}")
    assert left == dict.fromkeys(WRITERS, COUNT)
