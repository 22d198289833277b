"""``python -m bench lost-disk``: a node's data is deleted under load, and one command brings all of it back.

What producers notice of it is the latency of each record until it is acknowledged by all: before, while the node is
down, and while its replicas are copied again. ``--throttle`` limits what each node sends of the copies.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable

from bench.latency_load import PATIENCE_S, TimedWriter, add_steady_load, fill, latencies, on_cluster, tell
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic

TOPIC = "orders"
#: That loses its disk; a controller, too.
NODE = 3
#: The controller may need so long to count the node as down.
NOTICE_S = 15.0


@dataclasses.dataclass(slots=True, frozen=True)
class LossFigures:
    """Cost of the loss of a disk. Latencies in milliseconds, of single records: median, 99th percentile, maximum.

    Arguments:
        size_bytes: of the node's data directory in the end, as far as it takes room on the disk.
        in_sync_s: from the command until every partition has all of its replicas in sync again.
        before, down, during: while all is well, without the node, from the command until all is in sync.
        sent: records all the while, all of them acknowledged but for ``errors``.
    """

    size_bytes: int
    in_sync_s: float
    before: tuple[float, float, float]
    down: tuple[float, float, float]
    during: tuple[float, float, float]
    sent: int
    errors: int


def wait_until(happened: Callable[[], bool], limit_s: float, what: str) -> None:
    """Looks four times a second.

    Raises:
        ClusterError: it has not happened within the limit.
    """
    deadline = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.25)


def is_whole(admin: Admin) -> bool:
    """True if each partition has all of its replicas, in sync, and none is to return."""
    if any(each.lost or each.returning or each.fenced for each in admin.describe_cluster().brokers):
        return False
    partitions = [each for topic in admin.describe_topics(include_internal=True) for each in topic.partitions]
    return all(len(each.replicas) == 3 and set(each.isr) == set(each.replicas) for each in partitions)


def measure(cluster: LocalCluster, admin: Admin, given: argparse.Namespace) -> LossFigures:
    """Fills, loads, deletes the data of a node, and has it replaced."""
    admin.create_topics([NewTopic(TOPIC, num_partitions=given.partitions, replication_factor=3)])
    fill(cluster.bootstrap_servers, TOPIC, given.partitions, given.partition_bytes)
    with TimedWriter(cluster.bootstrap_servers, TOPIC, given.partitions, given.rate) as writer:
        time.sleep(3)  # Connections are made, and code is warm.
        writer.take()
        time.sleep(given.watch)
        before = writer.take()
        cluster.kill(NODE)
        shutil.rmtree(cluster.data_dir(NODE))
        cluster.start(NODE)
        wait_until(lambda: _is_fenced(admin), NOTICE_S, f"node {NODE} counts as down")
        time.sleep(given.watch)
        down = writer.take()
        begun = time.monotonic()
        admin.replace_disk(NODE, throttle_bytes_per_second=given.throttle)
        wait_until(lambda: is_whole(admin), PATIENCE_S, "all replicas are in sync")
        took = time.monotonic() - begun
        during = writer.take()
    size = sum(each.stat().st_blocks * 512 for each in cluster.data_dir(NODE).rglob("*") if each.is_file())
    sent = len(before) + len(down) + len(during)
    return LossFigures(size, took, latencies(before), latencies(down), latencies(during), sent, len(writer.errors))


def _is_fenced(admin: Admin) -> bool:
    return any(each.node_id == NODE and each.fenced for each in admin.describe_cluster().brokers)


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench lost-disk", description=__doc__)
    parser.add_argument("--partitions", type=int, default=12, help="of factor 3, on three nodes; 12")
    parser.add_argument("--partition-bytes", type=int, default=20_000_000, help="of each partition's log; 20000000")
    add_steady_load(parser, "seconds of load before and without the node; 10")
    parsed = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    figures = on_cluster(parsed, measure, nodes=3)
    if figures is None:
        return 1
    headline = (
        f"{parsed.partitions} replicas, {figures.size_bytes / 1e6:.0f} MB, were back and in sync after"
        f" {figures.in_sync_s:.1f} s; {figures.errors} errors in {figures.sent} records; load average before {load:.1f}"
    )
    tell(headline, {"before": figures.before, "node down": figures.down, "during": figures.during})
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "lost-disk", *arguments])
        parsed.json.write_text(json.dumps({"command": command, "figures": dataclasses.asdict(figures)}, indent=2))
    return 0
