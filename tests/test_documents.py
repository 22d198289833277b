"""Tests that what the documents name exists: commands and their options, errors and how they answer, files."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
import typer

from quorumlog.cli.main import app
from quorumlog.sdk import Admin, Consumer, Producer, errors
from quorumlog.sdk.admin.config import AdminConfig
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.server.config.settings import Settings
from quorumlog.server.observability.metric_catalogue import CATALOGUE, MetricKind

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: Columns of a line of prose, characters of a table's cell as they are shown, and files that one cell may name.
WIDEST_LINE = 100
LONGEST_CELL = 220
MOST_FILES_IN_A_CELL = 2
#: A row of docs/internals/raft.md's table of scenarios: tests/test_scenario_index.py holds which files it names.
SCENARIO_ROW = re.compile(r"^\| \d+[a-i]? \| .*$", re.M)
GUARANTEES = (ROOT / "docs" / "use" / "guarantees.md").read_text()
COMMAND: Any = typer.main.get_command(app)


def commands_in(text: str) -> Iterator[str]:
    """Commands of ours, in blocks and in running text."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            typed = re.sub(r"^(?:node\d+)?\$ (?:until )?", "", line.partition("  #")[0]).partition("; do")[0]
            for found in re.findall(r"(?:^|\| )(quorumlog [a-z].*)", typed):
                yield found.partition(" | ")[0]
    for found in re.findall(r"`(quorumlog [a-z][^`]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        yield " ".join(found.split())


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def outside_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Numbers and lines that are not in a block of code."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_command_of_a_document_exists_with_its_options(document: Path) -> None:
    for line in commands_in(document.read_text()):
        words = shlex.split(line.replace("…", ""))[1:]
        command, path = COMMAND, "quorumlog"
        while words and hasattr(command, "commands"):
            path = f"{path} {words[0]}"
            assert words[0] in command.commands, f"{document.name} names '{path}', which does not exist"
            command = command.commands[words.pop(0)]
        known = {name for parameter in getattr(command, "params", ()) for name in parameter.opts}
        for word in words:
            option = word.partition("=")[0]
            assert not option.startswith("--") or option in known, f"{document.name}: {path} has no {option}"


def test_every_command_and_every_method_is_listed() -> None:
    page = (ROOT / "docs" / "use" / "commands.md").read_text()
    listed = {
        name for row in re.findall(r"^\| (`[a-z].*?) \|", page, re.M) for name in re.findall(r"`([a-z- ]+)`", row)
    }
    assert set(_paths(COMMAND)) - listed == set(), "docs/use/commands.md lacks commands"
    clients = (ROOT / "docs" / "use" / "clients.md").read_text()
    for client in (Admin, Producer, Consumer):
        (item,) = re.findall(rf"^- \*\*`{client.__name__}`\*\*\n((?:  .*\n)+)", clients, re.M)
        methods = {name for name in vars(client) if not name.startswith("_")} - {"close"}
        assert sorted(re.findall(r"`(\w+)`", item)) == sorted(methods)


def _paths(command: Any, path: str = "") -> Iterator[str]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _paths(below, f"{path} {name}".strip())
    if not hasattr(command, "commands"):
        yield path


def test_every_error_of_the_clients_stands_in_the_table_as_it_is() -> None:
    rows = {}
    for names, retriable, definite in re.findall(r"^\| (`\w*Error.*?) \| (.*?) \| (.*?) \| .* \|$", GUARANTEES, re.M):
        for name in re.findall(r"`(\w+Error)`", names):
            rows[name] = (retriable, definite)
    exported = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.QuorumlogError) and kind is not errors.QuorumlogError
    }
    assert set(exported) - set(rows) == set(), "say in docs/use/guarantees.md what these mean"
    for name, kind in exported.items():
        retriable, definite = rows[name]
        if retriable in ("yes", "no"):
            assert (retriable == "yes") == kind.default_retriable, name
        if definite in ("yes", "**no**"):
            assert (definite == "yes") == kind.default_definite, name


def _defaults(tables: str) -> dict[str, str]:
    """Returns defaults by name, from rows with names in the first cell and their defaults in the second."""
    shown: dict[str, str] = {}
    for keys, defaults in re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| (.*?) \| .* \|$", tables, re.M):
        names = re.findall(r"`(\w+)`", keys)
        values = [value.strip("`") for value in defaults.replace(" (seconds)", "").split(", ")]
        shown |= dict(zip(names, values if len(values) > 1 else values * len(names), strict=True))
    return shown


