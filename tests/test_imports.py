"""Imports point one way: each floor of the house uses only the floors below it (docs/architecture.md, the table)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Floor -> (its folder, the import names of ours that it may use besides its own).
FLOORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "quorumlog.v1": ("proto/quorumlog/v1", ()),
    "quorumlog.raft": ("raft", ()),
    "quorumlog.storage": ("storage", ("quorumlog.v1", "quorumlog.raft.types")),
    "quorumlog.server": ("server", ("quorumlog.v1", "quorumlog.raft", "quorumlog.storage")),
    "quorumlog.sdk": ("sdk", ("quorumlog.v1",)),
    "quorumlog.chaos": (
        "chaos",
        ("quorumlog.v1", "quorumlog.raft", "quorumlog.storage", "quorumlog.server", "quorumlog.sdk"),
    ),
    "quorumlog.cli": ("cli", ("quorumlog",)),
}

#: What a pure state machine has no use for.
IMPURE = {"asyncio", "threading", "multiprocessing", "time", "os", "socket", "grpc", "lmdb", "structlog", "uvloop"}

#: What costs a client command its quick start.
SLOW = {"grpc", "pyarrow", "pyspark", "rich", "lmdb", "structlog", "pydantic", "uvloop", "asyncio"}


def imports_of(module: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(module.read_text(), filename=str(module))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import; write it in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_only_from_the_floors_below_it(floor: str) -> None:
    folder, below = FLOORS[floor]
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules, f"{folder} has no module"
    upward = [
        f"{module.relative_to(ROOT)}:{line} imports {name}"
        for module in modules
        for line, name in imports_of(module)
        if is_within(name, "quorumlog") and not any(is_within(name, allowed) for allowed in (floor, *below))
    ]
    assert not upward, "\n".join(upward)


def test_the_raft_core_does_no_io_and_reads_no_clock() -> None:
    impure = [
        f"{module.relative_to(ROOT)}:{line} imports {name}"
        for module in sorted((ROOT / "raft").rglob("*.py"))
        for line, name in imports_of(module)
        if name.split(".")[0] in IMPURE
    ]
    assert not impure, "\n".join(impure)


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import quorumlog.cli.main", set()),
        ("from quorumlog.sdk import Admin", {"grpc", "asyncio"}),
    ],
    ids=["command line", "admin client"],
)
def test_what_starts_a_client_command_loads_nothing_slow(statement: str, allowed: set[str]) -> None:
    script = f"import sys; {statement}; print(*sorted({SLOW!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= allowed
