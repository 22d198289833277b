"""``python -m bench lookups``: finding one's place in a long partition, and starting a node that holds it.

The same number of small records is written twice, in large batches and in small ones, for look-ups go by batches.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from bench.options import add_json
from bench.printing import result_console
from bench.target_table import FigureLine, show, write_json
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

VALUE_BYTES = 100
#: Records lie this far apart in time, and end about now.
STEP_MS = 10
RECORDS_PER_TABLE = 50_000
FEW_MS = 50.0
RESTART_TARGET_S = 2.0


@dataclass(slots=True)
class Latency:
    """Latency of one kind of look-up, in milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(slots=True)
class PartitionFigures:
    """Figures measured on one partition."""

    records: int
    batches: int
    written_s: float
    latencies: dict[str, Latency] = field(default_factory=dict)


@dataclass(slots=True)
class LookupFigures:
    """Everything that was measured."""

    nodes: int
    partitions: dict[str, PartitionFigures]
    restart_s: float
    load_average: float


def _write(bootstrap: str, topic: str, records: int, records_per_batch: int, first_ms: int) -> PartitionFigures:
    """Writes records one step apart, from ``first_ms`` on, each table of its own a batch."""
    began = time.perf_counter()
    values = pa.array([b"v" * VALUE_BYTES]).take(pa.array([0] * min(records, RECORDS_PER_TABLE)))
    batches = 0
    with Producer(bootstrap_servers=bootstrap, max_request_size=8 << 20) as producer:
        for start in range(0, records, RECORDS_PER_TABLE):
            count = min(RECORDS_PER_TABLE, records - start)
            times = pa.array(range(first_ms + start * STEP_MS, first_ms + (start + count) * STEP_MS, STEP_MS))
            stamps = times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
            table = pa.table({"value": values.slice(0, count), "timestamp": stamps})
            sent = [
                producer.send_arrow(topic, table.slice(row, records_per_batch), partition=0)
                for row in range(0, count, records_per_batch)
            ]
            batches += sum(len(future.result(timeout=600)) for future in sent)
    return PartitionFigures(records, batches, time.perf_counter() - began)


def _timed(repetitions: int, look_up: Callable[[], None]) -> Latency:
    taken = []
    look_up()
    for _ in range(repetitions):
        began = time.perf_counter()
        look_up()
        taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    return Latency(taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)])


def _look_up(bootstrap: str, topic: str, records: int, first_ms: int, repetitions: int) -> dict[str, Latency]:
    """Look-ups at random places; each answer is checked."""
    rng = random.Random(1)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=100) as consumer:
        consumer.assign([tp])

        def by_time() -> None:
            wanted = rng.randrange(records)
            found = consumer.offsets_for_times({tp: first_ms + wanted * STEP_MS - STEP_MS // 2})[tp]
            assert found is not None
            assert found.offset == wanted, (found, wanted)

        def seek() -> None:
            wanted = rng.randrange(records)
            consumer.seek(tp, wanted)
            while not (polled := consumer.poll(timeout_ms=5_000, max_records=1)):
                continue
            assert polled[tp][0].offset == wanted

        def end() -> None:
            assert consumer.end_offsets([tp])[tp] == records

        return {
            "offsets_for_times": _timed(repetitions, by_time),
            "seek and first record": _timed(repetitions, seek),
            "end_offsets": _timed(repetitions, end),
        }


def _restart(cluster: LocalCluster, bootstrap: str, topic: str, records: int) -> float:
    """Kills a node and starts it; seconds from its start until it has answered as before. With one node alone the
    partition has to be led again; with several another may lead it by then, and the node itself must be ready."""
    leader = cluster.leader(topic, 0)
    assert leader is not None
    cluster.kill(leader)
    began = time.perf_counter()
    cluster.start(leader)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        tp = TopicPartition(topic, 0)
        assert consumer.end_offsets([tp])[tp] == records
    return time.perf_counter() - began


def measure(records: int, small_batch: int, large_batch: int, repetitions: int, nodes: int) -> LookupFigures:
    """Measures one partition in large batches and one in small ones."""
    first_ms = int(time.time() * 1000) - records * STEP_MS
    partitions: dict[str, PartitionFigures] = {}
    with LocalCluster(nodes=nodes) as cluster:
        bootstrap = cluster.bootstrap_servers
        with Admin(bootstrap_servers=bootstrap) as admin:
            for topic in ("large-batches", "small-batches"):
                admin.create_topics([NewTopic(topic, 1, nodes, {"retention.ms": -1})])
        for topic, batch in (("large-batches", large_batch), ("small-batches", small_batch)):
            written = partitions[topic] = _write(bootstrap, topic, records, batch, first_ms)
            written.latencies = _look_up(bootstrap, topic, records, first_ms, repetitions)
        restart_s = _restart(cluster, bootstrap, "small-batches", records)
    return LookupFigures(nodes, partitions, restart_s, os.getloadavg()[0])


def lines_of(figures: LookupFigures) -> list[FigureLine]:
    """The table's lines."""
    lines = []
    for name, one in figures.partitions.items():
        lines.append(FigureLine(f"{name}: {one.batches:,} written", f"{one.written_s:.1f} s"))
        for what, taken in one.latencies.items():
            text = f"p50 {taken.p50_ms:.1f}, p99 {taken.p99_ms:.1f} ms"
            lines.append(FigureLine(f"{name}: {what} (ms)", text, taken.p50_ms, FEW_MS))
    restart = figures.restart_s
    lines.append(FigureLine("killed and started again: it serves", f"{restart:.2f} s", restart, RESTART_TARGET_S))
    return lines


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench lookups", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000, help="in each of the two partitions")
    parser.add_argument("--small-batch", type=int, default=100, help="records in a small batch")
    parser.add_argument("--large-batch", type=int, default=4_000, help="records in a large batch")
    parser.add_argument("--repetitions", type=int, default=300, help="look-ups of each kind")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3), help="of the cluster")
    add_json(parser)
    parsed = parser.parse_args(arguments)
    try:
        figures = measure(parsed.records, parsed.small_batch, parsed.large_batch, parsed.repetitions, parsed.nodes)
    except (ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    lines = lines_of(figures)
    title = f"{parsed.records:,} records of {VALUE_BYTES} bytes; load average {figures.load_average:.1f}"
    show(result_console(), title, lines)
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "lookups", *arguments])
        write_json(parsed.json, {"command": command, **dataclasses.asdict(figures)}, lines)
    return 0
