"""A table of single figures, some with a target, on the console and as JSON."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(slots=True, frozen=True)
class FigureLine:
    """One line of the table; ``target`` is the most that ``worst`` may be."""

    what: str
    figure: str
    worst: float | None = None
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """True if the target is met; None without one."""
        return None if self.worst is None or self.target is None else self.worst <= self.target


def show(console: Console, title: str, lines: list[FigureLine]) -> None:
    """Prints the table."""
    table = Table(title=title, title_justify="left")
    table.add_column("what", overflow="fold")
    table.add_column("figure", justify="right", overflow="fold")
    table.add_column("target", justify="right", no_wrap=True)
    for line in lines:
        style = {True: "green", False: "yellow", None: ""}[line.met]
        table.add_row(line.what, line.figure, "" if line.target is None else f"≤ {line.target:g}", style=style)
    console.print(table)


def write_json(path: Path, figures: dict[str, object], lines: list[FigureLine]) -> None:
    """Writes every figure, and whether the targets are met."""
    report = {
        **figures,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "lines": [{**dataclasses.asdict(line), "met": line.met} for line in lines],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
