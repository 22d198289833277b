"""Reviews fold generated files and show all others; archives of a tag hold what a source distribution holds."""

from __future__ import annotations

import re

import pytest

from tests.support.git_files import has_attribute, tracked
from tests.support.readme_tour import ROOT

#: What generators write at the top of a file. This module, which has the same words further down, is not one.
HEADER = re.compile(r"DO NOT EDIT|@generated|^Written by tools/", re.M)
HEADER_CHARACTERS = 250

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")


def test_generated_code_is_marked() -> None:
    """Hand-written code is never folded, generated code always."""
    code = [name for name in tracked() if name.endswith((".py", ".pyi"))]
    written = {name for name in code if HEADER.search((ROOT / name).read_text()[:HEADER_CHARACTERS])}
    marked = {name for name in code if has_attribute(name, "linguist-generated")}
    assert written == marked


def test_scripts_keep_their_line_ends() -> None:
    for name in (".ci/run", "packaging/container/ask-node", "setup.py"):
        assert has_attribute(name, "eol", "lf"), name
    assert has_attribute("docs/images/console.png", "binary")
