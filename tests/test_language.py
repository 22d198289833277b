"""Text is plain English: tests/language.py has the rules, and says what to write instead."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.language import CLAUSE, counts, hits, phrases

#: Folder -> what is left in it from before there was this test. It only shrinks.
LEFT: dict[str, dict[str, int]] = tomllib.loads((Path(__file__).parent / "language_left.toml").read_text())


def test_no_folder_gets_more_of_it() -> None:
    """A failure lists the places of the folder: correct the one that you wrote."""
    found = list(hits())
    for kind, now in zip(("clauses", "phrases"), counts(found), strict=True):
        for folder, count in now.items():
            most = LEFT[kind].get(folder, 0)
            of_kind = [each for each in found if (each.rule == "clause") == (kind == "clauses")]
            places = [str(each) for each in of_kind if folder in (each.path.split("/")[0], "(root)")]
            assert count <= most, "\n".join(places)
        less = {folder: now[folder] for folder, most in LEFT[kind].items() if now[folder] < most}
        assert not less, f"fewer {kind} than tests/language_left.toml says: write {less}"


def test_phrases_are_found_outside_of_code() -> None:
    found = list(phrases("x.py", 7, "# It goes on.\n# `goes on` is code; Whoever calls"))
    assert [(each.line, each.rule) for each in found] == [(7, "goes on"), (8, "Whoever")]
    assert "continues" in str(found[0])


@pytest.mark.parametrize(
    "text",
    [
        "    told: names of arguments are code",
        "# so are expressions: {blow.name} and {told[name]!r}",
        "# It has not heard from a leader, and cannot tell which is newer.",
        "# There is no leader; the age is no longer known, and is no older.",
        "# A node takes over. E stands for epoch. You know anything else.",
    ],
)
def test_legitimate_uses_are_not_found(text: str) -> None:
    assert list(phrases("x.py", 1, text)) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("# The leader says so.", "leader says"),
        ("# It is what a client knows.", "knows"),
        ("# It is told.", "told"),
        ("# A group is to be moved.", "is to be"),
        ("# The entry that is there twice.", "that is there"),
        ("# This is no leader.", "is no leader"),
        ("# Of the coordinator, else of the leader.", "else"),
        ("# The node takes requests.", "node takes"),
    ],
)
def test_dialect_is_found(text: str, rule: str) -> None:
    assert [each.rule for each in phrases("x.py", 1, text)] == [rule]


def test_clauses_are_distinguished_from_sentences() -> None:
    assert CLAUSE.match("What a node counts.")
    assert not CLAUSE.match("Counts what a node does.")
    assert not CLAUSE.match("What is lost?")
