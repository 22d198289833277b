"""Printing results: JSON for programs, tables for people.

A table fits the terminal without losing a character. In order of preference: every column at its natural width; long
text wrapped at spaces; the widest columns moved below their row; each row as a record of ``Heading: cell`` lines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from quorumlog.cli.boundary import printable

#: Columns up to this width are never wrapped: names, numbers, addresses, states.
_SHORT_COLUMN = 24
#: Wrapped text is at least this wide; narrower columns are harder to read than a line below the row.
_NARROWEST_TEXT = 20
#: Spaces between columns; the smaller gap is used if that lets more columns fit.
_GAPS = (3, 2)
_INDENT = " "
#: Indentation of a cell that was moved below its row.
_BELOW = "     "
_BOLD, _PLAIN = "\033[1m", "\033[0m"


def print_json(value: object) -> None:
    """Prints a value as indented JSON; characters that the output cannot encode are escaped as JSON escapes them."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    sys.stdout.write(text + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows under column headings; numbers are aligned to the right. No cell and no heading is ever cut. Without
    a terminal each row is one line, as wide as its cells. Characters that a terminal would obey, or that the output
    cannot encode, are escaped.
    """
    cells = [list(row) for row in rows]
    texts = [[printable(str(cell), sys.stdout.encoding) for cell in row] for row in cells]
    right = [bool(cells) and all(isinstance(row[i], (int, float)) for row in cells) for i in range(len(columns))]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    layout = _layout(columns, texts, right, limit)
    lines = _records(columns, texts, limit or 0) if layout is None else _table(columns, texts, right, layout)
    for line in lines:
        print(line)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Widths of the columns in the row, by position, and the columns that were moved below it.

    Attributes:
        gap: spaces between columns.
        below_width: of the lines below the row.
    """

    widths: dict[int, int]
    gap: int
    below: tuple[int, ...] = ()
    below_width: int = 0


def _layout(columns: Sequence[str], texts: list[list[str]], right: list[bool], limit: int | None) -> _Layout | None:
    """Returns how the table fits in ``limit`` columns of a terminal; None if it fits only as records."""
    by_column = [[row[i] for row in texts] for i in range(len(columns))]
    natural = [max(map(_width, (name, *cells))) for name, cells in zip(columns, by_column, strict=True)]
    if limit is None:
        return _Layout(dict(enumerate(natural)), _GAPS[0])
    least = [_least_width(name, cells) for name, cells in zip(columns, by_column, strict=True)]
    # The first column names the row and never moves. Text moves before numbers, and the widest first.
    movable = sorted(range(1, len(columns)), key=lambda i: (right[i], -least[i], -i))
    for moved in range(len(columns) // 2 + 1):
        below = tuple(sorted(movable[:moved]))
        places = [i for i in range(len(columns)) if i not in below]
        for gap in _GAPS:
            spare = limit - len(_INDENT) - gap * (len(places) - 1)
            if (widths := _shared_out(places, natural, least, spare)) is not None:
                return _Layout(widths, gap, below, limit - len(_BELOW))
    return None


def _least_width(name: str, cells: list[str]) -> int:
    """Returns the width that a column needs: headings wrap at spaces, and so does text that is not short."""
    heading = max(map(_width, _wrapped(name, 0)))
    widest = max(map(_width, cells), default=0)
    if widest > _SHORT_COLUMN:
        longest_word = max(_width(word) for cell in cells for word in _wrapped(cell, 0))
        widest = max(longest_word, min(widest, _NARROWEST_TEXT))
    return max(heading, widest)


def _shared_out(places: list[int], natural: list[int], least: list[int], limit: int) -> dict[int, int] | None:
    """Gives columns their widths, up to the natural ones; None if not even the least ones fit."""
    spare = limit - sum(least[i] for i in places)
    if spare < 0:
        return None
    widths = {}
    by_need = sorted(places, key=lambda i: natural[i] - least[i])
    for done, i in enumerate(by_need):
        more = min(natural[i] - least[i], spare // (len(by_need) - done))
        widths[i] = least[i] + more
        spare -= more
    return {i: widths[i] for i in places}


def _table(columns: Sequence[str], texts: list[list[str]], right: list[bool], layout: _Layout) -> Iterator[str]:
    yield ""
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    for line in _row(columns, right, layout):
        yield f"{_BOLD}{line}{_PLAIN}" if bold else line
    yield _INDENT + symbol("─", "-") * (sum(layout.widths.values()) + layout.gap * (len(layout.widths) - 1))
    for row in texts:
        yield from _row(row, right, layout)
        if layout.below:
            named = [f"{columns[i]}: {row[i]}" for i in layout.below if columns[i]]
            for whole in _filled([" " * _GAPS[0] * (n > 0) + part for n, part in enumerate(named)], layout.below_width):
                for line in _wrapped(whole, layout.below_width):
                    yield _BELOW + line
            # A column without a heading is a chart: its spaces are significant.
            yield from (_BELOW + row[i] for i in layout.below if not columns[i])
    yield ""


def _row(cells: Sequence[str], right: list[bool], layout: _Layout) -> Iterator[str]:
    wrapped = [_wrapped(cells[i], width) for i, width in layout.widths.items()]
    for parts in zip_longest(*wrapped, fillvalue=""):
        padded = (
            " " * (width - _width(part)) + part if right[i] else part + " " * (width - _width(part))
            for part, (i, width) in zip(parts, layout.widths.items(), strict=True)
        )
        yield (_INDENT + (" " * layout.gap).join(padded)).rstrip()


def _records(columns: Sequence[str], texts: list[list[str]], limit: int) -> Iterator[str]:
    """Yields one line for each cell, and an empty line between rows."""
    yield ""
    headings = [f"{name}:" if name else "" for name in columns]
    indent = max(map(_width, headings)) + 1
    for row in texts:
        for heading, cell in zip(headings, row, strict=True):
            first, *others = _wrapped(cell, limit - len(_INDENT) - indent)
            yield f"{_INDENT}{heading}{' ' * (indent - _width(heading))}{first}".rstrip()
            for line in others:
                yield _INDENT + " " * indent + line
        yield ""


def _width(text: str) -> int:
    """Returns how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _wrapped(text: str, width: int) -> list[str]:
    """Breaks text at spaces. A longer word stays whole, and the terminal wraps it, so that it is copied as one word."""
    return _filled(re.findall(" *[^ ]+", text), width)


def _filled(pieces: list[str], width: int) -> list[str]:
    """Puts as many pieces on each line as fit. Each starts with the spaces that separate it from the one before; the
    spaces before the very first are its position, as in a chart.
    """
    lines: list[str] = []
    line = ""
    for piece in pieces:
        if line and _width(line) + _width(piece) > width:
            lines.append(line)
            line = piece.lstrip(" ")
        else:
            line += piece
    return [*lines, line] if line or not lines else lines


def symbol(wanted: str, substitute: str) -> str:
    """Returns the wanted character, or the substitute if the output cannot encode it."""
    return wanted if printable(wanted, sys.stdout.encoding) == wanted else substitute


def node_list(nodes: Iterable[int]) -> str:
    """Formats node ids like Kafka: ``1,2,3``."""
    return ",".join(str(node) for node in nodes)


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun: ``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(size_bytes: float) -> str:
    """Formats bytes for people: ``1.4 GB``."""
    if size_bytes < 1_000:
        return f"{size_bytes:.0f} B"
    units = ("kB", "MB", "GB")
    power = min(len(units), len(str(int(size_bytes))) // 3 - (len(str(int(size_bytes))) % 3 == 0))
    return f"{size_bytes / 1_000**power:.1f} {units[power - 1]}"
