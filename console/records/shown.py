"""Formats bytes for a page: exact, truncated where they are long, and without any effect on the rendering."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from quorumlog.console.shared_state import Json, Thing

#: Maximum number of bytes shown in a list, and for a record that is shown alone.
IN_A_LIST, ALONE = 300, 256 * 1024
#: Maximum number of headers shown for one record.
MOST_HEADERS = 64
#: JSON is indented up to this depth; deeper documents are shown unchanged.
_DEEPEST = 64
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


class ContentFormat(Enum):
    """Display formats of keys and values."""

    AUTO = "auto"  # JSON indented, other text unchanged, and binary content in hexadecimal
    TEXT = "text"  # unchanged, even JSON; bytes that are not UTF-8 as escapes
    JSON = "json"  # JSON indented; other content as text
    HEX = "hex"
    BASE64 = "base64"


@dataclass(slots=True, frozen=True)
class RowFormat:
    """The format of rows on the page.

    Arguments:
        most: bytes that are shown of each key, value and header.
        hide_values: values and headers are not shown.
        key, value: the formats of keys, and of values and headers.
    """

    most: int = IN_A_LIST
    hide_values: bool = False
    key: ContentFormat = ContentFormat.AUTO
    value: ContentFormat = ContentFormat.AUTO

    def rows(self, rows: list[dict[str, Any]]) -> list[Json]:
        """Formats rows of a consumed table for the page. Offsets are text."""
        return [
            {
                "partition": row["partition"],
                "offset": str(row["offset"]),
                "timestamp_ms": None if row["timestamp"] is None else row["timestamp"],
                "key": shown(row["key"], self.most, self.key),
                "value": self._content(row["value"]),
                "headers": [
                    [visible(each["key"]), self._content(each["value"])]
                    for each in (row["headers"] or ())[:MOST_HEADERS]
                ],
                "header_count": len(row["headers"] or ()),
                "size": _size(row),
            }
            for row in rows
        ]

    def _content(self, value: bytes | None) -> Json:
        if self.hide_values:
            return {"kind": "hidden", "text": "", "size": len(value or b""), "cut": False}
        return shown(value, self.most, self.value)


#: The format of rows in a list.
DEFAULT_ROWS = RowFormat()


def _size(row: dict[str, Any]) -> int:
    """The bytes of a record's key, value and headers."""
    headers = sum(len(each["key"].encode()) + len(each["value"] or b"") for each in row["headers"] or ())
    return len(row["key"] or b"") + len(row["value"] or b"") + headers


def shown(content: bytes | None, most: int, form: ContentFormat = ContentFormat.AUTO) -> Thing:
    """Formats a key, a value or a header for the page.

    Arguments:
        most: bytes that are shown of it.

    Returns:
        ``kind``: null, json, text or bytes. ``text``, truncated if ``cut``. ``size`` of the whole, in bytes.
    """
    if content is None:
        return {"kind": "null", "text": "", "size": 0, "cut": False}
    cut = len(content) > most
    text = None if form in (ContentFormat.HEX, ContentFormat.BASE64) else _text(content[:most], cut)
    if text is None and form in (ContentFormat.TEXT, ContentFormat.JSON):
        text = content[:most].decode("utf-8", "backslashreplace")
    if text is None:
        return _as_bytes(content, most, form)
    laid_out = None if cut or form is ContentFormat.TEXT else _laid_out(text)
    kind = "text" if laid_out is None else "json"
    return {"kind": kind, "text": visible(text if laid_out is None else laid_out), "size": len(content), "cut": cut}


def _as_bytes(content: bytes, most: int, form: ContentFormat) -> Thing:
    """Formats content in hexadecimal or base64, which take three characters for a byte, and four for three."""
    some = content[: most * 3 // 4] if form is ContentFormat.BASE64 else content[: most // 3]
    text = base64.b64encode(some).decode() if form is ContentFormat.BASE64 else some.hex(" ")
    return {"kind": "bytes", "text": text, "size": len(content), "cut": len(some) < len(content)}


def _text(head: bytes, cut: bool) -> str | None:
    """Decodes bytes as UTF-8; returns None if they are something else. The last character may be truncated."""
    for missing in range(4 if cut else 1):
        try:
            return head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
    return None


def visible(text: str) -> str:
    """Escapes characters that would be rendered as something else: bidirectional marks and control characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else repr(letter)[1:-1] for letter in text)


def _laid_out(text: str) -> str | None:
    """Indents an object or a list in JSON, token by token as it was written, so that numbers keep their digits."""
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
    """Returns the rows of a consumed table as dictionaries, with timestamps in milliseconds."""
    rows: list[dict[str, Any]] = table.drop_columns(["timestamp"]).to_pylist()
    times = table.column("timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist()
    for row, at_ms in zip(rows, times, strict=True):
        row["timestamp"] = at_ms
    return rows
