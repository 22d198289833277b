"""Prints the section of the changelog for the version that a tag names.

python packaging/release_notes.py v0.2.0
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class ReleaseError(Exception):
    """The tag cannot be released. The message says what to do."""


def release_notes(tag: str) -> str:
    """Returns the changelog's section for a tag.

    Raises:
        ReleaseError: the tag does not name the version in pyproject.toml, or the changelog has no section for it.
    """
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise ReleaseError(f"tag {tag} is not the version in pyproject.toml: tag v{version}, or change the version")
    section = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)",
        (ROOT / "CHANGELOG.md").read_text(),
        re.M | re.S,
    )
    if section is None:
        raise ReleaseError(f"CHANGELOG.md has no section '## {version} - YYYY-MM-DD': run make changelog")
    return section[1].strip()


def main() -> None:
    """Prints the notes, or one line that says why none exist."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    try:
        print(release_notes(parser.parse_args().tag))
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
