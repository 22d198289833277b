"""Log events: docs/operate/metrics.md lists every event with its level, and lines have the format that it describes."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path

import pytest

from quorumlog.server.observability.logging_setup import LEVELS, open_log
from quorumlog.server.process.start_log import StartLog

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAGE = (ROOT / "docs/operate/metrics.md").read_text()
#: Functions that write the log: with the level as an argument, or in the name.
WRITERS = {"log", "_log", "_say", "_write", "write"}


def logged_events() -> dict[str, set[str]]:
    """Returns every event that a call in the server names, and the levels at which it is logged."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            texts = [word.value if isinstance(word, ast.Constant) else None for word in node.args]
            if name in LEVELS and len(texts) == 1:
                level, event = name, texts[0]
            elif name in WRITERS and len(texts) >= 2 and texts[0] in LEVELS:
                level, event = str(texts[0]), texts[1]
            else:
                continue
            if isinstance(event, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", event):
                found.setdefault(event, set()).add(level)
    return found


def listed_events() -> dict[str, set[str]]:
    """Returns every event in the tables of the page, and its levels there."""
    found: dict[str, set[str]] = {}
    section = PAGE.partition("## The log\n")[2]
    for names, said in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]*) \|", section, re.M):
        events, levels = re.findall(r"`(\w+)`", names), re.split(r", | or ", said)
        if len(levels) == len(events):
            found.update((event, {level}) for event, level in zip(events, levels, strict=True))
        else:
            found.update((event, set(levels)) for event in events)
    return found


def test_the_page_has_every_event_at_its_level() -> None:
    logged, listed = logged_events(), listed_events()
    assert len(logged) > 50
    assert {event: levels for event, levels in logged.items() if not levels <= listed.get(event, set())} == {}


def test_the_page_has_no_event_that_is_not_there() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "server").rglob("*.py"))
    assert [event for event in listed_events() if f'"{event}"' not in source] == []


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_line_has_the_same_fields_in_both_formats(form: str) -> None:
    written = io.StringIO()
    fields = {"partition": "orders-0", "isr": (1, 2), "why": 'a "quoted"\nline'}
    open_log("info", form, 3, written).warning("isr_shrunk", **fields)
    [line] = written.getvalue().splitlines()
    if form == "json":
        read = json.loads(line)
        assert re.fullmatch(r"\S+Z", read.pop("time"))
        assert read == {"level": "warning", "event": "isr_shrunk", "node": 3, **fields, "isr": [1, 2]}
    else:
        assert re.fullmatch(
            r"""\S+Z warning isr_shrunk node=3 partition=orders-0 isr="\(1, 2\)" why="a \\"quoted\\"\\nline\"""", line
        )


def test_before_its_log_is_open_a_node_speaks_in_the_same_format() -> None:
    words, objects = io.StringIO(), io.StringIO()
    StartLog("console", 3, words).error("no\nport")
    StartLog("json", 3, objects).error("no\nport")
    assert words.getvalue() == "quorumlog: error: no port\n"
    read = json.loads(objects.getvalue())
    assert (read["level"], read["event"], read["node"], read["message"]) == ("error", "node_failed", 3, "no port")