def test_every_setting_of_a_node_stands_in_the_tables_with_its_default() -> None:
    operations = (ROOT / "docs" / "operate" / "operations.md").read_text()
    shown = _defaults(operations)
    assert list(Settings.model_fields.keys() - shown.keys()) == [], "describe these in docs/operate/operations.md"
    for name, field in Settings.model_fields.items():
        if field.default not in (None, "") and not field.is_required():
            assert shown[name] == str(field.default).replace("True", "true").replace("False", "false"), name


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_every_option_of_a_client_stands_in_the_tables_with_its_default(config: Any) -> None:
    clients = (ROOT / "docs" / "use" / "clients.md").read_text()
    client = config.__name__.removesuffix("Config")
    rows = "".join(re.findall(rf"^Options of `{client}`:\n(.*?)^\n[^|]", clients, re.M | re.S))
    shown = _defaults(rows) | dict(re.findall(r"`(\w+)` \((\d+)", clients))
    for field in dataclasses.fields(config):
        if field.name != "client_id" and not (config is AdminConfig and field.name == "bootstrap_servers"):
            default = int(field.default) if field.name.endswith("_ms") and field.default < inf else field.default
            assert shown[field.name] == str(default), field.name


def test_every_metric_stands_in_the_tables_with_its_labels_and_what_it_says() -> None:
    page = (ROOT / "docs" / "operate" / "metrics.md").read_text()
    shown = {name: f"{name}_total" if its.kind is MetricKind.COUNTER else name for name, its in CATALOGUE.items()}
    rows = {f"| `{shown[name]}` | {', '.join(its.labels)} | {its.help} |" for name, its in CATALOGUE.items()}
    assert rows - set(page.splitlines()) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_and_folders_that_a_document_names_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:examples|docs|tests|bench|chaos|proto|server|raft|storage|sdk|cli|console|tools|packaging)/(?:[\w/]+\.\w+|[\w/]*/)?)`",
        document.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("call", ["A produce call", "A fetch", "A consumer group's heartbeat"])
def test_a_walk_opens_every_file_once(call: str) -> None:
    architecture = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    (section,) = re.findall(rf"^## {call},.*?\n(.*?)^## ", architecture, re.M | re.S)
    steps = re.findall(r"^(\d+)\. `([\w/]+\.py)`: ", section, re.M)
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    files = [file for _, file in steps]
    assert len(files) > 30 and sorted(files) == sorted(set(files))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    text = "\n".join(line for _, line in outside_of_code(document.read_text()))
    for target in re.findall(r"\]\(([^):]+)\)", text):
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        assert file.exists(), f"links to {target}"
        assert not anchor or anchor in anchors_of(file), f"links to {target}: {file.name} has no such heading"


def anchors_of(document: Path) -> set[str]:
    """Returns the anchors of a document's headings."""
    found: set[str] = set()
    for _, line in outside_of_code(document.read_text()):
        if heading := re.fullmatch(r"#+ (.+)", line):
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
            again = 0
            while (unique := f"{anchor}-{again}" if again else anchor) in found:
                again += 1
            found.add(unique)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_fits_a_narrow_window(document: Path) -> None:
    text = document.read_text()
    assert list(_too_wide(SCENARIO_ROW.sub("", text) if name_of(document) == "docs/internals/raft.md" else text)) == []


def _too_wide(text: str) -> Iterator[str]:
    for number, line in outside_of_code(text):
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                shown = re.sub(r"\]\([^)]*\)", "]", cell).strip()
                if len(shown) > LONGEST_CELL:
                    yield f"{number}: a table's cell of {len(shown)} characters: make it a list"
                if len(re.findall(r"`[\w/]+\.(?:py|proto|toml)`", cell)) > MOST_FILES_IN_A_CELL:
                    yield f"{number}: a table's cell with more than two file names: make it a list"
        # A single word, such as a long link, cannot be broken.
        elif len(line) > WIDEST_LINE and not re.fullmatch(r"\s*(?:[-*] |\d+\. )?\S+", line):
            yield f"{number}: a line of {len(line)} columns"


def test_what_is_too_wide_is_noticed() -> None:
    wide = "word " * 25
    assert list(_too_wide(f"{wide}\n")) == ["1: a line of 125 columns"]
    assert len(list(_too_wide(f"| {wide * 2} | `a.py`, `b/c.py`, `d.toml` |"))) == 2
    assert not list(_too_wide(f"```\n{wide}\n```\n| {wide} | `a.py`, `b.py` |\n{'x' * 120}"))
