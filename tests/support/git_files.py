"""Files of the checkout, as git lists them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import PurePosixPath

from tests.support.readme_tour import ROOT


def _git(*arguments: str, given: str = "") -> list[str]:
    """Returns the fields of an output that separates them by NUL."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, input=given, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split("\0")[:-1]


def tracked() -> set[str]:
    """Returns the files that git tracks, without those that were removed and are not committed yet."""
    return {name for name in _git("ls-files", "-z") if (ROOT / name).exists()}


@cache
def _attributes(attribute: str) -> dict[str, str]:
    """Returns the value of an attribute for all files and their folders, by path."""
    paths = {str(path) for name in tracked() for path in (PurePosixPath(name), *PurePosixPath(name).parents)} - {"."}
    fields = _git("check-attr", "--stdin", "-z", attribute, given="".join(f"{path}\0" for path in sorted(paths)))
    return dict(zip(fields[::3], fields[2::3], strict=True))


def has_attribute(name: str, attribute: str, value: str = "set") -> bool:
    """True if .gitattributes gives a file, or a folder that it is in, this value of an attribute."""
    path = PurePosixPath(name)
    return any(_attributes(attribute).get(str(each)) == value for each in (path, *path.parents))
