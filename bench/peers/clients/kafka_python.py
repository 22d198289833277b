"""Apache Kafka by kafka-python: all of the protocol in Python."""

from __future__ import annotations

import os
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.figures import Figures, summarize
from bench.peers.clients.target import PATIENCE_S, SILENCE_S, LoadFailedError, Target


def _producer(target: Target) -> KafkaProducer:
    options = {"acks": "all", "enable_idempotence": True, **target.options}
    return KafkaProducer(bootstrap_servers=target.servers.split(","), **options)


def produce(target: Target, size: int, count: int) -> Figures:
    """``send`` without keys, one call per record."""
    value = os.urandom(size)
    producer = _producer(target)
    producer.send(target.topic, value).get(PATIENCE_S)
    begin = time.perf_counter()
    futures = [producer.send(target.topic, value) for _ in range(count)]
    producer.flush(PATIENCE_S)
    elapsed = time.perf_counter() - begin
    for future in futures:
        future.get(0)
    producer.close()
    return summarize(elapsed, count, count * size, [])


def singly(target: Target, size: int, count: int) -> Figures:
    """``send(...).get()``."""
    value, latencies = os.urandom(size), []
    producer = _producer(target)
    for _ in range(20):
        producer.send(target.topic, value).get(PATIENCE_S)
    begin = time.perf_counter()
    for _ in range(count):
        sent = time.perf_counter()
        producer.send(target.topic, value).get(PATIENCE_S)
        latencies.append(time.perf_counter() - sent)
    elapsed = time.perf_counter() - begin
    producer.close()
    return summarize(elapsed, count, count * size, latencies)


def consume(target: Target, size: int, count: int) -> Figures:
    """``poll``, and every record's value looked at."""
    options = {"enable_auto_commit": False, "group_id": None, "max_poll_records": 5_000, **target.options}
    consumer = KafkaConsumer(bootstrap_servers=target.servers.split(","), **options)
    assigned = [TopicPartition(target.topic, number) for number in range(target.partitions)]
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    received = 0
    begin = last = time.perf_counter()
    while received < count:
        polled = consumer.poll(timeout_ms=500)
        got = sum(1 for records in polled.values() for record in records if record.value is not None)
        received, now = received + got, time.perf_counter()
        last = now if got else last
        if now - last > SILENCE_S:
            raise LoadFailedError(f"{received} of {count} records came, then none for {SILENCE_S:.0f} s")
    elapsed = time.perf_counter() - begin
    consumer.close()
    return summarize(elapsed, received, received * size, [])
