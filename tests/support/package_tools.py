"""Tools that look at packages. A test that needs one which is not installed is skipped, and reports how to get it."""

from __future__ import annotations

import shutil

import pytest

from tests.support.readme_tour import ROOT

#: What make package installs, and what has to come from elsewhere.
INSTALLED = ROOT / "build/packages/venv/bin"


def tool(name: str) -> str:
    """The path of a tool."""
    path = shutil.which(name) or shutil.which(name, path=str(INSTALLED))
    if path is None:
        pytest.skip(f"{name} is not installed (make package and make workflows install some of the tools)")
    return path
