"""Printing results: JSON for programs, rich tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

#: Characters in a line that no table reaches.
_UNLIMITED = 100_000


def print_json(value: object) -> None:
    """Prints a value as indented JSON."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Prints rows under column headings; numbers are aligned to the right. Without a terminal the table is as wide
    as its cells, so that a pipe never sees one cut short."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [list(row) for row in rows]
    for position, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[position], (int, float)) for row in cells)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(1, Console(width=_UNLIMITED).measure(table).maximum))
    console.print(table)


def node_list(nodes: Iterable[int]) -> str:
    """Node ids as Kafka prints them: ``1,2,3``."""
    return ",".join(str(node) for node in nodes)


def plural(count: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(size_bytes: float) -> str:
    """Bytes as a person reads them: ``1.4 GB``."""
    if size_bytes < 1_000:
        return f"{size_bytes:.0f} B"
    units = ("kB", "MB", "GB")
    power = min(len(units), len(str(int(size_bytes))) // 3 - (len(str(int(size_bytes))) % 3 == 0))
    return f"{size_bytes / 1_000**power:.1f} {units[power - 1]}"
