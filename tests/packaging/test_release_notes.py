"""A release is what its tag says, and its notes are the changelog's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme_tour import ROOT

SCRIPT = (ROOT / "packaging/release_notes.py").read_text()


def run(project: Path, tag: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a project of version 1.2.3."""
    (project / "packaging").mkdir(exist_ok=True)
    (project / "packaging/release_notes.py").write_text(SCRIPT)
    (project / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    command = [sys.executable, str(project / "packaging/release_notes.py"), tag]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_notes_are_the_section(tmp_path: Path) -> None:
    newer, older = "## Unreleased\n\n- Newer.\n", "## 1.2.2 - 2026-01-01\n\n- Older.\n"
    (tmp_path / "CHANGELOG.md").write_text(f"{newer}\n## 1.2.3 - 2026-02-03\n\n### Added\n\n- New.\n\n{older}")
    assert run(tmp_path, "v1.2.3").stdout == "### Added\n\n- New.\n"


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2.4", "v1.2.30"])
def test_tags_of_other_versions_fail(tmp_path: Path, tag: str) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3 - 2026-02-03\n")
    done = run(tmp_path, tag)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"release: tag {tag} is not the version in pyproject.toml: tag v1.2.3, or change the version\n"
    )


@pytest.mark.parametrize("heading", ["## Unreleased", "## 1.2.3", "## 11.2.3 - 2026-01-01"])
def test_missing_sections_fail(tmp_path: Path, heading: str) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\n- New.\n")
    done = run(tmp_path, "v1.2.3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "release: CHANGELOG.md has no section '## 1.2.3 - YYYY-MM-DD': run make changelog\n"
