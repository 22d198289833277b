"""A planted fault: a small patch of the shipped source, with its effect, and the checks that must detect it.

The patches are data (``mutants/*.toml``) and are only ever applied to a copy of the packages.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

#: The source checkout, whose tests detect mutants.
CHECKOUT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).resolve().parent / "mutants"
#: The files of the console's page, which are changed like modules, and the module that reads them.
PAGE, PAGE_SERVER = "console/static", "console/assets.py"


class StalePatchError(Exception):
    """Raised if the source has changed, so that a patch no longer fits."""


@dataclass(slots=True, frozen=True)
class SourceChange:
    """One replacement of text in one file of ``src/quorumlog``, which must contain ``before`` exactly once."""

    file: str
    before: str
    after: str


@dataclass(slots=True, frozen=True)
class Mutant:
    """One planted fault.

    Arguments:
        name: name of its file.
        story: its effect on a user, in a line.
        scenario: its number in the list of regressions; 0 for none.
        checks: checks in the order in which they are tried (see `checks`).
    """

    name: str
    story: str
    scenario: int
    checks: tuple[str, ...]
    changes: tuple[SourceChange, ...]

    @property
    def modules(self) -> list[str]:
        """Import names of the changed modules; for a file of the console's page, of the module that serves it."""
        found = (change.file if change.file.endswith(".py") else PAGE_SERVER for change in self.changes)
        paths = (file.removesuffix(".py").removesuffix("/__init__") for file in found)
        return sorted({f"quorumlog.{path.replace('/', '.')}" for path in paths})

    def apply(self, tree: Path) -> None:
        """Plants the fault into a copy that ``copy_packages`` made.

        Raises:
            StalePatchError: the text to replace does not exist exactly once.
        """
        for change in self.changes:
            target = tree / "quorumlog" / change.file
            source = target.read_text() if target.is_file() else ""
            count = source.count(change.before)
            if count != 1:
                raise StalePatchError(
                    f"the patch of {self.name} is stale: {change.file} contains the text to replace {count} times;"
                    f" bring simulator/mutation/mutants/{self.name}.toml up to date"
                )
            target.unlink()  # a link in a copy must not lead to the source
            target.write_text(source.replace(change.before, change.after))


def load_mutants(folder: Path = MUTANTS) -> list[Mutant]:
    """Returns all mutants of a folder, by name.

    Raises:
        ValueError: a file is invalid; the message names it.
    """
    return [_load(path) for path in sorted(folder.glob("*.toml"))]


def _load(path: Path) -> Mutant:
    try:
        row = tomllib.loads(path.read_text())
        changes = tuple(SourceChange(**change) for change in row.pop("change"))
        mutant = Mutant(path.stem, row.pop("story"), row.pop("scenario", 0), tuple(row.pop("checks")), changes)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as problem:
        raise ValueError(f"{path}: {problem}") from None
    if row or not mutant.checks or not changes:
        raise ValueError(f"{path}: a mutant has a story, checks, changes and perhaps a scenario, not {sorted(row)}")
    return mutant


def copy_packages(target: Path, checkout: Path = CHECKOUT) -> None:
    """Copies the packages of a checkout to ``target``/quorumlog/..., importable with ``target`` on the path."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.proto", "*.pyi", "mutants")
    shutil.copytree(checkout / "src", target, ignore=ignored)


def copy_tree(source: Path, target: Path) -> None:
    """Creates a further copy of a copy by ``copy_packages``, including compiled code: with links, which
    ``Mutant.apply`` breaks.
    """
    shutil.copytree(source, target, copy_function=os.link)
