"""What an installation holds: a wheel what users run, the editable install of a checkout everything, types included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import quorumlog

#: A wheel is built, and a type checker reads all that it needs anew.
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {
    "quorumlog": "proto/quorumlog",
    "quorumlog/wire": "wire",
    "quorumlog/raft": "raft",
    "quorumlog/storage": "storage",
    "quorumlog/server": "server",
    "quorumlog/sdk": "sdk",
    "quorumlog/chaos": "chaos",
    "quorumlog/console": "console",
    "quorumlog/cli": "cli",
}
#: What a wheel leaves out: it tests the log store itself, with a checkout's tests.
CHECKOUT_ONLY = (
    "clients/", "consumer_groups/", "models/", "mutation/", "seeds/", "simulator/", "mutate.py", "simulate.py",
)  # fmt: skip
PROGRAM = """
from quorumlog.sdk import Producer, RecordFuture

def send(servers: str) -> int:
    with Producer(bootstrap_servers=servers) as producer:
        future: RecordFuture = producer.send("orders", b"value")
    return future.result(timeout=10).offset

send(servers=9092)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of this checkout, built in a copy: what an earlier build has left must not get into it."""
    copy, target = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for folder in {"packaging", *(path.split("/")[0] for path in FLOORS.values())}:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy2(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(target), str(copy)], check=True, timeout=300)
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def shipped() -> Iterator[str]:
    for package, folder in FLOORS.items():
        for module in (ROOT / folder).rglob("*.py"):
            inside = str(module.relative_to(ROOT / folder))
            if not (package == "quorumlog/chaos" and inside.startswith(CHECKOUT_ONLY)) and "registration" not in inside:
                yield f"{package}/{inside}"


def test_a_wheel_holds_every_module_that_users_run_and_none_of_the_simulator(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if name.endswith(".py")}
    assert held == {*shipped(), "pyspark_quorumlog.py"}
    static = {f"quorumlog/console/static/{each}" for each in ("index.html", "main.js", "vendor/preact.js")}
    assert static <= set(wheel.namelist())
    assert "quorumlog/py.typed" in wheel.namelist() and "quorumlog/v1/admin_pb2.pyi" in wheel.namelist()


def test_the_commands_of_a_wheel_do_without_the_simulator(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = "from quorumlog.cli.main import main; main()"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for arguments in (["chaos", "list"], ["chaos", "run", "--help"], ["--version"]):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_the_package_says_its_version() -> None:
    assert quorumlog.__version__ == version("quorumlog")


def test_a_type_checker_sees_the_types_of_the_clients(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "program.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    (error, summary) = done.stdout.splitlines()
    assert 'Argument "servers" to "send" has incompatible type "int"; expected "str"' in error
    assert summary.startswith("Found 1 error in 1 file")
