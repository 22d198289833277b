"""docs/operate/security.md's table of threats is true: each of them has tests, and the tests exist."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "operate" / "security.md"
ROW = re.compile(r"^\| (?!threat|-)(.+?) \| (.+?) \| (.*?) \|$", re.MULTILINE)

TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """Threat -> the names of its tests."""
    section = PAGE.read_text().partition("## Threats and protections")[2].partition("\n## ")[0]
    return {threat: re.findall(r"`(\w+)`", tests) for threat, _, tests in ROW.findall(section)}


@cache
def present_tests() -> Counter[str]:
    """Names of test functions, with the number of files that have one."""
    found: Counter[str] = Counter()
    for file in TESTS.rglob("test_*.py"):
        found.update(set(TEST.findall(file.read_text())))
    return found


def test_the_table_is_there() -> None:
    assert len(rows()) > 15


@pytest.mark.parametrize("threat", rows())
def test_a_threat_has_the_tests_that_the_table_names(threat: str) -> None:
    named = rows()[threat]
    assert named, "no test"
    assert [name for name in named if present_tests()[name] != 1] == [], "missing, or in several files"
