"""``python -m bench drain``: a node with many partitions of real data is drained while producers write.

What they notice of it is the latency of each record until it is acknowledged by all, before and meanwhile, and errors;
what the drain takes is its time. ``--throttle`` limits what each node sends, in bytes per second.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.options import add_json, add_work_dir
from bench.printing import result_console
from quorumlog.sdk import Admin, NewTopic, Producer, RecordFuture
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.local import ClusterError, LocalCluster

TOPIC = "drained"
#: That is drained; no controller, so that it is partitions that move and nothing else.
NODE = 4
RECORD_BYTES = 1_000
PATIENCE_S = 900.0


@dataclasses.dataclass(slots=True, frozen=True)
class DrainFigures:
    """What a drain took, and what producers noticed. Latencies in milliseconds, of single records.

    Arguments:
        replicas, size_bytes: that were on the node.
        before, during: median, 99th percentile and maximum.
        sent: records during the drain, all of them acknowledged but for ``errors``.
    """

    replicas: int
    size_bytes: int
    drain_s: float
    before: tuple[float, float, float]
    during: tuple[float, float, float]
    sent: int
    errors: int


class TimedWriter:
    """Writes records to all partitions in turn, at a steady rate, and notes when each was acknowledged.

    Arguments:
        rate: records per second.
    """

    def __init__(self, bootstrap_servers: str, partitions: int, rate: float) -> None:
        self.errors: list[BaseException] = []
        self._latencies: list[float] = []
        self._stopped = threading.Event()
        self._arguments = (bootstrap_servers, partitions, rate)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        bootstrap_servers, partitions, rate = self._arguments
        rng, value = random.Random(1), bytes(RECORD_BYTES)
        with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
            due = time.monotonic()
            while not self._stopped.is_set():
                sent = time.monotonic()
                future = producer.send(TOPIC, value, partition=rng.randrange(partitions))
                future.add_done_callback(lambda future, sent=sent: self._done(future, sent))
                due = max(due + 1 / rate, sent - 1)
                self._stopped.wait(max(0.0, due - time.monotonic()))

    def _done(self, future: RecordFuture, sent: float) -> None:
        self._latencies.append((time.monotonic() - sent) * 1_000)
        failure = future.exception()
        if failure is not None:
            self.errors.append(failure)

    def __enter__(self) -> TimedWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def take(self) -> list[float]:
        """The latencies since the last call."""
        taken, self._latencies = self._latencies, []
        return taken


def fill(bootstrap_servers: str, partitions: int, bytes_each: int) -> None:
    """Writes so many bytes, which do not compress, to every partition."""
    rng = random.Random(2)
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        for _ in range(max(1, bytes_each // 10_000)):
            futures = [producer.send(TOPIC, rng.randbytes(10_000), partition=each) for each in range(partitions)]
            for future in futures:
                future.result(timeout=PATIENCE_S)


def measure(cluster: LocalCluster, admin: Admin, given: argparse.Namespace) -> DrainFigures:
    """Fills, loads, drains."""
    others = itertools.cycle(((1, 2), (2, 3), (3, 1)))
    placed = {number: [*next(others), NODE] for number in range(given.partitions)}
    placed = {number: nodes[number % 3 :] + nodes[: number % 3] for number, nodes in placed.items()}
    admin.create_topics([NewTopic(TOPIC, replica_assignments=placed)])
    fill(cluster.bootstrap_servers, given.partitions, given.partition_bytes)
    with TimedWriter(cluster.bootstrap_servers, given.partitions, given.rate) as writer:
        time.sleep(3)  # Connections are made, and code is warm.
        writer.take()
        time.sleep(given.watch)
        before = writer.take()
        begun = time.monotonic()
        plan = admin.drain_node(NODE, throttle_bytes_per_second=given.throttle)
        while any(NODE in each.replicas for each in admin.describe_topics([TOPIC])[0].partitions):
            if time.monotonic() - begun > PATIENCE_S:
                raise ClusterError(f"node {NODE} is not empty after {PATIENCE_S:.0f} s")
            time.sleep(0.25)
        took = time.monotonic() - begun
        during = writer.take()
    return DrainFigures(
        plan.all_moves, plan.all_bytes, took, latencies(before), latencies(during), len(during), len(writer.errors)
    )


def latencies(values: list[float]) -> tuple[float, float, float]:
    """Median, 99th percentile, maximum."""
    return statistics.median(values), statistics.quantiles(values, n=100)[98], max(values)


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench drain", description=__doc__)
    parser.add_argument("--partitions", type=int, default=300, help="each with a replica on the node; 300")
    parser.add_argument("--partition-bytes", type=int, default=1_000_000, help="of each partition's log; 1000000")
    parser.add_argument("--rate", type=float, default=200, help="records per second while it is measured; 200")
    parser.add_argument("--watch", type=float, default=10, help="seconds of load before the drain; 10")
    parser.add_argument("--throttle", type=int, default=0, help="bytes per second that each node sends; 0: no limit")
    add_json(parser)
    add_work_dir(parser)
    given = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    given.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(dir=given.work_dir) as directory,
            LocalCluster(nodes=4, controllers=3, data_dir=Path(directory) / "cluster") as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            figures = measure(cluster, admin, given)
    except (ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    console = result_console()
    console.print(
        f"{figures.replicas} replicas, {figures.size_bytes / 1e6:.0f} MB, left the node in {figures.drain_s:.1f} s;"
        f" {figures.errors} errors in {figures.sent} records; load average before {load:.1f}"
    )
    for name, values in (("before", figures.before), ("during", figures.during)):
        console.print("{}: median {:.1f} ms, 99th percentile {:.1f} ms, maximum {:.0f} ms".format(name, *values))
    if given.json is not None:
        command = shlex.join(["python", "-m", "bench", "drain", *arguments])
        given.json.write_text(json.dumps({"command": command, "figures": dataclasses.asdict(figures)}, indent=2))
    return 0
