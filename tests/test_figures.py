"""Figures name the commit that they were measured on, and those that every user looks at first are not old.

A block of figures is between ``<!-- NAME -->`` and ``<!-- /NAME -->``. ``python -m bench compare COMMIT`` shows
whether what came since has made anything slower.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^<!-- (?P<name>[a-z-]+) -->\n(?P<text>.*?)^<!-- /(?P=name) -->$", re.M | re.S)
COMMIT = re.compile(r"commit `([0-9a-f]{7,40})`")
#: Blocks of docs/records/performance.md that take a few minutes; others are measured for each release.
SOON_OLD = {"run", "compiled"}
#: Commits of the main line after which such figures are too old.
OLD = 200
BLOCKS = [
    pytest.param(match["name"], match["text"], id=f"{page.name}: {match['name']}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text())
]


def git(*arguments: str) -> str:
    """Returns the output of git; skips in a copy of the sources without their history."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"git {arguments[0]} says: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.mark.parametrize(("name", "text"), BLOCKS)
def test_a_block_of_figures_names_a_commit_of_this_history_since_the_last_release(name: str, text: str) -> None:
    found = COMMIT.search(text)
    assert found is not None, f"say on which commit the figures of {name} were measured"
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this checkout has no history")
    between = f"{found[1]}..HEAD"
    commits = int(git("rev-list", "--count", "--first-parent", between))
    if name in SOON_OLD:
        assert commits <= OLD, f"the figures of {name} are {commits} commits old: measure them again"
    releases = git("log", "--first-parent", "--simplify-by-decoration", "--format=%D", between)
    assert "tag: v" not in releases, f"the figures of {name} are older than a release: measure them again"


def test_there_are_blocks_of_figures() -> None:
    assert len(BLOCKS) >= 8
