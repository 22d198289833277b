"""Compiled modules contain nothing that machine code treats in another way than the interpreter."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import quorumlog.raft

ROOT = Path(__file__).parent.parent
PACKAGES = Path(quorumlog.raft.__file__).parent.parent
UNITS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["quorumlog"]["compiled"]
SOURCES = sorted({path for patterns in UNITS.values() for pattern in patterns for path in PACKAGES.glob(pattern)})


def test_every_pattern_finds_modules() -> None:
    assert [each for patterns in UNITS.values() for each in patterns if not [*PACKAGES.glob(each)]] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(PACKAGES)))
def test_no_compiled_module_has_a_coroutine(source: Path) -> None:
    """A coroutine of mypyc 2.4 that was cancelled hands its CancelledError to the next one of its kind."""
    found = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.AsyncFunctionDef)]
    assert [node.name for node in found] == []
