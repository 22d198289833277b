"""Imports point one way: a layer uses only the layers below it, a package of a layer only those that it may.

docs/internals/architecture.md shows both tables.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Layer -> (its folder, the import names of ours that it may use besides its own).
LAYERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "quorumlog.v1": ("proto/quorumlog/v1", ()),
    "quorumlog.wire": ("wire", ()),
    "quorumlog.raft": ("raft", ()),
    "quorumlog.storage": ("storage", ("quorumlog.wire", "quorumlog.v1", "quorumlog.raft.types")),
    "quorumlog.server": (
        "server",
        ("quorumlog.wire", "quorumlog.v1", "quorumlog.pure", "quorumlog.raft", "quorumlog.storage"),
    ),
    "quorumlog.sdk": ("sdk", ("quorumlog.wire", "quorumlog.v1", "quorumlog.pure")),
    "quorumlog.local": ("local", ("quorumlog.v1", "quorumlog.server")),
    "quorumlog.chaos": (
        "chaos",
        (
            "quorumlog.wire",
            "quorumlog.v1",
            "quorumlog.raft",
            "quorumlog.storage",
            "quorumlog.server",
            "quorumlog.sdk",
            "quorumlog.local",
        ),
    ),
    "quorumlog.simulator": (
        "simulator",
        (
            "quorumlog.wire",
            "quorumlog.v1",
            "quorumlog.raft",
            "quorumlog.storage",
            "quorumlog.server",
            "quorumlog.sdk",
            "quorumlog.chaos.checkers",
        ),
    ),
    "quorumlog.console": ("console", ("quorumlog.wire", "quorumlog.v1", "quorumlog.sdk")),
    "quorumlog.cli": ("cli", ("quorumlog",)),
}

#: The packages that every other package of the server may use: "shared" in docs/internals/architecture.md.
SHARED = ("step", "config", "observability")

#: Layer -> package -> the packages of the same layer that it may use besides itself. "" is the layer's own folder: what
#: all of its packages share. An entry with a dot is one module of a package.
PACKAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "quorumlog.server": {
        "": (),
        "step": (),
        "config": ("step",),
        "observability": (),
        "hosting": SHARED,
        "metadata": SHARED,
        "access": (*SHARED, "metadata"),
        "controller": (*SHARED, "hosting", "metadata", "access"),
        "partition": (*SHARED, "hosting", "metadata"),
        "deciding": (*SHARED, "hosting", "metadata", "access"),
        "groups": (*SHARED, "hosting", "metadata", "access", "deciding"),
        "transactions": (*SHARED, "hosting", "metadata", "access", "deciding"),
        "replicas": (*SHARED, "hosting", "metadata", "partition", "deciding", "groups", "transactions"),
        "requests": (*SHARED, "hosting", "metadata", "access", "controller", "partition", "deciding", "groups",
                     "transactions", "replicas"),
        "node": (*SHARED, "hosting", "metadata", "access", "controller", "partition", "deciding", "groups",
                 "transactions", "replicas", "requests"),
        "certificates": SHARED,
        "transport": (*SHARED, "hosting.sealing", "partition.batch_admission", "certificates"),
        "kafka": (*SHARED, "metadata", "transport"),
        "process": (*SHARED, "access", "hosting", "metadata", "controller", "partition",
                    "groups", "replicas", "requests", "node", "certificates", "transport", "kafka"),
        "recovery": (*SHARED, "hosting.sealing", "metadata", "controller.metadata_replica",
                     "partition.witness", "replicas.replica_tombstones", "node.formation", "node.directory_identity"),
    },
    "quorumlog.sdk": {
        "": (),
        "runtime": ("",),
        "metrics": ("",),
        "records": ("",),
        "cluster": ("", "runtime", "records"),
        "producer": ("", "runtime", "metrics", "records", "cluster"),
        "consumer": ("", "runtime", "metrics", "records", "cluster"),
        "admin": ("", "runtime", "records", "cluster"),
        "backup": ("", "runtime", "records", "cluster", "admin"),
        "mirror": ("", "runtime", "metrics", "producer", "consumer", "admin"),
        "spark": ("", "runtime", "records", "cluster", "producer"),
    },
    "quorumlog.chaos": {
        "": (),
        "checkers": ("",),
        "processes": ("", "checkers"),
        "hostile": ("",),
    },
    "quorumlog.simulator": {
        "": (),
        "models": ("",),
        "world": ("", "models"),
        "consumer_groups": ("", "models", "world"),
        "clients": ("", "models", "world"),
        "seeds": ("", "models", "world", "consumer_groups", "clients"),
        "mutation": ("", "seeds"),
    },
}  # fmt: skip

#: Entry points that may use all packages of their layer: commands, and the names that users import.
ENTRY_POINTS = {
    "server/__main__.py",
    "simulator/mutate.py",
    "simulator/simulate.py",
    "sdk/__init__.py",
    "sdk/aio.py",
}

#: A former name of a module: it may import what has taken its place.
ALIASES = {"server/local.py": "quorumlog.local"}

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


def aliased(module: Path) -> tuple[str, ...]:
    name = ALIASES.get(str(module.relative_to(ROOT)))
    return () if name is None else (name,)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_import_only_lower_layers(layer: str) -> None:
    folder, below = LAYERS[layer]
    modules = sorted((ROOT / folder).rglob("*.py"))
    assert modules, f"{folder} has no module"
    upward = [
        f"{module.relative_to(ROOT)}:{line} imports {name}"
        for module in modules
        for line, name in imports_of(module)
        if is_within(name, "quorumlog")
        and not any(is_within(name, allowed) for allowed in (layer, *below, *aliased(module)))
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("layer", PACKAGES)
def test_every_package_has_a_docstring(layer: str) -> None:
    folder = ROOT / LAYERS[layer][0]
    packages = {module.parent.name for module in folder.glob("*/__init__.py")}
    assert packages == set(PACKAGES[layer]) - {""}
    docstrings = {each: ast.get_docstring(ast.parse((folder / each / "__init__.py").read_text())) for each in packages}
    mute = [package for package, docstring in docstrings.items() if not docstring]
    assert not mute, f"describe in the docstrings of {mute}/__init__.py what each contains"


@pytest.mark.parametrize("layer", PACKAGES)
def test_packages_import_only_allowed_packages(layer: str) -> None:
    packages = PACKAGES[layer]
    wrong = []
    for package in packages:
        for module in modules_of(layer, package):
            place = str(module.relative_to(ROOT))
            wrong += [
                f"{place}:{line} imports {name}"
                for line, name in imports_of(module)
                if is_within(name, layer) and place not in ENTRY_POINTS and not may_import(layer, package, name)
            ]
    assert not wrong, "\n".join(wrong)


def modules_of(layer: str, package: str) -> list[Path]:
    """The modules of a package; of the layer's own folder without the packages below it."""
    folder = ROOT / LAYERS[layer][0]
    return sorted((folder / package).rglob("*.py") if package else folder.glob("*.py"))


