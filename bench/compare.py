"""``python -m bench compare OTHER …``: this checkout beside other code, the same loads in one run.

Each OTHER is one of these, and is compared with this checkout:

- a commit, by any of git's names: its client against its nodes, with the libraries of this environment;
- ``compiled``: this checkout as compiled by ``make compile``;
- ``bare``: the bare path.

Every side has fresh nodes in each repetition. Within it each load runs on all sides in direct succession, in another
order each time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.table import Table

from bench.bare_path import BarePath, BarePathError
from bench.figures import Figures
from bench.job import JobError, run_job
from bench.measurements import PARTITIONS, Figure, Measurement, measurements
from bench.options import add_json, add_work_dir
from bench.printing import result_console
from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, NewTopic
from quorumlog.sdk.errors import QuorumlogError

CHECKOUT = Path(__file__).resolve().parent.parent
THIS = "this checkout"
COMPILED = "compiled"
BARE = "bare"
COMPILED_TREE = CHECKOUT / "build" / "compiled"
#: A module that is compiled whenever anything is.
_COMPILED_MODULE = "quorumlog/raft/group.*.so"


class UnknownSideError(Exception):
    """Raised if a side does not exist. The message is one line that says what to do."""


class RunningSide(Protocol):
    """A side with running nodes."""

    def run(self, measurement: Measurement) -> Figures:
        """Runs a load on it.

        Raises:
            JobError: the load failed.
        """


class _Cluster:
    def __init__(self, nodes: LocalCluster, packages: Path | None) -> None:
        self._nodes = nodes
        self._packages = packages
        self._written: set[str] = set()

    def run(self, measurement: Measurement) -> Figures:
        load, topic = measurement.cluster, measurement.topic
        if measurement.reads is not None and topic not in self._written:
            self._job(measurement.reads.job, topic, measurement.reads.arguments)
        self._written.add(topic)
        return self._job(load.job, topic, load.arguments)

    def _job(self, job: str, topic: str, arguments: Mapping[str, object]) -> Figures:
        where = {"bootstrap": self._nodes.bootstrap_servers, "topic": topic}
        return run_job(job, packages=self._packages, servers=self._nodes.pids, **where, **arguments)


class _Bare:
    def __init__(self, nodes: BarePath) -> None:
        self._nodes = nodes

    def run(self, measurement: Measurement) -> Figures:
        load = measurement.bare
        return run_job(load.job, servers=self._nodes.pids, address=self._nodes.address, **load.arguments)


@dataclass(slots=True, frozen=True)
class Contender:
    """One side of the comparison.

    Arguments:
        name: its name in the report.
        packages: directory of its code; None for this checkout as it is installed, and for the bare path.
    """

    name: str
    packages: Path | None = None

    @contextlib.contextmanager
    def running(self, directory: Path, topics: set[str]) -> Iterator[RunningSide]:
        """Runs three nodes of it until the block ends.

        Arguments:
            directory: directory of their data.
            topics: topics to create, with eight partitions each.

        Raises:
            ClusterError, BarePathError: they do not start.
        """
        if self.name == BARE:
            with BarePath(directory) as bare:
                yield _Bare(bare)
            return
        env = {} if self.packages is None else {"PYTHONPATH": str(self.packages)}
        with LocalCluster(nodes=3, data_dir=directory, env=env) as cluster:
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in sorted(topics)])
            yield _Cluster(cluster, self.packages)


@dataclass(slots=True)
class Comparison:
    """All runs of one measurement, by side: the n-th runs of all sides happened in direct succession.

    A side that could not run it has a failure, and no figures.
    """

    measurement: Measurement
    runs: dict[str, list[Figures]]
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, side: str, figure: Figure) -> list[float]:
        """Returns a number from each run of a side."""
        return [figure.of(run) for run in self.runs[side]]

    def ratios(self, side: str, figure: Figure) -> list[float]:
        """Returns the ratio of this checkout to the other side, for each pair of runs."""
        pairs = zip(self.values(THIS, figure), self.values(side, figure), strict=False)
        return [ours / theirs for ours, theirs in pairs]


def find_sides(names: list[str], folder: Path) -> list[Contender]:
    """Returns this checkout, and the other sides by their names.

    Arguments:
        folder: directory for the code of commits.

    Raises:
        UnknownSideError: one does not exist.
    """
    sides = [Contender(THIS)]
    for name in names:
        if name == BARE:
            sides.append(Contender(BARE))
        elif name == COMPILED:
            if not any(COMPILED_TREE.glob(_COMPILED_MODULE)):
                raise UnknownSideError("nothing is compiled here: run make compile first")
            sides.append(Contender(COMPILED, COMPILED_TREE))
        else:
            packages = lay_out(name, folder / f"code-{len(sides)}")
            if packages is None:
                raise UnknownSideError(f"this checkout has no commit {name!r}: fetch its whole history")
            sides.append(Contender(name, packages))
    return sides


def measure(sides: list[Contender], chosen: list[Measurement], repetitions: int, folder: Path) -> list[Comparison]:
    """Runs every load on every side, ``repetitions`` times."""
    found = [Comparison(each, {side.name: [] for side in sides}) for each in chosen]
    topics = {each.topic for each in chosen}
    for repetition in range(repetitions):
        directory = Path(tempfile.mkdtemp(dir=folder))
        with contextlib.ExitStack() as nodes:
            running = {
                side.name: nodes.enter_context(side.running(directory / str(number), topics))
                for number, side in enumerate(sides)
            }
            names = list(running)
            first = repetition % len(names)
            for comparison in found:
                for name in names[first:] + names[:first]:
                    _run(comparison, name, running[name])
        shutil.rmtree(directory)
    return found


def _run(comparison: Comparison, name: str, side: RunningSide) -> None:
    if name in comparison.failures:
        return
    try:
        comparison.runs[name].append(side.run(comparison.measurement))
    except JobError as problem:
        comparison.failures[name] = str(problem)
        comparison.runs[name].clear()


def table_of(found: list[Comparison], repetitions: int) -> Table:
    """Returns a table with a line for each figure: every side's median, and its ratio to this checkout, median and
    extremes.
    """
    others = [name for name in found[0].runs if name != THIS]
    table = Table(title=f"{THIS} and others, medians of {repetitions}", title_justify="left")
    table.add_column("what", overflow="fold")
    table.add_column(THIS, justify="right")
    for name in others:
        table.add_column(name, justify="right")
        table.add_column("ratio (min-max)", justify="right")
    for comparison in found:
        for figure in comparison.measurement.figures:
            cells = [f"{figure.name} ({figure.unit})", _median(comparison.values(THIS, figure))]
            for name in others:
                ratios = comparison.ratios(name, figure)
                cells.append(_median(comparison.values(name, figure)))
                spread = f" ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else ""
                cells.append(f"{statistics.median(ratios):.2f}{spread}" if ratios else "")
            table.add_row(*cells)
    return table


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else "failed"


def report_of(found: list[Comparison], command: str) -> dict[str, object]:
    """All single figures, for a file."""
    return {
        "command": command,
        "figures": {
            figure.name: {
                "unit": figure.unit,
                "runs": {name: comparison.values(name, figure) for name in comparison.runs},
                "failures": comparison.failures,
            }
            for comparison in found
            for figure in comparison.measurement.figures
        },
    }


def main(arguments: list[str]) -> int:
    """Measures and reports; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("others", nargs="+", metavar="OTHER", help=f"a commit, {COMPILED!r} or {BARE!r}")
    parser.add_argument("--repetitions", type=int, default=5, help="number of repetitions (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the amounts of data")
    parser.add_argument("--only", default="", help="regular expression of the measurements' names")
    add_json(parser)
    add_work_dir(parser)
    parsed = parser.parse_args(arguments)
    chosen = [each for each in measurements(parsed.scale) if re.search(parsed.only, each.figures[0].name)]
    if not chosen:
        names = "; ".join(each.figures[0].name for each in measurements(1))
        print(f"bench: error: --only {parsed.only!r} matches none of: {names}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    parsed.work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parsed.work_dir))
    try:
        found = measure(find_sides(parsed.others, folder), chosen, parsed.repetitions, folder)
    except UnknownSideError as problem:
        print(f"bench: error: {problem}", file=sys.stderr)
        return 2
    except (BarePathError, ClusterError, QuorumlogError) as problem:
        print(f"bench: error: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console = result_console()
    console.print(table_of(found, parsed.repetitions))
    for comparison in found:
        for name, why in comparison.failures.items():
            console.print(f"{comparison.measurement.figures[0].name}, {name}: {why}")
    console.print(f"load average before: {load:.1f}")
    if parsed.json is not None:
        command = shlex.join(["python", "-m", "bench", "compare", *arguments])
        parsed.json.write_text(json.dumps(report_of(found, command), indent=2) + "\n")
    return 0


def lay_out(commit: str, folder: Path) -> Path | None:
    """Writes the packages of a commit to a folder, under their import names.

    Arguments:
        commit: any name of the commit.
        folder: directory for its files, created if it is missing.

    Returns:
        the value for ``PYTHONPATH``; None if the checkout does not contain that commit.
    """
    git = ["git", "-C", str(CHECKOUT)]
    if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False).returncode:
        return None
    archive = subprocess.run([*git, "archive", "--format=tar", commit], capture_output=True, check=True).stdout
    source, packages = folder / "source", folder / "packages"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    if (source / "src" / "quorumlog").is_dir():
        return source / "src"
    # Earlier commits map their folders to packages.
    folders = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    root = packages / "quorumlog"
    packages.mkdir()
    if "quorumlog" in folders:
        (source / folders["quorumlog"]).rename(root)
    root.mkdir(exist_ok=True)
    for name, place in folders.items():
        if name.count(".") == 1 and not (root / name.partition(".")[2]).exists():
            (root / name.partition(".")[2]).symlink_to(source / place, target_is_directory=True)
    wire = root / "wire"
    if not wire.exists():
        # In older commits it was a part of v1; the loads import this module by its current name.
        wire.mkdir()
        (wire / "__init__.py").touch()
        (wire / "entry.py").write_text("from quorumlog.v1.entry import *\n")
    return packages
