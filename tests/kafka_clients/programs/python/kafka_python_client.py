"""Writes and reads records with kafka-python: ``write SERVERS TOPIC CODEC``, ``read SERVERS TOPIC GROUP COUNT``."""

from __future__ import annotations

import sys
import time

from exchange import Line, print_lines, read_lines
from kafka import KafkaConsumer, KafkaProducer


def write(servers: str, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers.split(","),
        acks="all",
        compression_type=None if codec == "none" else codec,
        max_request_size=2 << 20,
    )
    sent = [
        producer.send(topic, line.value, line.key, line.headers, line.partition, line.timestamp)
        for line in read_lines()
    ]
    for each in sent:
        each.get(60)
    producer.close()


def read(servers: str, topic: str, group: str, count: str) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=True,
    )
    left, until = int(count), time.monotonic() + 60
    while left:
        if time.monotonic() > until:
            raise SystemExit(f"{left} records did not come")
        for records in consumer.poll(timeout_ms=200, max_records=left).values():
            print_lines(
                Line(each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
                for each in records
            )
            left -= len(records)
    consumer.commit()
    consumer.close()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