def may_import(layer: str, package: str, name: str) -> bool:
    """True if a package may use a name of its layer."""
    inside = name.removeprefix(layer).removeprefix(".")
    theirs = inside.split(".")[0] if inside.split(".")[0] in PACKAGES[layer] else ""
    if theirs == package:
        return True
    allowed_names = PACKAGES[layer][package]
    return any(is_within(inside, allowed) if "." in allowed else theirs == allowed for allowed in allowed_names)


@pytest.mark.parametrize("layer", PACKAGES)
def test_the_architecture_lists_allowed_imports(layer: str) -> None:
    folder = LAYERS[layer][0]
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    shown = {}
    for package, may in re.findall(rf"^\| `{folder}/(?:(\w+)/)?` \| .* \| (.*) \|$", text, re.M):
        names = () if may == "nothing" else may.split(", ")
        shown[package] = {name.strip("`") for name in names if name != "shared"}
        shown[package] |= ({""} if folder != "server" else set(SHARED)) if "shared" in names else set()
    held = {package: set(allowed) for package, allowed in PACKAGES[layer].items()}
    # The table of layers has a row for the same folder.
    assert {package: names for package, names in shown.items() if package} == {k: v for k, v in held.items() if k}


def test_forbidden_imports_are_noticed() -> None:
    assert not may_import("quorumlog.server", "partition", "quorumlog.server.replicas.replicas.Partitions")
    assert not may_import("quorumlog.server", "", "quorumlog.server.hosting.leases")
    assert not may_import("quorumlog.server", "transport", "quorumlog.server.hosting.leases.Leases")
    assert may_import("quorumlog.server", "transport", "quorumlog.server.hosting.sealing.splice")
    assert may_import("quorumlog.server", "requests", "quorumlog.server.config.options.NodeOptions")


def test_no_two_packages_need_each_other() -> None:
    for packages in PACKAGES.values():
        for package, allowed in packages.items():
            assert not [other for other in allowed if package in packages[other.split(".")[0]]]


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


def test_help_imports_no_command() -> None:
    """The list of commands is a table: all commands together take longer to import than most of them run."""
    script = (
        "import sys; from quorumlog.cli import main, tree\n"
        "try: main.main(['--help'])\n"
        "finally: print(*[e.name for e in tree.COMMANDS.values() if f'quorumlog.cli.{e.place.split(\":\")[0]}'"
        " in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.split() == []
    assert "topics" in done.stdout


def test_a_node_starts_without_pyarrow() -> None:
    """It would be 40 MiB of memory for each node; only Kafka's batches, compaction and Spark need it."""
    starts = "import sys, quorumlog.server.process.runtime, quorumlog.server.node.node; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False"]
