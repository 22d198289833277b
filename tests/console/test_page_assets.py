"""The files of the page: small, ours or as they were published, and loaded from no other host."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from quorumlog.console.assets import Assets

ROOT = Path(__file__).resolve().parent.parent.parent
STATIC = ROOT / "console" / "static"
SOURCES = sorted(path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html"))


def imported_by(path: Path) -> set[Path]:
    """Returns the module and all modules that it imports, directly or indirectly."""
    found = {path}
    for target in re.findall(r'^import .*?"(\./.*?)"', path.read_text(), re.M):
        found |= imported_by((path.parent / target).resolve())
    return found


def test_all_files_together_are_small_and_those_of_the_first_picture_more_so() -> None:
    assert Assets().compressed_bytes < 80_000
    first = {*imported_by(STATIC / "main.js"), STATIC / "console.css", STATIC / "index.html", STATIC / "icon.svg"}
    assert STATIC / "topology.js" in first and STATIC / "records.js" not in first
    assert sum(len(gzip.compress(path.read_bytes())) for path in first) < 40_000


def test_libraries_are_as_they_were_published() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "vendor.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_file_asks_nobody_else_for_anything(path: Path) -> None:
    text = re.sub(r'"http://www\.w3\.org/[^"]*"', "", path.read_text())
    assert re.findall(r"""(?:https?:)?//[\w-]+\.[\w.-]+""", text) == []
    if "vendor" not in path.parts:
        assert re.findall(r"\b(?:eval|Function|innerHTML|dangerouslySetInnerHTML)\b\s*[(=]", text) == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix == ".js"], ids=lambda path: path.name)
def test_what_a_module_imports_is_there_and_exports_it(path: Path) -> None:
    for names, target in re.findall(r'^import (?:\{ (.*?) \}|\w+) from "(.*?)";', path.read_text(), re.M):
        module = (path.parent / target).resolve()
        assert module.is_file() and module.is_relative_to(STATIC), f"{path.name} imports {target}"
        exported = module.read_text()
        for name in filter(None, names.split(", ")):
            assert re.search(
                rf"export (?:async )?(?:const|function|class) {name}\b|export\{{[^}}]*\b{name}\b", exported
            ), name


def test_a_file_that_a_browser_has_is_not_sent_again() -> None:
    assets = Assets()
    first = assets.answer("main.js", Headers({}))
    again = assets.answer("main.js", Headers({"if-none-match": first.headers["etag"]}))
    assert (first.status_code, again.status_code, again.body) == (200, 304, b"")
    packed = assets.answer("main.js", Headers({"accept-encoding": "gzip"}))
    assert packed.headers["content-encoding"] == "gzip" and len(packed.body) < len(first.body) / 2


@pytest.mark.parametrize("name", ["", "..", "../gate.py", "vendor/vendored.json", "nothing.js"])
def test_what_is_no_file_of_the_page_is_not_there(name: str) -> None:
    assert Assets().answer(name, Headers({})).status_code == 404


def test_the_picture_of_the_documents_is_of_a_reasonable_size() -> None:
    assert 10_000 < (ROOT / "docs" / "images" / "console.png").stat().st_size < 150_000
