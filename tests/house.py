"""``python tests/house.py``: figures of the structure of the code, and the rules that tests/test_house.py enforces.

python tests/house.py                   # this checkout
python tests/house.py --root ../other   # another one, also an older one
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    "src",
    "proto",
    "wire",
    "raft",
    "storage",
    "server",
    "sdk",
    "local",
    "chaos",
    "simulator",
    "console",
    "cli",
    "bench",
)
#: What else is Python: counted where figures are about all of the repository.
BESIDE_THE_LAYERS = ("tests", "tools", "packaging", "examples")

#: Limits of style: lines of a function, parameters of a constructor beside self, modules of ours that one imports.
MOST_LINES, MOST_PARAMETERS, MOST_IMPORTS = 60, 6, 25
#: A module of fewer lines that one other module imports is a shard.
SHARD_LINES = 60
#: Modules that are a published algorithm may be small: leadership transfer (Raft thesis, section 3.10), murmur2.
PUBLISHED_ALGORITHMS = ("raft/transfer.py", "sdk/records/murmur2.py")
#: The first lines of a generated file.
_GENERATED = re.compile(r"[Gg]enerated by|DO NOT EDIT|^Written by tools/", re.M)


@dataclass(frozen=True)
class Module:
    """One source file.

    Arguments:
        path: relative to the checkout.
        name: by which others import it.
    """

    path: str
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def stem(self) -> str:
        return Path(self.path).stem

    @property
    def is_generated(self) -> bool:
        return "_pb2" in self.path or bool(_GENERATED.search(self.text[:500]))

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes at the top of the module."""
        yield from (node for node in self.tree.body if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Every function with its qualified name, methods and functions within functions included."""
        yield from _functions(self.tree, "")

    @cached_property
    def imported(self) -> list[tuple[str, frozenset[str]]]:
        """Every import statement anywhere in it: the module, and what is imported from it as full names."""
        found: list[tuple[str, frozenset[str]]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += ((alias.name, frozenset()) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.append((node.module, frozenset(f"{node.module}.{alias.name}" for alias in node.names)))
        return found

    def imports(self, names: set[str]) -> set[str]:
        """Returns those of the modules with these names that it imports."""
        found = set()
        for parent, members in self.imported:
            # A package is imported only for a name that is not one of its modules.
            found |= members if members and members <= names else members | {parent}
        return found & names - {self.name}


def _functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not isinstance(node, ast.ClassDef):
                yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def all_modules(root: Path = ROOT) -> list[Module]:
    """Every module of the layers, generated ones included."""
    found = []
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*.py")):
            inside = str(path.relative_to(root))
            name = re.sub(r"^(src|proto)/quorumlog/", "", inside).removesuffix(".py").replace("/", ".")
            prefix = "" if layer == "bench" else "quorumlog."
            found.append(Module(inside, prefix + name.removesuffix(".__init__"), path.read_text()))
    return found


def modules(root: Path = ROOT) -> list[Module]:
    """The hand-written modules of the layers."""
    return [module for module in all_modules(root) if not module.is_generated]


# -- rules ------------------------------------------------------------------------------------------------------------


def long_functions(code: list[Module]) -> dict[str, int]:
    """Functions with more lines than allowed: path and qualified name -> lines, without those of the signature.

    The signature of a command is the table of its options and their help. The limit is for what a function does.
    """
    lines = {
        f"{module.path}::{name}": (node.end_lineno or 0) - node.body[0].lineno + 2
        for module in code
        for name, node in module.functions()
    }
    return {name: count for name, count in lines.items() if count > MOST_LINES}


def long_constructors(code: list[Module]) -> dict[str, int]:
    """Classes whose ``__init__`` has more parameters beside self than allowed: path and class -> parameters.

    Fields of dataclasses do not count: such a constructor is generated, and its arguments are the value itself.
    """
    found = {}
    for module in code:
        for name, node in module.functions():
            if name.endswith(".__init__"):
                arguments = node.args
                count = len((*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)) - 1
                if count > MOST_PARAMETERS:
                    found[f"{module.path}::{name.removesuffix('.__init__')}"] = count
    return found


def wide_modules(code: list[Module]) -> dict[str, int]:
    """Modules that import more of our hand-written modules than allowed: path -> imports."""
    names = {module.name for module in code}
    counts = {module.path: len(module.imports(names)) for module in code if module.stem != "__init__"}
    return {path: count for path, count in counts.items() if count > MOST_IMPORTS}


def shards(code: list[Module], root: Path = ROOT) -> dict[str, int]:
    """Small modules with a single importer: path -> lines. Entry points of the package have another one."""
    names = {module.name for module in code}
    importers: dict[str, int] = defaultdict(int)
    for module in code:
        for name in module.imports(names):
            importers[name] += 1
    for name in re.findall(r'"(quorumlog\.[\w.]+)[":]', (root / "pyproject.toml").read_text()):
        importers[name] += 1
    return {
        module.path: module.lines
        for module in code
        if module.stem not in ("__init__", "__main__") and module.path not in PUBLISHED_ALGORITHMS
        if module.lines < SHARD_LINES and importers[module.name] == 1
    }


def missing_from_maps(code: list[Module]) -> list[str]:
    """Modules that the docstring of their folder's ``__init__.py`` does not name in backticks.

    A folder without ``__init__.py`` is the root of a package, and has no map.
    """
    maps = {
        str(Path(module.path).parent): ast.get_docstring(module.tree) or ""
        for module in code
        if module.stem == "__init__"
    }
    return [
        module.path
        for module in code
        if module.stem not in ("__init__", "__main__")
        if not re.search(rf"`{module.stem}(\.py)?`", maps.get(str(Path(module.path).parent), f"`{module.stem}`"))
    ]


def gone_from_folders(code: list[Module], root: Path = ROOT) -> list[str]:
    """Modules and folders that a map lists and that do not exist: folder and name."""
    return [
        f"{folder}: {name}"
        for module in code
        if module.stem == "__init__"
        for folder in [Path(module.path).parent]
        for names in re.findall(r"^- (`.+?):", ast.get_docstring(module.tree) or "", re.M)
        for name in re.findall(r"`(\w+)(?:\.py|/)?`", names)
        if not (root / folder / name).exists() and not (root / folder / f"{name}.py").exists()
    ]


def names_of_several_classes(code: list[Module]) -> dict[str, list[str]]:
    """Class names that several modules define: name -> their paths."""
    places = defaultdict(list)
    for module in code:
        for kind in module.classes():
            places[kind.name].append(module.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


# -- figures ----------------------------------------------------------------------------------------------------------


def hub(code: list[Module]) -> str:
    """Imports, attributes and longest function of the class through which everything in a node runs."""
    names = {module.name for module in code}
    for module in code:
        for kind in module.classes():
            if kind.name == "ClusterMember":
                imports = len(module.imports(names))
                attributes = set(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? =(?!=)", ast.unparse(kind)))
                longest = max(
                    (node.end_lineno or 0) - node.lineno + 1
                    for node in ast.walk(kind)
                    if isinstance(node, ast.FunctionDef)
                )
                statements = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in module.tree.body)
                return (
                    f"{imports} of our modules in {statements} import statements, {len(attributes)} attributes,"
                    f" longest function {longest} lines ({module.path})"
                )
    return "none"


def callables_in_constructors(code: list[Module]) -> int:
    """Parameters of constructors in ``server/`` whose type is a bare ``Callable``."""
    return sum(
        "Callable[" in ast.unparse(argument.annotation)
        for module in code
        if module.path.startswith("server/")
        for name, node in module.functions()
        if name.endswith(".__init__")
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.annotation
    )


def scaffolding_lines(root: Path) -> tuple[int, int]:
    """Lines of ``tests/support``, and of helpers in the other files of the tests: what is not a test or an import."""
    support = helpers = 0
    for path in sorted((root / "tests").rglob("*.py")):
        text = path.read_text()
        if "support" in path.relative_to(root).parts:
            support += text.count("\n")
            continue
        for node in ast.parse(text).body:
            is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if is_definition and not node.name.startswith(("test_", "Test")):  # type: ignore[attr-defined]
                helpers += (node.end_lineno or 0) - node.lineno + 1
    return support, helpers


def count_in_python(root: Path, text: str) -> int:
    """Returns how often a text occurs in the Python files of the repository."""
    files = (path for folder in (*LAYERS, *BESIDE_THE_LAYERS) for path in (root / folder).rglob("*.py"))
    return sum(path.read_text().count(text) for path in files)


def _stub_lines(root: Path) -> list[int]:
    """Lines of each generated stub."""
    return [path.read_text().count("\n") for layer in LAYERS for path in (root / layer).rglob("*_pb2*.pyi")]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to look at")
    root = parser.parse_args().root.resolve()
    everything = all_modules(root)
    code = modules(root)
    made = [*(each.lines for each in everything if each.is_generated), *_stub_lines(root)]
    support, helpers = scaffolding_lines(root)
    several = names_of_several_classes(code)
    small, unmapped = shards(code, root), missing_from_maps(code)
    figures = {
        "hand-written modules and lines": f"{len(code)}, {sum(module.lines for module in code):,}",
        "generated modules, stubs and lines": f"{len(made)}, {sum(made):,}",
        "the hub": hub(code),
        f"functions over {MOST_LINES} lines": len(long_functions(code)),
        f"constructors over {MOST_PARAMETERS} parameters": len(long_constructors(code)),
        f"modules over {MOST_IMPORTS} imports of ours": _listed(wide_modules(code)),
        f"shards (under {SHARD_LINES} lines, one importer)": _listed(small),
        "modules missing from their folder's map": len(unmapped),
        "class names with several definitions": f"{len(several)} {' '.join(several)}".strip(),
        "bare Callables in constructors of server": callables_in_constructors(code),
        "fmt: skip": count_in_python(root, "# fmt: " + "skip"),
        "lines of tests/support, of helpers in test files": f"{support:,} + {helpers:,} = {support + helpers:,}",
    }
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:<{width}}  {value}")


def _listed(counts: dict[str, int]) -> str:
    return " ".join((str(len(counts)), *(f"{path} ({count})" for path, count in sorted(counts.items()))))


if __name__ == "__main__":
    main()
