"""Readings, and the table of them: medians of all rounds, their spread, and the ratio to our own first side."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(slots=True, frozen=True)
class Reading:
    """One figure of one round.

    Arguments:
        what: is compared, with its unit.
        side: the way of using a peer, as the report says it.
    """

    what: str
    unit: str
    side: str
    value: float


@dataclass(slots=True, frozen=True)
class PeerRow:
    """One line of the report.

    Arguments:
        median, lowest, highest: of the rounds.
        ratio: of the median to that of the first side under the same heading; None if none exists but this one.
    """

    what: str
    unit: str
    side: str
    median: float
    lowest: float
    highest: float
    ratio: float | None


def rows_of(readings: Iterable[Reading]) -> list[PeerRow]:
    """The report's lines, in the order in which each heading, and under it each side, came up first."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for reading in readings:
        found.setdefault((reading.what, reading.unit), {}).setdefault(reading.side, []).append(reading.value)
    rows = []
    for (what, unit), sides in found.items():
        first = statistics.median(next(iter(sides.values())))
        for side, values in sides.items():
            median = statistics.median(values)
            ratio = median / first if first and len(sides) > 1 else None
            rows.append(PeerRow(what, unit, side, median, min(values), max(values), ratio))
    return rows


def figure(value: float) -> str:
    """Three digits that count, or all of a whole number."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


_HEAD = ("what", "side", "median", "min-max", "of the first")


def _cells(row: PeerRow) -> tuple[str, str, str, str, str]:
    spread = f"{figure(row.lowest)}-{figure(row.highest)}"
    what = f"{row.what} ({row.unit})"
    return what, row.side, figure(row.median), spread, "" if row.ratio is None else f"{row.ratio:.2f}"


def show(console: Console, title: str, rows: list[PeerRow]) -> None:
    """Prints the table; a heading appears once."""
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(_HEAD):
        table.add_column(name, justify="right" if place > 1 else "left", overflow="fold", no_wrap=place > 1)
    above = ""
    for row in rows:
        what, *rest = _cells(row)
        if above and what != above:
            table.add_section()
        table.add_row("" if what == above else what, *rest)
        above = what
    console.print(table)


def markdown(rows: list[PeerRow]) -> str:
    """The table as it is in the documentation."""
    lines = [f"| {' | '.join(_HEAD)} |", "|---|---|---|---|---|"]
    above = ""
    for row in rows:
        what, *rest = _cells(row)
        lines.append(f"| {'' if what == above else what} | {' | '.join(rest)} |")
        above = what
    return "\n".join(lines)
