"""Statements of the documentation, one by one: rows of tables, bullets and paragraphs, each on one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.readme_tour import ROOT

#: Starts a unit of its own, also without a blank line before it.
_STARTS = re.compile(r"\s*(?:[-*]|\d+\.) |\||#")
_ROW = re.compile(r"\|(.*)\|\s*$")


class Unit(NamedTuple):
    """A row, a bullet or a paragraph.

    Arguments:
        section: the heading above it.
        cells: of a row; a bullet or a paragraph is one cell.
    """

    section: str
    cells: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it, with single spaces."""
        return " | ".join(self.cells)


def units(page: str) -> Iterator[Unit]:
    """Yields the statements of a page in their order, without code blocks and without the heads of tables."""
    section = ""
    for block in _blocks((ROOT / page).read_text()):
        if block.startswith("#"):
            section = block.lstrip("# ")
        elif row := _ROW.match(block):
            yield Unit(section, tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", row[1])))
        elif block:
            yield Unit(section, (re.sub(r"^(?:[-*]|\d+\.) ", "", block),))


def section_of(page: str, title: str) -> list[Unit]:
    """Returns the statements under a heading, which must have some."""
    found = [unit for unit in units(page) if unit.section == title]
    assert found, f"{page} has nothing under {title!r}"
    return found


def _blocks(text: str) -> Iterator[str]:
    lines: list[str] = []
    head: list[str] = []
    for line in [*re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines(), ""]:
        if lines and (not line.strip() or _STARTS.match(line)):
            if re.fullmatch(r"[|: -]+", lines[0]):
                head.clear()  # What was above it is the head of the table.
            else:
                yield from head
                head[:] = [" ".join(" ".join(lines).split())]
            lines = []
        if line.strip():
            lines.append(line)
    yield from head
