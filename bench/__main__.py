"""``python -m bench``: throughput and latency of a three-node cluster beside the bare path, in the same run.

Other commands measure other things:

- ``raft-groups`` and ``rounds``: many idle partitions, and the consensus core;
- ``instructions``: the rounds of two checkouts or more, counted instead of timed;
- ``lookups``: offsets by time;
- ``steady-state``: a full log that is trimmed while it is written;
- ``compaction``: its passes, and their effect on producers;
- ``drain``: draining a node with many partitions, and its effect on producers;
- ``lost-disk``: loss and recovery of a node's data, and its effect on producers;
- ``messages``: cost of a message between nodes, by transport;
- ``compare``: this checkout beside earlier commits, the compiled modules, the bare path;
- ``tuning``: gains of client settings over the defaults;
- ``--tls``: TLS beside plaintext, and ACLs beside none;
- ``rebalance``, ``coordinator-failover`` and ``consumer-heartbeats``: consumer groups;
- ``transactions``: costs of transactions beside Apache Kafka's;
- ``scrape``: costs of metrics requests;
- ``console``: costs of an open page of the web console, and its delay;
- ``workers``: several nodes on each machine;
- ``spark``: the data source of Spark;
- ``peers``: other log stores, Apache Kafka first, beside ours;
- ``kafka-port``: the port for Kafka clients beside the SDK.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.bare_path import BarePath, BarePathError
from bench.figures import Figures
from bench.job import JobError, run_job
from bench.measurements import PARTITIONS, Load, Measurement, measurements
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from bench.report import Row, Runs, markdown, rows_of, show, write_json
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError

QUICK_SCALE = 0.25
#: Measurements with arguments of their own, and their modules; each is imported when it is used.
COMMANDS = {
    "raft-groups": "raft_groups",
    "rounds": "rounds",
    "instructions": "instructions",
    "lookups": "lookups",
    "steady-state": "steady_state",
    "compaction": "compaction",
    "compare": "compare",
    "drain": "drained_node",
    "tuning": "tuning",
    "lost-disk": "lost_disk",
    "messages": "messages",
    "rebalance": "rebalance",
    "consumer-heartbeats": "consumer_heartbeats",
    "coordinator-failover": "coordinator_failover",
    "transactions": "transactions",
    "scrape": "scrape",
    "console": "console",
    "--tls": "tls",
    "workers": "workers",
    "spark": "spark",
    "peers": "peers.command",
    "kafka-port": "kafka_port.command",
}


def main() -> int:
    """Measures and reports; returns the exit status."""
    if len(sys.argv) > 1 and sys.argv[1] in COMMANDS:
        status: int = import_module(f"bench.{COMMANDS[sys.argv[1]]}").main(sys.argv[2:])
        return status
    parsed = _parser().parse_args()
    console = result_console()
    scale = parsed.scale * (QUICK_SCALE if parsed.quick else 1)
    repetitions = parsed.repetitions or (3 if parsed.quick else 5)
    chosen = [m for m in measurements(scale) if re.search(parsed.only, m.figures[0].name)]
    if not chosen:
        names = "; ".join(m.figures[0].name for m in measurements(1))
        print(f"bench: error: --only {parsed.only!r} matches none of: {names}", file=sys.stderr)
        return 2
    all_runs = [Runs(measurement) for measurement in chosen]
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        _measure(console, all_runs, repetitions, parsed.work_dir)
    except (JobError, BarePathError, ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    rows: list[Row] = [row for runs in all_runs for row in rows_of(runs)]
    if parsed.markdown:
        print(markdown(rows))
    else:
        show(console, rows, repetitions)
    if parsed.json is not None:
        write_json(parsed.json, shlex.join(["python", "-m", "bench", *sys.argv[1:]]), rows, all_runs)
        console.print(f"written to {parsed.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data and fewer repetitions: about a minute")
    parser.add_argument("--repetitions", type=int, help="number of repetitions (default 5, quick 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the amounts of data")
    parser.add_argument("--only", default="", help="regular expression of the measurements' names")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    add_json(parser)
    add_work_dir(parser)
    return parser


def _measure(console: Console, all_runs: list[Runs], repetitions: int, work_dir: Path) -> None:
    """Measures all pairs. Each repetition has fresh nodes and directories; within it the two sides alternate, also in
    order.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=repetitions * len(all_runs))
        for repetition in range(repetitions):
            directory = Path(tempfile.mkdtemp(dir=work_dir))
            try:
                with (
                    BarePath(directory / "bare") as bare,
                    LocalCluster(nodes=3, data_dir=directory / "cluster") as cluster,
                ):
                    _create_topics(cluster.bootstrap_servers, {runs.measurement.topic for runs in all_runs})
                    written: set[str] = set()
                    for runs in all_runs:
                        progress.update(task, description=runs.measurement.figures[0].name)
                        _write_first(runs.measurement, cluster, written)
                        _pair(runs, bare, cluster, cluster_first=repetition % 2 == 1)
                        progress.advance(task)
            finally:
                shutil.rmtree(directory, ignore_errors=True)


def _pair(runs: Runs, bare: BarePath, nodes: LocalCluster, *, cluster_first: bool) -> None:
    measured = runs.measurement
    for cluster in (cluster_first, not cluster_first):
        if cluster:
            runs.cluster.append(_on_cluster(measured.cluster, nodes, measured.topic))
        else:
            load = measured.bare
            runs.bare.append(run_job(load.job, servers=bare.pids, address=bare.address, **load.arguments))


def _on_cluster(load: Load, nodes: LocalCluster, topic: str) -> Figures:
    return run_job(load.job, servers=nodes.pids, bootstrap=nodes.bootstrap_servers, topic=topic, **load.arguments)


def _write_first(measurement: Measurement, nodes: LocalCluster, written: set[str]) -> None:
    """Writes the data that a measurement reads, if it is the only one chosen."""
    if measurement.reads is not None and measurement.topic not in written:
        _on_cluster(measurement.reads, nodes, measurement.topic)
    written.add(measurement.topic)


def _create_topics(bootstrap: str, names: set[str]) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(n, num_partitions=PARTITIONS, replication_factor=3) for n in sorted(names)])


if __name__ == "__main__":
    sys.exit(main())
