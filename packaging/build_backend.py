"""The build backend: that of setuptools, with compiled wheels where that is possible.

The environment variable ``QUORUMLOG_COMPILE`` decides: ``1`` compiles, and fails if that fails; ``0`` builds a pure
wheel. Without it, a wheel is compiled if the machine has a C compiler and Python's headers; if that fails, the wheel is
pure. So an installation from sources never depends on a C compiler.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

COMPILE = "QUORUMLOG_COMPILE"
ROOT = Path(__file__).resolve().parent.parent

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Returns what a build needs besides setuptools: to compile, mypyc and the types of all that is imported."""
    if not _is_wanted():
        return []
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*described["dependency-groups"]["compile"], *described["project"]["dependencies"]]


def build_wheel(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Builds a wheel into a directory, compiled or pure; returns its name."""
    arguments = (directory, config_settings, metadata_directory)
    if COMPILE in os.environ:
        return build_meta.build_wheel(*arguments)
    try:
        if _is_wanted() and find_spec("mypyc"):
            try:
                os.environ[COMPILE] = "1"
                return build_meta.build_wheel(*arguments)
            except (Exception, SystemExit) as error:
                print(f"quorumlog: compiling has failed ({error}); the wheel is pure Python", file=sys.stderr)
        os.environ[COMPILE] = "0"
        return build_meta.build_wheel(*arguments)
    finally:
        del os.environ[COMPILE]


def _is_wanted() -> bool:
    asked = os.environ.get(COMPILE)
    return _has_compiler() if asked is None else asked == "1"


def _has_compiler() -> bool:
    """True if C extensions of this Python can probably be compiled."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "").split()
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return bool(compiler) and shutil.which(compiler[0]) is not None and headers.exists()
