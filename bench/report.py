"""Medians and ratios of all repetitions, as a table for people and as JSON for everything else."""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Figures
from bench.measurements import Figure, Measurement


@dataclass(slots=True)
class Runs:
    """All runs of one measurement, pairwise: the n-th of each side ran right after the other."""

    measurement: Measurement
    cluster: list[Figures] = field(default_factory=list)
    bare: list[Figures] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Row:
    """One line of the report.

    Arguments:
        cluster, bare: medians.
        ratio: median of the pairs' ratios, cluster to bare path.
        lowest, highest: the pairs' extremes.
        records_per_second: median, for measurements that count records.
    """

    name: str
    unit: str
    cluster: float
    bare: float
    ratio: float
    lowest: float
    highest: float
    records_per_second: float
    target: float | None
    lower_is_better: bool

    @property
    def met(self) -> bool | None:
        """True if the target is met; None without one."""
        if self.target is None:
            return None
        return self.ratio <= self.target if self.lower_is_better else self.ratio >= self.target


def rows_of(runs: Runs) -> list[Row]:
    """The report's lines for one measurement."""
    return [_row(figure, runs) for figure in runs.measurement.figures]


def _row(figure: Figure, runs: Runs) -> Row:
    cluster, bare = [figure.of(run) for run in runs.cluster], [figure.of(run) for run in runs.bare]
    ratios = [ours / theirs for ours, theirs in zip(cluster, bare, strict=True)]
    return Row(
        figure.name,
        figure.unit,
        statistics.median(cluster),
        statistics.median(bare),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(run.operations_per_second for run in runs.cluster),
        figure.target,
        figure.lower_is_better,
    )


def show(console: Console, rows: list[Row], repetitions: int) -> None:
    """Prints the table."""
    table = Table(title=f"three nodes beside the bare path, medians of {repetitions}", title_justify="left")
    table.add_column("what", overflow="fold")
    for column in ("quorumlog", "bare path", "ratio", "min-max", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        style = {True: "green", False: "yellow", None: ""}[row.met]
        bound = "≤" if row.lower_is_better else "≥"
        table.add_row(
            f"{row.name} ({row.unit})",
            f"{row.cluster:.1f}",
            f"{row.bare:.1f}",
            f"{row.ratio:.2f}",
            f"{row.lowest:.2f}-{row.highest:.2f}",
            "" if row.target is None else f"{bound} {row.target:g}",
            style=style,
        )
    console.print(table)


def markdown(rows: list[Row]) -> str:
    """The table as it is in the documentation."""
    lines = ["| what | quorumlog | bare path | ratio (min-max of the pairs) | target |", "|---|---|---|---|---|"]
    for row in rows:
        target = "" if row.target is None else f"{'≤' if row.lower_is_better else '≥'} {row.target:g}"
        measured = f"{row.cluster:.1f} {row.unit} | {row.bare:.1f} {row.unit}"
        lines.append(
            f"| {row.name} | {measured} | **{row.ratio:.2f}** ({row.lowest:.2f}-{row.highest:.2f}) | {target} |"
        )
    return "\n".join(lines)


def write_json(path: Path, command: str, rows: list[Row], all_runs: list[Runs]) -> None:
    """Writes medians, ratios and every single run."""
    report = {
        "command": command,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
        "rows": [{**dataclasses.asdict(row), "met": row.met} for row in rows],
        "runs": [
            {
                "load": dataclasses.asdict(runs.measurement.cluster),
                "bare_load": dataclasses.asdict(runs.measurement.bare),
                "cluster": [dataclasses.asdict(run) for run in runs.cluster],
                "bare": [dataclasses.asdict(run) for run in runs.bare],
            }
            for runs in all_runs
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
