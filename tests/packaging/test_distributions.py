"""Distributions: a wheel and a source distribution that anybody can build again, and that work where there is
nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.git_files import has_attribute, tracked
from tests.support.package_tools import tool
from tests.support.readme_tour import ROOT, blocks, tour

# All in one target of `make test`: what is built and installed once takes half a minute.
pytestmark = [pytest.mark.cluster, pytest.mark.thorough, pytest.mark.timeout(480)]

#: What a block of the README has that only runs with the extra ``spark``, or with pytest.
NEEDS_MORE = ("quorumlog.sdk.spark", "quorumlog_cluster")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built twice and found the same."""
    if not (ROOT / ".git").exists():
        pytest.skip("what is built is what git tracks, and this is not a checkout")
    to = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(ROOT / "packaging/distributions.py"), "--to", str(to)]
    subprocess.run(command, check=True, timeout=400)
    return to


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_a_source_distribution_is_the_checkout(built: Path) -> None:
    """It holds what an archive of the tag holds: .gitattributes says what stays out of both."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    held = {member.name.partition("/")[2] for member in members}
    exported = {name for name in tracked() if not has_attribute(name, "export-ignore")}
    assert exported - held == set(), "say in MANIFEST.in that these belong to it"
    assert held & (tracked() - exported) == set(), "say in MANIFEST.in that these do not belong to it"
    assert {(member.uid, member.uname, member.mtime) for member in members} == {(0, "", members[0].mtime)}


def test_a_wheel_is_pure_and_brings_manual_pages_and_completion(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert {
        "share/man/man1/quorumlog.1",
        "share/man/man1/quorumlog-topics-create.1",
        "share/bash-completion/completions/quorumlog",
        "share/zsh/site-functions/_quorumlog",
        "share/fish/vendor_completions.d/quorumlog.fish",
        *(f"share/quorumlog/{name}" for name in ("quorumlog.service", "quorumlog-mirror@.service")),
        *(f"share/quorumlog/{name}" for name in ("alerts.yml", "quorumlog.json")),
    } <= shared
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if "-" not in top} == {"quorumlog", "pyspark_quorumlog.py"}


def test_a_wheel_contains_no_schemas(wheel: Path) -> None:
    """Kafka's schemas are input of a generator whose output is in the wheel."""
    schemas = {each.name for each in (ROOT / "proto" / "kafka").glob("*.json")}
    assert schemas
    assert schemas.isdisjoint(Path(name).name for name in zipfile.ZipFile(wheel).namelist())


def test_sums_say_what_was_built(built: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=built, check=True)


def needed_by(name: str, extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """A distribution and all that it needs to run, as the environment of this test has them, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        its = distribution(name)
        if its.name in found and not extras:
            continue
        found[its.name] = its
        for requirement in map(Requirement, its.requires or ()):
            contexts = [{"extra": extra} for extra in extras or ("",)]
            if requirement.marker is None or any(map(requirement.marker.evaluate, contexts)):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it says it needs, and nothing else.

    What it needs is linked from the environment of this test: no registry is asked, and nothing is copied.
    """
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, its in needed_by("quorumlog").items():
        for top in {file.parts[0] for file in its.files or () if name != "quorumlog"} - {"..", "__pycache__"}:
            source, link = Path(str(its.locate_file(top))), packages / top
            if not link.exists():
                link.symlink_to(source)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=100)
    subprocess.run([*pip, "check"], check=True, timeout=60)
    return python


def test_an_environment_of_the_wheel_has_the_manual_and_no_tests_of_ours(installed: Path) -> None:
    folder = installed.parent.parent
    assert (folder / "share/man/man1/quorumlog.1").exists()
    for absent in ("pytest", "pyspark", "quorumlog.simulator"):
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({absent!r}) is not None)"
        subprocess.run([str(installed), "-c", look], check=True, timeout=60)


def test_the_sbom_lists_what_is_installed(installed: Path, tmp_path: Path) -> None:
    """The bill names every package of an installation, and the libraries inside the console's page."""
    python = Path(tool("cyclonedx-py")).with_name("python")
    bill, again = tmp_path / "bill.json", tmp_path / "again.json"
    for to in (bill, again):
        command = [str(python), str(ROOT / "packaging/sbom.py"), "--environment", str(installed)]
        subprocess.run([*command, "--to", str(to)], check=True, timeout=60)
    assert bill.read_bytes() == again.read_bytes()
    components = json.loads(bill.read_text())["components"]
    vendored = {"preact", "htm"}
    assert {canonicalize_name(each["name"]) for each in components} == vendored | {
        canonicalize_name(name) for name in needed_by("quorumlog").keys() - {"quorumlog"}
    }
    assert all(each["purl"] for each in components)


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_finds_the_pages_of_an_environment_by_its_path(installed: Path) -> None:
    environment = {"PATH": f"{installed.parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    shown = subprocess.run(
        ["man", "quorumlog-topics-create"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "quorumlog topics create orders --partitions 3" in shown.stdout


def test_the_five_minutes_of_the_readme_run_on_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    chosen = [block for block in blocks() if not any(name in block.text for name in NEEDS_MORE)]
    assert len(chosen) == len(blocks()) - len(NEEDS_MORE)
    with tour(tmp_path, installed) as taken:
        taken.run_all([(block, []) for block in chosen])
