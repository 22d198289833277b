"""One load of transactions in a process of its own, by confluent-kafka: ``python -m bench.transaction_load '{…}'``.

The same client measures quorumlog's port for Kafka clients and Apache Kafka. Each load creates its topic, and prints
its result as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.kafka_port.raw_client import find_transaction_coordinator
from bench.peers.clients import confluent
from bench.peers.clients.kill_watch import EVERY_S, KillWatch
from bench.peers.clients.target import PATIENCE_S, LoadFailedError, Target

#: Transactions before those that are measured: the first ones of a JVM are slow.
PRACTICE = 50
BATCH_RECORDS, BATCH_SIZE, BATCH_PARTITIONS = 100, 1_024, 8
_PAUSE_S = 0.05


def one_record(servers: str, count: int) -> dict[str, float]:
    """Writes one record, and one record in a transaction, in turn. Returns the medians in ms."""
    confluent.create(Target(servers, "one"))
    plain, value = _producer(servers), os.urandom(100)
    transactional = _producer(servers, "one")
    transactional.init_transactions(PATIENCE_S)
    taken: dict[str, list[float]] = {"plain_ms": [], "transaction_ms": []}
    for number in range(-PRACTICE, count):
        began = time.perf_counter()
        plain.produce("one", value)
        _flush(plain)
        between = time.perf_counter()
        transactional.begin_transaction()
        transactional.produce("one", value)
        transactional.commit_transaction(PATIENCE_S)
        if number >= 0:
            taken["plain_ms"].append((between - began) * 1e3)
            taken["transaction_ms"].append((time.perf_counter() - between) * 1e3)
    return {name: statistics.median(values) for name, values in taken.items()}


def batches(servers: str, count: int) -> dict[str, float]:
    """Writes 100 records over 8 partitions and waits for them, in a transaction and without one, in turn. Returns the
    rates in records/s."""
    confluent.create(Target(servers, "batches", BATCH_PARTITIONS))
    plain, transactional = _producer(servers), _producer(servers, "batches")
    transactional.init_transactions(PATIENCE_S)
    value = os.urandom(BATCH_SIZE)
    plain_s = transactional_s = 0.0

    def produce(producer: Producer) -> None:
        for number in range(BATCH_RECORDS):
            producer.produce("batches", value, partition=number % BATCH_PARTITIONS)

    for number in range(-PRACTICE, count):
        if number == 0:
            plain_s = transactional_s = 0.0
        began = time.perf_counter()
        produce(plain)
        _flush(plain)
        between = time.perf_counter()
        transactional.begin_transaction()
        produce(transactional)
        transactional.commit_transaction(PATIENCE_S)
        plain_s += between - began
        transactional_s += time.perf_counter() - between
    return {
        "plain_rate": count * BATCH_RECORDS / plain_s,
        "transaction_rate": count * BATCH_RECORDS / transactional_s,
    }


def visible(servers: str, count: int) -> dict[str, float]:
    """Commits single records in an idle cluster. Returns the time until a reader of committed records gets them, from
    the call of commit and from its return, in ms."""
    confluent.create(Target(servers, "visible"))
    settings = {"bootstrap.servers": servers, "group.id": "visible", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("visible", 0, 0)])
    arrived, arrival, ends = [0.0], threading.Event(), threading.Event()

    def read() -> None:
        while not ends.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                arrived[0] = time.perf_counter()
                arrival.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    producer = _producer(servers, "visible")
    producer.init_transactions(PATIENCE_S)
    from_call, from_return = [], []
    for number in range(-PRACTICE, count):
        arrival.clear()
        producer.begin_transaction()
        producer.produce("visible", b"value")
        _flush(producer)
        time.sleep(_PAUSE_S)
        called = time.perf_counter()
        producer.commit_transaction(PATIENCE_S)
        returned = time.perf_counter()
        if not arrival.wait(PATIENCE_S):
            raise LoadFailedError("a committed record did not come")
        if number >= 0:
            from_call.append((arrived[0] - called) * 1e3)
            from_return.append(max(0.0, arrived[0] - returned) * 1e3)
    ends.set()
    reader.join()
    consumer.close()
    return {
        "call_p50_ms": statistics.median(from_call),
        "call_p99_ms": _p99(from_call),
        "return_p99_ms": _p99(from_return),
    }


def steady(servers: str, name: str) -> dict[str, object]:
    """Commits a record every few milliseconds until a killed coordinator has been replaced. The partition is led by
    another node. Returns the times of the commits (ns), and the number of transactions that were aborted."""
    topic = Target(servers, name, 3)
    confluent.create(topic)
    producer, watch = _producer(servers, name), KillWatch()
    producer.init_transactions(PATIENCE_S)
    coordinator, _ = asyncio.run(find_transaction_coordinator(servers.split(",", maxsplit=1)[0], name))
    partitions = AdminClient({"bootstrap.servers": servers}).list_topics(name, PATIENCE_S).topics[name].partitions
    partition = next(number for number, each in partitions.items() if each.leader != coordinator)
    while not watch.over():
        began_ns = time.monotonic_ns()
        producer.begin_transaction()
        producer.produce(name, b"value", partition=partition)
        if _committed(producer):
            watch.acknowledged(began_ns)
        else:
            watch.failed()
        time.sleep(EVERY_S)
    return watch.result()


def _committed(producer: Producer) -> bool:
    """Commits. Returns False if the transaction had to be aborted."""
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
        except KafkaException as problem:
            error = problem.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction(PATIENCE_S)
                return False
            if not error.retriable():
                raise
        else:
            return True


def _producer(servers: str, name: str = "") -> Producer:
    """An idempotent producer; transactional if it has a name."""
    settings: dict[str, object] = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0}
    return Producer({**settings, "transactional.id": name} if name else settings)


def _flush(producer: Producer) -> None:
    if producer.flush(PATIENCE_S):
        raise LoadFailedError("a record was not acknowledged")


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


LOADS: dict[str, Callable[..., dict[str, Any]]] = {
    "one-record": one_record,
    "batches": batches,
    "visible": visible,
    "steady": steady,
}


def main() -> None:
    """Runs the load given as JSON; the last line of output is its result as JSON."""
    arguments = json.loads(sys.argv[1])
    try:
        result = LOADS[arguments.pop("load")](**arguments)
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
