"""Lays the mapped packages out as one `quorumlog` tree of links, for the type checker, which cannot see the mapping."""

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(target: Path) -> None:
    """Makes ``target``/quorumlog/... with one link per module."""
    mapping = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(target / "quorumlog", ignore_errors=True)
    for name, folder in mapping.items():
        for module in (ROOT / folder).rglob("*") if name else ():
            typed = module.suffix in {".py", ".pyi"} and (module.parent / "__init__.py").exists()
            if typed or module.name == "py.typed":
                link = target.joinpath(*name.split("."), *module.relative_to(ROOT / folder).parts)
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(module)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
