"""Which packages there are, what a wheel holds of them and beside them, and what is compiled. All else is in
pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# Setuptools brings it, under the name that it had in Python's own library.
from distutils.command.install_data import install_data  # isort: skip

ROOT = Path(__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]

#: What tests the log store itself needs a checkout: it stays out of wheels, and so does a room below one of these.
CHECKOUT_ONLY = tuple(
    f"quorumlog.chaos.{room}" for room in ("clients", "consumer_groups", "models", "mutation", "seeds", "simulator")
)
CHECKOUT_ONLY_MODULES = {("quorumlog.chaos", "mutate"), ("quorumlog.chaos", "simulate")}

#: With this in the environment, the modules of ``[tool.quorumlog.compiled]`` are compiled as well. It needs mypy and a
#: C compiler: ``pip wheel --no-build-isolation .``, or ``make compile``.
COMPILE = "QUORUMLOG_COMPILE"
#: Links to all packages under the names that they are imported by, which mypyc needs; ``make compile`` puts what it
#: compiles beside them.
TREE = ROOT / "build" / "compiled"

#: Where they go below an environment, and which files: shells look for completion there, operators for what they copy.
SHARED_FILES = {
    "share/bash-completion/completions": ["packaging/completion/quorumlog"],
    "share/zsh/site-functions": ["packaging/completion/_quorumlog"],
    "share/fish/vendor_completions.d": ["packaging/completion/quorumlog.fish"],
    "share/quorumlog": [
        "packaging/quorumlog.service",
        "packaging/prometheus/alerts.yml",
        "packaging/grafana/quorumlog.json",
    ],
}
MANUAL_PAGES = "share/man/man1"


def folders() -> dict[str, Path]:
    """The folder of every package, by its import name: each in a floor that has an ``__init__.py``."""
    floors = PROJECT["setuptools"]["package-dir"]
    found = {}
    for name, folder in floors.items():
        for module in (ROOT / folder).rglob("__init__.py") if name else ():
            found[".".join((name, *module.parent.relative_to(ROOT / folder).parts))] = module.parent
    return dict(sorted(found.items()))


def link_tree(tree: Path) -> None:
    """Makes links to all packages anew, under the names that they are imported by. What was compiled there stays, so
    that only units that have changed are compiled."""
    sources = {
        tree.joinpath(*name.split("."), each.name): each
        for name, folder in folders().items()
        for each in folder.iterdir()
        if each.is_file() and each.suffix != ".so"
    }
    page = ROOT / "console" / "static"
    sources |= {tree / "quorumlog" / each.relative_to(ROOT): each for each in page.rglob("*") if each.is_file()}
    for each in [*tree.rglob("*")] if tree.exists() else ():
        if each.is_symlink():
            each.unlink()
    for link, source in sources.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)


def compiled() -> list[Extension]:
    """The modules that become machine code, in units that compile in a minute or two."""
    try:
        from mypyc.build import mypycify
    except ImportError:
        sys.exit(f"{COMPILE} needs mypy: pip install mypy, and build without isolation")
    link_tree(TREE)
    os.environ["MYPYPATH"] = str(TREE)
    extensions: list[Any] = []
    modules: set[Path] = set()
    for unit, patterns in PROJECT["quorumlog"]["compiled"].items():
        sources = sorted({each for pattern in patterns for each in TREE.joinpath("quorumlog").glob(pattern)})
        paths = [str(each.relative_to(ROOT)) for each in sources if each.name != "__init__.py"]
        modules.update(each.with_suffix("") for each in sources)
        extensions += mypycify(
            ["--config-file", "pyproject.toml", *paths],
            group_name=f"quorumlog_{unit}",
            opt_level="3",
            debug_level="0",
            target_dir=str(ROOT / "build" / "mypyc" / unit),
        )
    for each in TREE.joinpath("quorumlog").rglob("*.so"):
        if each.parent / each.name.partition(".")[0] not in modules:
            each.unlink()  # It is not compiled any more, and would be taken for what it was.
    return extensions


def native(optional: bool) -> Extension:
    """The loops over bytes that are written in C.

    Arguments:
        optional: without a C compiler, the build goes on without them, and Python does the same more slowly.
    """
    return Extension(
        "quorumlog.wire.kafka._records",
        ["native/kafka_records.c"],
        py_limited_api=True,
        optional=optional,
        extra_compile_args=["-O3", "-Wall", "-Wextra"],
    )


def extensions() -> list[Extension]:
    """What is compiled: everything on request, the C parts for a development install, nothing for the pure wheel."""
    if os.environ.get(COMPILE) == "1":
        return [*compiled(), native(optional=False)]
    return [native(optional=True)] if "editable_wheel" in sys.argv else []


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


class InstallData(install_data):
    """Puts the manual pages beside the command: they are made of its own help."""

    def run(self) -> None:
        super().run()
        pages = Path(self.install_dir, MANUAL_PAGES)
        with tempfile.TemporaryDirectory() as tree:
            link_tree(Path(tree))
            below = [tree, *filter(None, [os.environ.get("PYTHONPATH")])]
            subprocess.run(
                [sys.executable, str(ROOT / "packaging/manual_pages.py"), str(pages), self.distribution.get_version()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(below)},
                check=True,
            )
        self.outfiles += map(str, sorted(pages.iterdir()))


class SourceDistribution(sdist):
    """Packs the same bytes for the same files, where SOURCE_DATE_EPOCH says what time they are of."""

    def make_archive(self, base_name: str, format: str, *, base_dir: str, **_: Any) -> str:
        sys.path.insert(0, str(ROOT / "packaging"))
        from source_archive import write_source_archive

        archive = Path(f"{base_name}.tar.gz")
        epoch_s = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        write_source_archive(Path(base_dir), archive, epoch_s)
        return str(archive)


setup(
    packages=list(folders()),
    data_files=[*SHARED_FILES.items()],
    cmdclass={"build_py": BuildPy, "install_data": InstallData, "sdist": SourceDistribution},
    ext_modules=extensions(),
)
