"""A producer or a consumer of ``python -m bench workers``, in a process of its own: ``python -m bench.worker_load
'{"kind": …}'``, with :class:`WorkerLoad`.

Standard output gets a line once the client is connected. Then a line on standard input starts the load, and a second
line of JSON has its figures, as :class:`LoadFigures`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass

import pyarrow as pa

from quorumlog.sdk import Consumer, Producer, TopicPartition

#: Bytes of a table given to ``send_arrow``.
_TABLE_BYTES = 1 << 20
#: Tables that a producer may have in flight: enough to fill batches, few enough to stop soon.
_TABLES_IN_FLIGHT = 16
_CONNECT_S = 60.0


@dataclass(slots=True, frozen=True)
class WorkerLoad:
    """The configuration of one process.

    Arguments:
        kind: ``produce`` or ``consume``.
        size: bytes of a record.
        seconds: time for which records are sent or read.
        partitions: those that a consumer reads, again from the start once it has reached the end.
    """

    kind: str
    bootstrap: str
    topic: str
    size: int
    seconds: float
    partitions: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class LoadFigures:
    """The figures of one process.

    Arguments:
        seconds: from the first record to the last acknowledgement, or the last record read.
        records: that were acknowledged, or read.
        batches: that were acknowledged, about; 0 of a consumer.
        cpu_s: processor time of the process from the start of the load on.
    """

    seconds: float
    records: int
    batches: float
    cpu_s: float


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _begin() -> None:
    """Reports that the client is connected, and waits for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


def produce(load: WorkerLoad) -> LoadFigures:
    """``send_arrow`` of tables with random values, for some time, until every record is acknowledged."""
    rows = max(1, _TABLE_BYTES // load.size)
    offsets = pa.array(range(0, load.size * rows + 1, load.size), type=pa.int32())
    values = pa.Array.from_buffers(
        pa.binary(), rows, [None, offsets.buffers()[1], pa.py_buffer(os.urandom(load.size * rows))]
    )
    table = pa.table({"value": values})
    with Producer(bootstrap_servers=load.bootstrap) as producer:
        producer.send_arrow(load.topic, table).result(timeout=_CONNECT_S)
        sent_bytes = -_sent_bytes(producer, load.topic)
        _begin()
        cpu_s, begin, sent = _cpu_s(), time.perf_counter(), 0
        waiting = []
        while time.perf_counter() - begin < load.seconds:
            waiting.append(producer.send_arrow(load.topic, table))
            sent += 1
            if len(waiting) >= _TABLES_IN_FLIGHT:
                waiting.pop(0).result(timeout=_CONNECT_S)
        producer.flush()
        for future in waiting:
            future.result(timeout=0)
        elapsed, cpu_s = time.perf_counter() - begin, _cpu_s() - cpu_s
        sent_bytes += _sent_bytes(producer, load.topic)
        batch_bytes = producer.metrics()["producer-metrics"]["batch-size-avg"]
    return LoadFigures(elapsed, sent * rows, sent_bytes / max(1.0, batch_bytes), cpu_s)


def _sent_bytes(producer: Producer, topic: str) -> float:
    """Returns the bytes of all batches of a topic that were acknowledged, as they were sent."""
    return producer.metrics()[f"producer-topic-metrics.{topic}"]["byte-total"]


def consume(load: WorkerLoad) -> LoadFigures:
    """``poll_arrow`` for some time, from the start of some partitions, and again once their end is reached."""
    assigned = [TopicPartition(load.topic, number) for number in load.partitions]
    with Consumer(bootstrap_servers=load.bootstrap) as consumer:
        consumer.assign(assigned)
        ends = sum(consumer.end_offsets(assigned).values())
        consumer.seek_to_beginning(*assigned)
        _begin()
        cpu_s, begin, last = _cpu_s(), time.perf_counter(), 0.0
        received = in_pass = 0
        while (now := time.perf_counter() - begin) < load.seconds:
            got = consumer.poll_arrow(timeout_ms=200).num_rows
            received += got
            in_pass += got
            last = now if not got else time.perf_counter() - begin
            if in_pass >= ends:
                in_pass = 0
                consumer.seek_to_beginning(*assigned)
        cpu_s = _cpu_s() - cpu_s
    return LoadFigures(last, received, 0.0, cpu_s)


def main() -> None:
    """Runs the client given as JSON."""
    given = json.loads(sys.argv[1])
    load = WorkerLoad(**{**given, "partitions": tuple(given["partitions"])})
    figures = {"produce": produce, "consume": consume}[load.kind](load)
    print(json.dumps(asdict(figures)), flush=True)


if __name__ == "__main__":
    main()
