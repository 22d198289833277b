"""The wheel and the source distribution, built twice from clean copies of what git tracks, and compared.

python packaging/distributions.py --to dist
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Runs in a folder of sources. Needs what pyproject.toml says a build requires.
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


class BuildError(Exception):
    """Nothing was built that is fit to be handed out. The message says why; the output of a failed build is in it."""


def copy_tracked(to: Path) -> None:
    """Copies what git tracks, as it is in the work tree: nothing that an earlier build has left comes along."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if not (ROOT / name).exists():
            continue  # Deleted, and not committed yet.
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target, follow_symlinks=False)
        # Of a file's mode git keeps only this: what the builder's umask took away must not show.
        if not target.is_symlink():
            target.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)


def time_of_sources() -> str:
    """Seconds since 1970 of what is built: given by the caller, otherwise that of the last commit."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return said
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def build(to: Path) -> list[Path]:
    """Builds the source distribution of the work tree, and of that the wheel.

    Raises:
        BuildError: a build failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        checkout = Path(temporary, "checkout")
        copy_tracked(checkout)
        sources = _run(checkout, "build_sdist", to)
        with tarfile.open(sources) as packed:
            packed.extractall(temporary, filter="data")
        (unpacked,) = Path(temporary).glob("quorumlog-*")
        return [sources, _run(unpacked, "build_wheel", to)]


def _run(folder: Path, hook: str, to: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(to.resolve())],
        cwd=folder,
        env=os.environ | {"SOURCE_DATE_EPOCH": time_of_sources(), "QUORUMLOG_COMPILE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{hook} failed:\n{done.stdout}{done.stderr}")
    return to / done.stdout.splitlines()[-1]


def build_twice(to: Path) -> list[Path]:
    """Builds everything twice.

    Arguments:
        to: a folder; gets the files, and ``SHA256SUMS`` of them.

    Raises:
        BuildError: a build failed, or the two differ.
    """
    to.mkdir(parents=True, exist_ok=True)
    built = build(to)
    with tempfile.TemporaryDirectory() as temporary:
        again = build(Path(temporary))
        for first, second in zip(built, again, strict=True):
            if first.read_bytes() != second.read_bytes():
                raise BuildError(f"{first.name} has other bytes when it is built again from the same sources")
    sums = "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in built)
    (to / "SHA256SUMS").write_text(sums)
    return built


def main() -> None:
    """Builds, and says what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    to = parser.parse_args().to
    try:
        built = build_twice(to)
    except BuildError as error:
        sys.exit(f"packages: {error}")
    for each in built:
        print(f"{each}: {each.stat().st_size:,} bytes, the same twice")


if __name__ == "__main__":
    main()
