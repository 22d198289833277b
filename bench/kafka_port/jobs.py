"""One load on the port in a process of its own: ``python -m bench.kafka_port.jobs '{"job": …}'`` prints its figures."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Figures

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 240.0
#: Records passed to ``produce_batch`` at once.
_BATCH = 1_000


class PortJobError(Exception):
    """Raised if a load fails; the message is the last line of its process."""


def run_port_job(name: str, **arguments: object) -> Figures:
    """Runs one load in a new process.

    Raises:
        PortJobError: it failed.
    """
    command = [sys.executable, "-m", "bench.kafka_port.jobs", json.dumps({"job": name, **arguments})]
    try:
        ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PortJobError(f"{name} did not end within {_TIMEOUT_S:.0f} s") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or ["nothing"]
        raise PortJobError(f"{name} failed: {said[-1]}")
    return Figures(**json.loads(ended.stdout.splitlines()[-1]))


def _produce_batches(**arguments: Any) -> Figures:
    from bench.kafka_port import raw_client

    return asyncio.run(raw_client.produce(**arguments))


def _fetch_idle(**arguments: Any) -> Figures:
    from bench.kafka_port import raw_client

    return asyncio.run(raw_client.fetch_idle(**arguments))


def _produce(servers: str, topic: str, size: int, count: int) -> Figures:
    """Runs ``produce_batch`` of confluent-kafka, the closest to ``send_arrow``."""
    import time

    from confluent_kafka import Consumer, Producer, TopicPartition

    from bench.figures import summarize

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    value = os.urandom(size)
    producer.produce(topic, value=value)
    producer.flush(60)
    begin = time.perf_counter()
    for first in range(0, count, _BATCH):
        left: list[dict[str, object]] = [{"value": value} for _ in range(min(_BATCH, count - first))]
        while left:
            producer.produce_batch(topic, left)
            # Records for which the queue had no room are marked.
            left = [{"value": value} for each in left if "_error" in each]
            producer.poll(0.01 if left else 0)
    producer.flush(60)
    elapsed = time.perf_counter() - begin
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.close()
    if end != count + 1:
        raise PortJobError(f"{end - 1} of {count} records are in the log")
    return summarize(elapsed, count, count * size, [])


def _consume(servers: str, topic: str, size: int, count: int) -> Figures:
    """Runs ``consume`` of confluent-kafka."""
    from bench.peers.clients import confluent
    from bench.peers.clients.target import Target

    # By default it requests nothing for a second, once 100,000 records wait in it.
    options = {"records_per_poll": 10_000, "queued.min.messages": 1_000_000}
    return confluent.consume(Target(servers, topic, options=options), size, count)


def _create(servers: str, topic: str) -> Figures:
    """Creates a topic of one partition on three brokers of Apache Kafka."""
    from bench.peers.clients import confluent
    from bench.peers.clients.target import Target

    confluent.create(Target(servers, topic))
    return Figures(0.0, 1, 0)


def _fetch(**arguments: Any) -> Figures:
    from bench.kafka_port import raw_client

    return asyncio.run(raw_client.fetch(**arguments))


def _fetch_by_grpc(**arguments: Any) -> Figures:
    from bench.kafka_port import raw_client

    return asyncio.run(raw_client.fetch_by_grpc(**arguments))


JOBS: dict[str, Callable[..., Figures]] = {
    "produce-batches": _produce_batches,
    "fetch": _fetch,
    "fetch-by-grpc": _fetch_by_grpc,
    "fetch-idle": _fetch_idle,
    "produce": _produce,
    "consume": _consume,
    "create": _create,
}


def main() -> None:
    """Runs the job given as JSON."""
    arguments = json.loads(sys.argv[1])
    try:
        figures = JOBS[arguments.pop("job")](**arguments)
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(dataclasses.asdict(figures)))


if __name__ == "__main__":
    main()
