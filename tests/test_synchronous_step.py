"""Nothing can be suspended between reading a term and using it: the core and the node's step contain no way to wait.

Everything that ``server/node/node.py`` imports, directly or through others, is looked through: no coroutine, thread,
lock or clock, and no random numbers but from the generator that is handed in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: What a step has no use for. ``random`` is there for the type alone: the generator is handed in.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "sched", "secrets", "select", "signal",
    "socket", "subprocess", "threading", "time", "trio", "anyio", "uvloop", "grpc", "lmdb", "structlog",
}  # fmt: skip
#: How to be suspended, by Python's grammar.
SUSPENSIONS = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def source_of(module: str) -> Path | None:
    """The file of one of this package's modules; None for a name that is not a module (a class, a generated file)."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    if spec is None or not str(spec.origin).endswith(".py") or str(spec.origin).endswith(("_pb2.py", "__init__.py")):
        return None
    return Path(str(spec.origin)).resolve()


def imported_by(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reachable_from(*modules: str) -> dict[Path, ast.Module]:
    """The modules of this package that those modules use, themselves included."""
    found: dict[Path, ast.Module] = {}
    waiting = list(modules)
    while waiting:
        path = source_of(waiting.pop())
        if path is None or path in found:
            continue
        found[path] = ast.parse(path.read_text(), filename=str(path))
        waiting += [name for name in imported_by(found[path]) if name.startswith("quorumlog.")]
    return found


def complaints(tree: ast.Module) -> Iterator[str]:
    """Returns code that could suspend a step, or make it depend on anything but its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, SUSPENSIONS):
            yield f"{node.lineno}: {type(node).__name__}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("random."):
            yield f"{node.lineno}: {ast.unparse(node.func)}() makes a generator of its own, or uses the shared one"
    for name in imported_by(tree):
        if name.split(".")[0] in IMPURE or (name.startswith("random.") and name != "random.Random"):
            yield f"imports {name}"


@pytest.mark.scenario("16")
def test_no_module_of_the_core_or_of_the_nodes_step_can_be_suspended() -> None:
    modules = reachable_from("quorumlog.server.node.node", "quorumlog.raft.group")
    names = {path.name for path in modules}
    assert {"node.py", "raft_host.py", "partition.py", "controller.py", "group.py", "candidacy.py", "log.py"} <= names
    assert not {"runtime.py", "driver.py"} & names, "code that waits is above the node, not below it"
    found = [f"{path.relative_to(ROOT)}:{what}" for path, tree in modules.items() for what in complaints(tree)]
    assert not found, "\n".join(found)


@pytest.mark.scenario("16")
@pytest.mark.parametrize(
    "statement",
    [
        "async def append(self): term = self.term; await self.sync(); self.log.append(term)",
        "import time",
        "from threading import Lock",
        "import random; random.random()",
        "from random import randrange",
    ],
)
def test_what_could_be_suspended_is_noticed(statement: str) -> None:
    assert list(complaints(ast.parse(statement)))
