"""Loads the cluster as users do: through the SDK, with its defaults unless said."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bench.figures import Figures, summarize
from quorumlog.sdk import Consumer, Producer, TopicPartition

#: Rows of one table given to send_arrow.
TABLE_ROWS = 50_000
#: And so many bytes at most.
TABLE_BYTES = 8 << 20
#: A consumer that gets nothing for this long has lost the log.
SILENCE_S = 20.0


class LogEndedError(Exception):
    """The log holds fewer records than were produced."""


def produce_records(
    bootstrap: str, topic: str, *, size: int, count: int, options: Mapping[str, Any] | None = None
) -> Figures:
    """``Producer.send`` without keys, one call per record, until every record is acknowledged.

    Arguments:
        options: of the producer, beside its defaults.
    """
    value = os.urandom(size)
    with Producer(bootstrap_servers=bootstrap, **(options or {})) as producer:
        producer.send(topic, value=value).result(timeout=30)
        begin = time.perf_counter()
        futures = [producer.send(topic, value=value) for _ in range(count)]
        producer.flush()
        elapsed = time.perf_counter() - begin
        for future in futures:
            future.result(timeout=0)
    return summarize(elapsed, count, count * size, [])


def produce_arrow(
    bootstrap: str, topic: str, *, size: int, count: int, options: Mapping[str, Any] | None = None
) -> Figures:
    """``Producer.send_arrow`` of tables with random values, until every record is acknowledged."""
    rows = min(TABLE_ROWS, count, max(1, TABLE_BYTES // size))
    data = pa.py_buffer(os.urandom(size * rows))
    offsets = pa.array(range(0, size * rows + 1, size), type=pa.int32())
    values = pa.Array.from_buffers(pa.binary(), rows, [None, offsets.buffers()[1], data])
    table = pa.table({"value": values})
    sent = 0
    with Producer(bootstrap_servers=bootstrap, **(options or {})) as producer:
        producer.send(topic, value=b"warm").result(timeout=30)
        begin = time.perf_counter()
        futures = []
        while sent < count:
            futures.append(producer.send_arrow(topic, table.slice(0, count - sent)))
            sent += rows
        producer.flush()
        elapsed = time.perf_counter() - begin
        for future in futures:
            future.result(timeout=0)
    return summarize(elapsed, count, count * size, [])


def produce_singly(
    bootstrap: str, topic: str, *, size: int, count: int, options: Mapping[str, Any] | None = None
) -> Figures:
    """``Producer.send(...).result()``: one record at a time, each waited for."""
    value = os.urandom(size)
    latencies = []
    with Producer(bootstrap_servers=bootstrap, **(options or {})) as producer:
        for _ in range(20):
            producer.send(topic, value=value).result(timeout=30)
        begin = time.perf_counter()
        for _ in range(count):
            sent = time.perf_counter()
            producer.send(topic, value=value).result(timeout=30)
            latencies.append(time.perf_counter() - sent)
        elapsed = time.perf_counter() - begin
    return summarize(elapsed, count, count * size, latencies)


def consume(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    size: int,
    count: int,
    arrow: bool,
    options: Mapping[str, Any] | None = None,
) -> Figures:
    """Reads ``count`` records of ``size`` bytes from the start, by ``poll_arrow`` or record by record by ``poll``.

    Arguments:
        options: of the consumer, beside its defaults; without any, up to 5,000 records come with each ``poll``.
    """
    if options is None:
        options = {"max_poll_records": 5_000}
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    received = 0
    with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        begin = last = time.perf_counter()
        while received < count:
            if arrow:
                got = consumer.poll_arrow(timeout_ms=500).num_rows
            else:
                polled = consumer.poll(timeout_ms=500)
                got = sum(1 for records in polled.values() for record in records if record.value is not None)
            now = time.perf_counter()
            received += got
            last = now if got else last
            if now - last > SILENCE_S:
                raise LogEndedError(f"{received} of {count} records came, then none for {SILENCE_S:.0f} s")
        elapsed = time.perf_counter() - begin
    return summarize(elapsed, received, received * size, [])
