"""What the documents say exists: commands and their options, errors and how they answer, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from quorumlog.cli.main import app
from quorumlog.sdk import Admin, Consumer, Producer, errors

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()
COMMAND: Any = typer.main.get_command(app)


def commands_in(text: str) -> Iterator[str]:
    """Commands of ours, in blocks and in running text."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            for found in re.findall(r"(?:^|\| )(quorumlog [a-z].*)", line.partition("  #")[0]):
                yield found.partition(" | ")[0]
    for found in re.findall(r"`(quorumlog [a-z][^`]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        yield " ".join(found.split())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
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


def test_the_readme_lists_every_command_and_every_method() -> None:
    readme = (ROOT / "README.md").read_text()
    listed = {
        name for row in re.findall(r"^\| (`[a-z].*?) \|", readme, re.M) for name in re.findall(r"`([a-z- ]+)`", row)
    }
    assert set(_paths(COMMAND)) - listed == set(), "the README's table lacks commands"
    for client in (Admin, Producer, Consumer):
        (row,) = re.findall(rf"^\| `{client.__name__}` \| (.*) \|$", readme, re.M)
        methods = {name for name in vars(client) if not name.startswith("_")} - {"close"}
        assert set(re.findall(r"`(\w+)`", row)) == methods


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
    assert set(exported) - set(rows) == set(), "say in docs/guarantees.md what these mean"
    for name, kind in exported.items():
        retriable, definite = rows[name]
        if retriable in ("yes", "no"):
            assert (retriable == "yes") == kind.default_retriable, name
        if definite in ("yes", "**no**"):
            assert (definite == "yes") == kind.default_definite, name


def test_files_that_the_documents_name_exist() -> None:
    for document in DOCUMENTS:
        text = document.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
        for named in re.findall(
            r"`((?:examples|docs|tests|bench|chaos|server|raft|storage|sdk|cli)/[\w/]+\.\w+)`", text
        ):
            assert (ROOT / named).exists(), f"{document.name} names {named}"
