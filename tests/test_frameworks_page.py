"""docs/use/frameworks.md: each row has a test, and the version that the test installs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from house import ROOT

from tests.kafka_clients.frameworks import FRAMEWORKS, VERSIONS

PAGE = (ROOT / "docs" / "use" / "frameworks.md").read_text()
_COLLECTED_WITHIN_S = 200


def rows() -> dict[str, tuple[str, str]]:
    """Row -> version and the name of its test."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| .*$", PAGE, re.M)]
    return {row[0]: (row[1], row[-1].strip("`")) for row in cells if row[0] != "framework"}


@pytest.fixture(scope="module")
def tests() -> list[str]:
    """The tests of tests/kafka_clients, which are not collected without ``KAFKA_CLIENTS``."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "--collect-only", "tests/kafka_clients"]
    environment = {**os.environ, "KAFKA_CLIENTS": "quorumlog"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_COLLECTED_WITHIN_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if "::" in line]


def test_versions_are_those_of_tests() -> None:
    assert {name: version for name, (version, _) in rows().items()} == VERSIONS


def test_every_row_has_a_test(tests: list[str]) -> None:
    wrong = {name: test for name, (_, test) in rows().items() if not any(test in each for each in tests)}
    assert wrong == {}, "no test has this name"


def test_every_framework_of_tests_has_a_row() -> None:
    named = {test for _, test in rows().values()}
    assert {each.name for each in FRAMEWORKS} - named == set()


def test_requirements_are_pinned() -> None:
    loose = [each for framework in FRAMEWORKS for each in framework.requirements if "==" not in each]
    assert loose == []
