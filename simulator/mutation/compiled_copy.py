"""Copies of the packages that run compiled: with the modules of ``make compile``, and a mutant's units recompiled."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from quorumlog.simulator.mutation.mutant import CHECKOUT, Mutant

_BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
unit, config, *sources = sys.argv[1:]
modules = mypycify(
    ["--config-file", config, *sources], group_name="quorumlog_" + unit, opt_level="0", debug_level="0",
    target_dir="mypyc/" + unit,
)
setup(name="mutant", packages=[], ext_modules=modules, script_args=["-q", "build_ext", "--inplace"])
"""


class NotCompiledError(Exception):
    """Raised if there are no compiled modules, or a mutant's cannot be compiled."""


def add_compiled(tree: Path, checkout: Path = CHECKOUT) -> None:
    """Adds the compiled modules of a checkout to the sources of a copy.

    Raises:
        NotCompiledError: some are missing, or older than their sources.
    """
    compiled = checkout / "build" / "compiled"
    found = sorted(compiled.rglob("*.so"))
    for each in found:
        source = each.parent / f"{each.name.partition('.')[0]}.py"
        if source.exists() and source.stat().st_mtime > each.stat().st_mtime:
            raise NotCompiledError(
                f"{source.relative_to(compiled)} has changed since it was compiled: run make compile"
            )
        os.link(each, tree / each.relative_to(compiled))
    if not found:
        raise NotCompiledError("nothing is compiled: run make compile")


def units_of(mutant: Mutant, checkout: Path = CHECKOUT) -> dict[str, list[str]]:
    """Returns the compilation units that a mutant changes, each with its patterns."""
    units: dict[str, list[str]] = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["quorumlog"][
        "compiled"
    ]
    changed = [Path(change.file) for change in mutant.changes]
    return {
        unit: patterns for unit, patterns in units.items() if any(file.match(p) for p in patterns for file in changed)
    }


def compile_changed(mutant: Mutant, tree: Path, checkout: Path = CHECKOUT) -> None:
    """Compiles the changed units in a mutant's copy.

    Raises:
        NotCompiledError: mypyc or the C compiler rejects the mutant.
    """
    for unit, patterns in units_of(mutant, checkout).items():
        sources = sorted({path for pattern in patterns for path in (tree / "quorumlog").glob(pattern)})
        names = [str(path.relative_to(tree)) for path in sources if path.name != "__init__.py"]
        for name in (*names, f"quorumlog_{unit}__mypyc.py"):
            for old in (tree / name).parent.glob(f"{Path(name).stem}.*.so"):
                old.unlink()  # a link in a copy must not lead to the other copies
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, unit, str(checkout / "pyproject.toml"), *names],
            check=False,
            cwd=tree,
            env=os.environ | {"MYPYPATH": str(tree)},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NotCompiledError(f"{mutant.name} does not compile: {(done.stdout + done.stderr)[-1_000:]}")
