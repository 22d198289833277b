"""Formats of records: keys and values, sizes, and files of search results; without a cluster."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any, cast

import pytest
from raw_browser import HOST, Answer, RawBrowser
from scripted_log import TOPIC, LogConsumer

from quorumlog.console.access import ConsoleGate
from quorumlog.console.application import ConsoleEndpoints
from quorumlog.console.assets import Assets
from quorumlog.console.page_stream import PageStreams
from quorumlog.console.records import download
from quorumlog.console.records.download import DownloadFormat, RecordFile
from quorumlog.console.records.endpoints import RecordEndpoints
from quorumlog.console.records.shown import ContentFormat, RowFormat, shown
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer
from quorumlog.sdk.errors import TopicAuthorizationFailedError

BINARY = b"\xff\xfe\x00"
ROW = {
    "partition": 0,
    "offset": 2**60 + 1,
    "timestamp": 1_700_000_000_123,
    "key": "clé".encode(),
    "value": BINARY,
    "headers": [{"key": "trace", "value": b"ab"}, {"key": "none", "value": None}],
}


class LogReader(RawBrowser):
    """Asks a console for records of a scripted log."""

    def __init__(self, log: LogConsumer, *, hide_values: bool = False) -> None:
        super().__init__()
        self.records = RecordEndpoints(cast(AsyncAdmin, log), lambda: cast(AsyncConsumer, log), hide_values=hide_values)
        endpoints = ConsoleEndpoints(PageStreams(self.picture, self.pages), Assets(), self.records.routes())
        self.gate = ConsoleGate(endpoints.application(), [HOST], 7000)

    async def get(self, query: str) -> Answer:
        await self.enter()
        return await self.ask(f"/records/{TOPIC}/{query}")


@pytest.fixture
def log() -> LogConsumer:
    return LogConsumer({0: [1_000, 2_000, 3_000], 1: [1_500]})


# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "form", "kind", "text"),
    [
        (b'{"a":1}', ContentFormat.AUTO, "json", '{\n  "a": 1\n}'),
        (b'{"a":1}', ContentFormat.JSON, "json", '{\n  "a": 1\n}'),
        (b'{"a":1}', ContentFormat.TEXT, "text", '{"a":1}'),
        (b'{"a":1}', ContentFormat.HEX, "bytes", "7b 22 61 22 3a 31 7d"),
        (b'{"a":1}', ContentFormat.BASE64, "bytes", base64.b64encode(b'{"a":1}').decode()),
        (b"{no json", ContentFormat.JSON, "text", "{no json"),
        (BINARY, ContentFormat.AUTO, "bytes", "ff fe 00"),
        (BINARY, ContentFormat.TEXT, "text", "\\xff\\xfe\\x00"),
        (BINARY, ContentFormat.BASE64, "bytes", "//4A"),
        (b"", ContentFormat.HEX, "bytes", ""),
    ],
)
def test_content_is_written_in_its_format(content: bytes, form: ContentFormat, kind: str, text: str) -> None:
    found = shown(content, 300, form)
    assert (found["kind"], found["text"], found["size"], found["cut"]) == (kind, text, len(content), False)


@pytest.mark.parametrize("form", ContentFormat)
def test_long_content_is_cut_in_each_format(form: ContentFormat) -> None:
    found = shown(b"x" * 1_000, 300, form)
    assert (found["size"], found["cut"]) == (1_000, True)
    assert 0 < len(str(found["text"])) <= 300
    assert shown(None, 300, form)["kind"] == "null"


def test_a_row_has_its_size_and_headers() -> None:
    (row,) = cast(list[dict[str, Any]], RowFormat().rows([{**ROW, "headers": [*ROW["headers"]] * 100}]))
    assert row["header_count"] == 200 and len(row["headers"]) < 200
    assert row["size"] == 4 + 3 + 100 * (5 + 2 + 4)
    assert row["offset"] == str(2**60 + 1)


async def test_formats_are_asked_for_in_the_address(log: LogConsumer) -> None:
    answer = await LogReader(log).get("search?key=hex&value=base64&partition=1")
    rows = [row for line in answer.text.splitlines() for row in json.loads(line).get("rows", ())]
    assert [(row["key"]["text"], row["value"]["text"]) for row in rows] == [("6b 30", "MA==")]
    answer = await LogReader(log).get("search?key=rot13")
    assert (answer.status, answer.text.count("\n")) == (400, 1)
    assert "choose from auto, text, json, hex, base64" in answer.text


# -- files ------------------------------------------------------------------------------------------------------------


async def test_a_download_has_what_was_found(log: LogConsumer) -> None:
    answer = await LogReader(log).get("download?format=jsonl&limit=1000")
    assert answer.headers["content-disposition"] == f'attachment; filename="{TOPIC}.jsonl"'
    found = sorted((json.loads(line) for line in answer.text.splitlines()), key=lambda row: row["timestamp"])
    assert [(row["partition"], row["offset"], row["timestamp"]) for row in found] == [
        (0, 0, 1_000),
        (1, 0, 1_500),
        (0, 1, 2_000),
        (0, 2, 3_000),
    ]
    assert found[0] == {"topic": TOPIC, "partition": 0, "offset": 0, "timestamp": 1_000, "key": "k0", "value": "0",
                        "headers": []}  # fmt: skip


async def test_a_download_keeps_filter_and_partition(log: LogConsumer) -> None:
    answer = await LogReader(log).get("download?format=csv&partition=0&filter=value%20>%200")
    assert answer.headers["content-disposition"] == f'attachment; filename="{TOPIC}-0.csv"'
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["partition", "offset", "time", "key", "value", "headers"]
    assert [row[1] for row in rows[1:]] == ["1", "2"]


async def test_a_limited_download_says_so(log: LogConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await LogReader(log).get("download?limit=2")
    assert answer.headers["content-disposition"] == f'attachment; filename="{TOPIC}-partial.jsonl"'
    assert len(answer.text.splitlines()) == 2
    monkeypatch.setattr(download, "MOST_BYTES", 150)
    answer = await LogReader(LogConsumer({0: [1_000] * 50})).get("download?limit=50")
    assert "partial" in answer.headers["content-disposition"]
    assert len(answer.text.splitlines()) == 1 and len(answer.text) <= 150


async def test_a_download_is_bounded(log: LogConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlog.console.records.endpoints.MOST_RECORDS", 3)
    answer = await LogReader(LogConsumer({0: [1_000] * 50})).get("download?limit=999999")
    assert len(answer.text.splitlines()) == 3 and "partial" in answer.headers["content-disposition"]


async def test_a_refused_download_is_a_line(log: LogConsumer) -> None:
    log.failures = {1: TopicAuthorizationFailedError("User:anna may not READ orders")}
    reader = LogReader(log)
    answer = await reader.get("download")
    assert (answer.status, answer.text) == (409, "User:anna may not READ orders\n")
    assert reader.records._readers == 0
    assert (await reader.get("download?format=xls")).status == 400


async def test_hidden_values_are_in_no_file(log: LogConsumer) -> None:
    for form in DownloadFormat:
        answer = await LogReader(log, hide_values=True).get(f"download?partition=0&format={form.value}")
        log.paused.clear()
        assert "k1" in answer.text
        if form is DownloadFormat.JSON_LINES:
            assert {json.loads(line)["value"] for line in answer.text.splitlines()} == {None}
        else:
            assert {row[4] for row in csv.reader(io.StringIO(answer.text))} == {"value", ""}


def test_a_file_has_bytes_exactly() -> None:
    def content(form: DownloadFormat, row: dict[str, Any]) -> str:
        file = RecordFile("t", form, hide_values=False)
        file.shape([row])
        return file._content.getvalue().decode()

    found = json.loads(content(DownloadFormat.JSON_LINES, ROW))
    assert found == {
        "topic": "t",
        "partition": 0,
        "offset": 2**60 + 1,
        "timestamp": 1_700_000_000_123,
        "key": "clé",
        "value": {"base64": "//4A"},
        "headers": [["trace", "ab"], ["none", None]],
    }
    _, row = csv.reader(io.StringIO(content(DownloadFormat.CSV, {**ROW, "key": b'a,"b"\n'})))
    assert row[:4] == ["0", str(2**60 + 1), "2023-11-14T22:13:20.123+00:00", 'a,"b"\n']
    assert json.loads(row[4]) == {"base64": "//4A"} and json.loads(row[5]) == [["trace", "ab"], ["none", None]]
    for odd in (2**62, -(2**62)):
        _, row = csv.reader(io.StringIO(content(DownloadFormat.CSV, {**ROW, "timestamp": odd})))
        assert row[2] == str(odd), "a time that no calendar has"
