"""``python -m bench transactions``: costs of Kafka's transactions here and on Apache Kafka, in rounds of one run.

Both sides have three servers and the same client, confluent-kafka, in a process of its own. One side's servers run at a
time; the order changes from round to round. Kafka flushes every log after each message (log.flush.interval.messages=1,
the flush.messages of all topics, also of its internal ones), because nothing is acknowledged here before it is synced.

- One record, and a transaction of one record, in turn.
- 100 records of 1 KiB over 8 partitions, without a transaction and in one, in turn.
- The time from a commit to a reader of committed records, while nothing else happens.
- The longest time without a commit when the coordinator is killed. Another node leads the partition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.coordinator_failover import await_in_sync
from bench.delivery_gaps import MemberDelivery, longest_gap_ms
from bench.kafka_port.raw_client import PortError, find_transaction_coordinator
from bench.options import add_json, add_work_dir
from bench.peers import kafka as apache
from bench.peers.readings import Reading, rows_of
from bench.peers.readings import show as show_readings
from bench.peers.server_processes import PeerError
from bench.printing import result_console
from bench.target_table import FigureLine, show
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin
from quorumlog.sdk.errors import QuorumlogError

OURS, APACHE = "quorumlog", "Apache Kafka, flushed"
FLUSHED = {"log.flush.interval.messages": "1"}
#: Transactions of each load at scale 1.
COUNTS = {"one-record": 1_000, "batches": 300, "visible": 300}
TARGETS = {
    "times_one_record": 4.0,
    "rate": 0.8,
    "visible_ms": 30.0,
    "killed_median_ms": 200.0,
    "killed_max_ms": 1_000.0,
}
PLAIN, TRANSACTION = "one record, p50", "transaction of one record, p50"
PLAIN_RATE, RATE = "100 x 1 KiB over 8 partitions", "the same in a transaction"
VISIBLE = "commit to visible, p99"
KILLED = "coordinator killed, longest time without a commit"
_ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 600.0


class TransactionLoadError(Exception):
    """Raised if a load fails; the message is one line."""


class TransactionServers(Protocol):
    """Three servers of one side."""

    @property
    def addresses(self) -> str:
        """``host:port`` of each for Kafka's clients, separated by commas."""

    def kill(self, name: str) -> None:
        """Kills a node with SIGKILL."""


