"""Every command has a page for ``man``, which man reads without a complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme_tour import ROOT
from tests.test_documents import COMMAND, _paths


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The source of every page by its name."""
    folder = tmp_path_factory.mktemp("man")
    command = [sys.executable, str(ROOT / "packaging/manual_pages.py"), str(folder), "1.2.3"]
    subprocess.run(command, check=True, timeout=60)
    return {page.stem: page.read_text() for page in folder.glob("*.1")}


def test_every_command_has_a_page_and_so_has_every_family(pages: dict[str, str]) -> None:
    commands = {f"quorumlog {path}".replace(" ", "-") for path in _paths(COMMAND)}
    families = {f"quorumlog-{name}" for name, its in COMMAND.commands.items() if hasattr(its, "commands")}
    assert set(pages) == {"quorumlog", *commands, *families}


def test_a_page_has_every_option_and_the_example_as_it_is_typed(pages: dict[str, str]) -> None:
    page = re.sub(r"\\f[BP]|\\&", "", pages["quorumlog-topics-create"]).replace(r"\-", "-")
    for option in ("-p, --partitions <int>", "--replica-assignment NODE,...", "-h, --help"):
        assert f"\n{option}\n" in page
    assert ".nf\nquorumlog topics create orders --partitions 3 --config retention.ms=86400000\n.fi" in page
    assert "[env var: QUORUMLOG_BOOTSTRAP_SERVERS; default: 127.0.0.1:19092]" in page
    assert '"quorumlog 1.2.3"' in page


def test_pages_refer_to_pages_that_exist(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        named = re.findall(r"\\fB([\w\\-]+)\\fP\(1\)", page)
        assert named, name
        assert {each.replace("\\", "") for each in named} <= set(pages), name


def test_what_troff_would_read_as_its_own_is_escaped(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert page.isascii(), name
        for line in page.splitlines():
            assert not line.startswith("'"), f"{name}: {line}"
            assert re.match(r"\.(TH|SH|TP|PP|nf|fi|nh|ad) ?|[^.]|$", line), f"{name}: {line}"
            assert line.startswith(".TH") or not re.search(r"(?<!\\)-", line), f"{name}: {line}"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
@pytest.mark.thorough
@pytest.mark.timeout(480)
def test_man_reads_every_page_in_silence(pages: dict[str, str], tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    for name, page in pages.items():
        (tmp_path / name).write_text(page)
    done = subprocess.run(
        ["man", "--warnings", "--local-file", *pages],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.count("EXIT STATUS") == len(pages)
