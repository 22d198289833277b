"""The steady state of three real nodes: one producer, and a topic of limited size."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

from bench.steady_figures import MIB, Steady
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer, RecordFuture
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.storage import Storage

TOPIC = "steady"
PARTITIONS = 4
TURNS = 3
#: Of a batch, beside its record's value: envelope, header and Arrow's own.
OVERHEAD_BYTES = 800
PATIENCE_S = 120.0


class _Load:
    """Sends records of one to a batch, of half to one and a half times the wanted size."""

    def __init__(self, producer: Producer, batch_bytes: int) -> None:
        self._producer = producer
        self._batch_bytes = batch_bytes
        self._rng = random.Random(1)
        self._value = self._rng.randbytes(2 * batch_bytes)
        self._partitions = itertools.cycle(range(PARTITIONS))

    def write(self, size_bytes: int) -> float:
        """Writes about that much, until it is acknowledged; returns MiB per second."""
        began, written = time.perf_counter(), 0
        last: list[RecordFuture] = []
        while written < size_bytes:
            size = max(self._rng.randint(self._batch_bytes // 2, self._batch_bytes * 3 // 2), 2 * OVERHEAD_BYTES)
            future = self._producer.send(TOPIC, self._value[: size - OVERHEAD_BYTES], partition=next(self._partitions))
            last = [*last[1 - PARTITIONS :], future]
            written += size
        for future in last:
            future.result(timeout=PATIENCE_S)
        return written / MIB / (time.perf_counter() - began)


def measure_cluster(directory: Path, batch_bytes: int, retained_bytes: int) -> Steady:
    """Fills a topic on three nodes, and writes through it."""
    largest = 4 * batch_bytes + OVERHEAD_BYTES
    with LocalCluster(nodes=3, data_dir=directory) as cluster:
        configs = {"retention.bytes": retained_bytes // PARTITIONS, "max.message.bytes": max(largest, MIB)}
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs)])
        with Producer(
            bootstrap_servers=cluster.bootstrap_servers, batch_size=1, linger_ms=0, max_request_size=largest
        ) as producer:
            load = _Load(producer, batch_bytes)
            fresh = load.write(retained_bytes)
            load.write(retained_bytes)
            steady = load.write((TURNS - 1) * retained_bytes)
    files = sorted(directory.glob(f"**/{DATA_FILE}"), key=lambda path: path.stat().st_size)
    return Steady(batch_bytes, _retained_bytes(files[-1].parent), fresh, steady, files[-1].stat().st_size)


def _retained_bytes(data_dir: Path) -> int:
    with Storage(data_dir) as storage:
        retained = 0
        for group in storage.groups():
            first, last = storage.find_batch(group, 0, lambda row: True), storage.last_batch(group)
            if first is not None and last is not None:
                retained += last.end_position - first.end_position
        return retained
