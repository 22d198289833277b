"""``python -m bench drain``: a node with many partitions of real data is drained while producers write.

Measured are the time of the drain, and for producers the latency of each record until it is acknowledged by all, before
and during it, and errors. ``--throttle`` limits the data that each node sends, in bytes per second.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import shlex
import time

from bench.latency_load import PATIENCE_S, TimedWriter, add_steady_load, fill, latencies, on_cluster, tell
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic

TOPIC = "drained"
#: The node to drain; not a controller, so that only partitions move.
NODE = 4


@dataclasses.dataclass(slots=True, frozen=True)
class DrainFigures:
    """Results of a drain. Latencies in milliseconds, of single records.

    Arguments:
        replicas, size_bytes: contents of the node.
        before, during: median, 99th percentile and maximum.
        sent: records during the drain, all of them acknowledged except for ``errors``.
    """

    replicas: int
    size_bytes: int
    drain_s: float
    before: tuple[float, float, float]
    during: tuple[float, float, float]
    sent: int
    errors: int


def measure(cluster: LocalCluster, admin: Admin, given: argparse.Namespace) -> DrainFigures:
    """Fills the partitions, starts the load, and drains the node."""
    others = itertools.cycle(((1, 2), (2, 3), (3, 1)))
    placed = {number: [*next(others), NODE] for number in range(given.partitions)}
    placed = {number: nodes[number % 3 :] + nodes[: number % 3] for number, nodes in placed.items()}
    admin.create_topics([NewTopic(TOPIC, replica_assignments=placed)])
    fill(cluster.bootstrap_servers, TOPIC, given.partitions, given.partition_bytes)
    with TimedWriter(cluster.bootstrap_servers, TOPIC, given.partitions, given.rate) as writer:
        time.sleep(3)  # Connections are open, and code is warm.
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


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench drain", description=__doc__)
    parser.add_argument(
        "--partitions", type=int, default=300, help="number of partitions, each with a replica on the node; 300"
    )
    parser.add_argument("--partition-bytes", type=int, default=1_000_000, help="size of each partition's log; 1000000")
    add_steady_load(parser, "seconds of load before the drain; 10")
    parsed = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    figures = on_cluster(parsed, measure, nodes=4, controllers=3)
    if figures is None:
        return 1
    headline = (
        f"{figures.replicas} replicas, {figures.size_bytes / 1e6:.0f} MB, left the node in {figures.drain_s:.1f} s;"
        f" {figures.errors} errors in {figures.sent} records; load average before {load:.1f}"
    )
    tell(headline, {"before": figures.before, "during": figures.during})
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "drain", *arguments])
        parsed.json.write_text(json.dumps({"command": command, "figures": dataclasses.asdict(figures)}, indent=2))
    return 0
