"""Lays the mapped packages out as one `quorumlog` tree of links, for the type checker, which cannot see the mapping."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(target: Path) -> None:
    """Makes ``target``/quorumlog/... with one link per module."""
    mapping = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    packages = {name: ROOT / folder for name, folder in mapping.items() if name}
    for stale in sorted(target.rglob("*.py*")):
        if stale.is_symlink():
            stale.unlink()
    for name, folder in packages.items():
        place = target.joinpath(*name.split("."))
        place.mkdir(parents=True, exist_ok=True)
        for module in (*folder.glob("*.py"), *folder.glob("*.pyi"), *folder.glob("py.typed")):
            link = place / module.name
            link.unlink(missing_ok=True)
            link.symlink_to(module)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
