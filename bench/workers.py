"""``python -m bench workers``: what several nodes on each machine gain, and what they cost.

For each number of workers, some machines are started on this one, with topics of the same number of partitions, of
which each node leads as many. Several producers write records of 1 KiB and of 64 KiB, each in a process of its own, and
several consumers read them. With the default settings three numbers of workers take less than six minutes. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.options import add_json, add_work_dir
from bench.printing import result_console
from bench.process_cost import machine_busy_seconds, memory_of, processor_time, watch
from bench.worker_load import LoadFigures, WorkerLoad
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.pure import is_compiled
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError

SIZES = (1 << 10, 64 << 10)
_ROOT = Path(__file__).resolve().parent.parent
#: Time after the nodes are ready until they count as idle.
_SETTLE_S = 3.0
#: Time limit of a client beyond that of its load.
_PATIENCE_S = 90.0
_KIB = 1024


class ClientError(Exception):
    """Raised if a client fails; the message is the last line of its process."""


@dataclass(slots=True, frozen=True)
class WorkerFigures:
    """One load on one number of workers.

    Arguments:
        kind: ``produce`` or ``consume``.
        records_per_s, megabytes_per_s: of all clients together.
        node_cores, client_cores, busy_cores: cores that all nodes, all clients, and everything on the machine used.
        node_cpu_us_per_record, node_cpu_us_per_batch: processor time of all nodes; per batch only of producing.
        records_per_batch: about; 0 of consuming.
    """

    workers: int
    kind: str
    size: int
    records_per_s: float
    megabytes_per_s: float
    node_cores: float
    client_cores: float
    busy_cores: float
    node_cpu_us_per_record: float
    node_cpu_us_per_batch: float
    records_per_batch: float


@dataclass(slots=True)
class WorkersRun:
    """All figures of one number of workers.

    Arguments:
        ready_s: from the start of the processes until all nodes serve.
        private_kib: memory of each idle node that no other process shares.
        idle_cpu_percent: of one core, of each idle node; others_cpu_percent: of everything else at that time.
    """

    workers: int
    nodes: int
    partitions: int
    ready_s: float = 0.0
    private_kib: list[int] = field(default_factory=list)
    idle_cpu_percent: list[float] = field(default_factory=list)
    others_cpu_percent: float = 0.0
    loads: list[WorkerFigures] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Measures and reports; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    console = result_console()
    runs = []
    chosen.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        for workers in chosen.workers:
            directory = Path(tempfile.mkdtemp(dir=chosen.work_dir))
            try:
                runs.append(_measure(chosen, workers, directory))
            finally:
                shutil.rmtree(directory, ignore_errors=True)
    except (ClientError, ClusterError, QuorumlogError, ValueError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(console, runs)
    if chosen.json is not None:
        report = {
            "command": shlex.join(["python", "-m", "bench", "workers", *arguments]),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {
                "system": platform.platform(),
                "python": platform.python_version(),
                "cores": os.cpu_count(),
                "compiled": is_compiled(),
            },
            "machines": chosen.machines,
            "clients": chosen.clients,
            "seconds": chosen.seconds,
            "runs": [asdict(run) for run in runs],
        }
        chosen.json.write_text(json.dumps(report, indent=2) + "\n")
        console.print(f"written to {chosen.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench workers", description=__doc__)
    parser.add_argument("--machines", type=int, default=3, help="number of machines (default %(default)s)")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2, 4], help="numbers of workers of each (default 1 2 4)"
    )
    parser.add_argument(
        "--clients",
        type=int,
        default=min(8, max(2, (os.cpu_count() or 2) // 2)),
        help="number of producers, and of consumers (here by default %(default)s)",
    )
    parser.add_argument(
        "--partitions", type=int, help="partitions of a topic (default: 4 for each node of the largest cluster)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time of each load (default %(default)s)")
    parser.add_argument("--idle", type=float, default=5.0, help="time to look at idle nodes (default %(default)s)")
    add_json(parser)
    add_work_dir(parser)
    return parser


def _measure(chosen: argparse.Namespace, workers: int, directory: Path) -> WorkersRun:
    nodes = chosen.machines * workers
    partitions = chosen.partitions or 4 * chosen.machines * max(chosen.workers)
    run = WorkersRun(workers, nodes, partitions)
    begin = time.monotonic()
    # The scrub would read what was written, at the expense of the loads.
    settings = {"scrub_bytes_per_second": 0}
    with LocalCluster(nodes=chosen.machines, workers=workers, data_dir=directory, settings=settings) as cluster:
        cluster.wait_ready()
        run.ready_s = time.monotonic() - begin
        topics = {size: f"bytes-{size}" for size in SIZES}
        factor = min(3, chosen.machines)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, run.partitions, factor) for topic in topics.values()])
        pids = [pid for member in cluster.member_ids if (pid := cluster.pid(member)) is not None]
        time.sleep(_SETTLE_S)
        idle = watch(pids, chosen.idle)
        run.idle_cpu_percent, run.others_cpu_percent = idle.cpu_percent, idle.others_percent
        run.private_kib = [memory_of(pid).unshared for pid in pids]
        for size, topic in topics.items():
            for kind in ("produce", "consume"):
                loads = [
                    WorkerLoad(
                        kind, cluster.bootstrap_servers, topic, size, chosen.seconds,
                        tuple(range(client, run.partitions, chosen.clients)),
                    )
                    for client in range(min(chosen.clients, run.partitions))
                ]  # fmt: skip
                run.loads.append(_load(workers, loads, pids))
    return run


def _load(workers: int, loads: Sequence[WorkerLoad], pids: Sequence[int]) -> WorkerFigures:
    """Runs clients at the same time, each in a process of its own."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.worker_load", json.dumps(asdict(load))],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for load in loads
    ]
    try:
        for client in clients:
            assert client.stdout is not None
            if client.stdout.readline() != "ready\n":
                raise ClientError(_last_words(client))
        begin, busy_s, node_s = time.monotonic(), machine_busy_seconds(), sum(processor_time(pids))
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("\n")
            client.stdin.flush()
        figures = [_figures(client, loads[0].seconds) for client in clients]
        took = time.monotonic() - begin
        busy_s, node_s = machine_busy_seconds() - busy_s, sum(processor_time(pids)) - node_s
    finally:
        for client in clients:
            client.kill()
            client.communicate()
    records, batches = sum(each.records for each in figures), sum(each.batches for each in figures)
    rate = sum(each.records / each.seconds for each in figures if each.seconds)
    return WorkerFigures(
        workers=workers,
        kind=loads[0].kind,
        size=loads[0].size,
        records_per_s=rate,
        megabytes_per_s=rate * loads[0].size / 1e6,
        node_cores=node_s / took,
        client_cores=sum(each.cpu_s for each in figures) / took,
        busy_cores=busy_s / took,
        node_cpu_us_per_record=1e6 * node_s / max(1, records),
        node_cpu_us_per_batch=1e6 * node_s / batches if batches else 0.0,
        records_per_batch=records / batches if batches else 0.0,
    )


