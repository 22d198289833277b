"""The workflows of .github/ run what .ci/run runs, on the Pythons that the package claims to support."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.package_tools import tool
from tests.support.readme_tour import ROOT

GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
#: Target -> what it depends on, for the targets that are typed.
TARGETS = {
    name: needs.partition("#")[0].split() for name, needs in re.findall(r"^([a-z-]+): *((?!=).*)$", MAKEFILE, re.M)
}

pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="a source distribution has no workflows")


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / name).read_text())
    return loaded


def targets(command: str) -> set[str]:
    """Returns the targets of the lines that call make."""
    lines = re.findall(r"^make (.+)$", command, re.M)
    return {target for line in lines for target in line.split()}


def targets_of(name: str) -> set[str]:
    """Returns the targets that a workflow makes, for all values of its matrices."""
    found = set()
    for job in workflow(name)["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job.get("steps", ()):
            for value in matrix.get("targets", [""]):
                found |= targets(step.get("run", "").replace("${{ matrix.targets }}", value))
    return found


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_workflows_make_existing_targets(name: str) -> None:
    assert targets_of(name)
    assert targets_of(name) - TARGETS.keys() == set()


def test_ci_makes_all_targets() -> None:
    """Nothing that has to pass before a change lands is missing from the jobs."""
    landing = targets((ROOT / ".ci/run").read_text())
    assert {"check", "test"} <= landing
    assert (landing - {"test"} | set(TARGETS["test"])) - targets_of("ci.yml") == set()


def test_supported_pythons_agree() -> None:
    """The jobs, the classifiers and the compiled wheels name the same versions, and the oldest is the one required."""
    tested = workflow("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    claimed = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.M
    )
    assert claimed == tested
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{version.replace('.', '')}-*" for version in tested]
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == tested[0]
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{tested[0].replace('.', '')}"


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_actions_are_pinned(path: Path) -> None:
    """A tag can be moved to other code; a commit cannot. The comment says which version it is."""
    used = re.findall(r"uses: (?!\./)(.*)$", path.read_text(), re.M)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_jobs_have_time_limits(name: str) -> None:
    jobs = workflow(name)["jobs"]
    assert [job for job, its in jobs.items() if "timeout-minutes" not in its and "uses" not in its] == []


def test_only_publication_may_write() -> None:
    """A job that builds or tests code has read access only, and holds no identity to publish with."""
    assert workflow("ci.yml")["permissions"] == {"contents": "read"}
    release = workflow("release.yml")
    assert release["permissions"] == {}
    for name, job in release["jobs"].items():
        if "write" in job["permissions"].values():
            assert not any("checkout@" in step.get("uses", "") for step in job["steps"]), name


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint")], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_zizmor_finds_nothing() -> None:
    """The audit for what a workflow gives away: templates that run, caches that are published, tokens that stay."""
    command = [tool("zizmor"), "--offline", "--quiet", "--no-config", str(GITHUB)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
