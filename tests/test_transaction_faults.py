"""docs/internals/transaction-faults.md is true: each known fault has tests, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_threats import present_tests

PAGE = Path(__file__).resolve().parent.parent / "docs" / "internals" / "transaction-faults.md"
ROW = re.compile(r"^\| (?!fault|-)(.+?) \| (.*?)\| (.*?) \|$", re.MULTILINE)
#: Issues that a row names, as their projects number them.
ISSUE = re.compile(r"(KAFKA-\d+|KIP-\d+|[\w./-]+#\d+)")


def rows() -> dict[str, tuple[str, list[str]]]:
    """Returns the issues and the names of the tests of each fault."""
    return {
        fault: (issues.strip(), re.findall(r"`(\w+)`", tests)) for fault, issues, tests in ROW.findall(PAGE.read_text())
    }


def test_faults_are_listed() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize("fault", rows())
def test_fault_has_its_tests(fault: str) -> None:
    """The tests of a row exist once, and it names nothing but issues."""
    issues, named = rows()[fault]
    assert named, "no test"
    assert [name for name in named if present_tests()[name] != 1] == [], "missing, or in several files"
    assert ISSUE.sub("", issues).strip(" ,") == "", "not an issue"
