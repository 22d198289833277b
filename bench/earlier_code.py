"""The code of an earlier commit, under the names that it is imported by."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def lay_out(commit: str, folder: Path) -> Path | None:
    """Lays the packages of a commit out under their import names.

    Arguments:
        commit: whatever git knows it by.
        folder: takes its files; made if it is not there.

    Returns:
        what belongs into ``PYTHONPATH``; None where the checkout does not have that commit.
    """
    git = ["git", "-C", str(CHECKOUT)]
    if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False).returncode:
        return None
    archive = subprocess.run([*git, "archive", "--format=tar", commit], capture_output=True, check=True).stdout
    source, packages = folder / "source", folder / "packages"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    floors = tomllib.loads((source / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    root = packages / "quorumlog"
    packages.mkdir()
    if "quorumlog" in floors:
        (source / floors["quorumlog"]).rename(root)
    root.mkdir(exist_ok=True)
    for name, place in floors.items():
        if name.count(".") == 1 and not (root / name.partition(".")[2]).exists():
            (root / name.partition(".")[2]).symlink_to(source / place, target_is_directory=True)
    return packages
