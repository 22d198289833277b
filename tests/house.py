"""``python tests/house.py``: figures of how easily a newcomer finds the way in the code.

python tests/house.py                   # this checkout
python tests/house.py --root ../other   # another one
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("proto", "raft", "storage", "server", "sdk", "chaos", "console", "cli", "bench")
#: A module of fewer lines that one other module imports is perhaps no idea of its own.
SMALL_LINES = 70


@dataclass(frozen=True)
class Module:
    """One source file. ``name`` is how others import it."""

    path: str
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def imports(self) -> set[str]:
        """Everything that the module imports, modules and names in them."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return found

    def classes(self) -> Iterator[ast.ClassDef]:
        yield from (node for node in self.tree.body if isinstance(node, ast.ClassDef))


def modules(root: Path = ROOT) -> list[Module]:
    """What is written by hand in the floors."""
    found = []
    for floor in FLOORS:
        for path in sorted((root / floor).rglob("*.py")):
            if "_pb2" not in path.name:
                inside = str(path.relative_to(root))
                name = inside.removeprefix("proto/quorumlog/").removesuffix(".py").replace("/", ".")
                prefix = "" if floor == "bench" else "quorumlog."
                found.append(Module(inside, prefix + name.removesuffix(".__init__"), path.read_text()))
    return found


def names_of_several_classes(code: list[Module]) -> dict[str, list[str]]:
    """Class name -> the modules that define it, where those are several."""
    places = defaultdict(list)
    for module in code:
        for kind in module.classes():
            places[kind.name].append(module.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def callables_in_constructors(code: list[Module], floor: str = "server/") -> int:
    """Parameters of ``__init__`` whose type is a bare ``Callable``."""
    count = 0
    for module in code:
        if module.path.startswith(floor):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    arguments = (*node.args.args, *node.args.kwonlyargs)
                    count += sum("Callable[" in ast.unparse(each.annotation) for each in arguments if each.annotation)
    return count


def small_modules(code: list[Module]) -> list[str]:
    """Modules of server and sdk under 70 lines that one module imports."""
    importers: Counter[str] = Counter()
    for module in code:
        importers.update(module.imports() & {each.name for each in code})
    return [
        module.path
        for module in code
        if module.path.startswith(("server/", "sdk/")) and not module.path.endswith("__init__.py")
        if module.lines < SMALL_LINES and importers[module.name] == 1
    ]


def member(code: list[Module]) -> str:
    """Imports, attributes and longest function of the node's part in its cluster."""
    for module in code:
        for kind in module.classes():
            if kind.name in ("Member", "ClusterMember") and "cluster_member" in module.path + "cluster_member" * (
                module.path == "server/member.py"
            ):
                lines = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in module.tree.body)
                attributes = set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? =(?!=)", ast.unparse(kind)))
                longest = max(
                    (node.end_lineno or 0) - node.lineno + 1
                    for node in ast.walk(kind)
                    if isinstance(node, ast.FunctionDef)
                )
                return f"{lines} imports, {len(attributes)} attributes, longest function {longest} lines"
    return "none"


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT)
    code = modules(parser.parse_args().root.resolve())
    folders = Counter(str(Path(module.path).parent) for module in code)
    twice, small = names_of_several_classes(code), small_modules(code)
    longest = max(code, key=lambda module: module.lines)
    print(f"modules: {len(code)}; most in one folder: {'; '.join(f'{f} {n}' for f, n in folders.most_common(4))}")
    print(f"longest module: {longest.path}, {longest.lines} lines")
    print(f"class names that stand twice or more: {len(twice)} ({', '.join(twice)})")
    print(f"modules of server and sdk under {SMALL_LINES} lines with one importer: {len(small)} ({', '.join(small)})")
    print(f"bare Callables in constructors of server: {callables_in_constructors(code)}")
    print(f"the node's part in its cluster: {member(code)}")


if __name__ == "__main__":
    main()
