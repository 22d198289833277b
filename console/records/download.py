"""Records as a file: JSON lines, as ``quorumlog consume`` prints them, or CSV. Contents are not truncated."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from quorumlog.console.shared_state import Json, Thing

#: Maximum number of records and bytes of a download, which is created before it is sent.
MOST_RECORDS, MOST_BYTES = 10_000, 64 << 20
_COLUMNS = ("partition", "offset", "time", "key", "value", "headers")


class DownloadFormat(Enum):
    """File formats, by file extension."""

    JSON_LINES = "jsonl"
    CSV = "csv"


#: Content types of the formats.
MEDIA_TYPES = {DownloadFormat.JSON_LINES: "application/x-ndjson", DownloadFormat.CSV: "text/csv; charset=utf-8"}


class RecordFile:
    """A file of records.

    Arguments:
        hide_values: the file contains keys only.

    Attributes:
        is_partial: a limit has ended the file, or the search of its records, before everything was searched.
    """

    def __init__(self, topic: str, form: DownloadFormat, *, hide_values: bool) -> None:
        self._topic, self._form, self._hide_values = topic, form, hide_values
        self._content = io.BytesIO()
        self.is_partial = False
        if form is DownloadFormat.CSV:
            self._content.write(_csv_row(_COLUMNS))

    def shape(self, rows: list[dict[str, Any]]) -> list[Json]:
        """Adds rows of a consumed table, up to the size limit, and returns one item for each row."""
        for row in rows:
            line = self._line(row)
            if self._content.tell() + len(line) > MOST_BYTES:
                self.is_partial = True
                break
            self._content.write(line)
        return [None] * len(rows)

    async def fill(self, events: AsyncIterator[Thing]) -> bytes:
        """Runs a search whose rows are shaped by :meth:`shape`, and returns the file.

        Raises:
            QuorumlogError: the search fails.
        """
        async for event in events:
            if event["kind"] == "end":
                self.is_partial = self.is_partial or event["why"] != "everything" or bool(event["away"])
            if self.is_partial:
                break
        return self._content.getvalue()

    def _line(self, row: dict[str, Any]) -> bytes:
        value = None if self._hide_values else row["value"]
        headers = () if self._hide_values else row["headers"] or ()
        if self._form is DownloadFormat.CSV:
            named = json.dumps([[each["key"], _text(each["value"])] for each in headers], ensure_ascii=False)
            fields = (
                row["partition"],
                row["offset"],
                _time(row["timestamp"]),
                _cell(row["key"]),
                _cell(value),
                named if headers else "",
            )
            return _csv_row(fields)
        fields_of_json = {
            "topic": self._topic,
            "partition": row["partition"],
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "key": _text(row["key"]),
            "value": _text(value),
            "headers": [[each["key"], _text(each["value"])] for each in headers],
        }
        return json.dumps(fields_of_json, ensure_ascii=False).encode() + b"\n"


def _text(content: bytes | None) -> object:
    """Returns content as text; content that is not UTF-8 as ``{"base64": "…"}``."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _time(at_ms: int | None) -> str:
    """Formats a time in ISO 8601; a time out of range, which clients may write, in milliseconds."""
    if at_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def _cell(content: bytes | None) -> str:
    found = _text(content)
    return json.dumps(found) if isinstance(found, dict) else "" if found is None else str(found)


def _csv_row(fields: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(fields)
    return text.getvalue().encode()
