"""Apache Kafka by confluent-kafka: C's librdkafka with a Python face."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.figures import Figures, summarize
from bench.peers.clients.kill_watch import EVERY_S, KillWatch
from bench.peers.clients.target import PATIENCE_S, SILENCE_S, LoadFailedError, Target

#: Messages of one call of ``consume``, unless the options say ``records_per_poll``.
_RECORDS_PER_POLL = 500
#: Acknowledgements are taken in after so many records: the queue of librdkafka holds 100,000.
_SERVE_EVERY = 1_000


def create(target: Target) -> None:
    """Makes the topic."""
    admin = AdminClient({"bootstrap.servers": target.servers})
    topic = NewTopic(target.topic, target.partitions, 3, config=dict(target.configs))
    for made in admin.create_topics([topic]).values():
        made.result(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while min(_leaders(admin, target), default=-1) < 0:
        if time.monotonic() > deadline:
            raise LoadFailedError(f"topic {target.topic} has no leader for every partition")
        time.sleep(0.1)


def leader(target: Target) -> str:
    """The node id of partition 0's leader."""
    return str(_leaders(AdminClient({"bootstrap.servers": target.servers}), target)[0])


def records(target: Target) -> int:
    """Returns the number of records that the topic has been given, by its last offsets."""
    consumer = Consumer({"bootstrap.servers": target.servers, "group.id": "bench"})
    partitions = [TopicPartition(target.topic, number) for number in range(target.partitions)]
    ends = [consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)[1] for partition in partitions]
    consumer.close()
    return sum(ends)


def _leaders(admin: AdminClient, target: Target) -> list[int]:
    partitions = admin.list_topics(target.topic, timeout=PATIENCE_S).topics[target.topic].partitions
    return [partitions[number].leader for number in sorted(partitions)]


class _Deliveries:
    """Counts acknowledgements; a record that is not acknowledged ends the load."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise LoadFailedError(error.str())
        self.count += 1


def _producer(target: Target) -> Producer:
    """Idempotent, and so with ``acks=all``."""
    return Producer({"bootstrap.servers": target.servers, "enable.idempotence": True, **target.options})


def produce(target: Target, size: int, count: int) -> Figures:
    """One call of ``produce`` per record, with a callback."""
    value, done = os.urandom(size), _Deliveries()
    producer = _producer(target)
    producer.produce(target.topic, value=value, on_delivery=done)
    producer.flush(PATIENCE_S)
    begin = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(target.topic, value=value, on_delivery=done)
                break
            except BufferError:
                producer.poll(0.01)
        if number % _SERVE_EVERY == 0:
            producer.poll(0)
    producer.flush(PATIENCE_S)
    elapsed = time.perf_counter() - begin
    if done.count != count + 1:
        raise LoadFailedError(f"{done.count - 1} of {count} records were acknowledged")
    return summarize(elapsed, count, count * size, [])


def singly(target: Target, size: int, count: int) -> Figures:
    """``produce``, then ``poll`` until it is acknowledged."""
    value, done, latencies = os.urandom(size), _Deliveries(), []
    producer = _producer(target)
    begin = time.perf_counter()
    for number in range(-20, count):
        sent, wanted = time.perf_counter(), done.count + 1
        begin = sent if number == 0 else begin
        producer.produce(target.topic, value=value, on_delivery=done)
        while done.count < wanted:
            if not producer.poll(PATIENCE_S) and time.perf_counter() - sent > PATIENCE_S:
                raise LoadFailedError("a record was not acknowledged")
        if number >= 0:
            latencies.append(time.perf_counter() - sent)
    return summarize(time.perf_counter() - begin, count, count * size, latencies)


def consume(target: Target, size: int, count: int) -> Figures:
    """``consume`` of many messages at a time, and every message's value looked at."""
    options = dict(target.options)
    at_once = options.pop("records_per_poll", _RECORDS_PER_POLL)
    servers = {"bootstrap.servers": target.servers, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**servers, **options})
    consumer.assign([TopicPartition(target.topic, number, 0) for number in range(target.partitions)])
    received = 0
    begin = last = time.perf_counter()
    while received < count:
        messages: list[Any] = consumer.consume(at_once, timeout=0.5)
        got = sum(1 for message in messages if message.error() is None and message.value() is not None)
        received, now = received + got, time.perf_counter()
        last = now if got else last
        if now - last > SILENCE_S:
            raise LoadFailedError(f"{received} of {count} records came, then none for {SILENCE_S:.0f} s")
    elapsed = time.perf_counter() - begin
    consumer.close()
    return summarize(elapsed, received, received * size, [])


def steady(target: Target, size: int) -> dict[str, object]:
    """A record every few milliseconds until a killed server has been got over."""
    value, watch = os.urandom(size), KillWatch()
    producer = _producer(target)

    def done(sent_ns: int, error: KafkaError | None, _: Message) -> None:
        if error is None:
            watch.acknowledged(sent_ns)
        else:
            watch.failed()

    while not watch.over():
        producer.produce(target.topic, value=value, partition=0, on_delivery=partial(done, time.monotonic_ns()))
        producer.poll(EVERY_S)
    return watch.result()
