"""Contents of installations: a wheel what users run, the editable install of a checkout all, types included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import files, version
from pathlib import Path

import pytest

import quorumlog

#: A wheel is built, and a type checker reads all that it needs again.
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "quorumlog": "src/quorumlog",
    "quorumlog/v1": "proto/quorumlog/v1",
    "quorumlog/wire": "wire",
    "quorumlog/raft": "raft",
    "quorumlog/storage": "storage",
    "quorumlog/server": "server",
    "quorumlog/sdk": "sdk",
    "quorumlog/local": "local",
    "quorumlog/chaos": "chaos",
    "quorumlog/simulator": "simulator",
    "quorumlog/console": "console",
    "quorumlog/cli": "cli",
}
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
    for folder in {"packaging", *(path.split("/")[0] for path in LAYERS.values())}:
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy2(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"QUORUMLOG_COMPILE": "0"}
    subprocess.run([*command, "--wheel-dir", str(target), str(copy)], check=True, timeout=300, env=environment)
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def shipped() -> Iterator[str]:
    for package, folder in LAYERS.items():
        for module in (ROOT / folder).rglob("*.py"):
            inside = str(module.relative_to(ROOT / folder))
            if package != "quorumlog/simulator":  # A checkout's tests use it.
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


def test_the_editable_install_is_one_path() -> None:
    """Type checkers, IDEs and Spark read the paths of .pth files, but not import hooks."""
    paths = [each.read_text().strip() for each in files("quorumlog") or () if each.suffix == ".pth"]
    assert paths == [str(ROOT / "src")]


def test_a_new_module_needs_no_setup(tmp_path: Path) -> None:
    """The links lead to folders, so Python finds modules that were added after the installation."""
    shutil.copytree(ROOT / "src", tmp_path / "src", symlinks=True)
    (tmp_path / "raft").mkdir()
    for module in ("__init__", "added"):
        (tmp_path / "raft" / f"{module}.py").touch()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    program = "import quorumlog.raft.added as added; print(added.__file__)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "src/quorumlog/raft/added.py")


@pytest.mark.parametrize("command", [["make", "setup"], [sys.executable, "setup.py", "--version"]], ids=["make", "pip"])
def test_a_checkout_without_links_is_refused(command: list[str], tmp_path: Path) -> None:
    """With core.symlinks=false, git writes where a link leads into a text file."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src/quorumlog").mkdir(parents=True)
    (tmp_path / "src/quorumlog/raft").write_text("../../raft")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    said = "src/quorumlog/raft is not a link to raft: git config core.symlinks true && git checkout -- src"
    assert done.returncode != 0 and done.stderr.splitlines()[0] == said
    assert not (tmp_path / ".venv").exists()


def test_the_package_says_its_version() -> None:
    assert quorumlog.__version__ == version("quorumlog")


def test_a_type_checker_sees_the_types_of_the_clients(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "program.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    (error, summary) = done.stdout.splitlines()
    assert 'Argument "servers" to "send" has incompatible type "int"; expected "str"' in error
    assert summary.startswith("Found 1 error in 1 file")
