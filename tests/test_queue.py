"""The files of tests that are imported, and the order in which they are started: tests/conftest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import STARTED_FIRST, may_select

ROOT = Path(__file__).parent.parent


def test_files_started_first_exist() -> None:
    assert [each for each in STARTED_FIRST if not (ROOT / each).exists()] == []


@pytest.mark.parametrize(
    ("expression", "marks", "may"),
    [
        ("alone", "cluster", False),
        ("alone", "cluster alone", True),
        ("not cluster", "cluster", True),
        ("(cluster or spark) and not alone", "alone cluster", True),
        ("(cluster or spark) and not alone", "alone", False),
        ("(cluster or spark) and not alone", "", False),
        ("alone or (", "", True),
    ],
)
def test_files_without_the_mark_are_skipped(expression: str, marks: str, may: bool) -> None:
    """A test may have any of its file's marks, and none of them."""
    assert may_select(expression, "".join(f"@pytest.mark.{mark}\n" for mark in marks.split())) is may
