"""Our own ways in and out, beside Kafka's clients: the SDK's producer, ``poll``, ``poll_arrow``, and Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from exchange import Line

from quorumlog.sdk import Consumer, Producer, TopicPartition
from quorumlog.sdk.spark import local_session

_DONE_WITHIN_S = 60


def write(servers: str, topic: str, codec: str, records: Sequence[Line]) -> None:
    """Writes records with ``Producer.send``."""
    with Producer(bootstrap_servers=servers, compression_type=codec, max_request_size=2 << 20) as producer:
        sent = [
            producer.send(
                topic,
                each.value,
                key=each.key,
                headers=each.headers,
                partition=each.partition,
                timestamp_ms=each.timestamp,
            )
            for each in records
        ]
        for outcome in sent:
            outcome.result(_DONE_WITHIN_S)


def with_poll(servers: str, topic: str, count: int) -> list[Line]:
    """Reads records with ``Consumer.poll``."""
    return _read(servers, topic, count, _polled)


def with_poll_arrow(servers: str, topic: str, count: int) -> list[Line]:
    """Reads records with ``Consumer.poll_arrow``."""
    return _read(servers, topic, count, lambda consumer: _of_rows(consumer.poll_arrow(timeout_ms=200).to_pylist()))


def with_spark(servers: str, topic: str, count: int) -> list[Line]:
    """Reads what a topic has as a batch of Spark."""
    source = local_session("matrix").read.format("quorumlog").option("quorumlog.bootstrap.servers", servers)
    rows = source.option("subscribe", topic).option("includeHeaders", "true").load().toArrow().to_pylist()
    assert len(rows) == count
    return _of_rows(rows)


READERS: dict[str, Callable[[str, str, int], list[Line]]] = {
    "poll": with_poll,
    "poll_arrow": with_poll_arrow,
    "Spark": with_spark,
}


def _read(servers: str, topic: str, count: int, take: Callable[[Consumer], list[Line]]) -> list[Line]:
    until = time.monotonic() + _DONE_WITHIN_S
    found: list[Line] = []
    with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} records came"
            found += take(consumer)
    return found


def _polled(consumer: Consumer) -> list[Line]:
    return [
        Line(each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
        for records in consumer.poll(timeout_ms=200).values()
        for each in records
    ]


def _of_rows(rows: list[dict[str, Any]]) -> list[Line]:
    return [
        Line(
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1_000),
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"] or ()],
        )
        for row in rows
    ]
