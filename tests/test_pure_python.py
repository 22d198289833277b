"""Compiled modules can be ignored, and the package reports which kind it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import quorumlog.raft

PROGRAM = "from quorumlog.pure import is_compiled; import quorumlog.raft.group as it; print(it.__file__, is_compiled())"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The package with something in the place of a compiled module that is none, and cannot be loaded."""
    package = Path(quorumlog.raft.__file__).parent.parent
    shutil.copytree(package, tmp_path / "quorumlog", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / "quorumlog" / "raft" / f"group{suffix}").write_bytes(b"no machine code")
    return tmp_path


def run(tree: Path, pure: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "QUORUMLOG_PURE": pure}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


def test_a_compiled_module_is_what_is_imported(tree: Path) -> None:
    ended = run(tree, "0")
    assert ended.returncode != 0
    assert "ImportError" in ended.stderr and "group" in ended.stderr


def test_sources_are_run_where_somebody_asks_for_them(tree: Path) -> None:
    ended = run(tree, "1")
    assert ended.stdout.split() == [str(tree / "quorumlog" / "raft" / "group.py"), "False"], ended.stderr
