"""The table of scenarios in docs/internals/raft.md has every numbered test, and every number has its tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
TABLE = TESTS.parent / "docs" / "internals" / "raft.md"

IN_SCOPE = {*range(1, 27)}

ROW = re.compile(r"^\| (\d+[a-i]?) \| (.+?) \| (.*?) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, set[str]]]:
    """Story -> what must not happen, and the files that play it, as the table has them."""
    found = ROW.findall(TABLE.read_text())
    assert len({story for story, _, _ in found}) == len(found), "a story twice"
    return {story: (text, set(re.findall(r"`([^`]+)`", files))) for story, text, files in found}


def marks_in(file: Path) -> Iterator[str]:
    """The stories that a test file's marks name."""
    for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.scenario":
            for argument in node.args:
                # The transcripts' own test names them by their files.
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


@cache
def marked_tests() -> dict[str, set[str]]:
    """Story -> the files that play it."""
    found: dict[str, set[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        for story in marks_in(file):
            found.setdefault(story, set()).add(file.name)
    for file in (TESTS / "raft" / "transcripts").glob("[0-9]*.txt"):
        found.setdefault(file.stem.split("_")[0].lstrip("0"), set()).add(file.name)
    return found


def number_of(story: str) -> int:
    return int(story.rstrip("abcdefghi"))


def test_every_scenario_in_scope_is_told_and_played() -> None:
    assert {number_of(story) for story in rows()} == IN_SCOPE
    assert {number_of(story) for story in marked_tests()} == IN_SCOPE


@pytest.mark.parametrize("story", sorted(rows(), key=lambda story: (number_of(story), story)))
def test_a_story_is_played_by_what_the_table_names(story: str) -> None:
    text, files = rows()[story]
    assert files == marked_tests().get(story), f"{story}: {text}"


def test_no_test_plays_a_story_that_is_not_told() -> None:
    assert marked_tests().keys() <= rows().keys()


def test_stories_of_one_number_are_lettered_without_a_gap() -> None:
    for number in IN_SCOPE:
        letters = sorted(story.lstrip("0123456789") for story in rows() if number_of(story) == number)
        assert letters == ([""] if len(letters) == 1 else list("abcdefghi"[: len(letters)])), number
