"""Prints the state of the compiled modules of a checkout, and how to get and use them.

python tools/compiled_state.py    # make setup calls it
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Where ``make compile`` puts them, below the checkout.
TREE = "build/compiled"


def compiled_state(root: Path) -> str:
    """Returns a line about the compiled modules of a checkout: missing, older than their sources, or usable."""
    units = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["quorumlog"]["compiled"]
    packages = root / "src" / "quorumlog"
    sources = {source for patterns in units.values() for each in patterns for source in packages.glob(each)}
    sources = {source for source in sources if source.name != "__init__.py"}
    current = sum(_is_current(source, root / TREE / source.relative_to(root / "src")) for source in sources)
    if current == len(sources):
        return f"compiled modules are in {TREE}; they are used with PYTHONPATH={TREE}"
    use = f"make compile takes about a minute and a half; then set PYTHONPATH={TREE}"
    if not any((root / TREE).rglob("*.so")):
        return f"this checkout runs as pure Python; to run compiled modules: {use}"
    return f"{TREE} is out of date: {len(sources) - current} of {len(sources)} modules changed since; {use}"


def _is_current(source: Path, target: Path) -> bool:
    modules = target.parent.glob(f"{source.stem}.*.so")
    return any(module.stat().st_mtime >= source.stat().st_mtime for module in modules)


if __name__ == "__main__":
    sys.stdout.write(f"{compiled_state(ROOT)}\n")
