"""The git hook for subjects of commits accepts 'area: verb object' and names what is wrong with others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
HOOK = ROOT / "tools" / "hooks" / "commit-msg"
CONFIGURATION = ROOT / ".pre-commit-config.yaml"


def run_hook(folder: Path, message: str) -> subprocess.CompletedProcess[str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message)
    return subprocess.run(
        [sys.executable, str(HOOK), str(file)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "message",
    [
        "consumer: keep positions when interrupted\n\nA body, with a line. And more.\n",
        "chaos, simulator: write findings in plain English",
        "sdk/producer: cut batches by size",
        "# a comment of git\n\nkafka: read timestamps of sarama\n# more",
        f"tests: count {'x' * 47}",
        "Merge branch 'main' into a-branch-with-a-name-that-is-longer-than-most-of-them",
        "fixup! consumer: keep positions when interrupted and then some more words",
    ],
)
def test_good_subjects_pass(message: str, tmp_path: Path) -> None:
    done = run_hook(tmp_path, message)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("keep positions when interrupted", "not 'area: verb object'"),
        ("Consumer: keep positions", "not 'area: verb object'"),
        ("consumer: Keep positions", "not 'area: verb object'"),
        ("consumer: cleanup", "not 'area: verb object'"),
        ("consumer:keep positions", "not 'area: verb object'"),
        ("consumer: keep positions.", "ends with a period"),
        (f"tests: count {'x' * 48}", "has 61 characters: shorten it to 60"),
        ("\n# only comments\n", "not 'area: verb object'"),
    ],
)
def test_bad_subjects_are_refused_in_one_line(message: str, told: str, tmp_path: Path) -> None:
    done = run_hook(tmp_path, message)
    assert done.returncode == 1
    assert done.stderr.startswith("commit-msg: ") and done.stderr.count("\n") == 1
    assert told in done.stderr


@pytest.mark.skipif(not CONFIGURATION.exists(), reason="a source distribution has no hooks for pre-commit")
def test_pre_commit_runs_the_hook() -> None:
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    (hook,) = [hook for each in configuration["repos"] for hook in each["hooks"] if hook["id"] == "commit-subject"]
    assert (ROOT / hook["entry"]).samefile(HOOK)
    assert set(hook["stages"]) <= set(configuration["default_install_hook_types"])
