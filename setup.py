"""Contents of a wheel beside its packages, and the compiled parts. Everything else is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

# Setuptools brings it, under the name that it had in Python's own library.
from distutils.command.install_data import install_data  # isort: skip

ROOT = Path(__file__).resolve().parent
#: Links to all packages, under their import names.
SOURCES = ROOT / "src"
UNITS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["quorumlog"]["compiled"]

#: With 1 in the environment, the modules of ``[tool.quorumlog.compiled]`` are compiled too: for ``make compile``, or a
#: wheel. It needs mypy and a C compiler; ``packaging/build_backend.py`` sets it where both are there.
COMPILE = "QUORUMLOG_COMPILE"
#: ``make compile`` puts compiled modules here, beside links to all sources.
TREE = ROOT / "build" / "compiled"

#: Where they go below an environment, and which files: shells look for completion there, operators for what they copy.
SHARED_FILES = {
    "share/bash-completion/completions": ["packaging/completion/quorumlog"],
    "share/zsh/site-functions": ["packaging/completion/_quorumlog"],
    "share/fish/vendor_completions.d": ["packaging/completion/quorumlog.fish"],
    "share/quorumlog": [
        "packaging/quorumlog.service",
        "packaging/quorumlog-mirror@.service",
        "packaging/prometheus/alerts.yml",
        "packaging/grafana/quorumlog.json",
    ],
}
MANUAL_PAGES = "share/man/man1"


def link_sources() -> None:
    """Links all sources into ``TREE`` again. Compiled modules stay there, so that only changed units are compiled."""
    for each in TREE.rglob("*"):
        if each.is_symlink():
            each.unlink()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "mutants")
    shutil.copytree(SOURCES, TREE, copy_function=os.symlink, ignore=ignored, dirs_exist_ok=True)


def compiled() -> list[Extension]:
    """The modules that become machine code, in units that compile in a minute or two."""
    try:
        from mypyc.build import mypycify
    except ImportError:
        sys.exit(f"{COMPILE} needs mypy: pip install mypy, and build without isolation")
    link_sources()
    extensions: list[Any] = []
    modules: set[Path] = set()
    for unit, patterns in UNITS.items():
        sources = sorted({each for pattern in patterns for each in SOURCES.joinpath("quorumlog").glob(pattern)})
        paths = [str(each.relative_to(ROOT)) for each in sources if each.name != "__init__.py"]
        modules.update(TREE / each.relative_to(SOURCES).with_suffix("") for each in sources)
        extensions += mypycify(
            ["--config-file", "pyproject.toml", *paths],
            group_name=f"quorumlog_{unit}",
            opt_level="3",
            debug_level="0",
            target_dir=str(ROOT / "build" / "mypyc" / unit),
        )
    for each in TREE.joinpath("quorumlog").rglob("*.so"):
        if each.parent / each.name.partition(".")[0] not in modules:
            each.unlink()  # It is no longer compiled, and would be taken for what it was.
    return extensions


def native(optional: bool) -> Extension:
    """The loops over bytes that are written in C.

    Arguments:
        optional: without a C compiler, the build continues without them, and Python does the same more slowly.
    """
    return Extension(
        "quorumlog.wire.kafka._records",
        ["native/kafka_records.c"],
        py_limited_api=True,
        optional=optional,
        extra_compile_args=["-O3", "-Wall", "-Wextra"],
    )


def extensions() -> list[Extension]:
    """Returns what is compiled: all on request, the C parts for a development install, nothing for the pure wheel."""
    if os.environ.get(COMPILE) == "1" and {"bdist_wheel", "build_ext"} & {*sys.argv}:
        return [*compiled(), native(optional=False)]
    return [native(optional=True)] if "editable_wheel" in sys.argv else []


class InstallData(install_data):
    """Puts the manual pages beside the command: they are made of its own help."""

    def run(self) -> None:
        super().run()
        pages = Path(self.install_dir, MANUAL_PAGES)
        below = [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
        subprocess.run(
            [sys.executable, str(ROOT / "packaging/manual_pages.py"), str(pages), self.distribution.get_version()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(below)},
            check=True,
        )
        self.outfiles += map(str, sorted(pages.iterdir()))


class SourceDistribution(sdist):
    """Keeps the links, and packs the same bytes for the same files where SOURCE_DATE_EPOCH gives their time."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        # setuptools would put a second copy of every package in the place of its link.
        super().make_release_tree(base_dir, [each for each in files if not each.startswith("src/")])
        shutil.rmtree(Path(base_dir, "src"), ignore_errors=True)  # an interrupted build left it
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(SOURCES, Path(base_dir, "src"), symlinks=True, ignore=ignored)

    def make_archive(self, base_name: str, format: str, *, base_dir: str, **_: Any) -> str:
        sys.path.insert(0, str(ROOT / "packaging"))
        from source_archive import write_source_archive

        archive = Path(f"{base_name}.tar.gz")
        epoch_s = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
        write_source_archive(Path(base_dir), archive, epoch_s)
        return str(archive)


if not (SOURCES / "quorumlog" / "raft").is_dir():
    sys.exit("src/quorumlog/raft is not a link to raft: git config core.symlinks true && git checkout -- src")
setup(
    options={"build_ext": {"parallel": True}},
    data_files=[*SHARED_FILES.items()],
    cmdclass={"install_data": InstallData, "sdist": SourceDistribution},
    ext_modules=extensions(),
)
