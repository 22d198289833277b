"""Text is plain English: tests/language.py has the rules, and says what to write instead."""

from __future__ import annotations

import tomllib
from pathlib import Path

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


def test_clauses_are_told_from_sentences() -> None:
    assert CLAUSE.match("What a node counts.")
    assert not CLAUSE.match("Counts what a node does.")
    assert not CLAUSE.match("What is lost?")
