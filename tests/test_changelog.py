"""Every change that users notice has an entry in the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
KINDS = [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]
FRAGMENT_NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.(?:{'|'.join(KINDS)})\.md")
MOST_CHARACTERS = 200
WIDEST_LINE = 100


def wrong_with(name: str, text: str) -> str:
    """Returns what is wrong with a fragment, and what to do; empty if nothing is."""
    if not FRAGMENT_NAME.fullmatch(name):
        return f"{name}: name it NAME.KIND.md, with one of the kinds {', '.join(KINDS)}"
    paragraph = text.strip()
    if not paragraph or re.search(r"\n\s*\n", paragraph):
        return f"{name}: write one paragraph"
    characters = len(" ".join(paragraph.split()))
    if characters > MOST_CHARACTERS:
        return f"{name}: shorten it from {characters} to {MOST_CHARACTERS} characters"
    return ""


def test_fragments_are_valid() -> None:
    fragments = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [wrong for path in fragments if (wrong := wrong_with(path.name, path.read_text()))] == []


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("tail.added.md", "`consume --tail N` prints\nthe last records.\n", ""),
        ("tail.new.md", "Text.", "name it"),
        ("Tail.added.md", "Text.", "name it"),
        ("tail.added.txt", "Text.", "name it"),
        ("tail.added.md", "\n", "one paragraph"),
        ("tail.added.md", "Text.\n\nMore.\n", "one paragraph"),
        ("tail.added.md", "x" * 201, "from 201 to 200"),
    ],
)
def test_invalid_fragments_are_noticed(name: str, text: str, wrong: str) -> None:
    assert wrong_with(name, text).startswith(f"{name}: ") if wrong else not wrong_with(name, text)
    assert wrong in wrong_with(name, text)


def test_the_version_has_a_section() -> None:
    assert re.search(rf"^## {re.escape(VERSION)} - \d{{4}}-\d\d-\d\d$", CHANGELOG, re.M), "run make changelog"


def test_lines_of_sections_are_short() -> None:
    sections = CHANGELOG[CHANGELOG.index("\n## ") :]
    assert [line for line in sections.splitlines() if len(line) > WIDEST_LINE] == []


def test_new_sections_have_a_place() -> None:
    """Towncrier inserts a section after this line; without it, at the top of the file."""
    assert CHANGELOG.count(PROJECT["tool"]["towncrier"]["start_string"]) == 1
