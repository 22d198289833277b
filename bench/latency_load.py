"""A steady load of single records, and how long each takes to be acknowledged."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from bench.options import add_json, add_work_dir
from bench.printing import result_console
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Producer, RecordFuture
from quorumlog.sdk.errors import QuorumlogError

Measured = TypeVar("Measured")

RECORD_BYTES = 1_000
#: For what a benchmark waits for.
PATIENCE_S = 900.0


class TimedWriter:
    """Writes records to all partitions in turn, at a steady rate, and notes when each was acknowledged.

    Arguments:
        rate: records per second.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, rate: float) -> None:
        self.errors: list[BaseException] = []
        self._latencies: list[float] = []
        self._stopped = threading.Event()
        self._arguments = (bootstrap_servers, topic, partitions, rate)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        bootstrap_servers, topic, partitions, rate = self._arguments
        rng, value = random.Random(1), bytes(RECORD_BYTES)
        with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
            due = time.monotonic()
            while not self._stopped.is_set():
                sent = time.monotonic()
                future = producer.send(topic, value, partition=rng.randrange(partitions))
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


def fill(bootstrap_servers: str, topic: str, partitions: int, bytes_each: int) -> None:
    """Writes so many bytes, which do not compress, to every partition."""
    rng = random.Random(2)
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        for _ in range(max(1, bytes_each // 10_000)):
            futures = [producer.send(topic, rng.randbytes(10_000), partition=each) for each in range(partitions)]
            for future in futures:
                future.result(timeout=PATIENCE_S)


def latencies(values: list[float]) -> tuple[float, float, float]:
    """Median, 99th percentile, maximum."""
    return statistics.median(values), statistics.quantiles(values, n=100)[98], max(values)


def add_steady_load(parser: argparse.ArgumentParser, watched: str) -> None:
    """Adds the options of the load, and of the output.

    Arguments:
        watched: what ``--watch`` means.
    """
    parser.add_argument("--rate", type=float, default=200, help="records per second while it is measured; 200")
    parser.add_argument("--watch", type=float, default=10, help=watched)
    parser.add_argument("--throttle", type=int, default=0, help="bytes per second that each node sends; 0: no limit")
    add_json(parser)
    add_work_dir(parser)


def on_cluster(
    given: argparse.Namespace,
    measure: Callable[[LocalCluster, Admin, argparse.Namespace], Measured],
    *,
    nodes: int,
    controllers: int | None = None,
) -> Measured | None:
    """Measures on a cluster of its own; None if that failed, which has been said in one line."""
    given.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(dir=given.work_dir) as directory,
            LocalCluster(nodes=nodes, controllers=controllers, data_dir=Path(directory) / "cluster") as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            return measure(cluster, admin, given)
    except (ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return None


def tell(headline: str, phases: Mapping[str, tuple[float, float, float]]) -> None:
    """Prints what came of it, and the latencies of each phase."""
    console = result_console()
    console.print(headline)
    for name, values in phases.items():
        console.print("{}: median {:.1f} ms, 99th percentile {:.1f} ms, maximum {:.0f} ms".format(name, *values))