def _figures(client: subprocess.Popen[str], seconds: float) -> LoadFigures:
    try:
        printed, said = client.communicate(timeout=seconds + _PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise ClientError(f"a client did not end within {seconds + _PATIENCE_S:.0f} s") from None
    if client.returncode != 0:
        raise ClientError(f"a client failed: {(said.strip().splitlines() or ['nothing'])[-1]}")
    return LoadFigures(**json.loads(printed))


def _last_words(client: subprocess.Popen[str]) -> str:
    _, said = client.communicate(timeout=_PATIENCE_S)
    return f"a client failed: {(said.strip().splitlines() or ['nothing'])[-1]}"


def show(console: Console, runs: Sequence[WorkersRun]) -> None:
    """Prints two tables: idle nodes, and loads."""
    idle = Table(title="idle nodes", title_justify="left")
    for column in ("workers", "nodes", "ready in s", "private MiB each", "% of a core each", "others %"):
        idle.add_column(column, justify="right")
    for run in runs:
        idle.add_row(
            str(run.workers),
            str(run.nodes),
            f"{run.ready_s:.1f}",
            f"{max(run.private_kib, default=0) / _KIB:.0f}",
            f"{sum(run.idle_cpu_percent) / max(1, run.nodes):.2f}",
            f"{run.others_cpu_percent:.0f}",
        )
    console.print(idle)
    table = Table(title="loads", title_justify="left")
    columns = ("workers", "load", "records/s", "MB/s", "cores: nodes", "clients", "busy", "µs/record", "µs/batch")
    for column in columns:
        table.add_column(column, justify="right")
    for each in (load for run in runs for load in run.loads):
        table.add_row(
            str(each.workers),
            f"{each.kind} {each.size // _KIB} KiB",
            f"{each.records_per_s:,.0f}",
            f"{each.megabytes_per_s:,.0f}",
            f"{each.node_cores:.2f}",
            f"{each.client_cores:.2f}",
            f"{each.busy_cores:.2f}",
            f"{each.node_cpu_us_per_record:.1f}",
            f"{each.node_cpu_us_per_batch:.0f}" if each.node_cpu_us_per_batch else "-",
        )
    console.print(table)
