"""``python -m bench --tls``: what TLS costs beside plaintext, and what asking for permission costs beside not asking.

Both sides of a pair run at once, on fresh nodes in each repetition. Each load runs on one side right after the other,
and another side is first each time. So what else the machine does shows on both.

- Throughput of ready-made batches, and the latency of one batch at a time: plaintext and TLS.
- A killed leader: the longest time between two acknowledgements of a producer that sends one record after the other.
- Batches of 1,000 records of 100 B with rules of who may do what, and without: both with TLS.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figures
from bench.job import JobError, run_job
from bench.measurements import KIB, PARTITIONS, RECORD_BYTES
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourceType,
)
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.runtime.security import SecurityOptions

TOPIC = "measured"
USER = "writer"
#: Rules of others: what decides is found among them.
OTHER_RULES = 100
#: Of the producer whose leader is killed: the pause between two records, and how long it continues after the kill.
INTERVAL_S, AFTER_KILL_S = 0.005, 5.0
BATCH_RECORDS = 1_000
#: How often rules are measured in a repetition: what they cost is less than what one run differs from the next by.
RULES_TURNS = 6


class UnreadyError(Exception):
    """A cluster did not reach the state to measure. The message is one line."""


@dataclass(slots=True)
class TwoSides:
    """A figure of two sides, pairwise: the n-th of each was measured right after the other.

    Arguments:
        what, unit: of the figure.
        sides: what the two are called.
        target: what the ratio of the second to the first ought to be; None where none is set.
        lower_is_better: for times.
    """

    what: str
    unit: str
    sides: tuple[str, str]
    target: float | None = None
    lower_is_better: bool = False
    figures: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    @property
    def ratios(self) -> list[float]:
        """Ratios of the second side to the first, one of each pair."""
        return [second / first for first, second in zip(*self.figures, strict=True)]

    @property
    def met(self) -> bool | None:
        """True if the median of the ratios meets the target; None without a target."""
        if self.target is None:
            return None
        ratio = statistics.median(self.ratios)
        return ratio <= self.target if self.lower_is_better else ratio >= self.target


Measure = Callable[["_Side"], float]


@dataclass(slots=True, frozen=True)
class _Side:
    """One of the two clusters.

    Arguments:
        tls: options of its clients; none without TLS.
    """

    cluster: LocalCluster
    tls: SecurityOptions

    def run(self, job: str, **arguments: object) -> Figures:
        """Puts a load on it, from a process of its own."""
        return run_job(job, bootstrap=self.cluster.bootstrap_servers, topic=TOPIC, tls=dict(self.tls), **arguments)


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    console = result_console()
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        pairs = _measured(parsed, console)
    except (JobError, ClusterError, QuorumlogError, UnreadyError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    _show(console, pairs, parsed.repetitions)
    if parsed.json is not None:
        _write(parsed.json, shlex.join(["python", "-m", "bench", "--tls", *arguments]), pairs)
        console.print(f"written to {parsed.json}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench --tls", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="how often everything is measured; 5")
    parser.add_argument("--kills", type=int, default=1, help="of leaders, on each side of each repetition; 1")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amounts of data")
    add_json(parser)
    add_work_dir(parser)
    return parser


def _measured(given: argparse.Namespace, console: Console) -> list[TwoSides]:
    tls, rules = ("plaintext", "TLS"), ("no rules", "rules")
    batches = {
        kib: TwoSides(f"produce batches of {kib} KiB", "MB/s", tls, 0.75 if kib == 256 else None) for kib in (64, 256)
    }
    latency = TwoSides("latency of one batch of 100 B, p50", "ms", tls, 1.2, lower_is_better=True)
    killed = TwoSides("killed leader, longest gap", "ms", tls, 1.25, lower_is_better=True)
    comparison = TwoSides(f"produce batches of {BATCH_RECORDS:,} x {RECORD_BYTES} B", "MB/s", rules, 0.99)
    for repetition in range(given.repetitions):
        first = repetition % 2
        console.print(f"repetition {repetition + 1} of {given.repetitions}", style="dim")
        with _both(given.work_dir, _plaintext, _with_tls) as sides:
            for kib, pair in batches.items():
                count = int(128_000_000 * given.scale) // (kib * KIB)
                _alternate(pair, sides, first, _throughput(kib * KIB, count))
            _alternate(latency, sides, first, _median_latency(max(200, int(600 * given.scale))))
            for kill in range(given.kills):
                _alternate(killed, sides, (first + kill) % 2, _longest_gap)
        with _both(given.work_dir, _with_tls, _with_rules) as sides:
            size = BATCH_RECORDS * RECORD_BYTES
            for turn in range(RULES_TURNS):
                _alternate(
                    comparison, sides, (first + turn) % 2, _throughput(size, int(64_000_000 * given.scale) // size)
                )
    return [*batches.values(), latency, killed, comparison]


def _alternate(pair: TwoSides, sides: tuple[_Side, _Side], first: int, measure: Measure) -> None:
    for number in (first, 1 - first):
        pair.figures[number].append(measure(sides[number]))


def _throughput(size: int, count: int) -> Measure:
    return lambda side: side.run("raw-produce", size=size, count=count, window=16).megabytes_per_second


def _median_latency(count: int) -> Measure:
    def measure(side: _Side) -> float:
        found = side.run("raw-produce", size=RECORD_BYTES, count=count, window=1).p50_ms
        assert found is not None
        return found

    return measure


def _longest_gap(side: _Side) -> float:
    """Milliseconds between two acknowledgements around the kill of a leader, which is up again afterwards."""
    cluster = side.cluster
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, **side.tls) as producer:
        moments: list[float] = []

        def send(until_s: float) -> None:
            while time.monotonic() < until_s:
                producer.send(TOPIC, b"x" * RECORD_BYTES, partition=0).result(timeout=30)
                moments.append(time.monotonic())
                time.sleep(INTERVAL_S)

        send(time.monotonic() + 1.0)
        leader = cluster.leader(TOPIC, 0)
        if leader is None:
            raise UnreadyError(f"{TOPIC}-0 has no leader")
        cluster.kill(leader)
        send(time.monotonic() + AFTER_KILL_S)
    cluster.start(leader)
    cluster.wait_ready()
    _wait_in_sync(side)
    return max(after - before for before, after in itertools.pairwise(moments)) * 1_000


def _wait_in_sync(side: _Side) -> None:
    deadline = time.monotonic() + 60
    with Admin(bootstrap_servers=side.cluster.bootstrap_servers, **side.tls) as admin:
        while any(len(each.isr) < 3 for each in admin.describe_topics([TOPIC])[0].partitions):
            if time.monotonic() > deadline:
                raise UnreadyError("the replicas of a node that was started again are not in sync after a minute")
            time.sleep(0.1)


# -- the sides --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _both(
    work_dir: Path,
    one: Callable[[Path], contextlib.AbstractContextManager[_Side]],
    other: Callable[[Path], contextlib.AbstractContextManager[_Side]],
) -> Iterator[tuple[_Side, _Side]]:
    directory = Path(tempfile.mkdtemp(dir=work_dir))
    try:
        with one(directory / "one") as first, other(directory / "other") as second:
            yield first, second
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _plaintext(directory: Path) -> Iterator[_Side]:
    with LocalCluster(nodes=3, data_dir=directory) as cluster:
        yield _made(_Side(cluster, SecurityOptions()))


@contextlib.contextmanager
def _with_tls(directory: Path) -> Iterator[_Side]:
    with LocalCluster(nodes=3, data_dir=directory, tls=True) as cluster:
        yield _made(_Side(cluster, _options(cluster.client_tls)))


@contextlib.contextmanager
def _with_rules(directory: Path) -> Iterator[_Side]:
    asking = {"authorization": "true", "super_users": "User:admin"}
    with LocalCluster(nodes=3, data_dir=directory, tls=True, settings=asking) as cluster:
        admins = _made(_Side(cluster, _options(cluster.client_tls)))
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **admins.tls) as admin:
            allowed = [(USER, TOPIC), *((f"user-{number}", f"topic-{number}") for number in range(OTHER_RULES))]
            admin.create_acls(
                ACL(
                    f"User:{user}",
                    ACLOperation.WRITE,
                    ACLPermissionType.ALLOW,
                    ResourcePattern(ResourceType.TOPIC, topic),
                )
                for user, topic in allowed
            )
        assert cluster.certificates is not None
        yield _Side(cluster, _options(cluster.certificates.add_user(USER)))


def _options(tls: dict[str, str]) -> SecurityOptions:
    options = SecurityOptions()
    options.update(tls)  # type: ignore[typeddict-item]  # options of clients, by name
    return options


def _made(side: _Side) -> _Side:
    with Admin(bootstrap_servers=side.cluster.bootstrap_servers, **side.tls) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
    return side


# -- the report -------------------------------------------------------------------------------------------------------


def _show(console: Console, pairs: list[TwoSides], repetitions: int) -> None:
    table = Table(title=f"three nodes, medians of {repetitions}", title_justify="left")
    table.add_column("what", overflow="fold")
    for column in ("without", "with", "ratio", "min-max", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    for pair in pairs:
        style = {True: "green", False: "yellow", None: ""}[pair.met]
        without, with_it = (statistics.median(side) for side in pair.figures)
        bound = "" if pair.target is None else f"{'≤' if pair.lower_is_better else '≥'} {pair.target:g}"
        table.add_row(
            f"{pair.what} ({pair.unit}): {' / '.join(pair.sides)}",
            f"{without:.1f}",
            f"{with_it:.1f}",
            f"{statistics.median(pair.ratios):.2f}",
            f"{min(pair.ratios):.2f}-{max(pair.ratios):.2f}",
            bound,
            style=style,
        )
    console.print(table)


def _write(path: Path, command: str, pairs: list[TwoSides]) -> None:
    report = {
        "command": command,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "pairs": [{**dataclasses.asdict(pair), "ratios": pair.ratios, "met": pair.met} for pair in pairs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
