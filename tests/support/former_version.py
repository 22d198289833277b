"""The code of an earlier commit, to run nodes of it beside those of this one."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
#: The last commit whose nodes know feature level 1 only, and write what 0.1.0 writes.
LEVEL_1 = "ec3fcd377cefa71bd77b1443c163618935d17793"


def lay_out(commit: str, folder: Path) -> Path | None:
    """Lays the packages of a commit out under their import names.

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
    (source / floors["quorumlog"]).rename(packages.mkdir() or root)
    for name, place in floors.items():
        if name.count(".") == 1 and not (root / name.partition(".")[2]).exists():
            (root / name.partition(".")[2]).symlink_to(source / place, target_is_directory=True)
    return packages
