"""``python -m bench compaction``: the speed of a pass, and its effect on producers at the nodes' pace."""

from __future__ import annotations

import argparse
import random
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.records.record_batch import encode, to_log_schema
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.compaction_pass import CleanSection, CompactionPass
from quorumlog.server.partition.compaction_state import CompactionPoint
from quorumlog.wire.entry import Codec, build_batch, seal_batch

NODES = 3
RECORDS_PER_BATCH = 1_000
KEYS = 200_000
VALUE = b"v" * 100
WAIT_S = 300.0
POLL_S = 0.05
#: Single sends whose latency is measured without compaction.
SENDS = 500


def keyed_table(rng: random.Random, count: int) -> pa.Table:
    """Returns records of random keys."""
    keys = [b"key-%07d" % rng.randrange(KEYS) for _ in range(count)]
    return to_log_schema(pa.table({"key": keys, "value": [VALUE] * count}), 1_700_000_000_000)


def pass_rates(megabytes: int) -> tuple[float, float]:
    """Returns the MB/s of a pass over new records, and over as many again after the compacted rest of the first."""
    rng = random.Random(1)
    log: list[bytes] = []
    size = 0
    while size < 2 * megabytes << 20:
        (columns,) = keyed_table(rng, RECORDS_PER_BATCH).to_batches()
        made = encode(columns, Codec.NONE)
        batch = build_batch(
            made.payload,
            record_count=made.record_count,
            codec=Codec.NONE,
            base_timestamp_ms=made.base_timestamp_ms,
            max_timestamp_ms=made.max_timestamp_ms,
        )
        log.append(
            seal_batch(
                batch, group=1, term=1, index=len(log) + 1, previous_hash=0, base_offset=len(log) * RECORDS_PER_BATCH
            )
        )
        size += len(log[-1])
    half = len(log) // 2
    first, first_rate = _pass([], log[:half], half)
    _, second_rate = _pass(first, log[half:], len(log))
    return first_rate, second_rate


def _pass(clean: list[bytes], dirty: list[bytes], end_batch: int) -> tuple[list[bytes], float]:
    point = CompactionPoint(end_batch * RECORDS_PER_BATCH, 0, 0, 0)
    began = time.perf_counter()
    compaction = CompactionPass(
        1, [point], CleanSection(lambda: clean), lambda: dirty, NodeLimits().compaction_batch_bytes
    )
    made = [batch for work in compaction.run() for batch in work.batches]
    return made, sum(map(len, clean + dirty)) / 1e6 / (time.perf_counter() - began)


def latencies(megabytes: int) -> tuple[list[float], list[float], list[float]]:
    """Returns latencies (ms) of single records of another topic before and during compaction on all nodes, and the
    rates (MB/s) of the passes.

    Raises:
        TimeoutError: no pass has ended in time.
    """
    rng = random.Random(2)
    with (
        LocalCluster(nodes=NODES, settings={"compaction_interval_ms": 500}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        admin.create_topics([NewTopic("keyed", 1, NODES), NewTopic("other", 1, NODES)])
        for _ in range(megabytes * 8):
            producer.send_arrow("keyed", keyed_table(rng, RECORDS_PER_BATCH)).result(timeout=WAIT_S)

        def send() -> float:
            began = time.perf_counter()
            producer.send("other", VALUE).result(timeout=WAIT_S)
            return (time.perf_counter() - began) * 1e3

        quiet = [send() for _ in range(SENDS)]

        def passes() -> list[tuple[int, float]]:
            found = []
            for node in cluster.node_ids:
                for line in cluster.log_path(node).read_text().splitlines():
                    match = re.search(r"partition_compacted.*read_bytes=(\d+).*seconds=([\d.]+)", line)
                    if match:
                        found.append((int(match[1]), float(match[2])))
            return found

        admin.alter_configs({"keyed": {"cleanup.policy": "compact"}})
        busy = _during(send, lambda: len(passes()) >= NODES)
        rates = [read / 1e6 / max(seconds, 1e-3) for read, seconds in passes()]
    return quiet, busy, rates


def _during(send: Callable[[], float], over: Callable[[], bool]) -> list[float]:
    taken: list[float] = []
    deadline = time.monotonic() + WAIT_S
    looked = 0.0
    while True:
        taken.append(send())
        if time.monotonic() - looked > POLL_S:
            looked = time.monotonic()
            if over():
                return taken
            if looked > deadline:
                raise TimeoutError(f"no pass has ended on all nodes within {WAIT_S:g} s")


def main(arguments: list[str]) -> int:
    """Measures and prints; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench compaction", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=48, help="size of the compacted section of keyed records; 48")
    parsed = parser.parse_args(arguments)
    if not 1 <= parsed.megabytes <= 1024:
        parser.error(f"--megabytes {parsed.megabytes}: give a number from 1 to 1024")
    print(shlex.join(["python", "-m", "bench", "compaction", *arguments]))
    first, second = pass_rates(parsed.megabytes)
    print(f"a pass alone: {first:.0f} MB/s over new records, {second:.0f} MB/s with as many compacted before")
    try:
        quiet, busy, rates = latencies(parsed.megabytes)
    except (ClusterError, QuorumlogError, TimeoutError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    print(f"on three nodes, paced: {statistics.median(rates):.1f} MB/s each (limit {_limit_mb():.0f})")
    for name, taken in (("without compaction", quiet), ("during compaction", busy)):
        p50, p99 = statistics.median(taken), sorted(taken)[len(taken) * 99 // 100]
        print(f"send().result() {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {max(taken):.0f} ms ({len(taken)})")
    return 0


def _limit_mb() -> float:
    return NodeLimits().compaction_bytes_per_second / 1e6
