"""``python -m bench tuning``: what a client's settings gain over its defaults, at several sizes and partition counts.

Each cell is the same load through every tuning in turn, another one first in each repetition. One record at a time is
measured beside ``linger_ms=0``. The best of several is partly the luckiest: where it is not the defaults, both are
measured again, as often. The last column is what the defaults reach of it then: the median of the pairs' ratios, and
what these span.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.table import Table

from bench.figures import Figures
from bench.job import JobError, run_job
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError

KIB = 1024
DEFAULTS = "defaults"
#: What a client might set who wants more: small and at once, larger, as large as a topic takes.
TUNINGS: Mapping[str, Mapping[str, int]] = {
    DEFAULTS: {},
    "16 KiB, 0 ms": {"batch_size": 16 * KIB, "linger_ms": 0},
    "128 KiB, 5 ms": {"batch_size": 128 * KIB, "linger_ms": 5},
    "256 KiB, 20 ms": {"batch_size": 256 * KIB, "linger_ms": 20},
    "512 KiB, 20 ms": {"batch_size": 512 * KIB, "linger_ms": 20},
    "1 MiB, 5 ms": {"batch_size": 1024 * KIB, "linger_ms": 5},
    "1 MiB, 100 ms": {"batch_size": 1024 * KIB, "linger_ms": 100, "buffer_memory": 128 * KIB * KIB},
}
#: The same of a consumer: less and more of a partition at a time, more ahead, waiting for more, more with each poll.
CONSUMER_TUNINGS: Mapping[str, Mapping[str, int]] = {
    DEFAULTS: {},
    "512 KiB a partition": {"max_partition_fetch_bytes": 512 * KIB},
    "32 MiB a partition": {"max_partition_fetch_bytes": 32 * KIB * KIB},
    "200 MiB ahead": {"fetch_max_bytes": 200 * KIB * KIB},
    "at least 1 MiB": {"fetch_min_bytes": KIB * KIB},
    "5,000 a poll": {"max_poll_records": 5_000},
}
CALLS = {
    "produce-records": "send",
    "produce-arrow": "send_arrow",
    "produce-singly": "send, one at a time",
    "consume": "poll",
    "consume-arrow": "poll_arrow",
}
#: Bytes of a record, and how many make a run that writes; one that reads has four times as many.
SIZES = {100: 400_000, KIB: 80_000, 64 * KIB: 1_500}
PARTITIONS = (1, 8, 64)


@dataclasses.dataclass(slots=True, frozen=True)
class Cell:
    """A load that every tuning is measured with.

    Arguments:
        job: of ``bench.job``.
        size: of a record, in bytes.
        partitions: of the topic.
        count: records of one run.
    """

    job: str
    size: int
    partitions: int
    count: int

    @property
    def tunings(self) -> Mapping[str, Mapping[str, int]]:
        """By name, the defaults among them."""
        if self.job == "produce-singly":
            return {DEFAULTS: {}, "linger 0": {"linger_ms": 0}}
        return CONSUMER_TUNINGS if self.reads else TUNINGS

    @property
    def reads(self) -> bool:
        """True if the job is a consumer's."""
        return self.job.startswith("consume")

    @property
    def name(self) -> str:
        """For a line of the report."""
        size = f"{self.size} B" if self.size < KIB else f"{self.size // KIB} KiB"
        return f"{CALLS[self.job]}, {size}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"

    def run(self, bootstrap: str, topic: str, tuning: str) -> Figures:
        """One run of the load.

        Raises:
            JobError: it did not come to its end.
        """
        load = {"bootstrap": bootstrap, "topic": topic, "size": self.size, "count": self.count}
        options = dict(self.tunings[tuning])
        if not self.reads:
            return run_job(self.job, **load, options=options)
        arrow = self.job == "consume-arrow"
        return run_job("consume", **load, partitions=self.partitions, arrow=arrow, options=options)

    def prepare(self, bootstrap: str, topic: str) -> None:
        """Writes what a consumer reads; for a producer a part of the load, as the first to write to a topic is slower.

        Raises:
            JobError: it did not come to its end.
        """
        job = "produce-arrow" if self.reads else self.job
        count = self.count if self.reads else max(20, self.count // 4)
        run_job(job, bootstrap=bootstrap, topic=topic, size=self.size, count=count)


#: By cell and tuning, a value of each repetition.
Results: TypeAlias = Mapping[Cell, Mapping[str, list[float]]]


def cells(scale: float) -> list[Cell]:
    """All loads."""
    sent = [
        Cell(job, size, partitions, max(50, int(count * scale)))
        for job in ("produce-records", "produce-arrow")
        for size, count in SIZES.items()
        for partitions in PARTITIONS
    ]
    read = [
        Cell(job, size, partitions, max(50, int(4 * count * scale)))
        for job in ("consume", "consume-arrow")
        for size, count in SIZES.items()
        for partitions in PARTITIONS
    ]
    return [*sent, *read, *(Cell("produce-singly", size, 1, max(50, int(500 * scale))) for size in SIZES)]


def worth(cell: Cell, figures: Figures) -> float:
    """Returns the figure that is compared, more is better: records per second, or 1 / median latency."""
    if cell.job == "produce-singly":
        assert figures.p50_ms is not None
        return 1_000 / figures.p50_ms
    return figures.operations_per_second


def measure(
    chosen: Mapping[Cell, Sequence[str]], repetitions: int, work_dir: Path
) -> dict[Cell, dict[str, list[float]]]:
    """By cell and tuning, a value of each repetition. Each has a cluster of its own.

    Arguments:
        chosen: by cell, the names of its tunings that are measured.
    """
    found: dict[Cell, dict[str, list[float]]] = {cell: {name: [] for name in names} for cell, names in chosen.items()}
    for repetition in range(repetitions):
        directory = Path(tempfile.mkdtemp(dir=work_dir))
        try:
            with LocalCluster(nodes=3, data_dir=directory / "cluster") as cluster:
                for number, (cell, names) in enumerate(chosen.items()):
                    topic = f"cell-{number}"
                    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                        admin.create_topics([NewTopic(topic, num_partitions=cell.partitions, replication_factor=3)])
                    cell.prepare(cluster.bootstrap_servers, topic)
                    first = repetition % len(names)
                    for name in [*names[first:], *names[:first]]:
                        found[cell][name].append(worth(cell, cell.run(cluster.bootstrap_servers, topic, name)))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return found


def best(values: Mapping[str, list[float]]) -> str:
    """The tuning with the best median; the defaults, if no other is better."""
    medians = {name: statistics.median(each) for name, each in values.items()}
    name = max(medians, key=medians.__getitem__)
    return name if medians[name] > medians[DEFAULTS] else DEFAULTS


def of_the_best(values: Mapping[str, list[float]] | None) -> list[float]:
    """Returns the ratio of the defaults to the tuning that was measured beside them, for each pair; 1 without one.

    Arguments:
        values: of the defaults and of one tuning.
    """
    if values is None:
        return [1.0]
    (other,) = values.keys() - {DEFAULTS}
    return [ours / theirs for ours, theirs in zip(values[DEFAULTS], values[other], strict=True)]


def show(found: Results, again: Results, repetitions: int) -> None:
    """Prints a line for each cell.

    Arguments:
        found: of every tuning.
        again: of the defaults and the best, where that is another.
    """
    console = result_console()
    for tunings in (TUNINGS, CONSUMER_TUNINGS):
        table = Table(title=f"records per second, medians of {repetitions}")
        table.add_column("load")
        for name in tunings:
            table.add_column(name, justify="right")
        table.add_column("again: defaults / best", justify="right")
        for cell, values in found.items():
            if cell.tunings is tunings:
                medians = [f"{statistics.median(values[name]):,.0f}" for name in tunings]
                table.add_row(cell.name, *medians, spanned(of_the_best(again.get(cell))))
        if table.row_count:
            console.print(table)
    for cell, values in found.items():
        if cell.job == "produce-singly":
            medians = [f"{name} {1_000 / statistics.median(each):.2f} ms" for name, each in values.items()]
            ratio = spanned(of_the_best(again.get(cell)))
            console.print(f"{cell.name}: p50 {', '.join(medians)}; again: defaults / best {ratio}")


def spanned(ratios: list[float]) -> str:
    """The median, and the least and the most where there are several."""
    median = f"{statistics.median(ratios):.2f}"
    return median if len(ratios) == 1 else f"{median} ({min(ratios):.2f}-{max(ratios):.2f})"


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench tuning", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="how often everything is measured (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amounts of data")
    parser.add_argument("--only", default="", help="only loads with this in their name, such as '64 KiB, 1 p'")
    add_json(parser)
    add_work_dir(parser)
    parsed = parser.parse_args(arguments)
    chosen = [cell for cell in cells(parsed.scale) if parsed.only in cell.name]
    if not chosen:
        names = "; ".join(cell.name for cell in cells(1))
        print(f"bench: error: --only {parsed.only!r} is in none of: {names}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    try:
        found = measure({cell: list(cell.tunings) for cell in chosen}, parsed.repetitions, parsed.work_dir)
        doubted = {cell: [DEFAULTS, name] for cell, values in found.items() if (name := best(values)) != DEFAULTS}
        again = measure(doubted, parsed.repetitions, parsed.work_dir) if doubted else {}
    except (JobError, ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    show(found, again, parsed.repetitions)
    result_console().print(f"load average before: {load:.1f}")
    if parsed.json is not None:
        figures, figures_again = (
            {cell.name: dict(values) for cell, values in results.items()} for results in (found, again)
        )
        command = shlex.join(["python", "-m", "bench", "tuning", *arguments])
        parsed.json.write_text(
            json.dumps({"command": command, "per_second": figures, "per_second_again": figures_again}, indent=2)
        )
    return 0
