"""Exchange format of the programs of the matrix: one JSON object a line, bytes as base64, nothing as null."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """One record. ``offset`` is -1 before it is written."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def parse(text: str) -> Line:
    """A record of its line."""
    reported = json.loads(text)
    headers = [(name, _bytes(value)) for name, value in reported["headers"]]
    place = reported["partition"], reported.get("offset", -1), reported["timestamp"]
    return Line(*place, _bytes(reported["key"]), _bytes(reported["value"]), headers)


def lay_out(line: Line) -> str:
    """The line of a record."""
    headers = [[name, _text(value)] for name, value in line.headers]
    return json.dumps({**line._asdict(), "key": _text(line.key), "value": _text(line.value), "headers": headers})


def read_lines() -> Iterator[Line]:
    """The records of standard input."""
    return map(parse, sys.stdin)


def print_lines(lines: Iterable[Line]) -> None:
    """Writes records to standard output."""
    for line in lines:
        print(lay_out(line))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()
