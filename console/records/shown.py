"""Bytes as a page shows them: exact, cut where they are long, with nothing in them that draws by itself."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from quorumlog.console.picture import Json, Thing

#: Bytes that are shown in a list, and of a record that is looked at alone.
IN_A_LIST, ALONE = 300, 256 * 1024
#: Headers of one record that are shown.
MOST_HEADERS = 64
#: JSON is laid out up to this depth; deeper it stays as it is.
_DEEPEST = 64
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


def shown(content: bytes | None, most: int) -> Thing:
    """Keys, values and headers for the page.

    Arguments:
        most: bytes that are shown of it.

    Returns:
        ``kind``: null, json, text or bytes. ``text``, cut if ``cut``. ``size`` of the whole, in bytes.
    """
    if content is None:
        return {"kind": "null", "text": "", "size": 0, "cut": False}
    cut = len(content) > most
    text = _text(content[:most], cut)
    if text is None:
        some = content[: most // 3]
        return {"kind": "bytes", "text": some.hex(" "), "size": len(content), "cut": len(some) < len(content)}
    laid_out = None if cut else _laid_out(text)
    kind = "text" if laid_out is None else "json"
    return {"kind": kind, "text": visible(text if laid_out is None else laid_out), "size": len(content), "cut": cut}


def _text(head: bytes, cut: bool) -> str | None:
    """The bytes as UTF-8, None if they are something else. A cut may have gone through the last letter."""
    for missing in range(4 if cut else 1):
        try:
            return head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
    return None


def visible(text: str) -> str:
    """Text without what would be drawn as something else: marks that turn its direction, and control characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in text)


def _laid_out(text: str) -> str | None:
    """An object or a list in JSON with line breaks, token by token as it was written: a number keeps its digits."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return None
    lines: list[str] = []
    depth, before = 0, ""
    for token in _TOKENS.findall(text):
        if token in "}]":
            depth -= 1
            lines.append("" if before in "{[" else "\n" + "  " * depth)
        elif before and before in "{[,":
            lines.append("\n" + "  " * depth)
        lines.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
            if depth > _DEEPEST:
                return None
        before = token
    return "".join(lines)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a consumed table as dictionaries, timestamps in milliseconds."""
    rows: list[dict[str, Any]] = table.drop_columns(["timestamp"]).to_pylist()
    times = table.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist()
    for row, at_ms in zip(rows, times, strict=True):
        row["timestamp"] = at_ms
    return rows


def record_things(rows: list[dict[str, Any]], most: int, *, hide_values: bool) -> list[Json]:
    """Rows of a consumed table for the page. Offsets are text.

    Arguments:
        most: bytes that are shown of each key, value and header.
    """

    def content(value: bytes | None) -> Json:
        if hide_values:
            return {"kind": "hidden", "text": "", "size": len(value or b""), "cut": False}
        return shown(value, most)

    return [
        {
            "partition": row["partition"],
            "offset": str(row["offset"]),
            "timestamp_ms": None if row["timestamp"] is None else row["timestamp"],
            "key": shown(row["key"], most),
            "value": content(row["value"]),
            "headers": [
                [visible(each["key"]), content(each["value"])] for each in (row["headers"] or ())[:MOST_HEADERS]
            ],
        }
        for row in rows
    ]
