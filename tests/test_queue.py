"""The order in which the files of tests are started: tests/conftest.py."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import STARTED_FIRST

ROOT = Path(__file__).parent.parent


def test_files_started_first_exist() -> None:
    assert [each for each in STARTED_FIRST if not (ROOT / each).exists()] == []
