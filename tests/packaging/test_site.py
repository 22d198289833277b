"""The documentation as a site: it is built without a warning, holds every page, and sends its readers nowhere else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.readme_tour import ROOT

pytestmark = pytest.mark.timeout(480)

SPHINX = ROOT / "build/docs/venv/bin/sphinx-build"
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)
#: Pages at old addresses, which only lead on.
MOVED = [page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
PAGES = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if page not in MOVED]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not SPHINX.exists():
        pytest.skip("Sphinx is not installed: make docs")
    built = tmp_path_factory.mktemp("site")
    command = [str(SPHINX), "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    folders = ["--conf-dir", str(ROOT / "packaging/site"), "--doctree-dir", str(built / "trees"), str(ROOT)]
    done = subprocess.run(
        [*command, *folders, str(built / "site")], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return built / "site"


@pytest.mark.thorough
def test_every_page_is_in_the_site_and_in_its_contents(site: Path) -> None:
    contents = (site / "docs/README.html").read_text()
    for page in PAGES:
        made = page.relative_to(ROOT).with_suffix(".html")
        assert (site / made).exists(), page
        if made.parent.name != "decisions" and made.name != "README.html":
            assert f'href="{made.relative_to("docs") if made.parts[0] == "docs" else f"../{made}"}"' in contents, page


@pytest.mark.thorough
def test_an_old_address_leads_to_the_page(site: Path) -> None:
    for page in MOVED:
        (place,) = re.findall(r'location.replace\("([^"]+)"', (site / "docs" / f"{page.stem}.html").read_text())
        assert (site / "docs" / place).exists(), page


@pytest.mark.thorough
def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    """Neither pictures nor fonts nor programs: what is left are links that a client follows."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]* src="([^"]+)"', text)
        fetched += re.findall(r'<link[^>]* rel="(?:stylesheet|icon|preload)[^>]* href="([^"]+)"', text)
        assert [address for address in fetched if re.match(r"(\w+:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.thorough
def test_the_front_door_leads_to_the_index(site: Path) -> None:
    (address,) = re.findall(r"url=([^\"]+)", (site / "index.html").read_text())
    assert (site / address).exists()


def test_diagrams_have_no_semicolon_which_would_end_a_line() -> None:
    """Mermaid shows a bomb in place of the diagram then."""
    found = {page.name: DIAGRAM.findall(page.read_text()) for page in PAGES}
    assert sum(map(len, found.values())) >= 5
    assert [line for diagrams in found.values() for each in diagrams for line in each.splitlines() if ";" in line] == []