class _PortNodes:
    """Three nodes of quorumlog."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.addresses = cluster.kafka_bootstrap_servers
        self._cluster = cluster

    def kill(self, name: str) -> None:
        self._cluster.kill(int(name))

    def restart(self, name: str) -> None:
        """Starts a killed node, and waits until it has caught up."""
        self._cluster.start(int(name))
        self._cluster.wait_ready()
        with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            await_in_sync(admin)


@dataclass(slots=True, frozen=True)
class TransactionSide:
    """One side.

    Arguments:
        start: starts servers with a directory of their own in the given one.
    """

    name: str
    start: Callable[[Path], AbstractContextManager[TransactionServers]]


@contextmanager
def _started(work_dir: Path) -> Iterator[TransactionServers]:
    directory = Path(tempfile.mkdtemp(prefix="transactions-", dir=work_dir))
    try:
        with LocalCluster(nodes=3, kafka=True, data_dir=directory) as cluster:
            yield _PortNodes(cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_load(load: str, **arguments: object) -> dict[str, Any]:
    """Runs a load in a process of its own.

    Raises:
        TransactionLoadError: it failed.
    """
    with _process(load, **arguments) as process:
        return _result(load, process)


@contextmanager
def _process(load: str, **arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.transaction_load", json.dumps({"load": load, **arguments})]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, cwd=_ROOT, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _result(load: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise TransactionLoadError(f"{load} did not end within {_TIMEOUT_S:.0f} s") from None
    if process.returncode:
        raise TransactionLoadError(f"{load} failed: {(errors.strip().splitlines() or ['nothing'])[-1]}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def killed(servers: TransactionServers, number: int) -> tuple[float, str]:
    """Kills the coordinator under a steady load. Returns the longest time without a commit in ms, and the node.

    Raises:
        TransactionLoadError: no commit succeeds afterwards.
    """
    name = f"steady-{number}"
    with _process("steady", servers=servers.addresses, name=name) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            _result("steady", process)
        node, _ = asyncio.run(find_transaction_coordinator(servers.addresses.split(",", maxsplit=1)[0], name))
        killed_ns = time.monotonic_ns()
        servers.kill(str(node))
        process.stdin.write("killed\n")
        process.stdin.flush()
        seen = _result("steady", process)
    if not seen["back"]:
        raise TransactionLoadError("no transaction was committed after its coordinator was killed")
    commits = [MemberDelivery(at_ns, name) for at_ns in seen["acknowledged_ns"]]
    return longest_gap_ms(commits, killed_ns, commits[-1].at_ns), str(node)


def measure(side: TransactionSide, servers: TransactionServers, scale: float, kills: int) -> Iterator[Reading]:
    """Yields the readings of one turn."""
    counts = {load: max(10, int(count * scale)) for load, count in COUNTS.items()}
    one = run_load("one-record", servers=servers.addresses, count=counts["one-record"])
    yield Reading(PLAIN, "ms", side.name, one["plain_ms"])
    yield Reading(TRANSACTION, "ms", side.name, one["transaction_ms"])
    rates = run_load("batches", servers=servers.addresses, count=counts["batches"])
    yield Reading(PLAIN_RATE, "records/s", side.name, rates["plain_rate"])
    yield Reading(RATE, "records/s", side.name, rates["transaction_rate"])
    seen = run_load("visible", servers=servers.addresses, count=counts["visible"])
    yield Reading("commit to visible, p50", "ms", side.name, seen["call_p50_ms"])
    yield Reading(VISIBLE, "ms", side.name, seen["call_p99_ms"])
    yield Reading("the same after the commit has returned, p99", "ms", side.name, seen["return_p99_ms"])
    for number in range(kills if isinstance(servers, _PortNodes) else min(kills, 1)):
        gap_ms, node = killed(servers, number)
        yield Reading(KILLED, "ms", side.name, gap_ms)
        if isinstance(servers, _PortNodes) and number + 1 < kills:
            servers.restart(node)


def lines_of(readings: Sequence[Reading]) -> list[FigureLine]:
    """Returns our figures beside their budgets."""

    def values(what: str, side: str = OURS) -> list[float]:
        return [each.value for each in readings if each.what == what and each.side == side]

    lines = []
    one, plain, theirs = values(TRANSACTION), values(PLAIN), values(TRANSACTION, APACHE)
    if one:
        times = statistics.median(one) / statistics.median(plain)
        lines.append(
            FigureLine("transaction of one record / one record", f"{times:.2f}", times, TARGETS["times_one_record"])
        )
    if one and theirs:
        times = statistics.median(one) / statistics.median(theirs)
        lines.append(FigureLine("transaction of one record / Apache Kafka's", f"{times:.2f}", times, 1.0))
    if rates := values(RATE):
        times = statistics.median(values(PLAIN_RATE)) / statistics.median(rates)
        lines.append(
            FigureLine("rate without / with transactions", f"{times:.2f}", times, round(1 / TARGETS["rate"], 2))
        )
    if p99 := values(VISIBLE):
        lines.append(
            FigureLine(VISIBLE, f"{statistics.median(p99):.1f} ms", statistics.median(p99), TARGETS["visible_ms"])
        )
    if gaps := values(KILLED):
        middle, most = statistics.median(gaps), max(gaps)
        lines.append(FigureLine(f"{KILLED}, p50", f"{middle:.0f} ms", middle, TARGETS["killed_median_ms"]))
        lines.append(FigureLine(f"{KILLED}, most", f"{most:.0f} ms", most, TARGETS["killed_max_ms"]))
    return lines


def sides(*, only_ours: bool) -> list[TransactionSide]:
    """Returns the sides.

    Raises:
        PeerError: something of Apache Kafka is missing.
    """
    if only_ours:
        return [TransactionSide(OURS, _started)]
    missing = apache.JARS.missing()
    if missing:
        raise PeerError(f"Apache Kafka requires: {missing}; --only-ours measures without it")
    return [TransactionSide(OURS, _started), TransactionSide(APACHE, apache.starter(FLUSHED))]


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    console, load = result_console(), os.getloadavg()[0]
    readings: list[Reading] = []
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        every = sides(only_ours=parsed.only_ours)
        for number in range(parsed.repetitions):
            for side in every if number % 2 == 0 else reversed(every):
                console.print(f"round {number + 1} of {parsed.repetitions}: {side.name}")
                with side.start(parsed.work_dir) as servers:
                    readings += measure(side, servers, parsed.scale, parsed.kills)
    except (ClusterError, PeerError, PortError, QuorumlogError, TransactionLoadError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    rows, lines = rows_of(readings), lines_of(readings)
    show_readings(console, f"three servers each; load average before: {load:.1f}", rows)
    show(console, f"budgets of {OURS}, medians of {parsed.repetitions} rounds", lines)
    if parsed.json is not None:
        report = {
            "command": shlex.join(["python", "-m", "bench", "transactions", *arguments]),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load_average": load,
            "machine": {"system": platform.platform(), "python": platform.python_version()},
            "rows": [asdict(row) for row in rows],
            "lines": [{**asdict(line), "met": line.met} for line in lines],
            "readings": [asdict(reading) for reading in readings],
        }
        parsed.json.parent.mkdir(parents=True, exist_ok=True)
        parsed.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench transactions", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="number of rounds (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of transactions")
    parser.add_argument("--kills", type=int, default=3, help="kills of our coordinator in each round (default 3)")
    parser.add_argument("--only-ours", action="store_true", help="measure without Apache Kafka")
    add_json(parser)
    add_work_dir(parser)
    return parser
