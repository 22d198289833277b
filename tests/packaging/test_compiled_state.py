"""``make setup`` reports the state of compiled modules, and how to get them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme_tour import ROOT

DESCRIBED = '[tool.quorumlog.compiled]\ncore = ["raft/*.py"]\nnode = ["server/node.py"]\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with two modules to compile."""
    (tmp_path / "pyproject.toml").write_text(DESCRIBED)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/compiled_state.py").write_text((ROOT / "tools/compiled_state.py").read_text())
    for module in ("raft/__init__.py", "raft/log.py", "server/node.py"):
        source = tmp_path / "src/quorumlog" / module
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
        os.utime(source, (1_000, 1_000))
    return tmp_path


def compile_module(checkout: Path, module: str, at_s: int) -> None:
    made = checkout / "build/compiled/quorumlog" / f"{module}.cpython-311-x86_64-linux-gnu.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.touch()
    os.utime(made, (at_s, at_s))


def said(checkout: Path) -> str:
    command = [sys.executable, str(checkout / "tools/compiled_state.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_pure_checkouts_name_the_command(checkout: Path) -> None:
    assert said(checkout).startswith("this checkout runs as pure Python; to run compiled modules: make compile")


def test_compiled_checkouts_name_the_path(checkout: Path) -> None:
    for module in ("raft/log", "server/node"):
        compile_module(checkout, module, 2_000)
    assert said(checkout) == "compiled modules are in build/compiled; they are used with PYTHONPATH=build/compiled\n"


def test_older_modules_are_reported(checkout: Path) -> None:
    compile_module(checkout, "raft/log", 2_000)
    compile_module(checkout, "server/node", 500)
    assert said(checkout).startswith("build/compiled is out of date: 1 of 2 modules changed since; make compile")


def test_setup_says_it() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\nsetup:")[2].partition("\n\n")[0]
    assert "tools/compiled_state.py" in recipe
