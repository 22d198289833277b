"""Which packages there are, and which of them a wheel holds. All else is in pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

#: What tests the log store itself needs a checkout: it stays out of wheels, and so does a room below one of these.
CHECKOUT_ONLY = tuple(f"quorumlog.chaos.{room}" for room in ("clients", "models", "mutation", "seeds", "simulator"))
CHECKOUT_ONLY_MODULES = {("quorumlog.chaos", "mutate"), ("quorumlog.chaos", "simulate")}


def packages() -> list[str]:
    """Every folder of a floor that has an ``__init__.py``, by its import name."""
    floors = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    found = set()
    for name, folder in floors.items():
        for module in (ROOT / folder).rglob("__init__.py") if name else ():
            found.add(".".join((name, *module.parent.relative_to(ROOT / folder).parts)))
    return sorted(found)


class BuildPy(build_py):
    """Leaves out of wheels what only a checkout can use; an editable install has everything."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if not name.startswith(CHECKOUT_ONLY)]

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules = super().find_package_modules(package, package_dir)
        if self.editable_mode:
            return modules
        return [module for module in modules if module[:2] not in CHECKOUT_ONLY_MODULES]


setup(packages=packages(), cmdclass={"build_py": BuildPy})
