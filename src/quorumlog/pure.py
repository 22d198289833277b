"""Runs the Python sources where compiled modules lie beside them: for debuggers, and to compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414 - for other modules
else:

    def mypyc_attr(**_: Any) -> Any:
        """Describes a class to mypyc, and has no effect at run time: programs need not install that package."""
        return lambda kind: kind


class _SourceFinder(MetaPathFinder):
    """Finds the modules of this package, as if there were nothing but their sources."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith("quorumlog."):
            return None
        found = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname) for folder in path)
        return next((spec for spec in found if spec is not None), None)


def use_sources() -> None:
    """Passes compiled modules over from now on."""
    sys.meta_path.insert(0, _SourceFinder())


def version_line() -> str:
    """Returns the name and the version of the package, and whether this process runs compiled modules."""
    from importlib.metadata import version

    return f"quorumlog {version('quorumlog')} ({'compiled' if is_compiled() else 'pure Python'})"


def is_compiled() -> bool:
    """True if this process runs compiled modules."""
    compiled = find_spec("quorumlog.raft.group")  # Without importing it, which takes longer than all the rest here.
    return compiled is not None and not str(compiled.origin).endswith(".py")
