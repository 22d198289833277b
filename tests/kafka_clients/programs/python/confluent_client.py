"""Writes and reads records with confluent-kafka: ``write SERVERS TOPIC CODEC``, ``read SERVERS TOPIC GROUP COUNT``."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from exchange import Line, print_lines, read_lines


def write(servers: str, topic: str, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "message.max.bytes": 2 << 20,
        }
    )
    failed: list[Any] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for line in read_lines():
        headers: Any = line.headers
        producer.produce(
            topic, line.value, line.key, line.partition, on_delivery=told, timestamp=line.timestamp, headers=headers
        )
    left = producer.flush(60)
    if failed or left:
        raise SystemExit(f"{len(failed)} records failed, {left} are under way: {failed[:1]}")


def read(servers: str, topic: str, group: str, count: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "client.rack": os.environ.get("CLIENT_RACK", ""),
        }
    )
    consumer.subscribe([topic])
    left, until = int(count), time.monotonic() + 60
    while left:
        if time.monotonic() > until:
            raise SystemExit(f"{left} records did not come")
        for message in consumer.consume(left, 0.2):
            if message.error():
                raise KafkaException(message.error())
            place: Any = message
            at_ms = place.timestamp()[1]
            headers = list(place.headers() or ())
            print_lines([Line(place.partition(), place.offset(), at_ms, place.key(), place.value(), headers)])
            left -= 1
    consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
